#define ISA "portable"
#define ISA_NAME(name) name##_portable
#include "cpu/kernels/likeliest_impl.h"
