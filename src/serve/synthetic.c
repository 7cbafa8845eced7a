#include "serve/synthetic.h"

#include "base/float16.h"
#include "base/num.h"
#include "base/room.h"
#include "compile/kernel.h"

#include <stdlib.h>
#include <sys/mman.h>

/* One weight being filled. */
typedef struct Fill {
    const Param *param;
    void *data;
    cvn_dtype dtype;
    size_t bytes; /* of data */
} Fill;

/* Uniform in ± sqrt(3) * std, from a multiplicative hash of the index: cheap, and good enough to be
   no special case (not all equal, not denormal). */
static float synthetic_value(const Param *p, int64_t i)
{
    if (p->init != INIT_NORMAL)
        return p->init == INIT_ONES ? 1.0f : 0.0f;
    uint32_t h = (uint32_t)i * 2654435761u ^ (uint32_t)((uint64_t)i >> 32);
    h ^= h >> 15;
    h *= 2246822519u;
    return ((float)(h >> 8) * 0x1p-23f - 1.0f) * 1.732f * (float)p->std;
}

/* Bytes [begin, end) of a quantized matrix are any bytes, with scales that give it about the spread it would have. */
static void fill_quantized(const Fill *f, int64_t begin, int64_t end)
{
    const QuantForm *q = &f->param->quant;
    float scale = 1.732f * (float)f->param->std / (q->dtype == CVN_I4 ? 8.0f : 128.0f);
    for (int64_t i = begin; i < end; i++) {
        uint32_t h = (uint32_t)i * 2654435761u;
        h ^= h >> 15;
        if (f->param->form == PARAM_PANELS)
            ((uint8_t *)f->data)[i] = (uint8_t)((h * 2246822519u) >> 24);
        else if (q->scale_dtype == CVN_F32 && i % 4 == 0)
            ((float *)f->data)[i / 4] = scale;
        else if (q->scale_dtype == CVN_BF16 && i % 2 == 0)
            ((uint16_t *)f->data)[i / 2] = bf16_from_f32(scale);
    }
}

/* Bytes [begin, end), whole elements. */
static void fill(const Fill *f, int64_t begin, int64_t end)
{
    if (f->param->quant.groups)
        fill_quantized(f, begin, end);
    else if (f->dtype == CVN_F32)
        for (int64_t i = begin / 4; i < end / 4; i++)
            ((float *)f->data)[i] = synthetic_value(f->param, i);
    else
        for (int64_t i = begin / 2; i < end / 2; i++)
            ((uint16_t *)f->data)[i] = bf16_from_f32(synthetic_value(f->param, i));
}

/* Of a matrix, each thread fills the panels that it will read. */
static void fill_share(void *context, int thread, int n_threads)
{
    const Fill *f = context;
    int64_t begin, end, bytes = (int64_t)f->bytes;
    if (f->param->form == PARAM_PLAIN) {
        kernel_share(bytes, 4096, thread, n_threads, &begin, &end);
    } else {
        int64_t panel = bytes / f->param->quant.panels;
        param_share(f->param, thread, n_threads, &begin, &end);
        begin *= panel;
        end *= panel;
    }
    fill(f, begin, end);
}

void synthetic_shard(const Param *param, cvn_dtype dtype, int64_t n, void *data)
{
    Fill f = {param, data, dtype, cvn_dtype_bytes(param_type(param, dtype).dtype, n)};
    fill(&f, 0, (int64_t)f.bytes);
}

static int make_weights(cvn_model *m, Pool *pool, cvn_err *err)
{
    Weights *w = &m->weights;
    const ParamList *params = &m->io.params;
    w->dtype = m->dtype;
    for (int i = 0; i < params->n; i++)
        w->block_bytes += num_padded(param_bytes(&params->param[i], m->dtype), CACHE_LINE);
    if (room_check_memory(w->block_bytes, "the weights of this shape", err))
        return err->code;
    w->weight = calloc((size_t)params->n, sizeof *w->weight);
    void *block = mmap(NULL, w->block_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    w->block = block == MAP_FAILED ? NULL : block;
    if (!w->weight || !w->block)
        return err_set(err, CVN_EMEM, "no memory for %zu MiB of weights", w->block_bytes >> 20);
    madvise(w->block, w->block_bytes, MADV_HUGEPAGE); /* as weights that are converted at loading */
    w->n = params->n;
    size_t at = 0;
    for (int i = 0; i < params->n; i++) {
        const Param *p = &params->param[i];
        size_t bytes = param_bytes(p, m->dtype);
        w->weight[i] = (Weight){.data = (char *)w->block + at, .bytes = bytes, .owned = true};
        Fill f = {p, (char *)w->block + at, m->dtype, bytes};
        pool_run(pool, fill_share, &f);
        at += num_padded(bytes, CACHE_LINE);
        m->weight_bytes += bytes;
    }
    return CVN_OK;
}

int model_synthetic(const LlamaConfig *config, cvn_dtype dtype, Pool *pool, cvn_model **out,
                    cvn_err *err)
{
    *out = NULL;
    if (dtype != CVN_F32 && dtype != CVN_BF16)
        return err_set(err, CVN_EUNSUPPORTED, "cannot compute in %s; use f32 or bf16",
                       cvn_dtype_name(dtype));
    cvn_model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(err, CVN_EMEM, "no memory for a model");
    int code = arena_init(&m->io.arena, err);
    if (code == CVN_OK) {
        m->open = true;
        m->dtype = dtype;
        m->io.config = *config;
        if (pool && config->quant.kind == QUANT_NONE)
            m->io.config.quant = (QuantScheme){.kind = QUANT_PACKED, .dtype = dtype};
        params_list(&m->io.params, &m->io.config, &m->io.arena);
        if (pool)
            code = make_weights(m, pool, err);
    }
    if (code)
        cvn_model_free(m);
    else
        *out = m;
    return code;
}
