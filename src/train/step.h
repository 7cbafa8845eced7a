/*
 * The graphs of training. A whole step is one graph, and so one compiled plan:
 *
 *   TRAIN_STEP     forward, backward, clipping, update; the batch at once
 *
 * and where the batch is taken in micro-batches, two:
 *
 *   TRAIN_GRADIENT forward and backward of a micro-batch; its gradients are added to accumulators
 *   TRAIN_UPDATE   clipping and update from the accumulators, which are set to 0
 *
 *   TRAIN_EVALUATE forward only
 *   TRAIN_SCORE    forward only; what the targets of each row cost, f32 [batch]
 *
 * Of a model in stages (stages.h) each stage has such graphs of its layers. What enters and leaves it are resident tensors, StageTensor.
 * There are two graphs more:
 *
 *   TRAIN_FORWARD  the forward pass of all stages but the last, where GRADIENT is then the backward pass by itself: what that reads is
 *                  kept (kept.h)
 *   TRAIN_SQUARES  adds the gradients of an embedding that is the head, too, of the first and the last stage; gives the sums of squares of
 *                  all gradients of the stage, f32 [its weights], and in the last stage the sums over tokens
 *
 * With `beta` what is learned is which of two answers is better (DPO: Rafailov et al. 2023, arXiv:2305.18290). Rows 2 i and
 * 2 i + 1 are a pair, the better first; a row's targets are those of its answer. In place of cross-entropy is
 *
 *   -log sigmoid(beta (log p(better) - log r(better) - log p(worse) + log r(worse)))
 *
 * with p the model and r the one that it began from, whose -log r(row), "reference", TRAIN_SCORE gave before the first step.
 * Pairs are counted in place of tokens, and in place of z those that are in order: where the difference is above 0.
 *
 * Parameters, in this order, of those that the graph has:
 *   weights        f32, [n_weights], in the order of the parameter table; named as there
 *   slots          f32 or bf16, the optimizer's, weight by weight; "exp_avg.layers.0.q"
 *   rounded        of the weights that enter products, where `compute` is bf16: what they are in bf16,
 *                  "rounded.layers.0.q". The update writes both, and no step converts a weight
 *   accumulators   f32, of each weight's gradient, "sum.layers.0.q"; then the sums "total", f32 [3]:
 *                  cross-entropy, tokens with a target, z
 *   tokens, targets, starts  i32 [batch, seq], as data_fill gives them; a target outside of the vocabulary
 *                  (-1) is not learned
 *   reference      f32 [batch], with `beta`
 *   key            u32 [batch, 2], with dropout (model/dropout.h), of STEP and GRADIENT: of each row's own
 *   scalars        f32, the optimizer's, such as "lr"
 *   sums           f32 [4], of UPDATE in stages: the sums "total", and the sum of squares of all gradients
 *   frozen         with LoRA: the model's weights, in `compute`, in the order of the parameter table; those
 *                  above are then the adapters (lora.h), which are small and have no rounded copies
 *
 * Weights, slots, rounded copies and accumulators are updated in place. The gradient is that of the mean over all tokens
 * with a target, however they lie in micro-batches, of cross-entropy + z_loss * logsumexp^2, and of the routers' terms of a micro-batch
 * for each of its tokens. Before the
 * update it is scaled down to a global norm of `clip` (as torch.nn.utils.clip_grad_norm_). Where the loss or
 * the norm is not finite nothing changes.
 *
 * All gradients wait for the norm. Those of weights that only enter products wait rounded to `compute`, as autocast of
 * torch has them: half as many bytes. The norm, and sums over micro-batches and devices, are of exact ones.
 *
 * The last output is f32 [TRAIN_REPORT_COUNT], what the step was; of EVALUATE, the three sums.
 */
#ifndef CVN_TRAIN_STEP_H
#define CVN_TRAIN_STEP_H

#include "grad/remat.h"
#include "model/forward.h"
#include "model/lora.h"
#include "train/optimizer.h"

typedef enum TrainGraph {
    TRAIN_STEP,
    TRAIN_GRADIENT,
    TRAIN_UPDATE,
    TRAIN_EVALUATE,
    TRAIN_SCORE,
    TRAIN_FORWARD,
    TRAIN_SQUARES,
    TRAIN_GRAPHS
} TrainGraph;

/* What is between a stage and those beside it. */
typedef enum StageTensor {
    STAGE_ENTERS,          /* what its first layer is given */
    STAGE_LEAVES,          /* what its last layer gives */
    STAGE_GRADIENT_ENTERS, /* the gradient of what left */
    STAGE_GRADIENT_LEAVES, /* the gradient of what entered */
    STAGE_TENSORS
} StageTensor;

/* Elements of the report. */
enum {
    TRAIN_SUM,   /* cross-entropies, added up */
    TRAIN_COUNT, /* tokens with a target */
    TRAIN_Z,     /* logsumexp^2, added up */
    TRAIN_TOTALS,
    TRAIN_NORM = TRAIN_TOTALS, /* global norm of the gradient, before clipping */
    TRAIN_UPDATED,             /* 1, or 0 where the step was skipped */
    TRAIN_REPORT_COUNT
};

/* Of models with experts: coefficients of the routers' terms (model/routers.c), which those of a run of the graph are; all 0: none. */
typedef struct RouterOptions {
    double balance;   /* of how unevenly experts are chosen */
    bool by_sequence; /* in each row by itself, and not in all */
    double z;
    /* how far a step moves the corrections by which experts are chosen; they are learned in no other way */
    double bias;
} RouterOptions;

typedef struct TrainStepOptions {
    int64_t batch, seq; /* of one run of the graph: rows, tokens per row */
    cvn_dtype compute;  /* of what enters products: f32 or bf16 */
    double clip;        /* greatest global norm of the gradient; 0: no clipping */
    double z_loss;      /* coefficient; 0: none */
    RouterOptions routers;
    RematPolicy remat;          /* what the backward pass computes again */
    OptimizerOptions optimizer; /* its method, and what is constant of it */
    LoraOptions lora;           /* rank 0: all weights are trained */
    double beta;                /* of DPO; 0: rows are learned as they are */
    DropoutRates dropout;       /* that of adapters is in lora */
    bool exact;                 /* the forward pass has the bits of decoding (ModelBatch) */
    int stage, stages; /* which of how many the graph is of; stages 0 or 1: the whole model */
} TrainStepOptions;

/* Whether the stage has an embedding that another one has, too. */
bool train_stage_shares(const TrainStepOptions *options, const Model *model);

/* Whether anything is dropped. */
bool train_drops(const TrainStepOptions *options);

/* Whether a weight, one of a model's table, has a copy that is rounded to the type of products. */
bool train_rounds(const Param *param, const ParamList *list, const TrainStepOptions *options);

/* NULL with *err set on failure. */
cvn_graph *train_graph(TrainGraph kind, const Model *config, const TrainStepOptions *options,
                       cvn_err *err);

#endif
