#define ISA "portable"
#define ISA_NAME(name) name##_portable
#define ISA_GEMM gemm_portable_f32
#include "cpu/kernels/attention_impl.h"
