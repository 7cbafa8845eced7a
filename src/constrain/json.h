/*
 * JSON text as a tree that loses nothing: numbers keep their digits (a double would make 0.1 and 10^400 something else),
 * members their order. Of names that occur twice in an object the last counts, as in most parsers.
 *
 *     {"a": [1.50, "\u00e9"]}        object, name "a" -> array -> number "1.50", string "é"
 */
#ifndef CVN_CONSTRAIN_JSON_H
#define CVN_CONSTRAIN_JSON_H

#include "base/arena.h"
#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_DEPTH = 512 }; /* nested arrays and objects that are read */

typedef enum JsonKind {
    JSON_K_NULL,
    JSON_K_FALSE,
    JSON_K_TRUE,
    JSON_K_NUMBER,
    JSON_K_STRING,
    JSON_K_ARRAY,
    JSON_K_OBJECT
} JsonKind;

typedef struct JsonName {
    const char *text; /* UTF-8 without escapes, NUL bytes are possible; a NUL follows */
    size_t length;
} JsonName;

typedef struct JsonValue {
    JsonKind kind;
    const char *text;              /* a string, as in JsonName; a number as it was written */
    size_t length;                 /* of text, bytes */
    size_t n;                      /* items or members */
    const struct JsonValue **item; /* [n] */
    JsonName *name;                /* [n], of an object's members */
} JsonValue;

/* Reads n bytes that must be one value, into the arena. NULL after an error, which says at which byte it was. */
const JsonValue *json_tree(Arena *arena, const char *text, size_t n, cvn_err *err);

/* A member by name; NULL where there is none, or the value is no object. */
const JsonValue *json_member(const JsonValue *value, const char *name, size_t length);

/* Appends the value as JSON.stringify writes it, numbers as they are; it reads back as the same. */
void json_write(const JsonValue *value, StrBuf *out);

int hex_digit(int c); /* -1: it is none */

bool json_is(const JsonValue *value, const char *text); /* a string that says this */

#endif
