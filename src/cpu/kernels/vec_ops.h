/*
 * What elementwise operations on floats do to a vector, and to a tile: the same for an operation alone and in a tile program
 * (compile/tile_program.h).
 */
#ifndef CVN_CPU_KERNELS_VEC_OPS_H
#define CVN_CPU_KERNELS_VEC_OPS_H

#include "compile/tile_program.h"
#include "cpu/kernels/vec_math.h"

#include <assert.h>

/* NaN wins; of two zeros +0 is the larger. */
VEC_INLINE vf maximum(vf a, vf b)
{
    vf greater = vf_select(a > b, a, vf_select(a == b, (vf)((vi)a & (vi)b), b));
    return vf_select(a != a, a, greater);
}

VEC_INLINE vf minimum(vf a, vf b)
{
    vf less = vf_select(a < b, a, vf_select(a == b, (vf)((vi)a | (vi)b), b));
    return vf_select(a != a, a, less);
}

VEC_INLINE vf unary_vector(OpKind kind, vf x)
{
    switch (kind) {
#define UNARY(kind, y)                                                                             \
    case OP_##kind:                                                                                \
        return y;
#include "compile/vector_ops.def"
    default:
        assert(!"an operation without a vector form");
        return x;
    }
}

VEC_INLINE vf binary_vector(OpKind kind, vf a, vf b)
{
    switch (kind) {
#define BINARY(kind, y)                                                                            \
    case OP_##kind:                                                                                \
        return y;
#include "compile/vector_ops.def"
    default:
        assert(!"an operation without a vector form");
        return a;
    }
}

VEC_INLINE vf vec_apply(TileCode code, OpKind op, vf a, vf b, vf c)
{
    switch (code) {
    case TILE_UNARY:
        return unary_vector(op, a);
    case TILE_BINARY:
        return binary_vector(op, a, b);
#define PAIR(code, first, second, left, y)                                                         \
    case TILE_##code:                                                                              \
        return y;
#include "compile/vector_ops.def"
    case TILE_ROUND:
        return vf_from_bf16(vf_to_bf16(a));
    case TILE_COPY:
    case TILE_WIDEN:
    case TILE_NARROW:
    case TILE_SPREAD:
    case TILE_CALL:
    case TILE_SELECT:
    case TILE_SUM:
    case TILE_KEEP:
        break;
    }
    return a;
}

/* The operands of an operation in one tile: vectors that are `step` floats apart, VN, or 0 for one value. */
typedef struct VecOperands {
    const float *a, *b, *c;
    int64_t a_step, b_step, c_step;
    float *out;
    int64_t n;         /* elements of a row */
    int64_t more_rows; /* behind the first, so many bytes from row to row: */
    int64_t a_row, b_row, c_row, out_row;
} VecOperands;

static inline const void *vec_row(const void *x, int64_t bytes, int64_t r)
{
    return x ? (const char *)x + r * bytes : NULL;
}

/* The first n < VN floats, or all of them where there is one value. */
VEC_INLINE vf vec_load_end(const float *x, int64_t step, int64_t n)
{
    return step ? vf_load_part(x, n) : vf_load(x);
}

/* Row r. */
VEC_INLINE void vec_loop_row(TileCode code, OpKind op, const VecOperands *x, int64_t r)
{
    const bool two = code != TILE_UNARY && code != TILE_ROUND && code != TILE_COPY;
    const bool three = two && code != TILE_BINARY;
    const float *a = vec_row(x->a, x->a_row, r), *b = vec_row(x->b, x->b_row, r);
    const float *c = vec_row(x->c, x->c_row, r);
    const int64_t a_step = x->a_step, b_step = x->b_step, c_step = x->c_step, n = x->n;
    float *out = (float *)(uintptr_t)vec_row(x->out, x->out_row, r);
    const vf none = vf_zero();
    int64_t i = 0;
    for (; i + VN <= n; i += VN) {
        vf_store(out + i, vec_apply(code, op, vf_load(a), two ? vf_load(b) : none,
                                    three ? vf_load(c) : none));
        a += a_step;
        b += two ? b_step : 0;
        c += three ? c_step : 0;
    }
    if (i < n)
        vf_store_part(out + i,
                      vec_apply(code, op, vec_load_end(a, a_step, n - i),
                                two ? vec_load_end(b, b_step, n - i) : none,
                                three ? vec_load_end(c, c_step, n - i) : none),
                      n - i);
}

/* code and op are constants: operands that they do not read are not loaded. */
VEC_INLINE void vec_loop(TileCode code, OpKind op, const VecOperands *x)
{
    for (int64_t r = 0; r <= x->more_rows; r++)
        vec_loop_row(code, op, x, r);
}

/* A tile; false, and nothing done, for what vectors do not do. */
static inline __attribute__((unused)) bool vec_tile(OpKind op, const VecOperands *x)
{
    switch (op) {
#define UNARY(kind, y)                                                                             \
    case OP_##kind:                                                                                \
        vec_loop(TILE_UNARY, OP_##kind, x);                                                        \
        return true;
#define BINARY(kind, y)                                                                            \
    case OP_##kind:                                                                                \
        vec_loop(TILE_BINARY, OP_##kind, x);                                                       \
        return true;
#include "compile/vector_ops.def"
    default:
        return false;
    }
}

#endif
