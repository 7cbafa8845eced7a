/*
 * Matrix products with AVX2 and FMA. 6 x 16 accumulators are 12 of 16 registers.
 */
#define ISA "avx2"
#define ISA_NAME(x) gemm_avx2_##x
#define ISA_EPILOGUE fusion_epilogue_avx2
enum { MR = 6, PANELS = 1, MC = 510, KC = 256 };
#include "cpu/kernels/gemm_impl.h"
