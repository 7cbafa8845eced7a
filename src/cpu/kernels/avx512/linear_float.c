/* Products with weights in bf16 and f32 in AVX-512. */
#define ISA_NAME(x) linear_avx512_##x
#include "cpu/kernels/linear_float_impl.h"
