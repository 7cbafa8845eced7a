#define ISA "avx2"
#define ISA_NAME(name) name##_avx2
#define ISA_GEMM gemm_avx2_f32
#include "cpu/kernels/attention_backward_impl.h"
