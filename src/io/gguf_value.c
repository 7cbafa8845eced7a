/* Looking at the values of a GGUF file. */
#include "io/gguf.h"

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
    union {
        uint8_t u8;
        int8_t i8;
        uint16_t u16;
        int16_t i16;
        uint32_t u32;
        int32_t i32;
        uint64_t u64;
        int64_t i64;
    } v = {0};
    switch (type) {
    case GGUF_U8:
        return *p;
    case GGUF_I8:
        return (int8_t)*p;
    case GGUF_U16:
        memcpy(&v, p, 2);
        return v.u16;
    case GGUF_I16:
        memcpy(&v, p, 2);
        return v.i16;
    case GGUF_U32:
        memcpy(&v, p, 4);
        return v.u32;
    case GGUF_I32:
        memcpy(&v, p, 4);
        return v.i32;
    case GGUF_U64:
        memcpy(&v, p, 8);
        return v.u64 > INT64_MAX ? INT64_MAX : (int64_t)v.u64;
    case GGUF_I64:
        memcpy(&v, p, 8);
        return v.i64;
    default:
        return 0;
    }
}

static double load_real(GgufType type, const uint8_t *p)
{
    float f;
    double d;
    if (type == GGUF_F32) {
        memcpy(&f, p, 4);
        return (double)f;
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

bool gguf_real(const Gguf *gguf, const char *key, double *out)
{
    const GgufValue *value = gguf_find(gguf, key);
    if (!value || !(is_integer(value->type) || value->type == GGUF_F32 || value->type == GGUF_F64))
        return false;
    *out = load_real(value->type, value->data);
    return true;
}

bool gguf_bool(const Gguf *gguf, const char *key, bool *out)
{
    const GgufValue *value = gguf_find(gguf, key);
    if (!value || value->type != GGUF_BOOL)
        return false;
    *out = *value->data != 0;
    return true;
}

const char *gguf_string(const Gguf *gguf, const char *key, Arena *arena)
{
    const GgufValue *value = gguf_find(gguf, key);
    if (!value || value->type != GGUF_STRING || memchr(value->data, 0, value->bytes))
        return NULL;
    return arena_stringn(arena, (const char *)value->data, value->bytes);
}

bool gguf_next_string(const GgufValue *array, size_t *at, const char **text, size_t *n)
{
    uint64_t length;
    if (array->type != GGUF_ARRAY || array->element != GGUF_STRING || *at >= array->bytes)
        return false;
    memcpy(&length, array->data + *at, 8); /* the reader has walked the array: it is all there */
    *text = (const char *)array->data + *at + 8;
    *n = (size_t)length;
    *at += 8 + (size_t)length;
    return true;
}

/* Bytes of a number. */
static size_t stride(GgufType type)
{
    switch (type) {
    case GGUF_U16:
    case GGUF_I16:
        return 2;
    case GGUF_U32:
    case GGUF_I32:
    case GGUF_F32:
        return 4;
    case GGUF_U64:
    case GGUF_I64:
    case GGUF_F64:
        return 8;
    default:
        return 1;
    }
}

double gguf_array_real(const GgufValue *array, uint64_t i)
{
    return load_real(array->element, array->data + i * stride(array->element));
}

int64_t gguf_array_int(const GgufValue *array, uint64_t i)
{
    return load_int(array->element, array->data + i * stride(array->element));
}
