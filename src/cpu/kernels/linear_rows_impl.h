/*
 * LinearRows (linear.h) on the vectors of vec.h, compiled once per set of them: what products do with rows on the way in,
 * fixed point, 8 bits; and with sums on the way out: scales and rounding.
 */
#include "cpu/kernels/linear.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_math.h"

#define WHOLE                                                                                      \
    0x1.8p23f /* in its neighbourhood floats are one apart: x + WHOLE - WHOLE is rounded */

/* The largest pattern of |x| as an integer, which orders floats as they are and NaN above them. Not inlined, because gcc
   then warns of the rest of whole vectors, which is none. */
static __attribute__((noinline)) int32_t largest(cvn_dtype dtype, const void *data, int64_t n,
                                                 int32_t most)
{
    float from[TILE];
    const float *x = tile_read(dtype, data, 0, n, from);
    vi all = vi_splat(most);
    for (int64_t i = 0; i < n; i += VN) {
        vi bits = (vi)vf_abs(vf_load_part(x + i, n - i));
        all = (vi)vf_select(bits > all, (vf)bits, (vf)all);
    }
    for (int j = 0; j < VN; j++)
        most = all[j] > most ? all[j] : most;
    return most;
}

static float step_of(int32_t bits)
{
    float most;
    memcpy(&most, &bits, sizeof most);
    return bf16_to_f32(bf16_from_f32(most / 127.0f));
}

/* q = x / step, rounded and clamped. */
static void steps_of(int8_t *q, const float *x, float step, int64_t n)
{
    int64_t i = 0;
    vf s = vf_splat(step), low = vf_splat(-127.0f), high = vf_splat(127.0f), c = vf_splat(WHOLE);
    for (; i + VN <= n; i += VN) {
        vf v = vf_max(vf_min(vf_load(x + i) / s, high), low) + c - c;
        vi whole = __builtin_convertvector(v, vi);
        typedef int8_t vb __attribute__((vector_size(VN)));
        vb bytes = __builtin_convertvector(whole, vb);
        memcpy(q + i, &bytes, sizeof bytes);
    }
    for (; i < n; i++) {
        float v = x[i] / step;
        v = v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v;
        q[i] = (int8_t)rintf(v);
    }
}

