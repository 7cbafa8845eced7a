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
 * which is why these are macros. tests/amx_trap.h carries them out on machines that have no such unit.
 *
 * (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: LDTILECFG, TILELOADD,
 * TILELOADDT1, TDPBF16PS, TDPBSSD.)
 */
#ifndef CVN_CPU_KERNELS_AMX_TILES_H
#define CVN_CPU_KERNELS_AMX_TILES_H

#include "cpu/kernels/amx/config.h"

#include <immintrin.h>
#include <string.h>

enum { TILE_ROWS = 16, TILE_ROW_BYTES = 64, TILE_BYTES = TILE_ROWS * TILE_ROW_BYTES };

#define tile_zero(t) _tile_zero(t)
#define tile_load(t, p, stride) _tile_loadd(t, p, (long)(stride))
#define tile_stream(t, p, stride) _tile_stream_loadd(t, p, (long)(stride))
#define tile_store(t, p, stride) _tile_stored(t, p, (long)(stride))
#define tile_bf16(c, a, b) _tile_dpbf16ps(c, a, b)
#define tile_s8(c, a, b) _tile_dpbssd(c, a, b)

/* Tiles 0 to 3, sums of two tiles side by side and of two below them: zeros; or tile_load or tile_store of those that there
   are, so many bytes apart. */
#define tiles_zero()                                                                               \
    do {                                                                                           \
        tile_zero(0);                                                                              \
        tile_zero(1);                                                                              \
        tile_zero(2);                                                                              \
        tile_zero(3);                                                                              \
    } while (0)
#define tiles_of_sums(move, c, row, to_right, to_below, right, below)                              \
    do {                                                                                           \
        move(0, c, row);                                                                           \
        if (right)                                                                                 \
            move(1, (c) + (to_right), row);                                                        \
        if (below)                                                                                 \
            move(2, (c) + (to_below), row);                                                        \
        if ((right) && (below))                                                                    \
            move(3, (c) + (to_below) + (to_right), row);                                           \
    } while (0)

static inline void tile_fence(void)
{
    __asm__ volatile("" ::: "memory");
}

/* In step i of a loop over k: stores tile t anywhere, now and then. A core lets what stores tiles sleep when it was not used
   for 700 ns, and takes 300 to wake it. */
#define tile_awake(i, t)                                                                           \
    do {                                                                                           \
        static _Thread_local char anywhere[TILE_BYTES] __attribute__((aligned(64)));               \
        if ((i) % 16 == 8)                                                                         \
            tile_store(t, anywhere, TILE_ROW_BYTES);                                               \
    } while (0)

static inline void tile_enter(void)
{
    _tile_loadconfig(&tile_config);
}

static inline void tile_leave(void)
{
    _tile_release();
}

#endif
