#define CVN_AMX_EMULATE
#define attention_kernels_amx emulated_attention
#include "cpu/kernels/amx/attention.c"
