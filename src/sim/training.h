/*
 * A training step from shapes alone, of models and of ways to split them that Caravan does not run: pipelines, parts of
 * sequences, numbers in fp8, other programs. What Caravan runs is timed from its own programs (sim/plan.h), from which this differs
 * by a few percent (tests/test_rows.c).
 *
 *     Llama 3.1 8B on 8 x H100, 128 rows of 8192 tokens, weights split over all: 16 micro-batches of a row each
 *     -> 9.1 s, 14,400 tokens a second and chip
 *
 * A layer's products are three times those of the forward pass, and once more what is computed again, which the last product of a
 * layer never is. What goes on beside them, gathers of weights, sums of gradients and sums between parts of a layer, the software
 * says: a row of stacks.def.
 */
#ifndef CVN_SIM_TRAINING_H
#define CVN_SIM_TRAINING_H

#include "sim/serving.h"

/* The software of training in a year, as far as time depends on it: a row of stacks.def. */
typedef struct SimStack {
    const char *name;
    int year;
    double attention;     /* share of a chip's peak that attention reaches, at most */
    double gradient;      /* bytes of a gradient that is summed */
    bool sums_overlap;    /* sums between parts of a layer go on beside products, */
    bool gathers_overlap; /* and gathers of weights and sums of gradients */
    const char *source;
} SimStack;

/* NULL: none has that number, or name. The first is what is meant where none is said. */
const SimStack *sim_stack_at(size_t i);
const SimStack *sim_stack_find(const char *name);

typedef struct SimTraining {
    const CostModel *chip;
    SimShape shape;
    ChipType type; /* of the products of layers */
    double chips;  /* all of them */
    double tp, pp,
        cp;       /* parts of a layer, of the layers, of a sequence; the rest are of the batch */
    bool sharded; /* weights lie split over the parts of the batch */
    const SimStack *stack;
    double rows, seq;       /* of a step, over all chips; tokens of each */
    double micro;           /* rows that a part of the batch takes at a time; 0: all of its own */
    double virtual_stages;  /* of a chip's part of the pipeline; 0: one */
    double again;           /* share of the forward products that is computed again */
    double attention_again; /* of attention */
} SimTraining;

typedef struct SimTrained {
    double seconds;
    double exposed; /* of these, waiting for links */
    Cost cost;      /* of one chip */
} SimTrained;

int sim_train(const SimTraining *ask, SimTrained *out, cvn_err *err);

/* Matrices' weights; operations of a token of so many: 6 a weight, and attention over `keys` keys. */
double sim_shape_weights(const SimShape *shape);
double sim_shape_flops(const SimShape *shape, double keys);

#endif
