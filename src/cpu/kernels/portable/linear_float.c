/* Products with weights in bf16 and f32 in portable C. */
#define ISA_NAME(x) linear_portable_##x
#include "cpu/kernels/linear_float_impl.h"
