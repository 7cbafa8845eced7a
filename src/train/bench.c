#include "train/bench.h"

#include "base/threads.h"

#include <stdlib.h>

double train_flops(const Model *config, int64_t batch, int64_t seq)
{
    double tokens = (double)(batch * seq);
    double attention = tokens * model_attention_pairs(config, 0, seq - 1);
    return 6 * (double)model_size(config).matmul_params * tokens + 12 * attention;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Of stages and processes that share the work, each with as much as a stage that is here, of which the first one is measured. */
static double shares(const Trainer *t)
{
    const Runtime *rt = &t->stage->rt;
    return (double)(t->stages * rt->mesh.n_devices) / (double)rt->info.n_local;
}

double train_peak(const Trainer *t)
{
    return runtime_peak(&t->stage->rt, t->options.compute) * shares(t);
}

/* The steps, each between two measurements of the peak; what the first one communicates does not count either. */
static int measure_steps(const TrainBench *b, Trainer *t, const TrainBatch *batch, TrainFigure *out,
                         cvn_err *err)
{
    CommTable before;
    static const double TURN = 0.02;
    SCOPED(scoped_free) double *seconds = calloc(2 * (size_t)b->repeats + 1, sizeof *seconds);
    if (!seconds)
        return err_set(err, CVN_EMEM, "no memory for %d times", b->repeats);
    double *peaks = seconds + b->repeats;
    double last =
        out->flops / ceilings_flops(&out->ceilings, b->trainer.compute); /* what a step took */
    for (int i = 0; i <= b->repeats; i++) {
        TrainReport report;
        if (i == 1)
            trainer_communication(t, &before);
        if (b->step)
            b->step(i + 1, b->repeats + 1, last);
        int64_t begin = clock_ns();
        TRY(trainer_step(t, batch, &report, err));
        last = (double)(clock_ns() - begin) * 1e-9;
        if (i > 0)
            seconds[i - 1] = last;
        out->loss[i > 0] = report.loss;
        peaks[i] =
            t->stage->rt.backend->peak(t->stage->rt.devices, b->trainer.compute, TURN) * shares(t);
    }
    trainer_communication(t, &out->communication);
    comm_table_since(&out->communication, &before);
    comm_table_divide(&out->communication, b->repeats);
    out->peak = median(peaks, b->repeats + 1);
    out->seconds = median(seconds, b->repeats);
    out->tokens_per_second = (double)(b->trainer.batch * b->trainer.seq) / out->seconds;
    out->mfu = out->flops / out->seconds / out->peak;
    return CVN_OK;
}

int train_bench(const TrainBench *b, TrainFigure *out, cvn_err *err)
{
    SCOPED(trainer_close) Trainer trainer = {0};
    SCOPED(train_batch_free) TrainBatch batch = {0};
    TrainerOptions options = b->trainer;
    options.clip = 1;
    options.dropout = model_dropout(b->config);
    options.schedule = (Schedule){.steps = b->repeats + 1};
    *out = (TrainFigure){.flops = train_flops(b->config, options.batch, options.seq)};
    TRY(trainer_open(&trainer, b->config, &options, err));
    out->devices = trainer.stages * trainer.stage->rt.mesh.n_devices;
    out->peak_memory = trainer.bytes;
    runtime_memory(&trainer.stage->rt, &out->memory);
    TRY(runtime_ceilings(&trainer.stage->rt, &out->ceilings, err));
    ceilings_scale(&out->ceilings, shares(&trainer));
    TRY(trainer_random(&trainer, 1, err));
    const Backend *backend = trainer.stage->rt.backend;
    Devices *devices = trainer.stage->rt.devices;
    if (b->profile)
        TRY(backend->trace_begin(devices, err));
    TRY(train_batch_new(&batch, options.batch, options.seq, err));
    uint32_t seed = 1, vocab = (uint32_t)model_vocab(b->config);
    for (int64_t i = 0; i < options.batch * options.seq; i++) {
        batch.tokens[i] = (int32_t)(next_random(&seed) % vocab);
        batch.targets[i] = (int32_t)(next_random(&seed) % vocab);
    }
    TRY(measure_steps(b, &trainer, &batch, out, err));
    return b->profile ? backend->trace_write(devices, b->profile, err) : CVN_OK;
}
