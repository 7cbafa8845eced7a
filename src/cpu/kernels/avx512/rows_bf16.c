#define ISA "avx512.bf16"
#define ISA_NAME(name) name##_avx512_bf16
#define VEC_BF16
#include "cpu/kernels/rows_impl.h"
