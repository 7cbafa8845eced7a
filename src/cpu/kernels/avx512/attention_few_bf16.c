#define VEC_BF16
#define ISA "avx512.bf16few"
#define ISA_NAME(name) name##_avx512_bf16few
#include "cpu/kernels/attention_impl.h"
