/*
 * Elementwise operations, compiled once per instruction set.
 *
 * Floats are computed in f32, tile by tile (tile.h), whatever their storage; f64 in f64, where it lies; whole numbers and
 * bools in 32 bits, sign- or zero-extended, of which results keep the low ones. Threads share the elements. Types packed below a byte are left to the fallback.
 */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_ops.h"
#include "graph/scalar.h"
#include "graph/wide.h"

/* ---- whole numbers and bools as 32 bits: i32 and u32 where they lie, i8 and bools by way of a buffer ---- */

static bool is_word(cvn_dtype dtype)
{
    return dtype == CVN_I32 || dtype == CVN_U32;
}

/* The dtypes that tiles of words can be made of. */
static bool word_dtype(cvn_dtype dtype)
{
    return is_word(dtype) || dtype == CVN_I8 || dtype == CVN_BOOL;
}

/* Elements [at, at + n): where they lie, or in the buffer. */
static const int32_t *words_read(cvn_dtype dtype, const void *data, int64_t at, int64_t n,
                                 int32_t *buffer)
{
    if (is_word(dtype))
        return (const int32_t *)data + at;
    if (dtype == CVN_I8)
        for (int64_t i = 0; i < n; i++)
            buffer[i] = ((const int8_t *)data)[at + i];
    else
        for (int64_t i = 0; i < n; i++)
            buffer[i] = ((const uint8_t *)data)[at + i] != 0;
    return buffer;
}

/* Where to compute elements from `at` on, for words_write. */
static int32_t *words_target(cvn_dtype dtype, void *data, int64_t at, int32_t *buffer)
{
    return is_word(dtype) ? (int32_t *)data + at : buffer;
}

/* The low bits; to bool, x != 0. */
static void words_write(cvn_dtype dtype, void *data, int64_t at, int64_t n, const int32_t *x)
{
    if (dtype == CVN_I8)
        for (int64_t i = 0; i < n; i++)
            ((int8_t *)data)[at + i] = (int8_t)(uint8_t)x[i];
    else if (dtype == CVN_BOOL)
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)data)[at + i] = x[i] != 0;
    else if (x != (int32_t *)data + at)
        memcpy((int32_t *)data + at, x, (size_t)n * sizeof *x);
}

static void words_unary(OpKind kind, cvn_dtype dtype, int32_t *y, const int32_t *x, int64_t n)
{
    const int32_t flip = dtype == CVN_BOOL ? 1 : -1;
    if (kind == OP_NOT)
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] ^ flip;
    else if (dtype == CVN_U32) /* only its negative is another number */
        for (int64_t i = 0; i < n; i++)
            y[i] = (int32_t)scalar_unary_int(kind, (uint32_t)x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = (int32_t)scalar_unary_int(kind, x[i]);
}

/* Amounts of the width or more, which a negative one is as well, shift everything out. */
static void words_shift(bool left, cvn_dtype dtype, int32_t *y, const int32_t *a, const int32_t *b,
                        int64_t n)
{
    const uint32_t width = (uint32_t)cvn_dtype_bits(dtype), mask = UINT32_MAX >> (32 - width);
    for (int64_t i = 0; i < n; i++) {
        uint32_t x = (uint32_t)a[i] & mask, by = (uint32_t)b[i] & mask;
        uint32_t shifted = left ? x << (by & 31) : x >> (by & 31);
        y[i] = (int32_t)(by < width ? shifted : 0);
    }
}

