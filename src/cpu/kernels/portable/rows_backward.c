#define ISA "portable"
#define ISA_NAME(name) name##_portable
#include "cpu/kernels/rows_backward_impl.h"
