/*
 * Matrix products with AVX-512. 12 x 32 accumulators are 24 of 32 registers.
 */
#define ISA "avx512"
#define ISA_NAME(x) gemm_avx512_##x
#define ISA_EPILOGUE fusion_epilogue_avx512
enum { MR = 12, PANELS = 2, MC = 516, KC = 384 };
#include "cpu/kernels/gemm_impl.h"
