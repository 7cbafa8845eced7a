/*
 * JSON text from files nobody vouches for, parsed by jansson. Duplicate keys, invalid UTF-8, NUL
 * characters, numbers that do not fit and nesting deeper than jansson's 2048 are refused; the error
 * names the file and the place.
 */
#ifndef CVN_BASE_JSON_FILE_H
#define CVN_BASE_JSON_FILE_H

#include "base/arena.h"

#include <jansson.h>

/* The largest JSON file read whole (configs and shard
   indexes; tokenizers have their own reader). */
#define JSON_FILE_MAX ((size_t)64 << 20)

/* json_decref as a cleanup (base/protect.h); NULL is allowed. */
void json_release(void *value);

/* The object with one more member, or those of another object, and the list with one more element, all stolen: NULL, and all is released, where there
   is no memory for it, or was none before. So what is written is whole, by one look at the end. */
json_t *json_with(json_t *object, const char *key, json_t *value);
json_t *json_merged(json_t *object, json_t *more);
json_t *json_append(json_t *list, json_t *value);

/* Parses n bytes that must be one JSON object. `file` is for messages. NULL after an error. */
json_t *json_object_parse(const char *file, const void *text, size_t n, cvn_err *err);

/* The same from a file. */
json_t *json_object_read(const char *path, cvn_err *err);

/* Writes a JSON value as indented text, beside and renamed; reals with 15 significant digits, so
 * that a decimal somebody typed (1e-05) comes out as typed. */
int json_file_write(const char *path, const json_t *value, cvn_err *err);

/* A value as text in the arena, by the flags of json_dumps; NULL for no value, or when memory ran out. */
const char *json_arena_text(const json_t *value, size_t flags, Arena *arena);

/* A list of n numbers. */
json_t *json_integers(const int64_t *number, int n);

#endif
