/*
 * Reading the members of a JSON object, of which somebody else wrote the values: a getter checks the type, and the
 * first error is kept, so that a reader gets all it wants and looks at `code` once.
 *
 *     JsonReader r = {path, json, err, CVN_OK};
 *     json_get_int(&r, "dim", &dim);
 *     json_get_real(&r, "norm_eps", &eps);
 *     if (r.code) …                             'params.json': dim is "64"; an integer is expected
 */
#ifndef CVN_BASE_JSON_READER_H
#define CVN_BASE_JSON_READER_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct JsonReader {
    const char *file;   /* for messages */
    const json_t *json; /* the object, borrowed */
    cvn_err *err;
    int code; /* of the first error */
} JsonReader;

/* The value of a key; NULL where it is absent or null. */
const json_t *json_get(const JsonReader *r, const char *key);

/* These leave *out alone where the key is absent or null. */
void json_get_int(JsonReader *r, const char *key, int64_t *out);
void json_get_real(JsonReader *r, const char *key, double *out);
void json_get_bool(JsonReader *r, const char *key, bool *out);

/* Borrowed from the object; NULL where the key is absent, null or no string. */
const char *json_get_string(JsonReader *r, const char *key);

/* Says that a value is not what is wanted. */
void json_wrong_type(JsonReader *r, const char *key, const json_t *value, const char *want);

/* A value as JSON text for a message, cut to fit into size >= 5 bytes; text. */
const char *json_value_text(const json_t *value, char *text, size_t size);

#endif
