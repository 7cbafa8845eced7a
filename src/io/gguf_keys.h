/* Writing the key-value pairs of a GGUF file (gguf.h), one after the other. */
#ifndef CVN_IO_GGUF_KEYS_H
#define CVN_IO_GGUF_KEYS_H

#include "base/strbuf.h"
#include "io/gguf.h"

typedef struct GgufKeys {
    StrBuf bytes; /* the caller's to free */
    uint64_t n;
} GgufKeys;

void gguf_put_raw(StrBuf *out, const void *bytes, size_t n);
void gguf_put_text(StrBuf *out, const char *text, size_t n); /* with its length in front */

void gguf_key_text(GgufKeys *keys, const char *key, const char *text);
void gguf_key_u32(GgufKeys *keys, const char *key, int64_t value);
void gguf_key_f32(GgufKeys *keys, const char *key, double value);
void gguf_key_bool(GgufKeys *keys, const char *key, bool value);
/* Begins an array, whose n elements the caller appends to bytes. */
void gguf_key_array(GgufKeys *keys, const char *key, GgufType element, uint64_t n);
/* A pair of another file as it is. */
void gguf_key_copy(GgufKeys *keys, const char *key, const GgufValue *value);

#endif
