#define ISA "avx2"
#define ISA_NAME(name) name##_avx2
#include "cpu/kernels/any_impl.h"
