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

/* Part of a quantized matrix: some of its panels, and of each a run of units, with the groups that these are of. */
typedef struct PanelBox {
    int64_t panel, panels; /* first, how many */
    int64_t unit, units;
    int64_t group, groups;
} PanelBox;

/* The numbers and scales of a box (scale may be NULL where the files are quantized; it is another tensor of them then,
   read with weights_read_scales), q [panels, units, 64 bytes], scale [panels, groups, 16]. Of floats, rows whose scale
   needs all of them are read whole, others as far as the box goes. */
int weights_read_panels(const IoModel *model, int param, const PanelBox *box, void *q, void *scale,
                        cvn_err *err);
/* The scales of a box, from files that are quantized; param is that of the scales. */
void weights_read_scales(const IoModel *model, int param, const PanelBox *box, void *scale);

#endif
