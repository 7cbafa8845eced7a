/*
 * Elementwise operations, compiled once per instruction set.
 *
 * Floats are computed in f32, tile by tile (tile.h), whatever their storage; i32 and u32 in their own type;
 * bools as bytes. Threads share the elements. Other dtypes are left to the fallback.
 */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_ops.h"

static bool is_word(cvn_dtype dtype)
{
    return dtype == CVN_I32 || dtype == CVN_U32;
}

/* The elements of this thread. */
static void share(const KernelArgs *args, const cvn_type *type, int64_t *begin, int64_t *end)
{
    kernel_share(cvn_type_elements(type), KERNEL_GRAIN, args->thread, args->n_threads, begin, end);
}

/* ---- one operand ---- */

VEC_INLINE void unary_loop(OpKind kind, float *out, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VN <= n; i += VN)
        vf_store(out + i, unary_vector(kind, vf_load(x + i)));
    if (i < n)
        vf_store_part(out + i, unary_vector(kind, vf_load_part(x + i, n - i)), n - i);
}

static float unary_scalar(OpKind kind, float x)
{
    switch (kind) {
    case OP_EXPONENTIAL_MINUS_ONE:
        return expm1f(x);
    case OP_LOG_PLUS_ONE:
        return log1pf(x);
    case OP_SINE:
        return sinf(x);
    case OP_COSINE:
        return cosf(x);
    case OP_FLOOR:
        return floorf(x);
    default:
        return x;
    }
}

static void unary_tile(OpKind kind, float *out, const float *x, int64_t n)
{
    switch (kind) {
    case OP_NEGATE:
        unary_loop(OP_NEGATE, out, x, n);
        break;
    case OP_ABS:
        unary_loop(OP_ABS, out, x, n);
        break;
    case OP_SIGN:
        unary_loop(OP_SIGN, out, x, n);
        break;
    case OP_EXPONENTIAL:
        unary_loop(OP_EXPONENTIAL, out, x, n);
        break;
    case OP_LOG:
        unary_loop(OP_LOG, out, x, n);
        break;
    case OP_SQRT:
        unary_loop(OP_SQRT, out, x, n);
        break;
    case OP_RSQRT:
        unary_loop(OP_RSQRT, out, x, n);
        break;
    case OP_TANH:
        unary_loop(OP_TANH, out, x, n);
        break;
    case OP_LOGISTIC:
        unary_loop(OP_LOGISTIC, out, x, n);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            out[i] = unary_scalar(kind, x[i]);
        break;
    }
}

static bool match_unary_float(const Op *op)
{
    return tile_dtype(op_in(op, 0)->dtype);
}

static void run_unary_float(const KernelArgs *args)
{
    const Op *op = args->op;
    cvn_dtype dtype = op_out(op, 0)->dtype;
    int64_t begin, end;
    float from[TILE], to[TILE];
    share(args, op_out(op, 0), &begin, &end);
    for (int64_t at = begin; at < end; at += TILE) {
        int64_t n = tile_length(at, end);
        const float *x = tile_read(dtype, args->in[0], at, n, from);
        float *y = tile_target(dtype, args->out[0], at, to);
        unary_tile(op->kind, y, x, n);
        tile_write(dtype, args->out[0], at, n, y);
    }
}

static bool match_unary_int(const Op *op)
{
    cvn_dtype dtype = op_in(op, 0)->dtype;
    return is_word(dtype) || (op->kind == OP_NOT && dtype == CVN_BOOL);
}

static void run_unary_int(const KernelArgs *args)
{
    const Op *op = args->op;
    bool is_signed = op_out(op, 0)->dtype == CVN_I32;
    int64_t begin, end;
    share(args, op_out(op, 0), &begin, &end);
    if (op_out(op, 0)->dtype == CVN_BOOL) {
        const uint8_t *x = args->in[0];
        uint8_t *y = args->out[0];
        for (int64_t i = begin; i < end; i++)
            y[i] = !x[i];
        return;
    }
    const uint32_t *x = args->in[0];
    uint32_t *y = args->out[0];
    for (int64_t i = begin; i < end; i++) {
        bool negative = is_signed && x[i] >> 31;
        switch (op->kind) {
        case OP_NEGATE:
            y[i] = 0u - x[i];
            break;
        case OP_ABS:
            y[i] = negative ? 0u - x[i] : x[i];
            break;
        case OP_SIGN:
            y[i] = negative ? UINT32_MAX : x[i] != 0;
            break;
        default: /* NOT */
            y[i] = ~x[i];
            break;
        }
    }
}

