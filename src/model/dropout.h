/*
 * Dropout (Srivastava et al. 2014, JMLR 15): in training an element is 0 with probability `rate`, and else divided by
 * 1 - rate, so that the mean is what it was.
 *
 * Which elements are dropped is a function and no draw, so that it is the same in the forward and the backward pass, on one
 * device and on many, in a batch and in its parts, and in a run that goes on:
 *
 *   bits of an element = threefry(key of its row, (its place in the row, head << 20 | site))     (cvn_random_bits)
 *   it is dropped      where bits < rate * 2^32
 *
 * The key of a row is its caller's: one for each sequence that a run takes. A site is a place in the model, such as what
 * attention of the third layer gives.
 */
#ifndef CVN_MODEL_DROPOUT_H
#define CVN_MODEL_DROPOUT_H

#include "caravan/graph.h"
#include "model/params.h"

typedef struct ModelDropout {
    cvn_value *key;   /* u32 [batch, 2]; NULL: nothing is dropped */
    double attention; /* rate of the weights that queries give to keys */
    double hidden;    /* of the embedding, and of what attention and feed-forward part add to it */
    double adapters;  /* of what enters adapters (LoRA) */
} ModelDropout;

/* Places of a layer, or of no layer (-1). */
typedef enum DropoutPlace {
    DROPOUT_EMBEDDING,
    DROPOUT_ATTENTION,
    DROPOUT_ATTENTION_RESULT,
    DROPOUT_MLP_RESULT,
    DROPOUT_ADAPTER, /* + ParamKind of the weight that is adapted */
    DROPOUT_PLACES = 64
} DropoutPlace;
_Static_assert(DROPOUT_ADAPTER + (int)PARAM_KIND_COUNT <= (int)DROPOUT_PLACES, "sites overlap");

static inline int64_t dropout_site(int64_t layer, int place)
{
    return (layer + 1) * DROPOUT_PLACES + place;
}

/* x [batch, …], floats, with some elements dropped; x itself where the rate is 0. */
cvn_value *dropout(cvn_graph *g, cvn_value *x, const ModelDropout *dropout, double rate,
                   int64_t site);

#endif
