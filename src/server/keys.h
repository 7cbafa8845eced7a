/* API keys, a line of a file each. They are compared in constant time. */
#ifndef CVN_SERVER_KEYS_H
#define CVN_SERVER_KEYS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

enum { KEYS_MAX = 4096, KEY_MAX_BYTES = 512 };

typedef struct Keys {
    char *text; /* owned: all keys, each ended by NUL */
    char **key; /* [n] owned */
    size_t n;
} Keys;

/* Empty lines and those that begin with # are skipped; a file without keys is an error. */
int keys_read(Keys *keys, const char *path, cvn_err *err);
void keys_free(Keys *keys);

/* The number of the key that this is, or -1. */
int keys_find(const Keys *keys, const char *given, size_t n);

#endif