static void run_is_finite(const KernelArgs *args)
{
    cvn_dtype dtype = op_in(args->op, 0)->dtype;
    uint8_t *y = args->out[0];
    int64_t begin, end;
    float from[TILE];
    share(args, op_out(args->op, 0), &begin, &end);
    for (int64_t at = begin; at < end; at += TILE) {
        int64_t n = tile_length(at, end);
        const float *x = tile_read(dtype, args->in[0], at, n, from);
        for (int64_t i = 0; i < n; i++)
            y[at + i] = (f32_bits(x[i]) & 0x7f800000u) != 0x7f800000u;
    }
}

/* ---- convert ---- */

static bool match_convert(const Op *op)
{
    cvn_dtype from = op_in(op, 0)->dtype, to = op_out(op, 0)->dtype;
    return from != CVN_F64 && from != CVN_I4 && to != CVN_F64 && to != CVN_I4;
}

/* Integers and bools as 32 bits: sign- or zero-extended. */
static void read_words(cvn_dtype dtype, const void *data, int64_t at, int64_t n, int32_t *out)
{
    if (is_word(dtype))
        memcpy(out, (const int32_t *)data + at, (size_t)n * sizeof *out);
    else if (dtype == CVN_I8)
        for (int64_t i = 0; i < n; i++)
            out[i] = ((const int8_t *)data)[at + i];
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = ((const uint8_t *)data)[at + i] != 0;
}

/* Their low bits; to bool, x != 0. */
static void write_words(cvn_dtype dtype, void *data, int64_t at, int64_t n, const int32_t *x)
{
    if (is_word(dtype))
        memcpy((int32_t *)data + at, x, (size_t)n * sizeof *x);
    else if (dtype == CVN_I8)
        for (int64_t i = 0; i < n; i++)
            ((int8_t *)data)[at + i] = (int8_t)(uint8_t)x[i];
    else
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)data)[at + i] = x[i] != 0;
}

static void words_to_floats(bool is_unsigned, const int32_t *x, int64_t n, float *out)
{
    if (is_unsigned)
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)(uint32_t)x[i];
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)x[i];
}

/* Truncates and saturates; NaN gives 0. Limits are the dtype's; those of u32 need the 33rd bit. */
static void floats_to_words(cvn_dtype to, const float *x, int64_t n, int32_t *out)
{
    if (to == CVN_BOOL) {
        for (int64_t i = 0; i < n; i++)
            out[i] = x[i] != 0.0f;
        return;
    }
    double low = to == CVN_I32 ? INT32_MIN : to == CVN_I8 ? INT8_MIN : 0;
    double high = to == CVN_I32 ? INT32_MAX : to == CVN_I8 ? INT8_MAX : UINT32_MAX;
    for (int64_t i = 0; i < n; i++) {
        double value = (double)x[i];
        value = value > low ? value : low;
        value = value < high ? value : high;
        out[i] = x[i] == x[i] ? (int32_t)(uint32_t)(int64_t)value : 0;
    }
}

static void run_convert(const KernelArgs *args)
{
    cvn_dtype from = op_in(args->op, 0)->dtype, to = op_out(args->op, 0)->dtype;
    int64_t begin, end;
    float floats[TILE], rounded[TILE];
    int32_t words[TILE];
    share(args, op_out(args->op, 0), &begin, &end);
    if (from == to) {
        size_t size = (size_t)cvn_dtype_bits(to) / 8;
        memcpy((char *)args->out[0] + (size_t)begin * size,
               (const char *)args->in[0] + (size_t)begin * size, (size_t)(end - begin) * size);
        return;
    }
    for (int64_t at = begin; at < end; at += TILE) {
        int64_t n = tile_length(at, end);
        const float *x = floats;
        if (tile_dtype(from))
            x = tile_read(from, args->in[0], at, n, floats);
        else
            read_words(from, args->in[0], at, n, words);
        if (tile_dtype(to)) {
            if (!tile_dtype(from)) {
                words_to_floats(from == CVN_U32, words, n, rounded);
                x = rounded;
            }
            tile_write(to, args->out[0], at, n, x);
        } else {
            if (tile_dtype(from))
                floats_to_words(to, x, n, words);
            write_words(to, args->out[0], at, n, words);
        }
    }
}

