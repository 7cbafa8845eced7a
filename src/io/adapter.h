/*
 * Adapters (LoRA) in PEFT folders. Whoever runs a model beside them reads A and B; or they are merged into the model as its
 * weights are read: nothing is written, and what reads a tensor (io_decode and all above it) gets W + alpha / rank B A.
 * io_open_model does that for a folder with adapter_config.json, which says where its model is.
 */
#ifndef CVN_IO_ADAPTER_H
#define CVN_IO_ADAPTER_H

#include "io/model.h"
#include "model/lora.h"

typedef struct IoAdapter {
    const char *folder; /* for messages; the arena's */
    LoraOptions options;
    LoraParams params; /* of the model's weights */
    IoTensors tensors; /* those of params.list, and no others */
    FileMap map;
    bool mapped;
} IoAdapter;

/* Opens the folder and checks that it has adapters for all that it says it adapts of the model, and nothing else. On an
   error, too, it is to be closed; of {0} that does nothing. */
int io_adapter_open(IoAdapter *adapter, const IoModel *model, const char *folder, Arena *arena,
                    cvn_err *err);
void io_adapter_close(IoAdapter *adapter);

/* A (number params.a[i]) or B (the next one) of a weight of the model, whole, in the order of the model's own rows. */
void io_adapter_read(const IoAdapter *adapter, const IoModel *model, int number, float *out);

/* Has the adapters in `folder` added to an opened and audited model. The files are read now and not needed later. */
int io_adapt(IoModel *model, const char *folder, cvn_err *err);

/* The same with tensors that were read before; `folder` is where they come from, for messages. */
int io_adapt_by(IoModel *model, const IoTensors *tensors, const char *folder,
                const LoraOptions *options, cvn_err *err);

#endif
