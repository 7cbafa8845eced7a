#include "io/weights_quantize.h"

#include "io/convert.h"

#include <stdlib.h>
#include <string.h>

enum { UNIT_BYTES = 64 }; /* of a panel's units, in 8 bits and in 4 */

/* Rows of q or scale that the files hold: `row` bytes of each panel, of which `bytes` from `at` on are wanted. */
static void copy_panels(const uint8_t *from, const PanelBox *box, size_t row, size_t at,
                        size_t bytes, uint8_t *to)
{
    for (int64_t p = 0; p < box->panels; p++)
        memcpy(to + (size_t)p * bytes, from + (size_t)(box->panel + p) * row + at, bytes);
}

void weights_copy_scales(const QuantForm *f, const uint8_t *all, const PanelBox *box, void *scale)
{
    size_t each = cvn_dtype_bytes(f->scale_dtype, QUANT_ROWS);
    copy_panels(all, box, quant_scale_bytes(f), (size_t)box->group * each,
                (size_t)box->groups * each, scale);
}

/* Quantizes the panels of a box. `form` says which columns are looked at, from column `first` of the rows on; of what comes
   of them, units [unit, unit + units) are kept. */
typedef struct Slice {
    const IoTensor *tensor;
    const QuantForm *whole;
    QuantForm form;
    int64_t first;
    size_t unit, units;
} Slice;

static int quantize_box(const Slice *s, const PanelBox *box, uint8_t *q, uint8_t *scale,
                        int64_t *bad, cvn_err *err)
{
    int64_t k = s->form.k;
    size_t scales = quant_scale_bytes(&s->form);
    float *rows = malloc((size_t)(k * QUANT_ROWS) * sizeof *rows);
    uint8_t *made = malloc(quant_panel_bytes(&s->form));
    for (int64_t p = 0; p < box->panels && rows && made; p++) {
        int64_t first = (box->panel + p) * QUANT_ROWS;
        int64_t n = quant_panel_rows(s->whole, box->panel + p);
        for (int64_t r = 0; r < n; r++)
            *bad += (int64_t)io_convert(s->tensor, (first + r) * s->whole->k + s->first, k, CVN_F32,
                                        rows + r * k);
        quant_panel(&s->form, rows, n, made, scale + (size_t)p * scales);
        memcpy(q + (size_t)p * s->units * UNIT_BYTES, made + s->unit * UNIT_BYTES,
               s->units * UNIT_BYTES);
    }
    int code = rows && made ? CVN_OK : err_set(err, CVN_EMEM, "no memory to quantize a weight");
    free(rows);
    free(made);
    return code;
}

int weights_read_panels(const IoModel *model, int param, const PanelBox *box, void *q, void *scale,
                        int64_t *bad, cvn_err *err)
{
    const QuantForm *f = &model->params.param[param].quant;
    *bad = 0;
    if (!model->quantizes) {
        copy_panels(model->source[param]->data, box, quant_panel_bytes(f),
                    (size_t)box->unit * UNIT_BYTES, (size_t)box->units * UNIT_BYTES, q);
        return CVN_OK;
    }
    Slice s = {.tensor = model->source[param],
               .whole = f,
               .form = *f,
               .unit = (size_t)box->unit,
               .units = (size_t)box->units};
    bool part = box->units < f->units; /* then units divide the columns evenly */
    if (part && f->groups > 1) {       /* groups have scales of their own */
        int64_t unit = f->k / f->units;
        s.first = box->unit * unit;
        s.form.k = box->units * unit;
        s.form.units = box->units;
        s.form.groups = box->groups;
        s.unit = 0;
    }
    return quantize_box(&s, box, q, scale, bad, err);
}