static void words_binary(OpKind kind, cvn_dtype dtype, int32_t *y, const int32_t *a,
                         const int32_t *b, int64_t n)
{
#define LOOP(operator)                                                                             \
    for (int64_t i = 0; i < n; i++)                                                                \
        y[i] = (int32_t)((uint32_t)a[i] operator(uint32_t) b[i]);                                  \
    break
    switch (kind) {
    case OP_ADD:
        LOOP(+);
    case OP_SUBTRACT:
        LOOP(-);
    case OP_MULTIPLY:
        LOOP(*);
    case OP_AND:
        LOOP(&);
    case OP_OR:
        LOOP(|);
    case OP_XOR:
        LOOP(^);
    case OP_SHIFT_LEFT:
    case OP_SHIFT_RIGHT_LOGICAL:
        words_shift(kind == OP_SHIFT_LEFT, dtype, y, a, b, n);
        break;
    default: /* what has an order is done in 64 bits, where nothing overflows */
        for (int64_t i = 0; i < n && dtype == CVN_U32; i++)
            y[i] = (int32_t)scalar_binary_int(kind, (uint32_t)a[i], (uint32_t)b[i]);
        for (int64_t i = 0; i < n && dtype != CVN_U32; i++)
            y[i] = (int32_t)scalar_binary_int(kind, a[i], b[i]);
        break;
    }
#undef LOOP
}

/* ---- what kernels take ---- */

static bool match_float(const Op *op)
{
    return dtype_is_float(op_in(op, 0)->dtype);
}

static bool match_tiles(const Op *op)
{
    return tile_dtype(op_in(op, 0)->dtype);
}

static bool match_word(const Op *op)
{
    return word_dtype(op_in(op, 0)->dtype);
}

static bool match_bytes(const Op *op)
{
    return cvn_dtype_bits(op_in(op, 0)->dtype) >= 8 && cvn_dtype_bits(op_out(op, 0)->dtype) >= 8;
}

/* The elements of this thread. */
static void share(const KernelArgs *args, const cvn_type *type, int64_t *begin, int64_t *end)
{
    kernel_share(cvn_type_elements(type), KERNEL_GRAIN, args->thread, args->n_threads, begin, end);
}

/* ---- one or two operands of the type of the result ---- */

/* b: NULL where there is one operand. */
static void float_tile(OpKind kind, float *out, const float *a, const float *b, int64_t n)
{
    if (vec_tile(kind,
                 &(VecOperands){.a = a, .b = b, .a_step = VN, .b_step = VN, .out = out, .n = n}))
        return;
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(b ? scalar_binary(kind, (double)a[i], (double)b[i])
                           : scalar_unary(kind, (double)a[i]));
}

/* Of f64, where it lies; one loop each for what takes less time than to choose. */
static void run_doubles(const KernelArgs *args)
{
    OpKind kind = args->op->kind;
    const bool two = args->op->n_operands == 2;
    const double *a = args->in[0], *b = args->in[two];
    double *y = args->out[0];
    int64_t begin, end;
    share(args, op_out(args->op, 0), &begin, &end);
#define LOOP(...)                                                                                  \
    for (int64_t i = begin; i < end; i++)                                                          \
        y[i] = __VA_ARGS__;                                                                        \
    break
    switch (kind) {
    case OP_ADD:
        LOOP(a[i] + b[i]);
    case OP_SUBTRACT:
        LOOP(a[i] - b[i]);
    case OP_MULTIPLY:
        LOOP(a[i] * b[i]);
    case OP_DIVIDE:
        LOOP(a[i] / b[i]);
    default:
        LOOP(two ? scalar_binary(kind, a[i], b[i]) : scalar_unary(kind, a[i]));
    }
#undef LOOP
}

static void run_floats(const KernelArgs *args)
{
    OpKind kind = args->op->kind;
    const bool two = args->op->n_operands == 2;
    cvn_dtype dtype = op_out(args->op, 0)->dtype;
    int64_t begin, end;
    float left[TILE], right[TILE], to[TILE];
    if (dtype == CVN_F64) {
        run_doubles(args);
        return;
    }
    share(args, op_out(args->op, 0), &begin, &end);
    for (int64_t at = begin; at < end; at += TILE) {
        int64_t n = tile_length(at, end);
        const float *a = tile_read(dtype, args->in[0], at, n, left);
        const float *b = two ? tile_read(dtype, args->in[1], at, n, right) : NULL;
        float *y = tile_target(dtype, args->out[0], at, to);
        float_tile(kind, y, a, b, n);
        tile_write(dtype, args->out[0], at, n, y);
    }
}

