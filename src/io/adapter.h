/*
 * Adapters (LoRA) of a PEFT folder, merged into a model as its weights are read: nothing is written, and what
 * reads a tensor (io_decode and all above it) gets W + alpha / rank B A. io_open_model does it for a folder
 * with adapter_config.json, which says where its model is.
 */
#ifndef CVN_IO_ADAPTER_H
#define CVN_IO_ADAPTER_H

#include "io/model.h"
#include "model/lora.h"

/* Has the adapters in `folder` added to an opened and audited model; `options` are what its
   adapter_config.json says. The files are read now and not needed later. */
int io_adapt(IoModel *model, const char *folder, const LoraOptions *options, cvn_err *err);

/* The same with tensors that were read before; `folder` is where they come from, for messages. */
int io_adapt_by(IoModel *model, const IoTensors *tensors, const char *folder,
                const LoraOptions *options, cvn_err *err);

#endif
