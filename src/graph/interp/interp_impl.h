/* Shared by the files of the interpreter: walking tensors element by element. */
#ifndef CVN_GRAPH_INTERP_INTERP_IMPL_H
#define CVN_GRAPH_INTERP_INTERP_IMPL_H

#include "graph/interp/interp.h"
#include "graph/record.h"
#include "graph/strides.h"

#include <string.h>

/* An integer or bool element. All of them fit an f64 exactly. */
static inline int64_t interp_get_int(cvn_dtype dtype, const void *data, int64_t i)
{
    return (int64_t)element_get(dtype, data, i);
}

/* Stores the low bits of an integer, as two's complement arithmetic of that width would. */
static inline void interp_set_int(cvn_dtype dtype, void *data, int64_t i, int64_t value)
{
    switch (dtype) {
    case CVN_I32:
    case CVN_U32:
        ((uint32_t *)data)[i] = (uint32_t)value;
        break;
    case CVN_I8:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    case CVN_I4:
        element_set(CVN_I4, data, i, (double)((int)((value & 15) ^ 8) - 8));
        break;
    default:
        element_set(dtype, data, i, (double)value);
    }
}

/* to[i] = from[j], bit for bit. */
static inline void interp_move(cvn_dtype dtype, void *to, int64_t i, const void *from, int64_t j)
{
    if (dtype == CVN_I4) {
        element_set(dtype, to, i, element_get(dtype, from, j));
        return;
    }
    size_t size = (size_t)cvn_dtype_bits(dtype) / 8;
    memcpy((char *)to + (size_t)i * size, (const char *)from + (size_t)j * size, size);
}

static inline int64_t interp_within(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* A running reduction: floats in f64, integers and bools in wrapping 64-bit arithmetic. */
typedef struct Fold {
    cvn_reduce kind;
    bool is_float;
    double real;
    uint64_t integer; /* two's complement */
} Fold;

/* Starts with the neutral element. */
Fold interp_fold(cvn_reduce kind, cvn_dtype dtype);
void interp_fold_add(Fold *fold, cvn_dtype dtype, const void *data, int64_t i);
void interp_fold_store(const Fold *fold, cvn_dtype dtype, void *data, int64_t i);

/* Some dimensions of a tensor: their sizes, and the distance between neighbours in them. */
typedef struct Dims {
    int n;
    int64_t size[CVN_MAX_RANK], stride[CVN_MAX_RANK];
    int64_t count; /* product of the sizes */
} Dims;

/* Appends dimension d of a tensor. */
static inline void dims_add(Dims *dims, const cvn_type *type, const int64_t *stride, int64_t d)
{
    dims->count = (dims->n ? dims->count : 1) * type->dim[d];
    dims->size[dims->n] = type->dim[d];
    dims->stride[dims->n++] = stride[d];
}

static inline int64_t dims_offset(const Dims *dims, const int64_t *at)
{
    int64_t offset = 0;
    for (int d = 0; d < dims->n; d++)
        offset += at[d] * dims->stride[d];
    return offset;
}

#endif
