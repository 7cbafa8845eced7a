#define CVN_AMX_EMULATE
#define linear_amx_int8 emulated_int8
#define linear_amx_tile_i4 emulated_tile_i4
#include "cpu/kernels/amx/linear.c"
