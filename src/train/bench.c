#include "train/bench.h"

#include "base/cores.h"
#include "compile/pipeline.h"
#include "cpu/device.h"
#include "cpu/executor.h"
#include "cpu/registry.h"
#include "cpu/trace.h"
#include "train/step.h"

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

/* What a run needs: the plan's parameters in one mapping. */
typedef struct Memory {
    char *block;
    size_t bytes;
    void **at; /* [plan->n_parameters] */
} Memory;

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void fill_weight(const Param *p, uint32_t seed, float *x)
{
    for (int64_t i = 0; i < p->n; i++)
        x[i] = p->init == INIT_ONES
                   ? 1.0f
                   : ((float)next_random(&seed) * 0x1p-23f - 1.0f) * 1.732f * (float)p->std;
}

/* Parameters of train_graph: weights first, then slots (zeros), tokens, targets and starts (zeros: a document fills a
   row), scalars. */
static void fill_parameter(const TrainBench *b, const ParamList *params, const Plan *plan, int i,
                           void *at)
{
    const cvn_type *type = &plan->parameter[i].type;
    uint32_t seed = (uint32_t)i;
    float scalars[OPTIMIZER_MAX_SCALARS];
    const Optimizer *optimizer = &optimizers[b->optimizer.kind];
    if (i < params->n)
        fill_weight(&params->param[i], seed, at);
    bool ids = type->dtype == CVN_I32 && strcmp(plan->parameter[i].name, "starts") != 0;
    for (int64_t k = 0; ids && k < cvn_type_elements(type); k++)
        ((int32_t *)at)[k] = (int32_t)(next_random(&seed) % (uint32_t)b->config->vocab);
    optimizer->scalars(&b->optimizer, 1, 1, scalars);
    int scalar = i - (plan->n_parameters - optimizer->n_scalars);
    if (scalar >= 0)
        *(float *)at = scalars[scalar];
}

static int make_memory(const TrainBench *b, const Plan *plan, Memory *m, cvn_err *err)
{
    enum { PAGE = 4096 };
    Arena arena;
    ParamList params;
    int code = arena_init(&arena, err);
    if (code)
        return code;
    params_list(&params, b->config, &arena);
    m->at = calloc((size_t)plan->n_parameters + 1, sizeof *m->at);
    for (int i = 0; i < plan->n_parameters; i++)
        m->bytes += (plan->parameter[i].bytes + PAGE - 1) / PAGE * PAGE;
    void *block = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    m->block = block == MAP_FAILED ? NULL : block;
    if (m->block)
        (void)madvise(block, m->bytes, MADV_HUGEPAGE); /* as the state of a run has them */
    if (!m->at || !m->block)
        code = err_set(err, CVN_EMEM, "no memory for %zu MiB of weights", m->bytes >> 20);
    size_t used = 0;
    for (int i = 0; i < plan->n_parameters && !code; i++) {
        m->at[i] = m->block + used;
        used += (plan->parameter[i].bytes + PAGE - 1) / PAGE * PAGE;
        fill_parameter(b, &params, plan, i, m->at[i]);
    }
    arena_free(&arena);
    return code;
}

/* What steps that took so long come to. Sorts the times. */
static void finish_figure(const TrainBench *b, double *seconds, TrainFigure *out)
{
    double peak = b->compute == CVN_BF16 ? out->ceilings.flops_bf16 : out->ceilings.flops_f32;
    out->seconds = median(seconds, b->repeats);
    out->tokens_per_second = (double)(b->batch * b->seq) / out->seconds;
    out->mfu = out->flops / out->seconds / peak;
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
        const float *report = code ? NULL : outputs[plan->n_outputs - 1];
        if (report)
            out->loss[i > 0] = (double)(report[TRAIN_SUM] / report[TRAIN_COUNT]);
    }
    if (!code)
        finish_figure(b, seconds, out);
    free(seconds);
    free(outputs);
    return code;
}

static int run_plan(const TrainBench *b, const Plan *plan, Device *device, TrainFigure *out,
                    cvn_err *err)
{
    Memory memory = {0};
    Trace *trace = NULL;
    int code = ceilings_measure(device->pool, &out->ceilings, err);
    if (!code)
        code = make_memory(b, plan, &memory, err);
    if (!code && b->profile) {
        trace = trace_begin(&device, 1, 0, err);
        code = trace ? CVN_OK : CVN_EMEM;
    }
    if (!code)
        code = measure(b, plan, device, &memory, out, err);
    if (!code && trace)
        code = trace_write(trace, NULL, b->profile, err);
    trace_free(trace);
    if (memory.block)
        munmap(memory.block, memory.bytes);
    free(memory.at);
    return code;
}

/* ---- on a mesh ---- */

int train_ceilings(const Trainer *t, Ceilings *out, cvn_err *err)
{
    int code = ceilings_measure(t->device->pool, out, err);
    int threads = (t->mesh ? t->mesh->n_local : 1) * device_threads(t->device);
    int cores = cores_usable();
    double times = trainer_devices(t);
    if (t->mesh && threads > cores)
        times *= (double)cores / threads;
    out->flops_f32 *= times;
    out->flops_bf16 *= times;
    out->bandwidth *= times;
    return code;
}

