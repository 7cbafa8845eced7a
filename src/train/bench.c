#include "train/bench.h"

#include "base/rng.h"
#include "compile/pipeline.h"
#include "cpu/device.h"
#include "cpu/executor.h"
#include "cpu/profile.h"
#include "cpu/registry.h"
#include "grad/grad.h"
#include "model/llama.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

double train_flops(const LlamaConfig *config, int64_t batch, int64_t seq)
{
    const LlamaConfig *c = config;
    double width = (double)(c->n_heads * c->head_dim), kv = (double)(c->n_kv_heads * c->head_dim);
    double dim = (double)c->dim, tokens = (double)(batch * seq);
    double layer = dim * (2 * width + 2 * kv + 3 * (double)c->ffn);
    double weights = (double)c->n_layers * layer + dim * (double)c->vocab;
    double pairs = (double)batch * (double)seq * (double)(seq + 1) / 2;
    return 6 * weights * tokens + 12 * pairs * width * (double)c->n_layers;
}

/* A step being built: for each weight its optimizer state. */
typedef struct StepGraph {
    cvn_graph *g;
    ParamList params;
    cvn_value **weight, **state[2], **gradient; /* [params.n] */
} StepGraph;

/* AdamW (Loshchilov and Hutter 2017, arXiv:1711.05101) of one weight, without bias correction: what it costs is
   what matters here. */
static void update_weight(StepGraph *s, int i)
{
    cvn_graph *g = s->g;
    cvn_value *dw = s->gradient[i], *w = s->weight[i], *m = s->state[0][i], *v = s->state[1][i];
    const cvn_type type = *cvn_value_type(w);
#define NUMBER(x) cvn_splat(g, type, x)
    cvn_value *m1 = cvn_add(g, cvn_multiply(g, m, NUMBER(0.9)), cvn_multiply(g, dw, NUMBER(0.1)));
    cvn_value *v1 = cvn_add(g, cvn_multiply(g, v, NUMBER(0.95)),
                            cvn_multiply(g, cvn_multiply(g, dw, dw), NUMBER(0.05)));
    cvn_value *step = cvn_divide(g, m1, cvn_add(g, cvn_sqrt(g, v1), NUMBER(1e-8)));
    step = cvn_add(g, step, cvn_multiply(g, w, NUMBER(0.1)));
    cvn_value *w1 = cvn_subtract(g, w, cvn_multiply(g, step, NUMBER(1e-4)));
#undef NUMBER
    cvn_output_into(g, w1, w);
    cvn_output_into(g, m1, m);
    cvn_output_into(g, v1, v);
}

static int build(const TrainBench *b, StepGraph *s, cvn_err *err)
{
    cvn_graph *g = s->g = cvn_graph_new("train_step", err);
    if (!g)
        return CVN_EMEM;
    params_list(&s->params, b->config, &g->arena);
    size_t n = (size_t)s->params.n;
    s->weight = arena_array(&g->arena, n, sizeof(cvn_value *));
    s->gradient = arena_array(&g->arena, n, sizeof(cvn_value *));
    for (int k = 0; k < 2; k++)
        s->state[k] = arena_array(&g->arena, n, sizeof(cvn_value *));
    for (size_t i = 0; i < n; i++) {
        const Param *p = &s->params.param[i];
        static const char *const prefix[] = {"", "m.", "v."};
        for (int k = 0; k < 3; k++) {
            char name[160];
            snprintf(name, sizeof name, "%s%s", prefix[k], p->name);
            cvn_value *v = cvn_parameter(g, name, cvn_type_make(CVN_F32, p->rank, p->dims));
            *(k ? &s->state[k - 1][i] : &s->weight[i]) = v;
        }
    }
    cvn_type grid = CVN_TYPE(CVN_I32, b->batch, b->seq);
    cvn_value *tokens = cvn_parameter(g, "tokens", grid);
    cvn_value *targets = cvn_parameter(g, "targets", grid);
    LlamaLoss loss;
    int code = llama_loss(g, b->config, b->compute, s->weight, tokens, targets, &loss, err);
    Op *last = g->last;
    if (!code)
        code = graph_gradient(g, loss.mean, (int)n, s->weight, s->gradient, err);
    if (!code)
        code = graph_remat(g, b->remat, loss.n_blocks, loss.block, last->next, err);
    cvn_output(g, loss.mean);
    for (size_t i = 0; i < n; i++)
        update_weight(s, (int)i);
    return code ? code : cvn_graph_check(g, err);
}

/* What a run needs: the plan's parameters in one mapping. */
typedef struct Memory {
    char *block;
    size_t bytes;
    void **at; /* [plan->n_parameters] */
} Memory;

