/* Quantized matrices in panels: taken from the model's files as they lie, or made of its floats. */
#ifndef CVN_IO_WEIGHTS_QUANTIZE_H
#define CVN_IO_WEIGHTS_QUANTIZE_H

#include "io/model.h"

/* Part of a quantized matrix: some of its panels, and of each a run of units, with the groups that these are of. */
typedef struct PanelBox {
    int64_t panel, panels; /* first, how many */
    int64_t unit, units;
    int64_t group, groups;
} PanelBox;

/* The numbers and scales of a box (scale may be NULL where the files are quantized; it is another tensor of them then,
   read with weights_copy_scales), q [panels, units, 64 bytes], scale [panels, groups, 16]. Of floats, rows whose scale
   needs all of them are read whole, others as far as the box goes. *bad: elements that were NaN or infinite. */
int weights_read_panels(const IoModel *model, int param, const PanelBox *box, void *q, void *scale,
                        int64_t *bad, cvn_err *err);
/* The scales of a box from all of the tensor's. */
void weights_copy_scales(const QuantForm *form, const uint8_t *all, const PanelBox *box,
                         void *scale);

#endif