static void run_words(const KernelArgs *args)
{
    OpKind kind = args->op->kind;
    cvn_dtype dtype = op_out(args->op, 0)->dtype;
    int64_t begin, end;
    int32_t left[TILE], right[TILE], to[TILE];
    share(args, op_out(args->op, 0), &begin, &end);
    for (int64_t at = begin; at < end; at += TILE) {
        int64_t n = tile_length(at, end);
        const int32_t *a = words_read(dtype, args->in[0], at, n, left);
        int32_t *y = words_target(dtype, args->out[0], at, to);
        if (args->op->n_operands == 2)
            words_binary(kind, dtype, y, a, words_read(dtype, args->in[1], at, n, right), n);
        else
            words_unary(kind, dtype, y, a, n);
        words_write(dtype, args->out[0], at, n, y);
    }
}

static void run_is_finite(const KernelArgs *args)
{
    cvn_dtype dtype = op_in(args->op, 0)->dtype;
    uint8_t *y = args->out[0];
    int64_t begin, end;
    float from[TILE];
    share(args, op_out(args->op, 0), &begin, &end);
    for (int64_t i = begin; dtype == CVN_F64 && i < end; i++)
        y[i] = isfinite(((const double *)args->in[0])[i]) != 0;
    for (int64_t at = begin; dtype != CVN_F64 && at < end; at += TILE) {
        int64_t n = tile_length(at, end);
        const float *x = tile_read(dtype, args->in[0], at, n, from);
        for (int64_t i = 0; i < n; i++)
            y[at + i] = (f32_bits(x[i]) & 0x7f800000u) != 0x7f800000u;
    }
}

/* ---- convert ---- */

/* What no tile of floats can hold: by f64 or 64 bits. To whole numbers truncates and saturates; NaN gives 0. */
static void convert_wide(const KernelArgs *args, int64_t at, int64_t n)
{
    cvn_dtype from = op_in(args->op, 0)->dtype, to = op_out(args->op, 0)->dtype;
    const bool is_float = dtype_is_float(to);
    const double low = dtype_least(to), high = dtype_greatest(to);
    Wide x;
    wide_read(from, args->in[0], at, 1, n, &x);
    for (int64_t i = 0; i < n && dtype_is_float(from) && !is_float; i++) {
        double real = x.real[i], value = real > low ? real : low;
        value = value < high ? value : high;
        x.whole[i] = to == CVN_BOOL ? real != 0 : real == real ? (int64_t)value : 0;
    }
    for (int64_t i = 0; i < n && !dtype_is_float(from) && is_float; i++)
        x.real[i] = (double)x.whole[i];
    wide_write(to, args->out[0], at, 1, n, &x);
}

static void run_convert(const KernelArgs *args)
{
    cvn_dtype from = op_in(args->op, 0)->dtype, to = op_out(args->op, 0)->dtype;
    const bool tiles = tile_dtype(from) && tile_dtype(to);
    int64_t begin, end;
    float x[TILE];
    share(args, op_out(args->op, 0), &begin, &end);
    if (from == to) {
        size_t size = (size_t)cvn_dtype_bits(to) / 8;
        memcpy((char *)args->out[0] + (size_t)begin * size,
               (const char *)args->in[0] + (size_t)begin * size, (size_t)(end - begin) * size);
        return;
    }
    for (int64_t at = begin; tiles && at < end; at += TILE) {
        int64_t n = tile_length(at, end);
        tile_write(to, args->out[0], at, n, tile_read(from, args->in[0], at, n, x));
    }
    for (int64_t at = begin; !tiles && at < end; at += WIDE)
        convert_wide(args, at, num_min(end - at, WIDE));
}

/* ---- compare, select, clamp ---- */

#define COMPARE_LOOP(direction, operator)                                                          \
    case direction:                                                                                \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = a[i] operator b[i];                                                             \
        break
