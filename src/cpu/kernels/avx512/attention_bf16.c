#define ISA "avx512.bf16dot"
#define ISA_NAME(name) name##_avx512_bf16
#include "cpu/kernels/avx512/product.h"

#include "cpu/kernels/attention_tiles_impl.h"
