/*
 * One element of a packed tensor as a number. Everything that defines what operations mean (the
 * interpreter, constant folding, the text form) reads and writes tensors through these two
 * functions. bf16 and f16 are rounded by way of f32, so twice, as XLA does and as kernels that
 * compute in f32 do.
 */
#include "base/float16.h"
#include "graph/graph.h"

#include <math.h>

double element_get(cvn_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case CVN_F64:
        return ((const double *)data)[i];
    case CVN_F32:
        return (double)((const float *)data)[i];
    case CVN_BF16:
        return (double)bf16_to_f32(((const uint16_t *)data)[i]);
    case CVN_F16:
        return (double)f16_to_f32(((const uint16_t *)data)[i]);
    case CVN_I32:
        return ((const int32_t *)data)[i];
    case CVN_U32:
        return ((const uint32_t *)data)[i];
    case CVN_I8:
        return ((const int8_t *)data)[i];
    case CVN_I4: {
        int nibble = ((const uint8_t *)data)[i / 2] >> (i % 2 * 4) & 15;
        return nibble < 8 ? nibble : nibble - 16;
    }
    case CVN_BOOL:
        return ((const uint8_t *)data)[i] != 0;
    case CVN_DTYPE_COUNT:
        break;
    }
    return 0;
}

/* Truncates towards zero into [low, high]; NaN gives 0. */
static double saturate(double value, double low, double high)
{
    return isnan(value) ? 0 : value < low ? low : value > high ? high : trunc(value);
}

void element_set(cvn_dtype dtype, void *data, int64_t i, double value)
{
    switch (dtype) {
    case CVN_F64:
        ((double *)data)[i] = value;
        break;
    case CVN_F32:
        ((float *)data)[i] = (float)value;
        break;
    case CVN_BF16:
        ((uint16_t *)data)[i] = bf16_from_f32((float)value);
        break;
    case CVN_F16:
        ((uint16_t *)data)[i] = f16_from_f32((float)value);
        break;
    case CVN_I32:
        ((int32_t *)data)[i] = (int32_t)saturate(value, INT32_MIN, INT32_MAX);
        break;
    case CVN_U32:
        ((uint32_t *)data)[i] = (uint32_t)saturate(value, 0, UINT32_MAX);
        break;
    case CVN_I8:
        ((int8_t *)data)[i] = (int8_t)saturate(value, INT8_MIN, INT8_MAX);
        break;
    case CVN_I4: {
        uint8_t *byte = (uint8_t *)data + i / 2;
        int shift = (int)(i % 2) * 4;
        int nibble = (int)saturate(value, -8, 7) & 15;
        *byte = (uint8_t)((*byte & ~(15 << shift)) | nibble << shift);
        break;
    }
    case CVN_BOOL:
        ((uint8_t *)data)[i] = value != 0;
        break;
    case CVN_DTYPE_COUNT:
        break;
    }
}
