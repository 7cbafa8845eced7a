#include "caravan/dtype.h"

#include <string.h>

static const struct {
    const char *name;
    int bits;
} dtype_table[CVN_DTYPE_COUNT] = {
#define X(dtype, name, bits) [dtype] = {name, bits},
    CVN_DTYPES(X)
#undef X
};

const char *cvn_dtype_name(cvn_dtype dtype)
{
    return (unsigned)dtype < CVN_DTYPE_COUNT ? dtype_table[dtype].name : "?";
}

bool cvn_dtype_parse(const char *text, cvn_dtype *out)
{
    for (int i = 0; i < CVN_DTYPE_COUNT; i++) {
        if (strcmp(text, dtype_table[i].name) == 0) {
            *out = (cvn_dtype)i;
            return true;
        }
    }
    return false;
}

int cvn_dtype_bits(cvn_dtype dtype)
{
    return (unsigned)dtype < CVN_DTYPE_COUNT ? dtype_table[dtype].bits : 0;
}

size_t cvn_dtype_bytes(cvn_dtype dtype, int64_t n)
{
    size_t bits = (size_t)cvn_dtype_bits(dtype);
    if (n < 0)
        return SIZE_MAX;
    if (bits == 4)
        return (size_t)n / 2 + (size_t)n % 2;
    size_t bytes;
    return __builtin_mul_overflow((size_t)n, bits / 8, &bytes) ? SIZE_MAX : bytes;
}