/* ---- two operands ---- */

VEC_INLINE void binary_loop(OpKind kind, float *out, const float *a, const float *b, int64_t n)
{
    int64_t i = 0;
    for (; i + VN <= n; i += VN)
        vf_store(out + i, binary_vector(kind, vf_load(a + i), vf_load(b + i)));
    if (i < n)
        vf_store_part(out + i,
                      binary_vector(kind, vf_load_part(a + i, n - i), vf_load_part(b + i, n - i)),
                      n - i);
}

static void binary_tile(OpKind kind, float *out, const float *a, const float *b, int64_t n)
{
    switch (kind) {
    case OP_ADD:
        binary_loop(OP_ADD, out, a, b, n);
        break;
    case OP_SUBTRACT:
        binary_loop(OP_SUBTRACT, out, a, b, n);
        break;
    case OP_MULTIPLY:
        binary_loop(OP_MULTIPLY, out, a, b, n);
        break;
    case OP_DIVIDE:
        binary_loop(OP_DIVIDE, out, a, b, n);
        break;
    case OP_MAXIMUM:
        binary_loop(OP_MAXIMUM, out, a, b, n);
        break;
    case OP_MINIMUM:
        binary_loop(OP_MINIMUM, out, a, b, n);
        break;
    case OP_POWER:
        for (int64_t i = 0; i < n; i++)
            out[i] = powf(a[i], b[i]);
        break;
    default: /* REMAINDER */
        for (int64_t i = 0; i < n; i++)
            out[i] = fmodf(a[i], b[i]);
        break;
    }
}

static void run_binary_float(const KernelArgs *args)
{
    const Op *op = args->op;
    cvn_dtype dtype = op_out(op, 0)->dtype;
    int64_t begin, end;
    float left[TILE], right[TILE], to[TILE];
    share(args, op_out(op, 0), &begin, &end);
    for (int64_t at = begin; at < end; at += TILE) {
        int64_t n = tile_length(at, end);
        const float *a = tile_read(dtype, args->in[0], at, n, left);
        const float *b = tile_read(dtype, args->in[1], at, n, right);
        float *y = tile_target(dtype, args->out[0], at, to);
        binary_tile(op->kind, y, a, b, n);
        tile_write(dtype, args->out[0], at, n, y);
    }
}

static bool match_binary_int(const Op *op)
{
    return is_word(op_in(op, 0)->dtype);
}

/* What is the same for both signs. */
static void binary_words(OpKind kind, uint32_t *out, const uint32_t *a, const uint32_t *b,
                         int64_t n)
{
    switch (kind) {
    case OP_ADD:
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] + b[i];
        break;
    case OP_SUBTRACT:
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] - b[i];
        break;
    case OP_MULTIPLY:
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] * b[i];
        break;
    case OP_AND:
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] & b[i];
        break;
    case OP_OR:
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] | b[i];
        break;
    case OP_XOR:
        for (int64_t i = 0; i < n; i++)
            out[i] = a[i] ^ b[i];
        break;
    case OP_SHIFT_LEFT:
        for (int64_t i = 0; i < n; i++)
            out[i] = b[i] < 32 ? a[i] << (b[i] & 31) : 0;
        break;
    default: /* SHIFT_RIGHT_LOGICAL */
        for (int64_t i = 0; i < n; i++)
            out[i] = b[i] < 32 ? a[i] >> (b[i] & 31) : 0;
        break;
    }
}

