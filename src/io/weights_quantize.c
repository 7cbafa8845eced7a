#include "io/weights_quantize.h"

#include "io/convert.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct Job {
    const IoTensor *tensor;
    const QuantForm *form;
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

/* Elements [first, first + n) of the tensor in the form's dtype: where they lie, or converted into buffer. */
static const char *read_elements(Job *job, int64_t first, int64_t n, char *buffer)
{
    const IoTensor *t = job->tensor;
    cvn_dtype dtype = job->form->dtype;
    if (t->n_parts == 0 && !t->adapter && t->coding == IO_PLAIN && t->dtype == dtype) {
        const char *data = (const char *)t->data + cvn_dtype_bytes(dtype, first);
        atomic_fetch_add(&job->bad, (long)io_count_nonfinite(dtype, data, n));
        return data;
    }
    atomic_fetch_add(&job->bad, (long)io_convert(t, first, n, dtype, buffer));
    return buffer;
}

/* As they are: each thread takes a range of panels. */
static void pack_panels(void *context, int thread, int n_threads)
{
    Job *job = context;
    const QuantForm *f = job->form;
    size_t row_bytes = cvn_dtype_bytes(f->dtype, f->k);
    char *buffer = malloc(row_bytes * QUANT_ROWS);
    if (!buffer) {
        atomic_store(&job->failed, true);
        return;
    }
    for (int64_t p = f->panels * thread / n_threads; p < f->panels * (thread + 1) / n_threads;
         p++) {
        int64_t first = p * QUANT_ROWS;
        int64_t n = f->n - first < QUANT_ROWS ? f->n - first : QUANT_ROWS;
        const char *data = read_elements(job, first * f->k, n * f->k, buffer);
        const void *row[QUANT_ROWS];
        for (int64_t r = 0; r < n; r++)
            row[r] = data + (size_t)r * row_bytes;
        quant_pack_panel(f, row, (int)n, job->q + (size_t)p * quant_panel_bytes(f));
    }
    free(buffer);
}

/* Each thread takes a range of panels. */
static void quantize_panels(void *context, int thread, int n_threads)
{
    Job *job = context;
    const QuantForm *f = job->form;
    float *rows = malloc((size_t)f->k * QUANT_ROWS * sizeof *rows);
    const float *row[QUANT_ROWS];
    if (!rows) {
        atomic_store(&job->failed, true);
        return;
    }
    for (int r = 0; r < QUANT_ROWS; r++)
        row[r] = rows + r * f->k;
    for (int64_t p = f->panels * thread / n_threads; p < f->panels * (thread + 1) / n_threads;
         p++) {
        int64_t first = p * QUANT_ROWS;
        int64_t n = f->n - first < QUANT_ROWS ? f->n - first : QUANT_ROWS;
        io_decode(job->tensor, first * f->k, n * f->k, rows);
        atomic_fetch_add(&job->bad, (long)io_count_nonfinite(CVN_F32, rows, n * f->k));
        quant_panel(f, row, (int)n, job->q + (size_t)p * quant_panel_bytes(f),
                    job->scale + (size_t)p * quant_scale_bytes(f));
    }
    free(rows);
}

int64_t weights_quantize(const IoTensor *tensor, const Param *param, Pool *pool, void *q,
                         void *scale)
{
    Job job = {.tensor = tensor, .form = &param->quant, .q = q, .scale = scale};
    pool_run(pool, job.form->groups ? quantize_panels : pack_panels, &job);
    if (tensor->n_parts == 0)
        give_back(tensor->data, tensor->bytes);
    for (int i = 0; i < tensor->n_parts; i++)
        give_back(tensor->part[i].data, tensor->part[i].bytes);
    return atomic_load(&job.failed) ? -1 : (int64_t)atomic_load(&job.bad);
}
