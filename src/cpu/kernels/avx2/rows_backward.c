#define ISA "avx2"
#define ISA_NAME(name) name##_avx2
#include "cpu/kernels/rows_backward_impl.h"
