#include "train/bench.h"

#include "base/cores.h"
#include "cpu/trace.h"

#include <stdlib.h>

double train_flops(const LlamaConfig *config, int64_t batch, int64_t seq)
{
    double tokens = (double)(batch * seq);
    double width = (double)(config->n_heads * config->head_dim * config->n_layers);
    double pairs = (double)batch * (double)seq * (double)(seq + 1) / 2;
    return 6 * (double)model_size(config).matmul_params * tokens + 12 * pairs * width;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* What steps that took so long come to, beside peaks measured in turns with them. Sorts both. */
static void finish_figure(const TrainBench *b, double *seconds, double *peaks, TrainFigure *out)
{
    out->peak = median(peaks, b->repeats + 1);
    out->seconds = median(seconds, b->repeats);
    out->tokens_per_second = (double)(b->batch * b->seq) / out->seconds;
    out->mfu = out->flops / out->seconds / out->peak;
}

/* What all devices can do, as a multiple of what one's threads can. */
static double devices_over_one(const Trainer *t)
{
    int threads = (t->mesh ? t->mesh->devices.n_local : 1) * device_threads(t->device);
    int cores = cores_usable();
    double times = trainer_devices(t);
    if (t->mesh && threads > cores)
        times *= (double)cores / threads;
    return times;
}

int train_ceilings(const Trainer *t, Ceilings *out, cvn_err *err)
{
    int code = ceilings_measure(t->device->pool, out, err);
    double times = devices_over_one(t);
    out->flops_f32 *= times;
    out->flops_bf16 *= times;
    out->flops_int8 *= times;
    out->bandwidth *= times;
    return code;
}

static int random_batch(const TrainBench *b, TrainBatch *batch, cvn_err *err)
{
    int64_t n = b->batch * b->seq;
    uint32_t seed = 1, vocab = (uint32_t)b->config->vocab;
    int code = train_batch_new(batch, n, err);
    for (int64_t i = 0; i < n && !code; i++) {
        batch->tokens[i] = (int32_t)(next_random(&seed) % vocab);
        batch->targets[i] = (int32_t)(next_random(&seed) % vocab);
    }
    return code;
}

/* The steps, each between two measurements of the peak; what the first one communicates does not count either. */
static int measure_steps(const TrainBench *b, Trainer *t, const TrainBatch *batch, TrainFigure *out,
                         cvn_err *err)
{
    CommTable before;
    int code = CVN_OK;
    static const double TURN = 0.02;
    double *seconds = calloc(2 * (size_t)b->repeats + 1, sizeof *seconds);
    if (!seconds)
        return err_set(err, CVN_EMEM, "no memory for %d times", b->repeats);
    double *peaks = seconds + b->repeats;
    double last = out->flops / ceilings_flops(&out->ceilings, b->compute); /* what a step took */
    for (int i = 0; i <= b->repeats && !code; i++) {
        TrainReport report;
        if (i == 1)
            trainer_communication(t, &before);
        if (b->step)
            b->step(i + 1, b->repeats + 1, last);
        int64_t begin = clock_ns();
        code = trainer_step(t, batch, &report, err);
        last = (double)(clock_ns() - begin) * 1e-9;
        if (i > 0)
            seconds[i - 1] = last;
        out->loss[i > 0] = code ? 0 : report.loss;
        peaks[i] = peak_run(t->device->pool, b->compute, TURN) * devices_over_one(t);
    }
    if (!code) {
        trainer_communication(t, &out->communication);
        comm_table_since(&out->communication, &before);
        comm_table_divide(&out->communication, b->repeats);
        finish_figure(b, seconds, peaks, out);
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
        code = random_batch(b, &batch, err);
    if (!code && b->profile) {
        trace = trace_begin(device, n, 0, err);
        code = trace ? CVN_OK : CVN_EMEM;
    }
    if (!code)
        code = measure_steps(b, t, &batch, out, err);
    if (!code && trace)
        code = trace_write(trace, b->cluster, b->profile, err);
    trace_free(trace);
    train_batch_free(&batch);
    return code;
}

int train_bench(const TrainBench *b, TrainFigure *out, cvn_err *err)
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
    *out = (TrainFigure){.flops = train_flops(b->config, b->batch, b->seq)};
    int code = trainer_open(&trainer, b->config, &options, err);
    if (code)
        return code;
    out->devices = trainer_devices(&trainer);
    out->peak_memory = trainer.bytes;
    code = run_trainer(b, &trainer, out, err);
    trainer_close(&trainer);
    return code;
}