/* A row of zeros has no steps, nor one where an element is not finite: it becomes zeros. */
static int32_t to_8_bits(cvn_dtype dtype, const void *x, int64_t n, float step, int8_t *out)
{
    float from[TILE];
    int32_t sum = 0;
    if (dtype == CVN_I8)
        memcpy(out, x, (size_t)n);
    else if (step > 0 && step < INFINITY)
        steps_of(out, tile_read(dtype, x, 0, n, from), step, n);
    else
        memset(out, 0, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        sum += out[i];
    return sum;
}

/* The least power of two that is not smaller. */
static float power_of_two(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fffff) & 0xff800000;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* Leaves in `value` what it was rounded by. */
static void to_fixed(bool power, float value[LINEAR_SPAN], int64_t group, LinearArrange *arrange,
                     int8_t *out, LinearSpan *span)
{
    int16_t fixed[LINEAR_SPAN];
    float most;
    int32_t bits = largest(CVN_F32, value, LINEAR_SPAN, 0);
    memcpy(&most, &bits, sizeof most);
    span->scale = most * (1.0f / 32512.0f);
    if (power)
        span->scale = power_of_two(span->scale);
    float inverse = power ? 1 / span->scale : 32512.0f / most;
    if (!(most < INFINITY) || !(inverse < INFINITY)) { /* or all 0, or nearly */
        span->scale = most < INFINITY ? 0 : NAN;
        inverse = 0;
        memset(value, 0, LINEAR_SPAN * sizeof *value);
    }
    for (int64_t i = 0; i < LINEAR_SPAN; i++) {
        float shifted = value[i] * inverse + 12582912.0f; /* the nearest integer in the low bits */
        memcpy(&bits, &shifted, 4);
        fixed[i] = (int16_t)(bits - 0x4b400000);
        value[i] = (float)((double)value[i] - (double)fixed[i] * (double)span->scale);
    }
    for (int64_t g = 0; g < LINEAR_SPAN / group; g++) {
        int32_t sum = 0;
        for (int64_t i = g * group; i < (g + 1) * group; i++)
            sum += fixed[i];
        span->minus8[g] = -8 * sum;
    }
    arrange(fixed, out);
}

static void quantize(cvn_dtype dtype, const void *x, int64_t n, int64_t group,
                     LinearArrange *arrange, int8_t *out, LinearSpan *span, int64_t rest)
{
    float buffer[TILE], value[LINEAR_SPAN];
    memcpy(value, tile_read(dtype, x, 0, n, buffer), (size_t)n * sizeof *value);
    memset(value + n, 0, (size_t)(LINEAR_SPAN - n) * sizeof *value);
    to_fixed(dtype == CVN_BF16, value, group, arrange, out, span);
    if (rest)
        to_fixed(false, value, group, arrange, out + rest * LINEAR_ROW_BYTES, span + rest);
}

static void quantize8(cvn_dtype dtype, const void *x, int64_t n, int64_t group, int64_t columns,
                      int8_t *out, LinearSpan *span)
{
    float buffer[TILE];
    const float *value = tile_read(dtype, x, 0, n, buffer);
    memset(out, 0, LINEAR_SPAN);
    for (int64_t i = 0; i < n; i += columns) {
        span->step[i / columns] = step_of(largest(CVN_F32, value + i, columns, 0));
        to_8_bits(CVN_F32, value + i, columns, span->step[i / columns], out + i);
    }
    for (int64_t g = 0; g < LINEAR_SPAN / group; g++) {
        int32_t sum = 0;
        for (int64_t i = g * group; i < (g + 1) * group; i++)
            sum -= out[i];
        span->minus[g] = sum;
    }
}

/* What is done with sums; known before the loops. */
typedef struct Kinds {
    bool integers, scale; /* integers: they are in steps of a row */
} Kinds;

/* One vector of sums, whose columns are multiplied by `scale`. */
VEC_INLINE vf finish(const Kinds is, const float *c, vf scale, float step)
{
    vf sum = vf_load(c);
    if (is.integers)
        sum = __builtin_convertvector((vi)sum, vf);
    if (is.scale)
        sum *= scale;
    if (is.integers)
        sum *= vf_splat(step);
    return sum;
}

VEC_INLINE vf scale_of(const LinearOut *o, const Kinds is, int j)
{
    return is.scale ? vf_load(o->scale + j) : vf_zero();
}

/* Columns from j on that are no whole panel, or of a type without vectors. */
static __attribute__((noinline)) void write_rest(const LinearOut *o, const Kinds is, int j)
{
    for (; j < o->columns; j += PANEL_ROWS)
        for (int r = 0; r < o->rows; r++) {
            const float *c = o->c + j / PANEL_ROWS * o->c_stride + r * PANEL_ROWS;
            const int n = o->columns - j < PANEL_ROWS ? o->columns - j : PANEL_ROWS;
            float y[PANEL_ROWS];
            for (int v = 0; v < PANEL_ROWS; v += VN)
                vf_store(y + v,
                         finish(is, c + v, scale_of(o, is, j + v), is.integers ? o->step[r] : 1));
            tile_write(o->dtype, o->out, o->at + r * o->stride + j, n, y);
        }
}

enum { VECTORS = PANEL_ROWS / VN };

/* Rows [r, end), columns from j on, of n panels, 1 or 2: whole cache lines of each row, and no more scales than there are
   registers. */
VEC_INLINE void write_panels(const LinearOut *o, const cvn_dtype dtype, const Kinds is, int r,
                             int end, int j, const int n)
{
    const int64_t stride = o->stride, c_stride = o->c_stride;
    const float *c = o->c + j / PANEL_ROWS * c_stride + r * PANEL_ROWS, *step = o->step;
    float *to = (float *)o->out + o->at + r * stride + j;
    uint16_t *half = (uint16_t *)o->out + o->at + r * stride + j;
    vf scale[2 * VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < n * VECTORS; v++)
        scale[v] = scale_of(o, is, j + v * VN);
    for (; r < end; r++) {
        vf x[2 * VECTORS];
#pragma GCC unroll 8
        for (int v = 0; v < n * VECTORS; v++)
            x[v] = finish(is, c + v / VECTORS * c_stride + v % VECTORS * VN, scale[v],
                          is.integers ? step[r] : 1);
#pragma GCC unroll 8
        for (int v = 0; v < n * VECTORS; v++)
            if (dtype == CVN_F32)
                vf_store(to + v * VN, x[v]);
            else if (n == 1)
                vf_store_bf16(half + v * VN, x[v]);
            else if (v % 2 == 0)
                vf_store_bf16_two(half + v * VN, x[v], x[v + 1]);
        c += PANEL_ROWS;
        to += stride;
        half += stride;
    }
}

/* More panels than that: few rows at a time, as what lies together in a row is to leave together. */
enum { WRITE_ROWS = 2 };

VEC_INLINE void write_all(const LinearOut *o, const cvn_dtype dtype, const Kinds is)
{
    const int whole = dtype == CVN_F16 ? 0 : o->columns - o->columns % PANEL_ROWS;
    const int most = whole <= 2 * PANEL_ROWS ? o->rows : WRITE_ROWS;
    for (int r = 0; r < o->rows; r += most) {
        int j = 0, end = o->rows - r < most ? o->rows : r + most;
        for (; j + 2 * PANEL_ROWS <= whole; j += 2 * PANEL_ROWS)
            write_panels(o, dtype, is, r, end, j, 2);
        if (j < whole)
            write_panels(o, dtype, is, r, end, j, 1);
    }
    if (whole < o->columns)
        write_rest(o, is, whole);
}

/* What there is is known before the loops. */
VEC_INLINE void write_as(const LinearOut *o, const cvn_dtype dtype)
{
    if (o->step)
        write_all(o, dtype, (Kinds){true, true});
    else if (o->scale)
        write_all(o, dtype, (Kinds){false, true});
    else
        write_all(o, dtype, (Kinds){false, false});
}

static void write(const LinearOut *o)
{
    if (o->dtype == CVN_F16)
        write_as(o, CVN_F16);
    else if (o->dtype == CVN_BF16)
        write_as(o, CVN_BF16);
    else
        write_as(o, CVN_F32);
}

const LinearRows ISA_NAME(linear_rows) = {
    .row = ISA_NAME(fusion_row),
    .quantize = quantize,
    .quantize8 = quantize8,
    .largest = largest,
    .step = step_of,
    .to_8_bits = to_8_bits,
    .write = write,
    .epilogue = ISA_NAME(fusion_epilogue),
};
