/* A quantized matrix written as it is made: panels as they are filled, then its scales. */
#ifndef CVN_IO_SAVE_QUANTIZED_H
#define CVN_IO_SAVE_QUANTIZED_H

#include "base/threads.h"
#include "io/safetensors.h"
#include "io/save_fill.h"

/* Quantizes the parameter, which is of PARAM_PANELS, from what fill gives, and writes it as tensor `index` of
   the writer and its scales as the one after. Holds some panels per thread, and the scales of this one. */
int save_quantized(StWriter *writer, size_t index, const Param *param, SaveFill fill, void *context,
                   Pool *pool, cvn_err *err);

#endif
