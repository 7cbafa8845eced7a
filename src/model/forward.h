/*
 * A model as a graph.
 *
 * One function makes every graph that runs the model forward: `batch` rows, each with `seq` new
 * tokens that continue what is in the KV cache of its slot. Prefill is seq = a bucket, decode is
 * seq = 1; nothing else differs. A list of tokens of any slots is of rows of one token, too, of which those of a prompt go on in
 * its slot.
 *
 *     parameters                                         outputs
 *     weights, in the order of the parameter table
 *     cache.N.k, cache.N.v  [slots, kv_heads, context, head_dim]   the same, updated in place; in pages: [pages, kv_heads, page, head_dim]
 *     with kv_int8, of each layer: cache.N.k, cache.N.v i8, then cache.N.k_scale, cache.N.v_scale
 *         bf16 [slots, kv_heads, context, 1]
 *     tokens   i32 [batch, seq]                          what `output` asks for
 *     slot     i32 [batch]    of the caches, -1: none; rows of one slot are of different positions (no such parameter
 *                             where each row has its own)
 *     table.N  i32 [slots, n] the pages of each slot in some layers (caches.h), with slots
 *     start    i32 [batch]    tokens already in the cache
 *     length   i32 [batch]    new tokens of the row that are real, 0 … seq; the rest is padding
 *     wanted   i32 [wanted]   rows behind which a token is drawn (only of a list, below)
 *     (then the parameters of the output, below)
 *
 * Rows are independent of each other: a row's results depend on its own tokens, start and length
 * only. Padding writes keys and values past start + length, where the next section overwrites them
 * and where no query looks meanwhile.
 */
#ifndef CVN_MODEL_FORWARD_H
#define CVN_MODEL_FORWARD_H

#include "caravan/graph.h"
#include "model/caches.h"
#include "model/dropout.h"
#include "model/model.h"
#include "model/params.h"
#include "model/sample.h"

typedef enum StepOutput {
    STEP_LOGITS, /* logits f32 [batch, seq, vocab] */
    STEP_LAST,   /* logits f32 [batch, vocab] after the last real token of each row */
    STEP_SAMPLE, /* next i32 [batch]: a token drawn after the last real one; parameters of
                     sample.h. When seq is 1 and rows have their own caches, `tokens` and `start`
                     are also advanced in place, so that steps can be run one after the other without looking at the result. */
    STEP_SCORE,  /* logprob f32 [batch, seq] of targets i32 [batch, seq] (a parameter) after each
                     token,   and argmax i32 [batch, seq] */
    STEP_STATE   /* hidden f32 [batch * seq, dim]: what logits are products of, of each token */
} StepOutput;

typedef struct ModelStep {
    /* of the caches; 0: as many as rows, and decoding gives the next tokens and starts for itself */
    int64_t slots;
    const Caches *caches; /* with slots: borrowed */
    /* [caches->pools] those of all slots, of …; NULL: each row has its own `context` positions */
    const int64_t *pages;
    int64_t page;      /* … so many positions each; tables say which pages a slot has */
    int64_t batch;     /* rows */
    int64_t seq;       /* new tokens per row */
    int64_t context;   /* positions in the KV cache, at least start + seq of every call */
    int64_t longest;   /* tokens of a text, by which dynamic rope scaling goes; 0: `context` */
    cvn_dtype compute; /* of weights, activations entering products, and the cache: f32 or bf16 */
    StepOutput output;
    SampleMode sample; /* for STEP_SAMPLE */
    /* For STEP_SAMPLE, where seq is 1: a token is drawn behind so many of the rows, which a parameter wanted i32 [wanted] names,
       and what is said of [batch] there is of these. 0: behind each row. */
    int64_t wanted;
    bool kv_int8;     /* the cache is of 8 bits, with a scale for each position of a head */
    bool int8_inputs; /* what enters matrices of 8 bits is rounded to 8 bits too, but the head's */
    /* For SAMPLE_GENERAL: with the parameters of sample_penalty; with those of sample_bias, and the model's own logits f32
       [batch, vocab] are given, too. */
    bool penalty, adjusts;
    bool keep_logits; /* for STEP_SCORE: gives logits f32 [batch, seq, vocab] too */
    /* Adapters that rows choose from lie beside each other, as if they were one of all their ranks: each adapted weight
       has A [ranks, what it contracts] and B [what it gives, ranks], of ROLE_WEIGHT behind the table's parameters, in
       the order of lora_params. A parameter `select` f32 [batch, ranks] has what each rank counts in a row: 0 where the
       row has another adapter, else the scale. */
    int64_t ranks;    /* 0: there are none */
    uint64_t adapted; /* bit ParamKind: weights of that kind have adapters */
} ModelStep;