/* In 64 bits, where nothing overflows. */
static int64_t ordered(OpKind kind, int64_t a, int64_t b)
{
    switch (kind) {
    case OP_DIVIDE:
        return b == 0 ? -1 : a / b;
    case OP_REMAINDER:
        return b == 0 ? a : a % b;
    case OP_MAXIMUM:
        return a > b ? a : b;
    default: /* MINIMUM */
        return a < b ? a : b;
    }
}

static void run_binary_int(const KernelArgs *args)
{
    const Op *op = args->op;
    const uint32_t *a = args->in[0], *b = args->in[1];
    uint32_t *y = args->out[0];
    int64_t begin, end;
    share(args, op_out(op, 0), &begin, &end);
    bool by_order = op->kind == OP_DIVIDE || op->kind == OP_REMAINDER || op->kind == OP_MAXIMUM ||
                    op->kind == OP_MINIMUM;
    if (!by_order) {
        binary_words(op->kind, y + begin, a + begin, b + begin, end - begin);
        return;
    }
    if (op_out(op, 0)->dtype == CVN_I32)
        for (int64_t i = begin; i < end; i++)
            y[i] = (uint32_t)ordered(op->kind, (int32_t)a[i], (int32_t)b[i]);
    else
        for (int64_t i = begin; i < end; i++)
            y[i] = (uint32_t)ordered(op->kind, a[i], b[i]);
}

static bool match_bools(const Op *op)
{
    return op_in(op, 0)->dtype == CVN_BOOL;
}

static void run_binary_bool(const KernelArgs *args)
{
    const uint8_t *a = args->in[0], *b = args->in[1];
    uint8_t *y = args->out[0];
    OpKind kind = args->op->kind;
    int64_t begin, end;
    share(args, op_out(args->op, 0), &begin, &end);
    if (kind == OP_AND)
        for (int64_t i = begin; i < end; i++)
            y[i] = a[i] & b[i];
    else if (kind == OP_OR)
        for (int64_t i = begin; i < end; i++)
            y[i] = a[i] | b[i];
    else
        for (int64_t i = begin; i < end; i++)
            y[i] = a[i] ^ b[i];
}

/* ---- compare, select, clamp ---- */

static bool match_compare(const Op *op)
{
    cvn_dtype dtype = op_in(op, 0)->dtype;
    return tile_dtype(dtype) || is_word(dtype) || dtype == CVN_BOOL || dtype == CVN_I8;
}

static void compare_floats(cvn_compare direction, uint8_t *y, const float *a, const float *b,
                           int64_t n)
{
    switch (direction) {
    case CVN_EQ:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] == b[i];
        break;
    case CVN_NE:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] != b[i];
        break;
    case CVN_LT:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] < b[i];
        break;
    case CVN_LE:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] <= b[i];
        break;
    case CVN_GT:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] > b[i];
        break;
    case CVN_GE:
        for (int64_t i = 0; i < n; i++)
            y[i] = a[i] >= b[i];
        break;
    }
}

/* Of two whole numbers one comparison is the other's opposite, as of floats it is not. */
static void compare_words(cvn_compare direction, uint8_t *y, const int32_t *a, const int32_t *b,
                          int64_t n)
{
    bool opposite = direction == CVN_NE || direction == CVN_GE || direction == CVN_LE;
    if (direction == CVN_EQ || direction == CVN_NE)
        for (int64_t i = 0; i < n; i++)
            y[i] = (a[i] == b[i]) != opposite;
    else if (direction == CVN_LT || direction == CVN_GE)
        for (int64_t i = 0; i < n; i++)
            y[i] = (a[i] < b[i]) != opposite;
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = (a[i] > b[i]) != opposite;
}

