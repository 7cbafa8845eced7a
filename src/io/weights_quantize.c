#include "io/weights_quantize.h"

#include "io/convert.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct Job {
    const IoTensor *tensor;
    const Param *param;
    const QuantForm *form; /* of param */
    uint8_t *q, *scale;
    atomic_long bad; /* elements that are NaN or infinite */
    atomic_bool failed;
} Job;

/* Tells the system that mapped bytes will not be read again. Parts of pages at the ends are left. */
static void give_back(const uint8_t *data, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)data + bytes) / page * page;
    if (end > begin)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* What a panel is made of. */
static cvn_dtype source_dtype(const QuantForm *f)
{
    return f->groups ? CVN_F32 : f->dtype;
}

/* Elements [first, first + n) of the tensor in that type: where they lie, or converted into buffer. */
static const char *read_elements(Job *job, int64_t first, int64_t n, char *buffer)
{
    const IoTensor *t = job->tensor;
    cvn_dtype dtype = source_dtype(job->form);
    if (t->n_parts == 0 && !t->adapter && t->coding == IO_PLAIN && t->dtype == dtype &&
        (uintptr_t)t->data % cvn_dtype_bytes(dtype, 1) == 0) {
        const char *data = (const char *)t->data + cvn_dtype_bytes(dtype, first);
        atomic_fetch_add(&job->bad, (long)io_count_nonfinite(dtype, data, n));
        return data;
    }
    atomic_fetch_add(&job->bad, (long)io_convert(t, first, n, dtype, buffer));
    return buffer;
}

/* Each thread makes the panels that it will read. */
static void make_panels(void *context, int thread, int n_threads)
{
    Job *job = context;
    const QuantForm *f = job->form;
    char *buffer = malloc(cvn_dtype_bytes(source_dtype(f), f->k) * QUANT_ROWS);
    if (!buffer) {
        atomic_store(&job->failed, true);
        return;
    }
    int64_t begin, end;
    param_share(job->param, thread, n_threads, &begin, &end);
    for (int64_t p = begin; p < end; p++) {
        int64_t n = quant_panel_rows(f, p);
        const char *rows = read_elements(job, p * QUANT_ROWS * f->k, n * f->k, buffer);
        quant_panel(f, rows, n, job->q + (size_t)p * quant_panel_bytes(f),
                    f->groups ? job->scale + (size_t)p * quant_scale_bytes(f) : NULL);
    }
    free(buffer);
}

int64_t weights_quantize(const IoTensor *tensor, const Param *param, Pool *pool, void *q,
                         void *scale)
{
    Job job = {.tensor = tensor, .param = param, .form = &param->quant, .q = q, .scale = scale};
    pool_run(pool, make_panels, &job);
    if (tensor->n_parts == 0)
        give_back(tensor->data, tensor->bytes);
    for (int i = 0; i < tensor->n_parts; i++)
        give_back(tensor->part[i].data, tensor->part[i].bytes);
    return atomic_load(&job.failed) ? -1 : (int64_t)atomic_load(&job.bad);
}

enum { UNIT_BYTES = 64 }; /* of a panel's units, in 8 bits and in 4 */

/* Rows of q or scale that the files hold: `row` bytes of each panel, of which `bytes` from `at` on are wanted. */
static void copy_panels(const uint8_t *from, const PanelBox *box, size_t row, size_t at,
                        size_t bytes, uint8_t *to)
{
    for (int64_t p = 0; p < box->panels; p++)
        memcpy(to + (size_t)p * bytes, from + (size_t)(box->panel + p) * row + at, bytes);
}

void weights_read_scales(const IoModel *model, int param, const PanelBox *box, void *scale)
{
    const QuantForm *f = &model->params.param[param].quant;
    size_t each = cvn_dtype_bytes(f->scale_dtype, QUANT_ROWS);
    copy_panels(model->source[param]->data, box, quant_scale_bytes(f), (size_t)box->group * each,
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
                        cvn_err *err)
{
    int64_t k = s->form.k;
    cvn_dtype dtype = source_dtype(&s->form);
    int64_t row_bytes = (int64_t)cvn_dtype_bytes(dtype, k);
    size_t scales = s->form.groups ? quant_scale_bytes(&s->form) : 0;
    char *rows = malloc((size_t)row_bytes * QUANT_ROWS);
    uint8_t *made = malloc(quant_panel_bytes(&s->form));
    for (int64_t p = 0; p < box->panels && rows && made; p++) {
        int64_t first = (box->panel + p) * QUANT_ROWS;
        int64_t n = quant_panel_rows(s->whole, box->panel + p);
        for (int64_t r = 0; r < n; r++)
            io_convert(s->tensor, (first + r) * s->whole->k + s->first, k, dtype,
                       rows + r * row_bytes);
        quant_panel(&s->form, rows, n, made, scales ? scale + (size_t)p * scales : NULL);
        memcpy(q + (size_t)p * s->units * UNIT_BYTES, made + s->unit * UNIT_BYTES,
               s->units * UNIT_BYTES);
    }
    int code = rows && made ? CVN_OK : err_set(err, CVN_EMEM, "no memory to quantize a weight");
    free(rows);
    free(made);
    return code;
}

int weights_read_panels(const IoModel *model, int param, const PanelBox *box, void *q, void *scale,
                        cvn_err *err)
{
    const QuantForm *f = &model->params.param[param].quant;
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
    if (part && f->groups != 1) {      /* groups have scales of their own, or there are none */
        int64_t unit = f->k / f->units;
        s.first = box->unit * unit;
        s.form.k = box->units * unit;
        s.form.units = box->units;
        s.form.groups = box->groups;
        s.unit = 0;
    }
    return quantize_box(&s, box, q, scale, err);
}
