#include "io/gguf_keys.h"

#include <string.h>

void gguf_put_raw(StrBuf *out, const void *bytes, size_t n)
{
    strbuf_add(out, bytes, n);
}

void gguf_put_text(StrBuf *out, const char *text, size_t n)
{
    uint64_t length = n;
    gguf_put_raw(out, &length, sizeof length);
    gguf_put_raw(out, text, n);
}

static void begin(GgufKeys *keys, const char *key, GgufType type)
{
    uint32_t number = (uint32_t)type;
    gguf_put_text(&keys->bytes, key, strlen(key));
    gguf_put_raw(&keys->bytes, &number, sizeof number);
    keys->n++;
}

void gguf_key_text(GgufKeys *keys, const char *key, const char *text)
{
    begin(keys, key, GGUF_STRING);
    gguf_put_text(&keys->bytes, text, strlen(text));
}

void gguf_key_u32(GgufKeys *keys, const char *key, int64_t value)
{
    uint32_t number = (uint32_t)value;
    begin(keys, key, GGUF_U32);
    gguf_put_raw(&keys->bytes, &number, sizeof number);
}

void gguf_key_f32(GgufKeys *keys, const char *key, double value)
{
    float number = (float)value;
    begin(keys, key, GGUF_F32);
    gguf_put_raw(&keys->bytes, &number, sizeof number);
}

void gguf_key_bool(GgufKeys *keys, const char *key, bool value)
{
    begin(keys, key, GGUF_BOOL);
    strbuf_putc(&keys->bytes, value);
}

void gguf_key_array(GgufKeys *keys, const char *key, GgufType element, uint64_t n)
{
    uint32_t number = (uint32_t)element;
    begin(keys, key, GGUF_ARRAY);
    gguf_put_raw(&keys->bytes, &number, sizeof number);
    gguf_put_raw(&keys->bytes, &n, sizeof n);
}

void gguf_key_copy(GgufKeys *keys, const char *key, const GgufValue *value)
{
    if (value->type == GGUF_ARRAY)
        gguf_key_array(keys, key, value->element, value->n);
    else
        begin(keys, key, value->type);
    if (value->type == GGUF_STRING)
        gguf_put_raw(&keys->bytes, &value->n, sizeof value->n);
    gguf_put_raw(&keys->bytes, value->data, value->bytes);
}
