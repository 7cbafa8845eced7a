/*
 * What the functions that build a model's graph share: forward.c, and products.c, whose functions stand below.
 */
#ifndef CVN_MODEL_FORWARD_IMPL_H
#define CVN_MODEL_FORWARD_IMPL_H

#include "model/block.h"
#include "model/dropout.h"
#include "model/forward.h"

/* Of the routers until now, f32; NULL before the first (routers.c). */
typedef struct RouterSums {
    RouterTerms asked;
    cvn_value *counted;       /* [batch, seq]: 1 of a token that counts, else 0 */
    cvn_value *taken, *score; /* [experts], of BALANCE_BATCH: of all tokens and layers, added up */
    cvn_value *balance, *z, *load;
    int64_t layers;
} RouterSums;

/* The graph's inputs that say which tokens there are, and what is made of them. */
typedef struct BuilderRows {
    cvn_value *tokens, *start, *length, *positions;
    cvn_value *slot, **table; /* NULL: row b has a cache of its own; [caches->tables] */
    cvn_value *wanted;        /* i32 [wanted] rows that are drawn from; NULL: all */
    cvn_value *first;  /* i32 [batch, seq]: the first key that a token sees; NULL: all before it */
    cvn_value *select; /* f32 [batch, ranks]: what each adapter counts; NULL: their scale */
} BuilderRows;

/* What positions do to queries and keys. */
typedef struct BuilderRope {
    cvn_value *temper;      /* f32 [batch, seq] of queries, by their positions; or NULL */
    cvn_value *growth;      /* the same, of layers without rotary positions */
    const float *frequency; /* those that were added last */
    cvn_value **inv_freq;   /* [layers]: f32 [rope_pairs]; NULL of a layer that does not rotate */
} BuilderRope;

/* While one graph is built. */
typedef struct Builder {
    cvn_graph *g;
    const Model *model;
    const ModelStep *step; /* NULL in training */
    const ParamList *params;
    cvn_dtype compute;             /* of what enters products */
    cvn_value **weight;            /* [params->n] */
    const ModelAdapters *adapters; /* or NULL */
    cvn_value **cache;             /* [caches->n, tensors]; NULL in training */
    const Caches *caches;          /* likewise */
    int tensors;                   /* of a cache: k, v, and in 8 bits the scales of both */
    cvn_value **input;             /* [params->n] what enters products; NULL: nobody asks */
    bool exact;                    /* training rounds where steps do, and nowhere else */
    ModelDropout drop;             /* of training */
    BuilderRows rows;
    BuilderRope rope;
    RouterSums routers;
} Builder;

/* Every operation notes the line that adds it. */
#define G CVN_HERE(b->g)

/* The weight of a kind in a layer (or -1), or NULL where this model has none, and of PARAM_KIND_COUNT, which is none. */
cvn_value *forward_weight(const Builder *b, ParamKind kind, int64_t layer);

/* x in the dtype that enters products. */
cvn_value *forward_compute(Builder *b, cvn_value *x);

/* A product that something else than a product reads is rounded in training to what enters products, and read in f32:
   half of what is written and read again, and of what waits for the backward pass. Autocast of torch does so, too. Steps do not, nor
   does training that is to have their bits. */
cvn_value *forward_kept(Builder *b, cvn_value *x);

/* What the activation of a layer makes of its gate, times up. */
cvn_value *forward_gated(Builder *b, cvn_value *gate, cvn_value *up, int64_t layer);

/* h [batch, seq, dim] -> f32 [batch, seq, dim]: what the router's choice of a layer's experts makes of each token (experts.c). */
cvn_value *forward_experts(Builder *b, cvn_value *h, int64_t layer);

/* The softmax over the last axis of x [batch, seq, n], whose largest is finite. */
cvn_value *forward_softmax(Builder *b, cvn_value *x);

/* Which tokens have a target, bool [batch, seq]. */
cvn_value *forward_known(Builder *b, cvn_value *targets);

/* Asks for terms of the routers over tokens up to the last of each row that has a target, i32 [batch, seq]. */
void routers_begin(Builder *b, RouterTerms asked, cvn_value *targets);
/* A layer's logits f32 [batch, seq, experts], and which were chosen, i32 [batch, seq, chosen]. */
void routers_add(Builder *b, cvn_value *logits, cvn_value *chosen, int64_t layer);
void routers_end(Builder *b, ModelLoss *loss);

/* A matrix in the dtype that enters products; of quantized ones their numbers, which blocks have in any. */
cvn_value *forward_matrix(Builder *b, ParamKind kind, int64_t layer, cvn_dtype dtype);

/* A linear layer with an f32 result: the equation says which axes of the weight are contracted. */
cvn_value *forward_linear(Builder *b, const char *equation, cvn_value *x, ParamKind kind,
                          ParamKind bias, int64_t layer);

#endif
