#include "io/save_quantized.h"

#include <stdlib.h>

enum { TOGETHER = 8 }; /* panels of a thread between two writes */

/* What the threads do together: panels [first, first + n). */
typedef struct Job {
    const Param *param;
    SaveFill fill;
    void *context;
    int64_t first, n;
    uint8_t *q;     /* [n] panels */
    uint8_t *scale; /* of the whole parameter */
    cvn_err *err;   /* [threads], the first error of each */
} Job;

static int quantize_panel(const Job *job, int64_t panel, float *rows, cvn_err *err)
{
    const QuantForm *f = &job->param->quant;
    int64_t first = panel * QUANT_ROWS, n = quant_panel_rows(f, panel);
    int code = job->fill(job->context, job->param, first * f->k, n * f->k, rows, err);
    if (code == CVN_OK)
        quant_panel(f, rows, n, job->q + (size_t)(panel - job->first) * quant_panel_bytes(f),
                    job->scale + (size_t)panel * quant_scale_bytes(f));
    return code;
}

static void quantize_panels(void *context, int thread, int n_threads)
{
    const Job *job = context;
    cvn_err *err = &job->err[thread];
    int64_t begin = job->n * thread / n_threads, end = job->n * (thread + 1) / n_threads;
    if (begin == end || err->code)
        return;
    float *rows = malloc((size_t)job->param->quant.k * QUANT_ROWS * sizeof *rows);
    if (!rows)
        err_set(err, CVN_EMEM, "no memory to quantize '%s'", job->param->name);
    for (int64_t i = begin; i < end && !err->code; i++)
        quantize_panel(job, job->first + i, rows, err);
    free(rows);
}

static int write_panels(StWriter *writer, size_t index, Job *job, Pool *pool, cvn_err *err)
{
    const QuantForm *f = &job->param->quant;
    int64_t together = (int64_t)TOGETHER * pool_threads(pool);
    for (job->first = 0; job->first < f->panels; job->first += together) {
        job->n = f->panels - job->first < together ? f->panels - job->first : together;
        pool_run(pool, quantize_panels, job);
        for (int t = 0; t < pool_threads(pool); t++)
            if (job->err[t].code)
                return err_set(err, job->err[t].code, "%s", job->err[t].message);
        if (st_writer_data(writer, index, job->q, (size_t)job->n * quant_panel_bytes(f), err))
            return err->code;
    }
    return st_writer_data(writer, index + 1, job->scale, (size_t)f->panels * quant_scale_bytes(f),
                          err);
}

int save_quantized(StWriter *writer, size_t index, const Param *param, SaveFill fill, void *context,
                   Pool *pool, cvn_err *err)
{
    const QuantForm *f = &param->quant;
    size_t threads = (size_t)pool_threads(pool);
    Job job = {.param = param,
               .fill = fill,
               .context = context,
               .q = malloc(TOGETHER * threads * quant_panel_bytes(f)),
               .scale = malloc((size_t)f->panels * quant_scale_bytes(f)),
               .err = calloc(threads, sizeof *job.err)};
    int code = job.q && job.scale && job.err
                   ? write_panels(writer, index, &job, pool, err)
                   : err_set(err, CVN_EMEM, "no memory to quantize '%s'", param->name);
    free(job.q);
    free(job.scale);
    free(job.err);
    return code;
}
