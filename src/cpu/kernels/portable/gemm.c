/*
 * Matrix products in portable C. On x86-64 this is SSE2, where 2 x 16 accumulators are 8 of 16 registers; on 64-bit
 * Arm it is NEON, where 6 x 16 are 24 of 32.
 */
#define ISA "portable"
#define ISA_NAME(x) gemm_portable_##x
#define ISA_EPILOGUE fusion_epilogue_portable
#if defined(__aarch64__)
enum { MR = 6, PANELS = 1, MC = 510, KC = 256 };
#else
enum { MR = 2, PANELS = 1, MC = 256, KC = 256 };
#endif
#include "cpu/kernels/gemm_impl.h"