#define COMPARE_LOOPS(name, type)                                                                  \
    static void name(cvn_compare by, uint8_t *y, const type *a, const type *b, int64_t n)          \
    {                                                                                              \
        switch (by) {                                                                              \
            COMPARE_LOOP(CVN_EQ, ==);                                                              \
            COMPARE_LOOP(CVN_NE, !=);                                                              \
            COMPARE_LOOP(CVN_LT, <);                                                               \
            COMPARE_LOOP(CVN_LE, <=);                                                              \
            COMPARE_LOOP(CVN_GT, >);                                                               \
            COMPARE_LOOP(CVN_GE, >=);                                                              \
        }                                                                                          \
    }
COMPARE_LOOPS(compare_floats, float)
COMPARE_LOOPS(compare_doubles, double)
COMPARE_LOOPS(compare_wholes, int64_t)

static void run_compare(const KernelArgs *args)
{
    cvn_dtype dtype = op_in(args->op, 0)->dtype;
    cvn_compare direction = args->op->attr.compare;
    uint8_t *y = args->out[0];
    int64_t begin, end;
    float left[TILE], right[TILE];
    Wide a, b;
    share(args, op_out(args->op, 0), &begin, &end);
    for (int64_t at = begin; tile_dtype(dtype) && at < end; at += TILE) {
        int64_t n = tile_length(at, end);
        compare_floats(direction, y + at, tile_read(dtype, args->in[0], at, n, left),
                       tile_read(dtype, args->in[1], at, n, right), n);
    }
    for (int64_t at = begin; !tile_dtype(dtype) && at < end; at += WIDE) {
        int64_t n = num_min(end - at, WIDE);
        wide_read(dtype, args->in[0], at, 1, n, &a);
        wide_read(dtype, args->in[1], at, 1, n, &b);
        if (dtype == CVN_F64)
            compare_doubles(direction, y + at, a.real, b.real, n);
        else
            compare_wholes(direction, y + at, a.whole, b.whole, n);
    }
}

static void run_select(const KernelArgs *args)
{
    const Op *op = args->op;
    const uint8_t *pred = args->in[0];
    int bits = cvn_dtype_bits(op_out(op, 0)->dtype);
    int64_t begin, end;
    share(args, op_out(op, 0), &begin, &end);
    if (op_in(op, 0)->rank == 0) {
        size_t size = (size_t)bits / 8;
        memmove((char *)args->out[0] + (size_t)begin * size,
                (const char *)args->in[*pred ? 1 : 2] + (size_t)begin * size,
                (size_t)(end - begin) * size);
        return;
    }
#define SELECT(type)                                                                               \
    {                                                                                              \
        const type *a = args->in[1], *b = args->in[2];                                             \
        type *y = args->out[0];                                                                    \
        for (int64_t i = begin; i < end; i++)                                                      \
            y[i] = pred[i] ? a[i] : b[i];                                                          \
    }                                                                                              \
    break
    switch (bits) {
    case 64:
        SELECT(uint64_t);
    case 32:
        SELECT(uint32_t);
    case 16:
        SELECT(uint16_t);
    default:
        SELECT(uint8_t);
    }
#undef SELECT
}

/* A bound of clamp: a tile of the operand, or the scalar all over. */
static const float *read_bound(const KernelArgs *args, int i, int64_t at, int64_t n, float *buffer)
{
    const cvn_type *type = op_in(args->op, i);
    float one[1];
    if (type->rank > 0)
        return tile_read(type->dtype, args->in[i], at, n, buffer);
    const float value = *tile_read(type->dtype, args->in[i], 0, 1, one);
    for (int64_t k = 0; k < n; k++)
        buffer[k] = value;
    return buffer;
}

static void run_clamp(const KernelArgs *args)
{
    cvn_dtype dtype = op_out(args->op, 0)->dtype;
    int64_t begin, end;
    float low[TILE], x[TILE], high[TILE], to[TILE];
    share(args, op_out(args->op, 0), &begin, &end);
    for (int64_t at = begin; at < end; at += TILE) {
        int64_t n = tile_length(at, end);
        const float *in = tile_read(dtype, args->in[1], at, n, x);
        float_tile(OP_MAXIMUM, to, in, read_bound(args, 0, at, n, low), n);
        float_tile(OP_MINIMUM, to, to, read_bound(args, 2, at, n, high), n);
        tile_write(dtype, args->out[0], at, n, to);
    }
}

