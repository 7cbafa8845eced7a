#define ISA "avx512"
#define ISA_NAME(name) name##_avx512
#include "cpu/kernels/any_impl.h"