static void run_compare(const KernelArgs *args)
{
    cvn_dtype dtype = op_in(args->op, 0)->dtype;
    cvn_compare direction = args->op->attr.compare;
    uint8_t *y = args->out[0];
    int64_t begin, end;
    float float_a[TILE], float_b[TILE];
    int32_t word_a[TILE], word_b[TILE];
    share(args, op_out(args->op, 0), &begin, &end);
    for (int64_t at = begin; at < end; at += TILE) {
        int64_t n = tile_length(at, end);
        if (tile_dtype(dtype)) {
            compare_floats(direction, y + at, tile_read(dtype, args->in[0], at, n, float_a),
                           tile_read(dtype, args->in[1], at, n, float_b), n);
            continue;
        }
        read_words(dtype, args->in[0], at, n, word_a);
        read_words(dtype, args->in[1], at, n, word_b);
        if (dtype == CVN_U32) /* moves 0 … 2^32 - 1 to the order of signed numbers */
            for (int64_t i = 0; i < n; i++) {
                word_a[i] ^= INT32_MIN;
                word_b[i] ^= INT32_MIN;
            }
        compare_words(direction, y + at, word_a, word_b, n);
    }
}

static bool match_select(const Op *op)
{
    int bits = cvn_dtype_bits(op_out(op, 0)->dtype);
    return bits == 8 || bits == 16 || bits == 32;
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
    if (bits == 32) {
        const uint32_t *a = args->in[1], *b = args->in[2];
        uint32_t *y = args->out[0];
        for (int64_t i = begin; i < end; i++)
            y[i] = pred[i] ? a[i] : b[i];
    } else if (bits == 16) {
        const uint16_t *a = args->in[1], *b = args->in[2];
        uint16_t *y = args->out[0];
        for (int64_t i = begin; i < end; i++)
            y[i] = pred[i] ? a[i] : b[i];
    } else {
        const uint8_t *a = args->in[1], *b = args->in[2];
        uint8_t *y = args->out[0];
        for (int64_t i = begin; i < end; i++)
            y[i] = pred[i] ? a[i] : b[i];
    }
}

static void fill(float *out, float value, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = value;
}

/* A bound of clamp: a tile of the operand, or the scalar all over. */
static const float *read_bound(const KernelArgs *args, int i, int64_t at, int64_t n, float *buffer)
{
    const cvn_type *type = op_in(args->op, i);
    float one[1];
    if (type->rank > 0)
        return tile_read(type->dtype, args->in[i], at, n, buffer);
    fill(buffer, *tile_read(type->dtype, args->in[i], 0, 1, one), n);
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
        binary_loop(OP_MAXIMUM, to, in, read_bound(args, 0, at, n, low), n);
        binary_loop(OP_MINIMUM, to, to, read_bound(args, 2, at, n, high), n);
        tile_write(dtype, args->out[0], at, n, to);
    }
}

static void run_clamp_int(const KernelArgs *args)
{
    const Op *op = args->op;
    bool is_signed = op_out(op, 0)->dtype == CVN_I32;
    const uint32_t *low = args->in[0], *x = args->in[1], *high = args->in[2];
    int64_t low_step = op_in(op, 0)->rank > 0, high_step = op_in(op, 2)->rank > 0;
    uint32_t *y = args->out[0], flip = is_signed ? 0x80000000u : 0;
    int64_t begin, end;
    share(args, op_out(op, 0), &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        uint32_t l = low[i * low_step] ^ flip, h = high[i * high_step] ^ flip, v = x[i] ^ flip;
        v = v > l ? v : l;
        y[i] = (v < h ? v : h) ^ flip;
    }
}

static bool match_word(const Op *op)
{
    return is_word(op_out(op, 0)->dtype);
}

static bool match_float(const Op *op)
{
    return tile_dtype(op_out(op, 0)->dtype);
}

enum { IN_PLACE_0 = 1, IN_PLACE_1 = 2, IN_PLACE_2 = 4 };

#define UNARY(NAME, kind_)                                                                         \
    {                                                                                              \
        .name = NAME "." ISA, .kind = kind_, .match = match_unary_float, .elementwise = true,      \
        .run = run_unary_float, .in_place = IN_PLACE_0                                             \
    }
#define UNARY_INT(NAME, kind_)                                                                     \
    {                                                                                              \
        .name = NAME "." ISA ".int", .kind = kind_, .match = match_unary_int, .elementwise = true, \
        .run = run_unary_int, .in_place = IN_PLACE_0                                               \
    }
#define BINARY(NAME, kind_)                                                                        \
    {                                                                                              \
        .name = NAME "." ISA, .kind = kind_, .match = match_float, .elementwise = true,            \
        .run = run_binary_float, .in_place = IN_PLACE_0 | IN_PLACE_1                               \
    }
