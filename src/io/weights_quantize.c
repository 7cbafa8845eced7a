#include "io/weights_quantize.h"

#include "base/num.h"
#include "io/convert.h"

#include <stdlib.h>
#include <string.h>

/* ---- panels ---- */

/*
 * Folders that caravan quantize wrote first have matrices as kernels read them, rows and columns past the edges being 0:
 *
 *     8 bits   I8 [ceil(n / 16), ceil(k / 4), 16, 4]   row 16 a + c, column 4 b + d at [a, b, c, d]
 *     4 bits   I8 [ceil(n / 16), k / 8, 16, 4]         columns 8 b + d (low half of the byte) and 8 b + 4 + d (high)
 *     scales   [ceil(n / 16), groups, 16]
 */
enum { ROWS = 16, WORD = 4 /* bytes of a row that lie together */ };

/* Columns of a word. */
static int64_t word_columns(const QuantForm *f)
{
    return f->dtype == CVN_I4 ? 2 * WORD : WORD;
}

bool weights_in_panels(const Param *param, const IoTensor *tensor)
{
    const QuantForm *f = &param->quant;
    const int64_t rows = num_pieces(f->n, ROWS), *d = tensor->dims;
    if (param->form == PARAM_SCALES)
        return tensor->rank == 3 && d[0] == rows && d[1] == f->groups && d[2] == ROWS;
    return param->form == PARAM_QUANTIZED && tensor->rank == 4 && d[0] == rows &&
           d[1] == num_pieces(f->k, word_columns(f)) && d[2] == ROWS && d[3] == WORD;
}

/* Columns four apart in a byte become neighbours in one. */
static void join_columns(uint8_t word[WORD])
{
    uint8_t from[WORD];
    memcpy(from, word, WORD);
    for (int i = 0; i < WORD; i++) {
        int low = from[2 * i % WORD] >> (i / 2 * 4) & 15;
        int high = from[2 * i % WORD + 1] >> (i / 2 * 4) & 15;
        word[i] = (uint8_t)(low | high << 4);
    }
}

void weights_read_panels(const QuantForm *f, const IoTensor *tensor, int64_t first, int64_t n,
                         void *q)
{
    const uint8_t *panels = tensor->data;
    const int64_t columns = word_columns(f), words = num_pieces(f->k, columns);
    for (int64_t at = first, step = 0; at < first + n; at += step) {
        int64_t row = at / f->k, column = at % f->k, skip = column % columns;
        uint8_t word[WORD];
        step = num_min(num_min(columns - skip, f->k - column), first + n - at);
        memcpy(word, panels + ((row / ROWS * words + column / columns) * ROWS + row % ROWS) * WORD,
               WORD);
        if (f->dtype == CVN_I4)
            join_columns(word);
        memcpy((uint8_t *)q + cvn_dtype_bytes(f->dtype, at - first),
               word + cvn_dtype_bytes(f->dtype, skip), cvn_dtype_bytes(f->dtype, step));
    }
}

void weights_read_scales(const QuantForm *f, const IoTensor *tensor, void *out)
{
    const size_t each = cvn_dtype_bytes(f->scale_dtype, 1);
    for (int64_t i = 0; i < f->n * f->groups; i++) {
        int64_t row = i / f->groups, group = i % f->groups;
        int64_t at = (row / ROWS * f->groups + group) * ROWS + row % ROWS;
        memcpy((uint8_t *)out + (size_t)i * each, tensor->data + (size_t)at * each, each);
    }
}

/* ---- floats ---- */

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
