#define CVN_AMX_EMULATE
#define attention_backward_kernels_amx emulated_attention_backward
#include "cpu/kernels/amx/attention_backward.c"
