/*
 * Reductions over the members of a group, element by element. A block of elements is brought
 * through all members while it stays in cache, in f64 or 64-bit integers, and rounded at the end.
 *
 * A sum starts at -0, which unlike +0 changes no number: a group of one gets back what it gave.
 */
#include "comm/comm_impl.h"

#include "base/float16.h"
#include "graph/reduce.h"

#include <string.h>

enum { BLOCK = 512 };

static int64_t place(const Source *source, int64_t row, int64_t column)
{
    return source->at + row * source->stride[0] + column;
}

static void load_reals(cvn_dtype dtype, const void *data, int64_t at, int n, double *to)
{
    switch (dtype) {
    case CVN_F64:
        memcpy(to, (const double *)data + at, (size_t)n * sizeof *to);
        break;
    case CVN_F32:
        for (int i = 0; i < n; i++)
            to[i] = (double)((const float *)data)[at + i];
        break;
    case CVN_BF16:
        for (int i = 0; i < n; i++)
            to[i] = (double)bf16_to_f32(((const uint16_t *)data)[at + i]);
        break;
    default:
        for (int i = 0; i < n; i++)
            to[i] = (double)f16_to_f32(((const uint16_t *)data)[at + i]);
    }
}

static void store_reals(cvn_dtype dtype, const double *from, int n, void *data, int64_t at)
{
    switch (dtype) {
    case CVN_F64:
        memcpy((double *)data + at, from, (size_t)n * sizeof *from);
        break;
    case CVN_F32:
        for (int i = 0; i < n; i++)
            ((float *)data)[at + i] = (float)from[i];
        break;
    case CVN_BF16:
        for (int i = 0; i < n; i++)
            ((uint16_t *)data)[at + i] = bf16_from_f32((float)from[i]);
        break;
    default:
        for (int i = 0; i < n; i++)
            ((uint16_t *)data)[at + i] = f16_from_f32((float)from[i]);
    }
}

static void add_reals(cvn_reduce kind, double *sum, const double *x, int n)
{
    switch (kind) {
    case CVN_SUM:
        for (int i = 0; i < n; i++)
            sum[i] += x[i];
        break;
    case CVN_PRODUCT:
        for (int i = 0; i < n; i++)
            sum[i] *= x[i];
        break;
    case CVN_MAX:
        for (int i = 0; i < n; i++)
            sum[i] = reduce_max(sum[i], x[i]);
        break;
    case CVN_MIN:
        for (int i = 0; i < n; i++)
            sum[i] = reduce_min(sum[i], x[i]);
        break;
    default: /* all and any are for bools */
        break;
    }
}

static void fold_reals(cvn_dtype dtype, cvn_reduce kind, const Source *from, int64_t n_from,
                       int64_t row, int64_t column, int n, void *to, int64_t to_at)
{
    double sum[BLOCK], x[BLOCK];
    double start = kind == CVN_SUM ? -0.0 : reduce_neutral(kind, dtype);
    for (int i = 0; i < n; i++)
        sum[i] = start;
    for (int64_t j = 0; j < n_from; j++) {
        load_reals(dtype, from[j].base, place(&from[j], row, column), n, x);
        add_reals(kind, sum, x, n);
    }
    store_reals(dtype, sum, n, to, to_at);
}

static void load_integers(cvn_dtype dtype, const void *data, int64_t at, int n, uint64_t *to)
{
    for (int i = 0; i < n; i++)
        to[i] = dtype == CVN_I32   ? (uint64_t)((const int32_t *)data)[at + i]
                : dtype == CVN_U32 ? ((const uint32_t *)data)[at + i]
                : dtype == CVN_I8  ? (uint64_t)((const int8_t *)data)[at + i]
                                   : (uint64_t)(int64_t)element_get(dtype, data, at + i);
}

static void store_integers(cvn_dtype dtype, const uint64_t *from, int n, void *data, int64_t at)
{
    for (int i = 0; i < n; i++) {
        if (dtype == CVN_I32 || dtype == CVN_U32)
            ((uint32_t *)data)[at + i] = (uint32_t)from[i];
        else if (dtype == CVN_I8)
            ((uint8_t *)data)[at + i] = (uint8_t)from[i];
        else
            element_set(dtype, data, at + i, (double)(int64_t)from[i]);
    }
}

static void fold_integers(cvn_dtype dtype, cvn_reduce kind, const Source *from, int64_t n_from,
                          int64_t row, int64_t column, int n, void *to, int64_t to_at)
{
    uint64_t sum[BLOCK], x[BLOCK];
    load_integers(dtype, from[0].base, place(&from[0], row, column), n, sum);
    for (int64_t j = 1; j < n_from; j++) {
        load_integers(dtype, from[j].base, place(&from[j], row, column), n, x);
        for (int i = 0; i < n; i++)
            sum[i] = reduce_integers(kind, sum[i], x[i]);
    }
    store_integers(dtype, sum, n, to, to_at);
}

void fold_run(cvn_dtype dtype, cvn_reduce kind, const Source *from, int64_t n_from, int64_t row,
              int64_t column, int64_t n, void *to, int64_t to_at)
{
    for (int64_t done = 0; done < n; done += BLOCK) {
        int block = n - done < BLOCK ? (int)(n - done) : BLOCK;
        (dtype_is_float(dtype) ? fold_reals : fold_integers)(
            dtype, kind, from, n_from, row, column + done, block, to, to_at + done);
    }
}
