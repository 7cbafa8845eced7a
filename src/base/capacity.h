/* Free memory and disk space, checked before something large is started. */
#ifndef CVN_BASE_CAPACITY_H
#define CVN_BASE_CAPACITY_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of memory that are available now: MemAvailable, or less where a control group limits it. SIZE_MAX where that is
   unknown. */
size_t capacity_memory(void);

/* Refuses more bytes than are available, swap included. `what` begins the sentence: "the weights of 'my-llama' in bf16". */
int capacity_check_memory(uint64_t bytes, const char *what, cvn_err *err);

/* Refuses a file or folder `path` of so many bytes whose disk has fewer free. CVN_OK where that is unknown. */
int capacity_check_disk(const char *path, uint64_t bytes, cvn_err *err);

#endif
