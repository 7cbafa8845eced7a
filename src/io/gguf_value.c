/* Looking at the values of a GGUF file. */
#include "io/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const GgufValue *gguf_find(const Gguf *gguf, const char *key)
{
    const uint64_t *index = map_get(&gguf->by_key, key, strlen(key));
    return index ? &gguf->value[*index] : NULL;
}

static bool is_integer(GgufType type)
{
    return type != GGUF_F32 && type != GGUF_F64 && type != GGUF_BOOL && type != GGUF_STRING &&
           type != GGUF_ARRAY;
}

/* An integer of any type at p; a u64 over INT64_MAX becomes INT64_MAX. */
static int64_t load_int(GgufType type, const uint8_t *p)
{
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (type) {
    case GGUF_U8:
        return *p;
    case GGUF_I8:
        return (int8_t)*p;
    case GGUF_U16:
        memcpy(&u16, p, 2);
        return u16;
    case GGUF_I16:
        memcpy(&u16, p, 2);
        return (int16_t)u16;
    case GGUF_U32:
        memcpy(&u32, p, 4);
        return u32;
    case GGUF_I32:
        memcpy(&u32, p, 4);
        return (int32_t)u32;
    case GGUF_U64:
        memcpy(&u64, p, 8);
        return u64 > INT64_MAX ? INT64_MAX : (int64_t)u64;
    case GGUF_I64:
        memcpy(&u64, p, 8);
        return (int64_t)u64;
    default:
        return 0;
    }
}

/* The decimal of at most 7 digits that a setting was before it was rounded to f32, if there is one: 1e-5 is 1e-5. */
static double decimal_of(float f)
{
    char text[32];
    snprintf(text, sizeof text, "%.7g", (double)f);
    double d = strtod(text, NULL);
    return (float)d == f ? d : (double)f;
}

static double load_real(GgufType type, const uint8_t *p)
{
    float f;
    double d;
    if (type == GGUF_F32) {
        memcpy(&f, p, 4);
        return decimal_of(f);
    }
    if (type == GGUF_F64) {
        memcpy(&d, p, 8);
        return d;
    }
    return (double)load_int(type, p);
}

bool gguf_int(const Gguf *gguf, const char *key, int64_t *out)
{
    const GgufValue *value = gguf_find(gguf, key);
    if (!value || !is_integer(value->type))
        return false;
    *out = load_int(value->type, value->data);
    return true;
}

bool gguf_ints(const Gguf *gguf, const char *key, int64_t n, int64_t *out, int64_t *length)
{
    const GgufValue *value = gguf_find(gguf, key);
    if (!value || value->type != GGUF_ARRAY ||
        !(is_integer(value->element) || value->element == GGUF_BOOL) || value->n == 0)
        return false;
    const GgufType type = value->element == GGUF_BOOL ? GGUF_U8 : value->element;
    const size_t bytes = value->bytes / (size_t)value->n;
    *length = value->n > INT32_MAX ? INT32_MAX : (int64_t)value->n;
    for (int64_t i = 0; i < *length && i < n; i++)
        out[i] = load_int(type, value->data + (size_t)i * bytes);
    return true;
}

bool gguf_real(const Gguf *gguf, const char *key, double *out)
{
    const GgufValue *value = gguf_find(gguf, key);
    if (!value || !(is_integer(value->type) || value->type == GGUF_F32 || value->type == GGUF_F64))
        return false;
    *out = load_real(value->type, value->data);
    return true;
}

const char *gguf_string(const Gguf *gguf, const char *key, Arena *arena)
{
    const GgufValue *value = gguf_find(gguf, key);
    if (!value || value->type != GGUF_STRING || memchr(value->data, 0, value->bytes))
        return NULL;
    return arena_stringn(arena, (const char *)value->data, value->bytes);
}
