/*
 * Optimizers as graphs: a table, one row per method.
 *
 * An optimizer says three things: which tensors it keeps for a parameter (its slots), which numbers it
 * needs anew each step (its scalars, computed on the host in f64), and how a step changes a weight and its
 * slots (operations appended to the graph of the step). All of it is in f32; slots may be kept in bf16.
 *
 *   adamw       exp_avg, exp_avg_sq   [as the weight]     Loshchilov and Hutter 2019, arXiv:1711.05101,
 *                                                         as torch.optim.AdamW computes it
 *   muon        momentum_buffer       [as the weight]     matrices of the layers: Jordan 2024, as
 *               and those of adamw                        torch.optim.Muon computes it; the rest: adamw
 *   adafactor   exp_avg_sq_row, _col  [rows], [columns]   Shazeer and Stern 2018, arXiv:1804.04235,
 *               exp_avg_sq            vectors             without momentum, as transformers computes it
 *
 * The rows of a matrix are those of its Hugging Face form: q [heads, head_dim, embed] has the row axes
 * heads and head_dim. Axes are never flattened, so that a sharding may name each of them.
 */
#ifndef CVN_TRAIN_OPTIMIZER_H
#define CVN_TRAIN_OPTIMIZER_H

#include "caravan/graph.h"
#include "model/params.h"

typedef enum OptimizerKind {
    OPTIMIZER_ADAMW,
    OPTIMIZER_ADAFACTOR,
    OPTIMIZER_MUON,
    OPTIMIZER_COUNT
} OptimizerKind;

typedef struct OptimizerOptions {
    OptimizerKind kind;
    double lr; /* learning rate at its peak; 0 for Adafactor: the relative step
                            min(0.01, 1 / sqrt(t)) of the paper */
    /* Decoupled, times the learning rate; matrices only, not norms and biases. */
    double weight_decay;
    double beta1, beta2; /* AdamW: decay of the two averages */
    double eps;          /* AdamW: added to the root of the second */
    double momentum;     /* Muon: decay of the average */
    cvn_dtype state;     /* of slots between steps: f32 or bf16 */
} OptimizerOptions;

enum { OPTIMIZER_MAX_SLOTS = 2, OPTIMIZER_MAX_SCALARS = 4 };

/* A tensor that is kept for a parameter. */
typedef struct OptimizerSlot {
    const char *name; /* "exp_avg": in files "optimizer.exp_avg.<name of the weight>" */
    cvn_type type;
} OptimizerSlot;

/* What a step of one parameter is made of. */
typedef struct OptimizerUpdate {
    cvn_graph *g;
    const OptimizerOptions *options;
    const Param *param;
    cvn_dtype compute;                         /* of what enters products: f32 or bf16 */
    cvn_value *const *scalar;                  /* [n_scalars of the method], f32 */
    cvn_value *weight, *gradient;              /* f32, of the parameter's shape; clipped already */
    cvn_value *state[OPTIMIZER_MAX_SLOTS];     /* old */
    cvn_value *new_weight;                     /* out */
    cvn_value *new_state[OPTIMIZER_MAX_SLOTS]; /* out */
} OptimizerUpdate;

typedef struct Optimizer {
    const char *name;
    int n_scalars;
    const char *scalar[OPTIMIZER_MAX_SCALARS]; /* names; the first is "lr", the learning rate */
    /* Slots of a parameter, in f32; returns how many. */
    int (*slots)(const Param *param, OptimizerSlot slot[OPTIMIZER_MAX_SLOTS]);
    /* Of update t = 1, 2, …; `factor` is the schedule's, 0 to 1. */
    void (*scalars)(const OptimizerOptions *options, int64_t t, double factor, float *out);
    void (*update)(OptimizerUpdate *update);
} Optimizer;

extern const Optimizer optimizers[OPTIMIZER_COUNT];

/* Settings that work for most: AdamW with betas 0.9 and 0.95 and decay 0.1, Adafactor with the relative
   step and no decay. AdamW's learning rate is 0.5 / cbrt(n_params), 0.01 at most: 0.005 for a million
   parameters, where we tried it, 2.6e-4 for 7e9 and 1.2e-4 for 70e9, where Llama 2 was trained with 3e-4 and
   1.5e-4 (Touvron et al. 2023, arXiv:2307.09288). */
OptimizerOptions optimizer_defaults(OptimizerKind kind, int64_t n_params);

/* Slots of a parameter, as they are kept; returns how many. */
int optimizer_slots(const OptimizerOptions *options, const Param *param,
                    OptimizerSlot slot[OPTIMIZER_MAX_SLOTS]);

/* Refuses numbers that make no sense. */
int optimizer_check(const OptimizerOptions *options, cvn_err *err);

/* Root of the mean of squares over all elements, an f32 scalar; and the sum of squares. Summed along
   the last dimension first, so that threads share the work and rounding stays small; but of what is a matrix product
   down the columns first, which the product's kernel can do while it has them. */
cvn_value *optimizer_sum_of_squares(cvn_graph *g, cvn_value *x);
cvn_value *optimizer_rms(cvn_graph *g, cvn_value *x);

/* The weight with its decay, decoupled from the step: for AdamW and Muon. */
cvn_value *optimizer_decayed(const OptimizerUpdate *update);

/* The rows of the table, each method in its file. */
int optimizer_adamw_slots(const Param *param, OptimizerSlot slot[OPTIMIZER_MAX_SLOTS]);
void optimizer_adamw_scalars(const OptimizerOptions *options, int64_t t, double factor, float *out);
void optimizer_adamw_update(OptimizerUpdate *update);
int optimizer_adafactor_slots(const Param *param, OptimizerSlot slot[OPTIMIZER_MAX_SLOTS]);
void optimizer_adafactor_scalars(const OptimizerOptions *options, int64_t t, double factor,
                                 float *out);
void optimizer_adafactor_update(OptimizerUpdate *update);
int optimizer_muon_slots(const Param *param, OptimizerSlot slot[OPTIMIZER_MAX_SLOTS]);
void optimizer_muon_update(OptimizerUpdate *update);

#endif
