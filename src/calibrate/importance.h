/*
 * What enters the matrices of a model, and what it would cost to round them: one pass of a text through the model as it is.
 *
 *     importance of a column    the sum of the squares of what enters there, over all tokens: what the square of an error in it
 *                               counts. Encoders of blocks (io/encode.h) take it.
 *     loss of a matrix          by how much the states behind the layer change when this matrix alone is rounded: the squared
 *                               change over the squared state, summed over the first 2,048 tokens
 *
 * By the losses the matrices of an int4 model that are kept in 8 bits are chosen: those that lose most for each bit that they would
 * take more, as long as the weights of all layers take at most so many bits each, scales included.
 */
#ifndef CVN_CALIBRATE_IMPORTANCE_H
#define CVN_CALIBRATE_IMPORTANCE_H

#include "calibrate/layers.h"

typedef struct Importance {
    int n; /* parameters of the model */
    /* [n] of each matrix its columns' importance, [columns]; NULL of what is none; owned */
    float **column;
    double *loss; /* [n] of each matrix of a layer that the scheme has in 4 bits; else 0; owned */
} Importance;

/* scheme: int4, whose losses are wanted; none: only importance. The layers are at their beginning then. */
int importance_measure(Importance *importance, Layers *layers, QuantScheme scheme, cvn_err *err);
/* Safe on {0}. */
void importance_free(Importance *importance);

/* Which matrices of the model in int4 are in 8 bits: [layers, PARAM_KIND_COUNT] as model_set_eight takes it; NULL where there are
   none. */
const bool *importance_choose(const Importance *importance, const IoModel *model,
                              QuantScheme scheme, double bits, Arena *arena);

#endif
