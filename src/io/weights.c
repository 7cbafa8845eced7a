#include "io/weights.h"

#include "base/num.h"
#include "base/room.h"
#include "base/threads.h"
#include "io/convert.h"
#include "io/weights_quantize.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define SCAN_LIMIT ((size_t)4 << 30)

/* A mapping serves where it is in one piece, of the wanted type, and aligned to its elements. */
static bool is_usable_in_place(const IoModel *model, int param, cvn_dtype wanted)
{
    const IoTensor *tensor = model->source[param];
    const Param *p = &model->params.param[param];
    if (tensor->n_parts > 0 || tensor->adapter)
        return false;
    if (p->form == PARAM_PANELS)
        return !model->quantizes;
    cvn_dtype dtype = param_type(p, wanted).dtype;
    return !(p->form == PARAM_SCALES && model->quantizes) && tensor->coding == IO_PLAIN &&
           tensor->dtype == dtype && (uintptr_t)tensor->data % cvn_dtype_bytes(dtype, 1) == 0;
}

static size_t padded_bytes(const Param *param, cvn_dtype dtype)
{
    return num_padded(param_bytes(param, dtype), CACHE_LINE);
}

size_t weights_owned_bytes(const IoModel *model, cvn_dtype dtype)
{
    size_t bytes = 0;
    for (int i = 0; i < model->params.n; i++)
        if (!is_usable_in_place(model, i, dtype))
            bytes += padded_bytes(&model->params.param[i], dtype);
    return bytes;
}

static void warn(Weights *weights, const IoTensor *tensor, int64_t bad)
{
    size_t used = strlen(weights->warnings), room = sizeof weights->warnings - used;
    int n = snprintf(weights->warnings + used, room,
                     "'%s': %" PRId64 " of %" PRId64 " elements of '%s' are NaN or infinite\n",
                     tensor->file, bad, tensor->n, tensor->name);
    if (n < 0 || (size_t)n >= room)
        weights->warnings[used] = '\0';
}

