/* JSON strings of text that may not be UTF-8, such as what a model generates. */
#ifndef CVN_TEXT_BYTES_JSON_H
#define CVN_TEXT_BYTES_JSON_H

#include <jansson.h>

/* A JSON string of any bytes: what is not UTF-8 becomes U+FFFD. NULL when memory ran out. */
json_t *bytes_json(const char *text, size_t n);

#endif
