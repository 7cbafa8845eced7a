/*
 * The tile registers of AMX, as far as products need them: eight tiles of 16 rows of 64 bytes.
 *
 *     tile_enter      configures the tiles of this thread; tile_leave gives them back, so that the
 *                     system need not save 8 KiB at every switch of threads
 *     tile_zero(t)
 *     tile_load(t, p, stride)     row r from p + r * stride; tile_stream likewise, for what will not
 *                                 be read again soon: it does not push the rest out of the L1 cache
 *     tile_store(t, p, stride)
 *     tile_bf16(c, a, b)          c[i][j] += a[i][2k] b[k][2j] + a[i][2k + 1] b[k][2j + 1], in f32
 *     tile_s8(c, a, b)            c[i][j] += sum over e < 4 of a[i][4k + e] b[k][4j + e], in i32
 *     tile_fence()                what was stored before is there for tile_load: compilers do not know what that reads
 *
 * t, a, b, c are the numbers 0 … 7 themselves: in the instructions they are part of the encoding,
 * which is why these are macros. With CVN_AMX_EMULATE defined the same names are functions on a
 * struct of bytes, so that the kernels are tested on machines that have no such unit.
 *
 * (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: LDTILECFG, TILELOADD,
 * TILELOADDT1, TDPBF16PS, TDPBSSD.)
 */
#ifndef CVN_CPU_KERNELS_AMX_TILES_H
#define CVN_CPU_KERNELS_AMX_TILES_H

#include <stdint.h>
#include <string.h>

enum { TILE_ROWS = 16, TILE_ROW_BYTES = 64, TILE_BYTES = TILE_ROWS * TILE_ROW_BYTES, TILES = 8 };

#if !defined(CVN_AMX_EMULATE)

#include "cpu/kernels/amx/config.h"

#include <immintrin.h>

#define tile_zero(t) _tile_zero(t)
#define tile_load(t, p, stride) _tile_loadd(t, p, (long)(stride))
#define tile_stream(t, p, stride) _tile_stream_loadd(t, p, (long)(stride))
#define tile_store(t, p, stride) _tile_stored(t, p, (long)(stride))
#define tile_bf16(c, a, b) _tile_dpbf16ps(c, a, b)
#define tile_s8(c, a, b) _tile_dpbssd(c, a, b)

static inline void tile_fence(void)
{
    __asm__ volatile("" ::: "memory");
}

static inline void tile_enter(void)
{
    _tile_loadconfig(&tile_config);
}

static inline void tile_leave(void)
{
    _tile_release();
}

#else

#include "base/float16.h"

/* Tiles of one thread. */
static _Thread_local unsigned char tile_data[TILES][TILE_ROWS][TILE_ROW_BYTES];

static inline void tile_fence(void)
{
}

static inline void tile_enter(void)
{
    memset(tile_data, 0, sizeof tile_data);
}

static inline void tile_leave(void)
{
    memset(tile_data, 0xff, sizeof tile_data); /* what is used after this is a NaN */
}

static inline void tile_zero(int t)
{
    memset(tile_data[t], 0, TILE_BYTES);
}

static inline void tile_load(int t, const void *p, size_t stride)
{
    for (size_t r = 0; r < TILE_ROWS; r++)
        memcpy(tile_data[t][r], (const char *)p + r * stride, TILE_ROW_BYTES);
}

static inline void tile_stream(int t, const void *p, size_t stride)
{
    tile_load(t, p, stride);
}

static inline void tile_store(int t, void *p, size_t stride)
{
    for (size_t r = 0; r < TILE_ROWS; r++)
        memcpy((char *)p + r * stride, tile_data[t][r], TILE_ROW_BYTES);
}

/* Even and odd products apart, then both sums at once: the order that the manual gives. */
static inline void tile_bf16(int c, int a, int b)
{
    float sum[16];
    uint16_t x[32], y[32];
    for (int i = 0; i < TILE_ROWS; i++) {
        float even[16] = {0}, odd[16] = {0};
        memcpy(sum, tile_data[c][i], sizeof sum);
        memcpy(x, tile_data[a][i], sizeof x);
        for (int k = 0; k < TILE_ROWS; k++) {
            memcpy(y, tile_data[b][k], sizeof y);
            for (int j = 0; j < 16; j++) {
                even[j] += bf16_to_f32(x[2 * k]) * bf16_to_f32(y[2 * j]);
                odd[j] += bf16_to_f32(x[2 * k + 1]) * bf16_to_f32(y[2 * j + 1]);
            }
        }
        for (int j = 0; j < 16; j++)
            sum[j] += even[j] + odd[j];
        memcpy(tile_data[c][i], sum, sizeof sum);
    }
}

static inline void tile_s8(int c, int a, int b)
{
    int32_t sum[16];
    int8_t x[64], y[64];
    for (int i = 0; i < TILE_ROWS; i++) {
        memcpy(sum, tile_data[c][i], sizeof sum);
        memcpy(x, tile_data[a][i], sizeof x);
        for (int k = 0; k < TILE_ROWS; k++) {
            memcpy(y, tile_data[b][k], sizeof y);
            for (int j = 0; j < 16; j++)
                for (int e = 0; e < 4; e++)
                    sum[j] += x[4 * k + e] * y[4 * j + e];
        }
        memcpy(tile_data[c][i], sum, sizeof sum);
    }
}

#endif

#endif