/* What is asked of the routers of experts in training, beside their choice. */
typedef enum BalanceKind { BALANCE_NONE, BALANCE_BATCH, BALANCE_SEQUENCE } BalanceKind;
typedef struct RouterTerms {
    BalanceKind balance;
    bool z, load;
} RouterTerms;

/* What training needs of the model: the loss of whole sequences, without a cache. Of a part without the head there are only blocks. */
typedef struct ModelLoss {
    cvn_value *sum;     /* f32: cross-entropies of the tokens with a target, added up */
    cvn_value *count;   /* f32: tokens with a target */
    cvn_value *mean;    /* f32: sum / count, 0 where there is none */
    cvn_value *z;       /* f32: logsumexp(logits)^2 of the same tokens, added up: the z-loss of PaLM
                         (Chowdhery et al. 2022, arXiv:2204.02311), before its coefficient */
    cvn_value *entropy; /* f32 [batch, seq]: of each token; 0 of one without a target */
    cvn_value *known;   /* f32 [batch, seq]: 1 of a token with a target, else 0 */
    cvn_value **block;  /* [n_blocks + 1], the graph's: f32 [batch, seq, dim], what enters each
                          layer, and what the last one gives */
    int n_blocks;       /* layers, of the part */
    /* f32, of what RouterTerms ask for, in models with experts (routers.c); else NULL: how unevenly experts are chosen; the mean of
       logsumexp(logits)^2 of each router, added up; and what has the tokens of each expert as its gradient, for its correction */
    cvn_value *balance, *router_z, *load;
} ModelLoss;

/* What it learns from, all i32 [batch, seq]. */
typedef struct ModelBatch {
    ModelPart part; /* of the model; {0}: all of it */
    /* f32 [batch, seq, dim]: what enters it; NULL: tokens do, which are embedded */
    cvn_value *entering;
    cvn_value *tokens; /* of the first part; NULL of others */
    /* The token that follows; outside of [0, vocab): not counted. Of the last part; NULL of others. */
    cvn_value *targets;
    /* Where in its row the document of a token begins: it sees nothing before, and its position
       is counted from there. NULL: at the begin of the row. */
    cvn_value *starts;
    ModelDropout dropout; /* {0}: none */
    /* Rounded where a step that decodes rounds, and nowhere else, so that a token has the log-probability that drawing it had; more
       is kept for the backward pass. Logits are f32. */
    bool exact;
    RouterTerms routers; /* {0}: nothing. With targets */
} ModelBatch;

/* Appends the forward pass over a batch, and its loss. weight[i] is parameter i of params_list in any type of floats; it is converted to
   `compute` (f32 or bf16) where it enters a product. Activations between products are f32. */
int model_loss(cvn_graph *g, const Model *config, cvn_dtype compute, cvn_value *const *weight,
               const ModelBatch *batch, ModelLoss *loss, cvn_err *err);

/* Additions of low rank to the products of a model (LoRA: Hu et al. 2021, arXiv:2106.09685): where a
   weight W has adapters A and B, x W^T becomes x W^T + scale (x A^T) B^T. Any type of floats. */
typedef struct ModelAdapters {
    cvn_value *const *a; /* indexed as the weights; [rank, the axes that W contracts], or NULL */
    cvn_value *const *b; /* likewise; [the axes that W gives, rank] */
    double scale;
} ModelAdapters;

/* model_loss of a model with adapters. */
int model_loss_adapted(cvn_graph *g, const Model *config, cvn_dtype compute,
                       cvn_value *const *weight, const ModelAdapters *adapters,
                       const ModelBatch *batch, ModelLoss *loss, cvn_err *err);

/* What embeddings are multiplied by before the first layer. */
double model_embedding_scale(const Model *model);

/* Appends a layer by itself: x f32 [batch, seq, dim], of texts from their beginnings, becomes what the layer makes of it. Behind the
   last layer follows the norm. weight[i] is parameter i, as above, or NULL where the layer has no use for it. input[i] becomes
   what enters the product with parameter i, [batch, seq, what is summed …]; others stay. */
cvn_value *model_layer(cvn_graph *g, const Model *model, cvn_dtype compute, int64_t layer,
                       cvn_value *x, cvn_value *const *weight, cvn_value **input);

/* The graph of a step, named after what it does ("decode_b4", "list_b512"). NULL with *err set on
 * failure. */
cvn_graph *model_step(const Model *config, const ModelStep *step, cvn_err *err);

#endif
