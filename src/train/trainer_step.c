/* What a trainer does when it is open: steps, and evaluation. */
#include "base/rng.h"
#include "train/stages.h"

#include <string.h>

void trainer_communication(const Trainer *t, CommTable *out)
{
    const Runtime *rt = &t->stage->rt;
    rt->backend->communication(rt->devices, out);
    stages_communication(t, out);
}

bool trainer_needs(const Trainer *t, int64_t row)
{
    return t->need[row % t->options.micro_batch];
}

/* Whether gradients are added up, and weights updated from their sums. */
static bool accumulates(const Trainer *t)
{
    return t->stage->program[TRAIN_UPDATE].rt != NULL;
}

int trainer_run(Trainer *t, TrainStage *stage, TrainGraph kind, const TrainBatch *batch,
                int64_t first, cvn_err *err)
{
    Program *p = &stage->program[kind];
    int64_t at = first * t->options.seq;
    if (batch) {
        program_bind(p, ROLE_TOKENS, 0, batch->tokens + at);
        program_bind(p, ROLE_TARGETS, 0, batch->targets + at);
        program_bind(p, ROLE_STARTS, 0, batch->starts + at);
        program_bind(p, ROLE_REFERENCE, 0, batch->reference ? batch->reference + first : NULL);
        program_bind(p, ROLE_KEY, 0, t->key + 2 * first);
    }
    return program_run(p, err);
}

static int clear_sums(Trainer *t, cvn_err *err)
{
    for (int k = 0; k < t->n_stages; k++)
        for (Buffer *b = t->stage[k].rt.first; b; b = b->next)
            if ((b->role == ROLE_SUM || b->role == ROLE_TOTAL) &&
                buffer_clear(&t->stage[k].rt, b, err))
                return err->code;
    return CVN_OK;
}

/* All micro-batches of a step, then the update. */
static int run_accumulated(Trainer *t, const TrainBatch *batch, cvn_err *err)
{
    cvn_err ignored = {0};
    int code = stages_step(t, batch, err);
    if (code)
        clear_sums(t, &ignored);
    return code;
}

/* A key for each sequence that the run takes, by which its elements are dropped. */
static void make_keys(Trainer *t)
{
    const CheckpointState *saved = &t->state.saved;
    const RngKey key = rng_key(saved->seed, "dropout");
    for (int64_t row = 0; row < t->options.batch; row++) {
        uint64_t at = (uint64_t)(saved->position + row);
        rng_threefry2x32(key.word, (const uint32_t[]){(uint32_t)(at >> 32), (uint32_t)at},
                         t->key + 2 * row);
    }
}

int trainer_step(Trainer *t, const TrainBatch *batch, TrainReport *report, cvn_err *err)
{
    const TrainerOptions *o = &t->options;
    CheckpointState *saved = &t->state.saved;
    double factor = schedule_factor(&o->schedule, saved->step + 1);
    optimizers[o->optimizer.kind].scalars(&o->optimizer, *t->state.updates + 1, factor, t->scalar);
    make_keys(t);
    TRY(accumulates(t) ? run_accumulated(t, batch, err)
                       : trainer_run(t, t->stage, TRAIN_STEP, batch, 0, err));
    TrainGraph last = accumulates(t) ? TRAIN_UPDATE : TRAIN_STEP;
    const float *got = program_output(&t->stage->program[last], ROLE_REPORT, 0);
    double count = got[TRAIN_COUNT] > 0 ? (double)got[TRAIN_COUNT] : 1;
    *report = (TrainReport){.loss = (double)got[TRAIN_SUM] / count,
                            .z = (double)got[TRAIN_Z] / count,
                            .lr = (double)t->scalar[0],
                            .grad_norm = (double)got[TRAIN_NORM],
                            .tokens = (double)got[TRAIN_COUNT],
                            .updated = got[TRAIN_UPDATED] > 0};
    *t->state.updates += report->updated;
    saved->step++;
    saved->tokens += o->batch * o->seq;
    saved->position += o->batch;
    return CVN_OK;
}

int trainer_score(Trainer *t, const TrainBatch *batch, float *out, cvn_err *err)
{
    const Program *score = &t->stage->program[TRAIN_SCORE];
    if (!score->rt)
        return err_set(err, CVN_EINVAL, "the trainer was opened without preference pairs");
    TRY(trainer_run(t, t->stage, TRAIN_SCORE, batch, 0, err));
    memcpy(out, program_output(score, ROLE_REPORT, 0),
           (size_t)t->options.micro_batch * sizeof *out);
    return CVN_OK;
}

int trainer_evaluate(Trainer *t, const TrainBatch *batch, double *sum, double *count, cvn_err *err)
{
    if (!t->options.evaluates)
        return err_set(err, CVN_EINVAL, "the trainer was opened without evaluation");
    float got[TRAIN_TOTALS];
    const Runtime *rt = &t->stage->rt;
    if (t->stage->program[TRAIN_EVALUATE].rt) {
        TRY(stages_evaluate(t, batch, got, err));
    } else {
        TRY(trainer_run(t, t->stage, TRAIN_GRADIENT, batch, 0, err));
        const Buffer *total = runtime_buffer(rt, ROLE_TOTAL, 0);
        if (rt->backend->download(rt->devices, total->memory[0], 0, sizeof got, got, err) ||
            clear_sums(t, err))
            return err->code;
    }
    *sum += (double)got[TRAIN_SUM];
    *count += (double)got[TRAIN_COUNT];
    return CVN_OK;
}
