#define ISA "avx512.bf16dot"
#define ISA_NAME(name) name##_avx512_bf16
#define ISA_GEMM gemm_avx512_bf16dot
enum { BACKWARD_BF16 = 1 };
#include "cpu/kernels/attention_backward_impl.h"
