/* What room there is: memory and disk, asked before something large is begun. */
#ifndef CVN_BASE_ROOM_H
#define CVN_BASE_ROOM_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of memory that the system could give now: MemAvailable, or less where a control group says so. SIZE_MAX where
   it does not say. */
size_t room_memory(void);

/* Refuses what could never be held: more bytes than there are to be had, swap included. `what` begins the sentence:
   "the weights of 'my-llama' in bf16". */
int room_check_memory(uint64_t bytes, const char *what, cvn_err *err);

/* Refuses to begin a file or folder `path` of so many bytes where its disk has fewer left. Says nothing where the
   system does not say. */
int room_check_disk(const char *path, uint64_t bytes, cvn_err *err);

#endif
