#define ISA "amx.bf16"
#define ISA_NAME(name) name##_amx
#include "cpu/kernels/amx/product.h"

#include "cpu/kernels/attention_backward_tiles_impl.h"
