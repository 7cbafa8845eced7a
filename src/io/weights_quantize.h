/* Matrices in panels in memory, quantized or as they are: taken from the model's files as they lie, or made of its floats. */
#ifndef CVN_IO_WEIGHTS_QUANTIZE_H
#define CVN_IO_WEIGHTS_QUANTIZE_H

#include "base/threads.h"
#include "io/model.h"

/* Quantizes a tensor of floats, whose logical shape has param->quant.n rows, into panels and scales (the
   arrays of param, of PARAM_PANELS, and of its scales), on all threads of the pool. The tensor's pages are
   given back as they are done with: it is read once. Without groups in param->quant its numbers are packed as they
   are, in the form's dtype, and scale is NULL. Returns how many elements were NaN or infinite, or -1
   when there was no memory for a panel. */
int64_t weights_quantize(const IoTensor *tensor, const Param *param, Pool *pool, void *q,
                         void *scale);

#endif
