/*
 * Products with weights in bf16 on AMX tiles, and for what does not fill tiles in AVX-512, with the same bits
 * (avx512/linear_as_tiles.c).
 *
 * 512 rows and 32 panels are taken at a time: a span of x (512 KiB) and the sums (1 MiB) stay in L2, two panels (32 KiB) in
 * L1, past which x goes (tile_stream). Weights then come from memory once for 512 rows, fetched ahead beside the tiles.
 */
#include "cpu/kernels/amx/linear_block.h"

#include <xmmintrin.h>

static void tile(const LinearTile *t)
{
    tile_panels(false, t, &linear_as_tiles);
}

enum { FLUSH = 0x8040 /* denormal results and operands are zeros */ };
static _Thread_local unsigned control; /* as it was */

static void enter(void)
{
    control = _mm_getcsr();
    _mm_setcsr(control | FLUSH);
    tile_enter();
}

static void leave(void)
{
    tile_leave();
    _mm_setcsr(control);
}

const LinearIsa linear_bf16_amx = {BLOCK_MEMBERS,  .weight = CVN_BF16, .x = CVN_BF16,
                                   .enter = enter, .leave = leave,     .tile = tile};