static int allocate(Weights *weights, const IoModel *model, cvn_dtype dtype, cvn_err *err)
{
    weights->n = model->params.n;
    weights->dtype = dtype;
    weights->block_bytes = weights_owned_bytes(model, dtype);
    weights->weight = calloc((size_t)weights->n, sizeof *weights->weight);
    if (!weights->weight)
        return err_set(err, CVN_EMEM, "no memory for the table of weights of '%s'", model->path);
    if (weights->block_bytes == 0)
        return CVN_OK;
    char what[256];
    snprintf(what, sizeof what, "the weights of '%.200s' in memory", model->path);
    if (room_check_memory(weights->block_bytes, what, err))
        return err->code;
    weights->block = mmap(NULL, weights->block_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (weights->block == MAP_FAILED) {
        weights->block = NULL;
        return err_set(err, CVN_EMEM, "cannot allocate %zu bytes for the weights of '%s' as %s: %s",
                       weights->block_bytes, model->path, cvn_dtype_name(dtype), strerror(errno));
    }
    madvise(weights->block, weights->block_bytes, MADV_HUGEPAGE);
    return CVN_OK;
}

/* What the threads do together for one parameter: each converts, or scans, one range of it. */
typedef struct Job {
    const IoTensor *tensor;
    cvn_dtype dtype;
    uint8_t *to;          /* [tensor->n] of dtype, or NULL to scan the tensor where it lies */
    int64_t *n_nonfinite; /* [threads] */
} Job;

static void convert_range(void *context, int thread, int n_threads)
{
    const Job *job = context;
    int64_t each =
        (job->tensor->n / n_threads + 255) & ~INT64_C(255); /* whole cache lines, whole blocks */
    int64_t begin = each * thread < job->tensor->n ? each * thread : job->tensor->n;
    int64_t n =
        job->tensor->n - begin < each || thread == n_threads - 1 ? job->tensor->n - begin : each;
    size_t offset = cvn_dtype_bytes(job->dtype, begin);
    job->n_nonfinite[thread] = job->to
                                   ? io_convert(job->tensor, begin, n, job->dtype, job->to + offset)
                                   : io_count_nonfinite(job->dtype, job->tensor->data + offset, n);
}

static int64_t run_job(Pool *pool, const Job *job)
{
    int64_t bad = 0;
    pool_run(pool, convert_range, (void *)(uintptr_t)job);
    for (int t = 0; t < pool_threads(pool); t++)
        bad += job->n_nonfinite[t];
    return bad;
}

/* Where each array lies: in the files, or in the block. */
static void place_all(Weights *weights, const IoModel *model)
{
    uint8_t *next = weights->block;
    for (int i = 0; i < weights->n; i++) {
        Weight *weight = &weights->weight[i];
        weight->bytes = param_bytes(&model->params.param[i], weights->dtype);
        weight->owned = !is_usable_in_place(model, i, weights->dtype);
        weight->data = weight->owned ? next : model->source[i]->data;
        weight->n_nonfinite = -1;
        if (weight->owned)
            next += padded_bytes(&model->params.param[i], weights->dtype);
    }
}

/* A matrix in panels, or its scales. Those that are made here are made together. */
static int load_quantized(Weights *weights, const IoModel *model, int i, Pool *pool, cvn_err *err)
{
    const Param *param = &model->params.param[i];
    Weight *weight = &weights->weight[i];
    if (!model->quantizes && weight->owned)
        memcpy((void *)(uintptr_t)weight->data, model->source[i]->data, weight->bytes);
    if (!model->quantizes || param->form != PARAM_PANELS)
        return CVN_OK;
    void *scale = param->scale < 0 ? NULL : (void *)(uintptr_t)weights->weight[param->scale].data;
    weight->n_nonfinite =
        weights_quantize(model->source[i], param, pool, (void *)(uintptr_t)weight->data, scale);
    if (weight->n_nonfinite < 0)
        return err_set(err, CVN_EMEM, "no memory to bring '%s' into panels", param->name);
    return CVN_OK;
}

static int load_all(Weights *weights, const IoModel *model, Pool *pool, int64_t *n_nonfinite,
                    cvn_err *err)
{
    cvn_dtype dtype = weights->dtype;
    bool scan = (size_t)model_bytes(&model->config, dtype) <= SCAN_LIMIT;
    place_all(weights, model);
    for (int i = 0; i < weights->n; i++) {
        const IoTensor *tensor = model->source[i];
        Weight *weight = &weights->weight[i];
        Job job = {tensor, dtype, weight->owned ? (void *)(uintptr_t)weight->data : NULL,
                   n_nonfinite};
        if (model->params.param[i].form != PARAM_PLAIN) {
            if (load_quantized(weights, model, i, pool, err))
                return err->code;
        } else if (weight->owned || scan) {
            weight->n_nonfinite = run_job(pool, &job);
        }
        if (weight->n_nonfinite > 0)
            warn(weights, tensor, weight->n_nonfinite);
    }
    return CVN_OK;
}

int weights_load(Weights *weights, const IoModel *model, const WeightsOptions *options,
                 cvn_err *err)
{
    *weights = (Weights){0};
    cvn_dtype dtype = options->dtype;
    if (dtype != CVN_F32 && dtype != CVN_BF16 && dtype != CVN_F16)
        return err_set(err, CVN_EINVAL, "weights are loaded as f32, bf16 or f16, not as %s",
                       cvn_dtype_name(dtype));
    Pool *pool = pool_new(options->threads, err);
    if (!pool)
        return CVN_EINVAL;
    int64_t *n_nonfinite = calloc((size_t)pool_threads(pool), sizeof *n_nonfinite);
    int code = n_nonfinite ? allocate(weights, model, dtype, err)
                           : err_set(err, CVN_EMEM, "no memory to load '%s'", model->path);
    if (code == CVN_OK)
        code = load_all(weights, model, pool, n_nonfinite, err);
    if (code != CVN_OK)
        weights_free(weights);
    free(n_nonfinite);
    pool_free(pool);
    return code;
}

void weights_free(Weights *weights)
{
    if (weights->block)
        munmap(weights->block, weights->block_bytes);
    free(weights->weight);
    *weights = (Weights){0};
}

int weights_read_box(const IoModel *model, int param, const int64_t *start, const int64_t *size,
                     cvn_dtype dtype, void *out, cvn_err *err)
{
    const Param *p = &model->params.param[param];
    int64_t index[PARAM_MAX_RANK] = {0}, rows = 1;
    if (p->form != PARAM_PLAIN)
        return err_set(err, CVN_EUNSUPPORTED, "%s is quantized and cannot be read in part",
                       p->name);
    for (int d = 0; d < p->rank; d++) {
        if (start[d] < 0 || size[d] < 0 || start[d] > p->dims[d] || size[d] > p->dims[d] - start[d])
            return err_set(err, CVN_EINVAL,
                           "%s: %" PRId64 "+%" PRId64
                           " is outside of dimension %d of size %" PRId64,
                           p->name, start[d], size[d], d, p->dims[d]);
        rows *= size[d];
    }
    if (rows == 0)
        return CVN_OK;
    int last = p->rank - 1;
    rows /= size[last];
    uint8_t *to = out;
    for (int64_t row = 0; row < rows; row++) {
        int64_t first = 0;
        for (int d = 0; d < p->rank; d++)
            first = first * p->dims[d] + start[d] + index[d];
        io_convert(model->source[param], first, size[last], dtype, to);
        to += cvn_dtype_bytes(dtype, size[last]);
        for (int d = last - 1; d >= 0 && ++index[d] == size[d]; d--)
            index[d] = 0;
    }
    return CVN_OK;
}
