#define ISA "portable"
#define ISA_NAME(name) name##_portable
#include "cpu/kernels/quantize_impl.h"
