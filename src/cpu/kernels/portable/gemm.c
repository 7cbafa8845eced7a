/*
 * Matrix products in portable C. On x86-64 this is SSE2, where 2 x 16 accumulators are 8 of 16 registers; on 64-bit
 * Arm it is NEON, where 6 x 16 are 24 of 32.
 */
#if defined(__aarch64__)
enum { MR = 6, PANELS = 1, MC = 510 };
#else
enum { MR = 2, PANELS = 1, MC = 256 };
#endif
#include "cpu/kernels/gemm_impl.h"

const GemmIsa gemm_portable_f32 = {
    .name = "portable.f32",
    .packed = CVN_F32,
    .kpack = 1,
    .mr = MR,
    .panels = PANELS,
    .mc = MC,
    .nc = 256,
    .kc = 256,
    .tile = tile_f32,
    .interleave = interleave_units,
    .round = tile_rows_to_bf16,
    .add = tile_add,
    .follow = fusion_follow_portable,
    .squares = tile_add_squares,
    .dots = dots_f32,
    .lanes = VN,
    .source = CVN_F32,
};

/* bf16 is widened to f32 while packing. */
const GemmIsa gemm_portable_bf16 = {
    .name = "portable.bf16",
    .packed = CVN_F32,
    .kpack = 1,
    .mr = MR,
    .panels = PANELS,
    .mc = MC,
    .nc = 256,
    .kc = 256,
    .tile = tile_f32,
    .interleave = interleave_units,
    .round = tile_rows_to_bf16,
    .add = tile_add,
    .follow = fusion_follow_portable,
    .squares = tile_add_squares,
    .dots = dots_bf16,
    .lanes = VN,
    .source = CVN_BF16,
};
