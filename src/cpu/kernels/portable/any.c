#define ISA "portable"
#define ISA_NAME(name) name##_portable
#include "cpu/kernels/any_impl.h"
