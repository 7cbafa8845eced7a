/*
 * JSON as the chat templates write it, which is what Python's json.dumps(ensure_ascii=False) writes: the
 * ids of a prompt depend on every space.
 */
#ifndef CVN_TEXT_JSON_TEXT_H
#define CVN_TEXT_JSON_TEXT_H

#include "base/strbuf.h"

#include <jansson.h>

/* Appends the value: on one line with ", " and ": " (indent 0), or indented by that many spaces a level. */
void json_text(const json_t *value, int indent, StrBuf *out);

/* Appends n bytes of UTF-8 as a JSON string. */
void json_text_string(const char *text, size_t n, StrBuf *out);

/* Appends a finite number as Python's repr writes it: the shortest decimal that reads back as the same, with an
   exponent below 1e-4 and from 1e16 on. */
void json_text_real(double x, StrBuf *out);

#endif
