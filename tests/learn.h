/* Some steps of training, on batches that are a function of the step, and what came of each. */
#ifndef CVN_TESTS_LEARN_H
#define CVN_TESTS_LEARN_H

#include "splitmix.h"
#include "train/trainer.h"
#include "unit.h"

#include <stdlib.h>

/* Tokens and targets of a step, [batch, seq] of the trainer's options; step counts from 0. */
typedef void FillBatch(const Trainer *t, int64_t step, int32_t *tokens, int32_t *targets);

/* The sequences of `batch` in tests/oracles/train.py: each token mostly follows from the one before. */
static inline void fill_chains(const Trainer *t, int64_t step, int32_t *tokens, int32_t *targets)
{
    uint64_t state = (uint64_t)step + 1;
    int64_t seq = t->options.seq;
    for (int64_t r = 0; r < t->options.batch; r++) {
        int32_t token = draw(&state, 97);
        for (int64_t i = 0; i < seq; i++) {
            tokens[r * seq + i] = token;
            token = (5 * token + draw(&state, 3)) % 97;
            targets[r * seq + i] = i % 7 == 0 ? -1 : token;
        }
    }
}

/* What most trainings of a tiny model on one thread are made with; evaluation too. */
static inline TrainerOptions learn_options(OptimizerKind optimizer, cvn_dtype compute,
                                           int64_t batch, int64_t micro_batch, int64_t seq)
{
    return (TrainerOptions){.batch = batch,
                            .micro_batch = micro_batch,
                            .seq = seq,
                            .compute = compute,
                            .clip = 1,
                            .remat = REMAT_NONE,
                            .optimizer = optimizer_defaults(optimizer, 20000),
                            .schedule = {.kind = SCHEDULE_CONSTANT, .steps = 100, .final = 1},
                            .threads = 1,
                            .memory_limit = (size_t)1 << 40,
                            .evaluates = true};
}

/* Goes on until this step; loss[i] and norm[i] are those of step i. A document fills a row. */
static inline void learn(Trainer *t, int64_t until, FillBatch *fill, double *loss, double *norm)
{
    cvn_err err = {0};
    size_t n = (size_t)(t->options.batch * t->options.seq);
    int32_t *tokens = calloc(n, 4), *targets = calloc(n, 4), *starts = calloc(n, 4);
    TrainBatch batch = {.tokens = tokens, .targets = targets, .starts = starts};
    assert_true(tokens && targets && starts);
    while (t->state.saved.step < until) {
        TrainReport report;
        int64_t step = t->state.saved.step;
        fill(t, step, tokens, targets);
        must(trainer_step(t, &batch, &report, &err), &err);
        assert_true(report.updated);
        loss[step] = report.loss;
        norm[step] = report.grad_norm;
    }
    free(tokens);
    free(targets);
    free(starts);
}

#endif