#define BINARY_INT(NAME, kind_)                                                                    \
    {                                                                                              \
        .name = NAME "." ISA ".int", .kind = kind_, .match = match_binary_int,                     \
        .elementwise = true, .run = run_binary_int, .in_place = IN_PLACE_0 | IN_PLACE_1            \
    }
#define BINARY_BOOL(NAME, kind_)                                                                   \
    {                                                                                              \
        .name = NAME "." ISA ".bool", .kind = kind_, .match = match_bools, .elementwise = true,    \
        .run = run_binary_bool, .in_place = IN_PLACE_0 | IN_PLACE_1                                \
    }

const Kernel ISA_NAME(elementwise_kernels)[] = {
    UNARY("negate", OP_NEGATE),
    UNARY("abs", OP_ABS),
    UNARY("sign", OP_SIGN),
    UNARY("exponential", OP_EXPONENTIAL),
    UNARY("exponential_minus_one", OP_EXPONENTIAL_MINUS_ONE),
    UNARY("log", OP_LOG),
    UNARY("log_plus_one", OP_LOG_PLUS_ONE),
    UNARY("sqrt", OP_SQRT),
    UNARY("rsqrt", OP_RSQRT),
    UNARY("tanh", OP_TANH),
    UNARY("logistic", OP_LOGISTIC),
    UNARY("sine", OP_SINE),
    UNARY("cosine", OP_COSINE),
    UNARY("floor", OP_FLOOR),
    UNARY_INT("negate", OP_NEGATE),
    UNARY_INT("abs", OP_ABS),
    UNARY_INT("sign", OP_SIGN),
    UNARY_INT("not", OP_NOT),
    {.name = "is_finite." ISA,
     .kind = OP_IS_FINITE,
     .match = match_unary_float,
     .elementwise = true,
     .run = run_is_finite},
    {.name = "convert." ISA,
     .kind = OP_CONVERT,
     .match = match_convert,
     .elementwise = true,
     .run = run_convert},
    BINARY("add", OP_ADD),
    BINARY("subtract", OP_SUBTRACT),
    BINARY("multiply", OP_MULTIPLY),
    BINARY("divide", OP_DIVIDE),
    BINARY("maximum", OP_MAXIMUM),
    BINARY("minimum", OP_MINIMUM),
    BINARY("power", OP_POWER),
    BINARY("remainder", OP_REMAINDER),
    BINARY_INT("add", OP_ADD),
    BINARY_INT("subtract", OP_SUBTRACT),
    BINARY_INT("multiply", OP_MULTIPLY),
    BINARY_INT("divide", OP_DIVIDE),
    BINARY_INT("maximum", OP_MAXIMUM),
    BINARY_INT("minimum", OP_MINIMUM),
    BINARY_INT("remainder", OP_REMAINDER),
    BINARY_INT("and", OP_AND),
    BINARY_INT("or", OP_OR),
    BINARY_INT("xor", OP_XOR),
    BINARY_INT("shift_left", OP_SHIFT_LEFT),
    BINARY_INT("shift_right_logical", OP_SHIFT_RIGHT_LOGICAL),
    BINARY_BOOL("and", OP_AND),
    BINARY_BOOL("or", OP_OR),
    BINARY_BOOL("xor", OP_XOR),
    {.name = "compare." ISA,
     .kind = OP_COMPARE,
     .match = match_compare,
     .elementwise = true,
     .run = run_compare},
    {.name = "select." ISA,
     .kind = OP_SELECT,
     .match = match_select,
     .elementwise = true,
     .run = run_select,
     .in_place = IN_PLACE_1 | IN_PLACE_2},
    {.name = "clamp." ISA,
     .kind = OP_CLAMP,
     .match = match_float,
     .elementwise = true,
     .run = run_clamp,
     .in_place = IN_PLACE_1},
    {.name = "clamp." ISA ".int",
     .kind = OP_CLAMP,
     .match = match_word,
     .elementwise = true,
     .run = run_clamp_int,
     .in_place = IN_PLACE_1},
    {0},
};
