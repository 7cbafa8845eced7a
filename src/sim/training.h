/*
 * A training step from shapes alone, of models and of ways to split them that Caravan does not run, too: pipelines, parts of
 * sequences, numbers in fp8. What Caravan runs is timed from its own programs (sim/plan.h).
 *
 *     Llama 3.1 8B on 8 x H100, 128 rows of 8192 tokens, weights split over all: 16 micro-batches of a row each
 *     -> 9.1 s, 14,400 tokens a second and chip
 *
 * A layer's products are three times those of the forward pass, and once more what is computed again; gathers of weights and sums
 * of gradients go on beside them, sums between parts of a layer do not, unless the program was made so.
 */
#ifndef CVN_SIM_TRAINING_H
#define CVN_SIM_TRAINING_H

#include "sim/serving.h"

typedef struct SimTraining {
    const CostModel *chip;
    SimShape shape;
    ChipType type; /* of the products of layers */
    double chips;  /* all of them */
    double tp, pp,
        cp;       /* parts of a layer, of the layers, of a sequence; the rest are of the batch */
    bool sharded; /* weights lie split over the parts of the batch */
    bool sums_overlap;      /* sums between parts of a layer go on beside products */
    double rows, seq;       /* of a step, over all chips; tokens of each */
    double micro;           /* rows that a part of the batch takes at a time; 0: all of its own */
    double virtual_stages;  /* of a chip's part of the pipeline; 0: one */
    double again;           /* share of the forward products that is computed again */
    double attention_again; /* of attention */
    double gradient;        /* bytes of a gradient that is summed; 0: 2 */
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
