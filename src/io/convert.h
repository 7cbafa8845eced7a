/*
 * Elements of tensors in files, as numbers: decode any range of a tensor to f32, encode f32 to a
 * storage type (nearest, ties to even). f64 is rounded to f32 first.
 */
#ifndef CVN_IO_CONVERT_H
#define CVN_IO_CONVERT_H

#include "io/tensor.h"

/* Whether io_decode can read the tensor: f64, f32, bf16, f16 and blocks. */
bool io_is_numeric(const IoTensor *tensor);

/* Elements first .. first+n-1, in row-major order, to f32. The tensor must be numeric. */
void io_decode(const IoTensor *tensor, int64_t first, int64_t n, float *out);

/* Converts n numbers from f32 to f32, bf16 or f16. */
void io_encode(cvn_dtype dtype, const float *in, int64_t n, void *out);

/* The same range from the tensor's type to f32, bf16 or f16; copies where the types are equal.
 * Returns how many elements were NaN or infinite. */
int64_t io_convert(const IoTensor *tensor, int64_t first, int64_t n, cvn_dtype dtype, void *out);

/* How many of n elements (f64, f32, bf16, f16; of any alignment) are NaN or infinite. */
int64_t io_count_nonfinite(cvn_dtype dtype, const void *data, int64_t n);

#endif