static int allocate_batch(const TrainBench *b, TrainBatch *batch, cvn_err *err)
{
    size_t n = (size_t)(b->batch * b->seq);
    uint32_t seed = 1;
    *batch = (TrainBatch){calloc(n, sizeof(int32_t)), calloc(n, sizeof(int32_t)),
                          calloc(n, sizeof(int32_t))};
    if (!batch->tokens || !batch->targets || !batch->starts)
        return err_set(err, CVN_EMEM, "no memory for a batch of %zu tokens", n);
    for (size_t i = 0; i < n; i++) {
        batch->tokens[i] = (int32_t)(next_random(&seed) % (uint32_t)b->config->vocab);
        batch->targets[i] = (int32_t)(next_random(&seed) % (uint32_t)b->config->vocab);
    }
    return CVN_OK;
}

/* The steps; what the first one communicates does not count either. */
static int measure_steps(const TrainBench *b, Trainer *t, const TrainBatch *batch, TrainFigure *out,
                         cvn_err *err)
{
    CommTable before;
    int code = CVN_OK;
    double *seconds = calloc((size_t)b->repeats + 1, sizeof *seconds);
    if (!seconds)
        return err_set(err, CVN_EMEM, "no memory for %d times", b->repeats);
    for (int i = 0; i <= b->repeats && !code; i++) {
        TrainReport report;
        int64_t begin = clock_ns();
        if (i == 1)
            trainer_communication(t, &before);
        code = trainer_step(t, batch, &report, err);
        if (i > 0)
            seconds[i - 1] = (double)(clock_ns() - begin) * 1e-9;
        out->loss[i > 0] = code ? 0 : report.loss;
    }
    if (!code) {
        trainer_communication(t, &out->communication);
        comm_table_since(&out->communication, &before);
        comm_table_divide(&out->communication, b->repeats);
        finish_figure(b, seconds, out);
    }
    free(seconds);
    return code;
}

static int run_trainer(const TrainBench *b, Trainer *t, TrainFigure *out, cvn_err *err)
{
    TrainBatch batch = {0};
    int n;
    Device *const *device = trainer_local(t, &n);
    Trace *trace = NULL;
    int code = train_ceilings(t, &out->ceilings, err);
    if (!code)
        code = trainer_random(t, 1, err);
    if (!code)
        code = allocate_batch(b, &batch, err);
    if (!code && b->profile) {
        trace = trace_begin(device, n, 0, err);
        code = trace ? CVN_OK : CVN_EMEM;
    }
    if (!code)
        code = measure_steps(b, t, &batch, out, err);
    if (!code && trace)
        code = trace_write(trace, b->cluster, b->profile, err);
    trace_free(trace);
    free(batch.tokens);
    free(batch.targets);
    free(batch.starts);
    return code;
}

static int bench_mesh(const TrainBench *b, TrainFigure *out, cvn_err *err)
{
    TrainerOptions options = {.batch = b->batch,
                              .seq = b->seq,
                              .compute = b->compute,
                              .clip = 1,
                              .remat = b->remat,
                              .optimizer = b->optimizer,
                              .schedule = {.steps = b->repeats + 1},
                              .threads = b->threads,
                              .mesh = b->mesh,
                              .layout = b->layout,
                              .cluster = b->cluster};
    Trainer trainer;
    int code = trainer_open(&trainer, b->config, &options, err);
    if (code)
        return code;
    out->devices = trainer_devices(&trainer);
    out->arena_bytes = trainer.step.plan->arena_bytes;
    out->peak_memory = trainer.bytes;
    if (!b->plan_only)
        code = run_trainer(b, &trainer, out, err);
    trainer_close(&trainer);
    return code;
}

int train_bench(const TrainBench *bench, TrainFigure *out, cvn_err *err)
{
    *out =
        (TrainFigure){.flops = train_flops(bench->config, bench->batch, bench->seq), .devices = 1};
    if (bench->mesh)
        return bench_mesh(bench, out, err);
    Device *device = device_new(bench->threads, NULL, err);
    if (!device)
        return CVN_EINVAL;
    TrainStepOptions step = {.batch = bench->batch,
                             .seq = bench->seq,
                             .compute = bench->compute,
                             .clip = 1,
                             .remat = bench->remat,
                             .optimizer = bench->optimizer};
    CompileOptions options = {.backend = device->backend, .n_threads = device_threads(device)};
    cvn_graph *g = train_graph(TRAIN_STEP, bench->config, &step, err);
    Plan *plan = NULL;
    int code = g ? compile_graph(g, &options, &plan, err) : CVN_EINVAL;
    if (!code) {
        out->arena_bytes = plan->arena_bytes;
        out->peak_memory = plan->arena_bytes + plan->parameter_bytes + plan->constant_bytes;
    }
    if (!code && !bench->plan_only)
        code = run_plan(bench, plan, device, out, err);
    plan_free(plan);
    cvn_graph_free(g);
    device_free(device);
    return code;
}
