/*
 * The share of a step in which pipeline stages wait, measured and by theory.
 *
 *     bench_stages [stages] [milliseconds of a forward pass]
 *
 * Every run of a program of a stage sleeps in addition: so long in a forward pass, twice as long in a backward pass, as products take.
 * Sleeping takes no processor, so that four stages on two cores are as four machines. What the programs themselves take (a model of 4
 * layers of 32) is measured by a step that does not sleep, and taken off. With m micro-batches in s stages 1F1B waits
 * (s - 1) / (m + s - 1) of a step (Narayanan et al. 2021, arXiv:2104.04473, section 2.2).
 */
#include "base/threads.h"
#include "model/presets.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { STEPS = 5 };

/* A back end's table has no place for a context. */
static struct {
    const Trainer *trainer;
    const Backend *own; /* what is run in fact */
    double forward;     /* seconds of sleep; 0: none */
} slow;

static double sleep_of(const Executable *executable)
{
    for (int k = 0; k < slow.trainer->n_stages; k++) {
        const TrainStage *stage = &slow.trainer->stage[k];
        if (executable == stage->program[TRAIN_FORWARD].executable)
            return slow.forward;
        if (executable == stage->program[TRAIN_GRADIENT].executable) /* the last stage's is both */
            return slow.forward * (stage->number == slow.trainer->stages - 1 ? 3 : 2);
    }
    return 0;
}

static int run_slowly(Devices *devices, const Executable *executable, const Argument *argument,
                      const void **output, cvn_err *err)
{
    double seconds = sleep_of(executable);
    const struct timespec time = {.tv_sec = (time_t)seconds,
                                  .tv_nsec = (long)(fmod(seconds, 1) * 1e9)};
    if (seconds > 0)
        nanosleep(&time, NULL);
    return slow.own->run(devices, executable, argument, output, err);
}

/* The least seconds of some steps: whatever else the machine does only adds to them. */
static int time_steps(Trainer *t, const TrainBatch *batch, double forward, double *out,
                      cvn_err *err)
{
    *out = INFINITY;
    slow.forward = forward;
    for (int i = 0; i <= STEPS; i++) {
        TrainReport report;
        int64_t begin = clock_ns();
        TRY(trainer_step(t, batch, &report, err));
        if (i > 0)
            *out = fmin(*out, (double)(clock_ns() - begin) * 1e-9);
    }
    return CVN_OK;
}

static int measure(const Model *model, int stages, int micro, double forward, cvn_err *err)
{
    SCOPED(trainer_close) Trainer t = {0};
    SCOPED(train_batch_free) TrainBatch batch = {0};
    char mesh[32];
    double plain, slowed;
    snprintf(mesh, sizeof mesh, "stage=%d", stages);
    const TrainerOptions options = {.batch = micro,
                                    .micro_batch = 1,
                                    .seq = 16,
                                    .compute = CVN_F32,
                                    .clip = 1,
                                    .remat = REMAT_NONE,
                                    .optimizer = optimizer_defaults(OPTIMIZER_ADAMW, 1 << 16),
                                    .schedule = {.steps = 100},
                                    .threads = 1,
                                    .mesh = mesh,
                                    .layout = "pp"};
    TRY(trainer_open(&t, model, &options, err));
    TRY(trainer_random(&t, 1, err));
    TRY(train_batch_new(&batch, micro, options.seq, err));
    for (int64_t i = 0; i < micro * options.seq; i++)
        batch.tokens[i] = batch.targets[i] = (int32_t)(i % model_vocab(model));
    Backend table = *t.stage->rt.backend;
    slow.trainer = &t;
    slow.own = t.stage->rt.backend;
    table.run = run_slowly;
    for (int k = 0; k < t.n_stages; k++)
        t.stage[k].rt.backend = &table;
    TRY(time_steps(&t, &batch, 0, &plain, err));
    TRY(time_steps(&t, &batch, forward, &slowed, err));
    for (int k = 0; k < t.n_stages; k++)
        t.stage[k].rt.backend = slow.own;
    double work = 3 * forward * micro, waits = 1 - work / (slowed - plain);
    double theory = (stages - 1.0) / (micro + stages - 1.0);
    printf("%7d %14d %10.1f %10.1f %10.1f%% %10.1f%% %+8.1f%%\n", stages, micro, 1e3 * plain,
           1e3 * slowed, 100 * waits, 100 * theory, 100 * (waits / theory - 1));
    return CVN_OK;
}

int main(int argc, char **argv)
{
    int stages = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 4;
    double forward = (argc > 2 ? strtod(argv[2], NULL) : 20) * 1e-3;
    cvn_err err = {0};
    Model *model = NULL;
    SCOPED(arena_free) Arena arena = {0};
    int code = arena_init(&arena, &err);
    if (!code)
        code = preset_model("dim=32,layers=4,heads=4,ffn=64,vocab=64", &model, &arena, &err);
    puts(" stages  micro-batches   plain ms    step ms      waits     theory  difference");
    for (int micro = stages; !code && micro <= 4 * stages; micro *= 2)
        code = measure(model, stages, micro, forward, &err);
    if (code)
        fprintf(stderr, "bench_stages: %s\n", err.message);
    return code ? 1 : 0;
}
