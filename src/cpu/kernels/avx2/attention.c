#define ISA "avx2"
#define ISA_NAME(name) name##_avx2
#define ISA_GEMM gemm_avx2_f32
enum { ATTENTION_BF16 = 0 };
#include "cpu/kernels/attention_impl.h"
