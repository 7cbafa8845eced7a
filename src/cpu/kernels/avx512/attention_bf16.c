#define ISA "avx512.bf16dot"
#define ISA_NAME(name) name##_avx512_bf16
#define ISA_GEMM gemm_avx512_bf16dot
enum { ATTENTION_BF16 = 1 };
#include "cpu/kernels/attention_impl.h"
