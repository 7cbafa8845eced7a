/* Quantized matrices, made of floats. */
#ifndef CVN_IO_WEIGHTS_QUANTIZE_H
#define CVN_IO_WEIGHTS_QUANTIZE_H

#include "io/tensor.h"
#include "model/params.h"

/* Elements first … first + n - 1 of a quantized matrix [rows, columns], of int4 whole groups of each row, made of floats. Each scale is put into its place in `scales` [rows, groups]; several threads may put the
   same. *read: how many floats were looked at (a scale for a row is made of all of it), *bad: of which were NaN or infinite. */
int weights_quantize(const QuantForm *form, const IoTensor *tensor, int64_t first, int64_t n,
                     void *q, void *scales, int64_t *read, int64_t *bad, cvn_err *err);

#endif