/* Of f64, whole numbers and bools. */
static void run_clamp_wide(const KernelArgs *args)
{
    const Op *op = args->op;
    cvn_dtype dtype = op_out(op, 0)->dtype;
    int64_t low_step = op_in(op, 0)->rank > 0, high_step = op_in(op, 2)->rank > 0, begin, end;
    Wide low, x, high;
    share(args, op_out(op, 0), &begin, &end);
    for (int64_t at = begin; at < end; at += WIDE) {
        int64_t n = num_min(end - at, WIDE);
        wide_read(dtype, args->in[0], at * low_step, low_step, n, &low);
        wide_read(dtype, args->in[1], at, 1, n, &x);
        wide_read(dtype, args->in[2], at * high_step, high_step, n, &high);
        wide_reduce(CVN_MAX, dtype, &x, 0, 1, &low, n);
        wide_reduce(CVN_MIN, dtype, &x, 0, 1, &high, n);
        wide_write(dtype, args->out[0], at, 1, n, &x);
    }
}

enum { IN_PLACE_0 = 1, IN_PLACE_1 = 2, IN_PLACE_2 = 4 };

/* What a row of ops.def gets, by its class and dtypes; those of other classes, and of any dtype, have rows below. */
#define F(kind_, NAME, places)                                                                     \
    {.name = NAME "." ISA,                                                                         \
     .kind = kind_,                                                                                \
     .match = match_float,                                                                         \
     .elementwise = true,                                                                          \
     .run = (kind_) == OP_IS_FINITE ? run_is_finite : run_floats,                                  \
     .in_place = (kind_) == OP_IS_FINITE ? 0 : (places)},
#define I(kind_, NAME, places)                                                                     \
    {.name = NAME "." ISA ".int",                                                                  \
     .kind = kind_,                                                                                \
     .match = match_word,                                                                          \
     .elementwise = true,                                                                          \
     .run = run_words,                                                                             \
     .in_place = places},
#define N(kind, name, places) F(kind, name, places) I(kind, name, places)
#define A(kind, name, places)
#define UNARY(kind, name, dtypes) dtypes(kind, name, IN_PLACE_0)
#define BINARY(kind, name, dtypes) dtypes(kind, name, IN_PLACE_0 | IN_PLACE_1)
#define LEAF(kind, name, dtypes)
#define TERNARY(kind, name, dtypes)
#define SHAPE(kind, name, dtypes)
#define INDEX(kind, name, dtypes)
#define REDUCE(kind, name, dtypes)
#define CONTRACT(kind, name, dtypes)
#define COLLECTIVE(kind, name, dtypes)
#define CONTROL(kind, name, dtypes)
#define COMPOSITE(kind, name, dtypes)
#define REGION(kind, name, dtypes)
#define OP(kind, name, least, most, results, class, dtypes, ...) class(OP_##kind, #name, dtypes)
const Kernel ISA_NAME(elementwise_kernels)[] = {
#include "graph/ops.def"
    {.name = "convert." ISA,
     .kind = OP_CONVERT,
     .match = match_bytes,
     .elementwise = true,
     .run = run_convert},
    {.name = "compare." ISA,
     .kind = OP_COMPARE,
     .match = match_bytes,
     .elementwise = true,
     .run = run_compare},
    {.name = "select." ISA,
     .kind = OP_SELECT,
     .match = match_bytes,
     .elementwise = true,
     .run = run_select,
     .in_place = IN_PLACE_1 | IN_PLACE_2},
    {.name = "clamp." ISA,
     .kind = OP_CLAMP,
     .match = match_tiles,
     .elementwise = true,
     .run = run_clamp,
     .in_place = IN_PLACE_1},
    {.name = "clamp." ISA ".wide",
     .kind = OP_CLAMP,
     .match = match_bytes,
     .elementwise = true,
     .run = run_clamp_wide,
     .in_place = IN_PLACE_1},
    {0},
};
