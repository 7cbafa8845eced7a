#define ISA "avx512"
#define ISA_NAME(name) name##_avx512
#define ISA_GEMM gemm_avx512_f32
#include "cpu/kernels/attention_backward_impl.h"
