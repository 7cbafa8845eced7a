/*
 * Short runs of floating-point elements as f32, whatever they are stored as.
 *
 * Kernels that are not matrix products work in tiles of TILE elements: read a tile as f32, compute,
 * write it in the result's dtype. f32 tiles are used where they lie; bf16 and f16 pass through a
 * buffer that stays in the L1 cache.
 */
#ifndef CVN_CPU_KERNELS_TILE_H
#define CVN_CPU_KERNELS_TILE_H

#include "base/num.h"
#include "caravan/dtype.h"
#include "cpu/kernels/vec.h"

#include <stdbool.h>

enum { TILE = 512 }; /* elements */

/* Elements of the tile that begins at `at`, of those up to `end`. */
static inline int64_t tile_length(int64_t at, int64_t end)
{
    return num_min(end - at, TILE);
}

/* The dtypes that tiles can be made of. */
static inline bool tile_dtype(cvn_dtype dtype)
{
    return dtype == CVN_F32 || dtype == CVN_BF16 || dtype == CVN_F16;
}

static inline __attribute__((unused)) void tile_from_bf16(float *restrict out,
                                                          const uint16_t *restrict in, int64_t n)
{
    int64_t i = 0;
    for (; i + VN <= n; i += VN)
        vf_store(out + i, vf_load_bf16(in + i));
    for (; i < n; i++)
        out[i] = bf16_to_f32(in[i]);
}

static inline __attribute__((unused)) void tile_to_bf16(uint16_t *restrict out,
                                                        const float *restrict in, int64_t n)
{
    int64_t i = 0;
    for (; i + VN <= n; i += VN)
        vf_store_bf16(out + i, vf_load(in + i));
    for (; i < n; i++)
        out[i] = bf16_from_f32(in[i]);
}

/* sum[j] += x[i * ld + j]^2, j < n, for i < rows in this order, each rounded by itself. */
static inline __attribute__((unused)) void
tile_add_squares(float *restrict sum, const float *restrict x, int64_t rows, int64_t ld, int64_t n)
{
    int64_t j = 0;
    for (; j + VN <= n; j += VN) {
        vf s = vf_load(sum + j);
        for (int64_t i = 0; i < rows; i++) {
            vf v = vf_load(x + i * ld + j);
            s += v * v;
        }
        vf_store(sum + j, s);
    }
    for (; j < n; j++)
        for (int64_t i = 0; i < rows; i++)
            sum[j] += x[i * ld + j] * x[i * ld + j];
}

/* Rows of n elements, ld and ld_in apart. */
static inline __attribute__((unused)) void tile_rows_to_bf16(uint16_t *restrict out, int64_t ld,
                                                             const float *restrict in,
                                                             int64_t ld_in, int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < rows; i++)
        tile_to_bf16(out + i * ld, in + i * ld_in, n);
}

static inline __attribute__((unused)) void tile_from_f16(float *restrict out,
                                                         const uint16_t *restrict in, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX2__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + i))));
#endif
    for (; i < n; i++)
        out[i] = f16_to_f32(in[i]);
}

static inline __attribute__((unused)) void tile_to_f16(uint16_t *restrict out,
                                                       const float *restrict in, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = f16_from_f32(in[i]);
}

/* Elements [at, at + n) of a tensor as f32: where they lie, or converted into buffer. */
static inline __attribute__((unused)) const float *tile_read(cvn_dtype dtype, const void *data,
                                                             int64_t at, int64_t n, float *buffer)
{
    if (dtype == CVN_F32)
        return (const float *)data + at;
    if (dtype == CVN_BF16)
        tile_from_bf16(buffer, (const uint16_t *)data + at, n);
    else
        tile_from_f16(buffer, (const uint16_t *)data + at, n);
    return buffer;
}

/* Where to compute elements [at, at + n) of a result: in place, or in buffer, for tile_write. */
static inline __attribute__((unused)) float *tile_target(cvn_dtype dtype, void *data, int64_t at,
                                                         float *buffer)
{
    return dtype == CVN_F32 ? (float *)data + at : buffer;
}

/* Rounds what was computed at tile_target into the tensor. */
static inline __attribute__((unused)) void tile_write(cvn_dtype dtype, void *data, int64_t at,
                                                      int64_t n, const float *computed)
{
    if (dtype == CVN_BF16)
        tile_to_bf16((uint16_t *)data + at, computed, n);
    else if (dtype == CVN_F16)
        tile_to_f16((uint16_t *)data + at, computed, n);
    else if (computed != (float *)data + at)
        memcpy((float *)data + at, computed, (size_t)n * sizeof(float));
}

#endif
