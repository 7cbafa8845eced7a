/*
 * Matrix products with AVX-512. 12 x 32 accumulators are 24 of 32 registers.
 */
enum { MR = 12, PANELS = 2 };
#include "cpu/kernels/gemm_impl.h"

const GemmIsa gemm_avx512_f32 = {
    .name = "avx512.f32",
    .packed = CVN_F32,
    .kpack = 1,
    .mr = MR,
    .panels = PANELS,
    .mc = 516,
    .nc = 256,
    .kc = 384,
    .tile = tile_f32,
    .interleave = interleave_units,
    .round = tile_rows_to_bf16,
    .add = tile_add,
    .follow = fusion_follow_avx512,
    .squares = tile_add_squares,
    .dots = dots_f32,
    .lanes = VN,
    .source = CVN_F32,
};

/* bf16 is widened to f32 while packing. */
const GemmIsa gemm_avx512_bf16 = {
    .name = "avx512.bf16",
    .packed = CVN_F32,
    .kpack = 1,
    .mr = MR,
    .panels = PANELS,
    .mc = 516,
    .nc = 256,
    .kc = 384,
    .tile = tile_f32,
    .interleave = interleave_units,
    .round = tile_rows_to_bf16,
    .add = tile_add,
    .follow = fusion_follow_avx512,
    .squares = tile_add_squares,
    .dots = dots_bf16,
    .lanes = VN,
    .source = CVN_BF16,
};