static int make_memory(const StepGraph *s, const Plan *plan, Memory *m, cvn_err *err)
{
    m->at = calloc((size_t)plan->n_parameters + 1, sizeof *m->at);
    for (int i = 0; i < plan->n_parameters; i++)
        m->bytes += (plan->parameter[i].bytes + 4095) / 4096 * 4096;
    void *block = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    m->block = block == MAP_FAILED ? NULL : block;
    if (!m->at || !m->block)
        return err_set(err, CVN_EMEM, "no memory for %zu MiB of weights", m->bytes >> 20);
    madvise(m->block, m->bytes, MADV_HUGEPAGE);
    size_t used = 0;
    for (int i = 0; i < plan->n_parameters; i++) {
        m->at[i] = m->block + used;
        used += (plan->parameter[i].bytes + 4095) / 4096 * 4096;
        int64_t n = (int64_t)(plan->parameter[i].bytes / 4);
        uint32_t h = (uint32_t)i * 2654435761u + 1;
        float *x = m->at[i];
        for (int64_t k = 0; k < n; k++) {
            h = h * 1664525u + 1013904223u;
            if (plan->parameter[i].type.dtype == CVN_I32) {
                ((int32_t *)m->at[i])[k] = (int32_t)((h >> 8) % (uint32_t)1000);
            } else if (i % 3 == 0) {
                const Param *p = &s->params.param[i / 3];
                x[k] = p->init == INIT_ONES
                           ? 1.0f
                           : ((float)(h >> 8) * 0x1p-23f - 1.0f) * 1.732f * (float)p->std;
            }
        }
    }
    return CVN_OK;
}

static int measure(const TrainBench *b, const Plan *plan, Device *device, const Memory *m,
                   TrainFigure *out, cvn_err *err)
{
    double *seconds = calloc((size_t)b->repeats + 1, sizeof *seconds);
    if (!seconds)
        return err_set(err, CVN_EMEM, "no memory for %d times", b->repeats);
    void **outputs = calloc((size_t)plan->n_outputs + 1, sizeof *outputs);
    int code = outputs ? CVN_OK : err_set(err, CVN_EMEM, "no memory for outputs");
    for (int i = 0; i <= b->repeats && !code; i++) {
        int64_t begin = clock_ns();
        code = executor_run(device, plan, m->at, outputs, err);
        if (i > 0)
            seconds[i - 1] = (double)(clock_ns() - begin) * 1e-9;
        if (!code)
            out->loss[i > 0] = (double)*(float *)outputs[0];
    }
    if (!code) {
        double peak = b->compute == CVN_BF16 ? out->ceilings.flops_bf16 : out->ceilings.flops_f32;
        out->seconds = median(seconds, b->repeats);
        out->tokens_per_second = (double)(b->batch * b->seq) / out->seconds;
        out->mfu = out->flops / out->seconds / peak;
    }
    free(seconds);
    free(outputs);
    return code;
}

static int run_plan(const TrainBench *b, const StepGraph *s, const Plan *plan, Device *device,
                    TrainFigure *out, cvn_err *err)
{
    Memory memory = {0};
    int code = ceilings_measure(device->pool, &out->ceilings, err);
    if (!code)
        code = make_memory(s, plan, &memory, err);
    if (!code && b->profile) {
        device->profile = profile_new(device_threads(device), 0, err);
        code = device->profile ? CVN_OK : CVN_EMEM;
    }
    if (!code)
        code = measure(b, plan, device, &memory, out, err);
    if (!code && b->profile)
        code = profile_write(device->profile, b->profile, err);
    profile_free(device->profile);
    device->profile = NULL;
    if (memory.block)
        munmap(memory.block, memory.bytes);
    free(memory.at);
    return code;
}

int train_bench(const TrainBench *bench, TrainFigure *out, cvn_err *err)
{
    *out = (TrainFigure){.flops = train_flops(bench->config, bench->batch, bench->seq)};
    Device *device = device_new(bench->threads, NULL, err);
    if (!device)
        return CVN_EINVAL;
    StepGraph step = {0};
    Plan *plan = NULL;
    int code = build(bench, &step, err);
    CompileOptions options = {.backend = device->backend, .n_threads = device_threads(device)};
    if (!code)
        code = compile_graph(step.g, &options, &plan, err);
    if (!code) {
        out->arena_bytes = plan->arena_bytes;
        out->peak_memory = plan->arena_bytes + plan->parameter_bytes + plan->constant_bytes;
    }
    if (!code && !bench->plan_only)
        code = run_plan(bench, &step, plan, device, out, err);
    plan_free(plan);
    cvn_graph_free(step.g);
    device_free(device);
    return code;
}
