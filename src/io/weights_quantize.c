#include "io/weights_quantize.h"

#include "base/num.h"
#include "io/convert.h"

#include <stdlib.h>
#include <string.h>

static void put_scale(const QuantForm *f, const uint8_t *from, void *scales, int64_t at)
{
    uint32_t f32;
    uint16_t bf16;
    if (f->scale_dtype == CVN_F32) {
        memcpy(&f32, from, sizeof f32);
        __atomic_store_n((uint32_t *)scales + at, f32, __ATOMIC_RELAXED);
    } else {
        memcpy(&bf16, from, sizeof bf16);
        __atomic_store_n((uint16_t *)scales + at, bf16, __ATOMIC_RELAXED);
    }
}

/* What quantizing a row takes. */
typedef struct Row {
    float *x;       /* [k] */
    uint8_t *q;     /* [k] elements */
    uint8_t *scale; /* [groups] */
} Row;

/* Columns [column, column + n) of a row; returns how many were looked at, from *begin on. */
static int64_t quantize_columns(const Row *r, const IoTensor *t, const QuantForm *f, int64_t row,
                                int64_t column, int64_t n, uint8_t *q, void *scales, int64_t *bad)
{
    int64_t group = f->k / f->groups, begin = column / group * group;
    int64_t end = num_pieces(column + n, group) * group;
    *bad += (int64_t)io_convert(t, row * f->k + begin, end - begin, CVN_F32, r->x);
    quant_row(f, r->x, end - begin, r->q, r->scale);
    memcpy(q, r->q + cvn_dtype_bytes(f->dtype, column - begin), cvn_dtype_bytes(f->dtype, n));
    for (int64_t g = 0; g < (end - begin) / group; g++)
        put_scale(f, r->scale + cvn_dtype_bytes(f->scale_dtype, g), scales,
                  row * f->groups + begin / group + g);
    return end - begin;
}

int weights_quantize(const QuantForm *f, const IoTensor *t, int64_t first, int64_t n, void *q,
                     void *scales, int64_t *read, int64_t *bad, cvn_err *err)
{
    *read = *bad = 0;
    Row r = {.x = malloc((size_t)f->k * sizeof *r.x),
             .q = malloc((size_t)f->k),
             .scale = malloc((size_t)f->groups * sizeof(float))};
    bool room = r.x && r.q && r.scale;
    for (int64_t at = first, step = 0; room && at < first + n; at += step) {
        step = num_min(f->k - at % f->k, first + n - at);
        *read +=
            quantize_columns(&r, t, f, at / f->k, at % f->k, step,
                             (uint8_t *)q + cvn_dtype_bytes(f->dtype, at - first), scales, bad);
    }
    free(r.x);
    free(r.q);
    free(r.scale);
    return room ? CVN_OK : err_set(err, CVN_EMEM, "no memory to quantize a weight");
}
