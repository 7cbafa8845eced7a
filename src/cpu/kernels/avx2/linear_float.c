/* Products with weights in bf16 and f32 in AVX2. */
#define ISA_NAME(x) linear_avx2_##x
#include "cpu/kernels/linear_float_impl.h"
