/*
 * Matrix products with AVX2 and FMA. 6 x 16 accumulators are 12 of 16 registers.
 */
enum { MR = 6, PANELS = 1 };
#include "cpu/kernels/gemm_impl.h"

const GemmIsa gemm_avx2_f32 = {
    .name = "avx2.f32",
    .packed = CVN_F32,
    .kpack = 1,
    .mr = MR,
    .panels = PANELS,
    .mc = 510,
    .nc = 256,
    .kc = 256,
    .tile = tile_f32,
    .interleave = interleave_units,
    .round = tile_rows_to_bf16,
    .add = tile_add,
    .follow = fusion_follow_avx2,
    .squares = tile_add_squares,
    .dots = dots_f32,
    .lanes = VN,
    .source = CVN_F32,
};

/* bf16 is widened to f32 while packing. */
const GemmIsa gemm_avx2_bf16 = {
    .name = "avx2.bf16",
    .packed = CVN_F32,
    .kpack = 1,
    .mr = MR,
    .panels = PANELS,
    .mc = 510,
    .nc = 256,
    .kc = 256,
    .tile = tile_f32,
    .interleave = interleave_units,
    .round = tile_rows_to_bf16,
    .add = tile_add,
    .follow = fusion_follow_avx2,
    .squares = tile_add_squares,
    .dots = dots_bf16,
    .lanes = VN,
    .source = CVN_BF16,
};
