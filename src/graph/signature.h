/*
 * The signature of a graph: what each parameter and each output is for. Whoever builds a graph says it
 * (graph_role, graph_output_role); whoever runs it binds memory by it, so that nothing goes by names or by counting.
 *
 *     weight = graph_role(cvn_parameter(g, "layers.3.q", type), ROLE_WEIGHT, 24);     the 24th of the table of weights
 *     tokens = graph_role(cvn_parameter(g, "tokens", grid), ROLE_TOKENS, 0);
 *     cvn_output(g, next);
 *     graph_output_role(g, ROLE_NEXT, 0);
 *
 * An output that is computed into a parameter has that parameter's role. Of one role there may be many, told apart by
 * their index; a pair of both stands for the same tensor in all graphs that are run together.
 */
#ifndef CVN_GRAPH_SIGNATURE_H
#define CVN_GRAPH_SIGNATURE_H

#include "graph/graph.h"

/* Tensors that stay on the devices from run to run come first: the last of them is ROLE_RESIDENT - 1. */
typedef enum Role {
    ROLE_NONE,   /* nobody said: an input or a result like any other */
    ROLE_WEIGHT, /* of the model, and never written: index in its table of parameters; behind it adapters (model/forward.h) */
    ROLE_TRAINED, /* f32, what training updates: index in the table of what is trained */
    ROLE_ADAPTER, /* the same with LoRA, where adapters are trained: index in their table */
    ROLE_SLOT,    /* of the optimizer: index of the weight * OPTIMIZER_MAX_SLOTS + slot */
    ROLE_ROUNDED, /* a trained weight in the type of products: index of the weight */
    ROLE_SUM,     /* gradients of several micro-batches: index of the weight */
    ROLE_TOTAL,   /* sums of several micro-batches, f32 [3] */
    ROLE_PEER,    /* the ROLE_SUM of the same index in another stage of the model */
    ROLE_BOUNDARY, /* between stages of a model, f32 [batch, seq, dim]: index a StageTensor (train/step.h) */
    ROLE_KEPT, /* what a stage keeps of a micro-batch for its backward pass: a number of its own (train/kept.h) */
    /* keys, values, their scales: layer * tensors of a layer + which; [rows or pages, kv_heads, positions of it, …] */
    ROLE_CACHE,
    ROLE_ARRAY, /* of a program of the public interface (caravan/run.h): a number that no other has on its mesh */
    ROLE_RESIDENT,
    /* Inputs with a value per token, [rows, seq]; split as the batch is. */
    ROLE_TOKENS = ROLE_RESIDENT,
    ROLE_TARGETS,
    ROLE_STARTS, /* where in its row a token's document begins */
    /* With a value per row. */
    ROLE_REFERENCE,  /* what a row's targets cost a model that is not trained */
    ROLE_CACHE_SLOT, /* of the caches, which a row goes on in */
    ROLE_TABLE,      /* of pages of the caches, [slots, n] */
    ROLE_START,      /* positions of the cache that are filled */
    ROLE_LENGTH,     /* new tokens that are real */
    ROLE_WANTED,     /* rows behind which a token is drawn */
    ROLE_TEMPERATURE,
    ROLE_KEY,    /* of random numbers, [rows, 2] */
    ROLE_SELECT, /* of adapters, f32 [rows, ranks] */
    ROLE_TOP_K,
    ROLE_TOP_P,
    ROLE_MIN_P,
    ROLE_PENALTY,
    ROLE_SEEN,   /* bool [rows, vocab] */
    ROLE_BIAS,   /* of logits, [rows, vocab] */
    ROLE_MASK,   /* bool [rows, vocab] of tokens that may come */
    ROLE_SCALAR, /* of the optimizer: index in its list */
    ROLE_SUMS, /* of all stages of a model: f32 [4], those of ROLE_TOTAL and the sum of squares of the gradient */
    /* Results. */
    ROLE_NEXT, /* tokens drawn, [rows] */
    ROLE_LOGITS,
    ROLE_LOGPROB, /* [rows, seq] */
    ROLE_ARGMAX,  /* [rows, seq] */
    ROLE_HIDDEN,  /* f32 [rows, dim] */
    ROLE_REPORT,  /* of a step of training */
    ROLE_COUNT
} Role;

/* Says what a parameter is for; returns it. */
cvn_value *graph_role(cvn_value *parameter, Role role, int index);
/* Says it of the output added last. */
void graph_output_role(cvn_graph *g, Role role, int index);

typedef struct Binding {
    Role role;
    int index;
} Binding;

typedef struct Signature {
    int n_parameters, n_outputs;
    Binding *parameter; /* [n_parameters] in the order of the graph */
    Binding *output;    /* [n_outputs] */
    int *into;          /* [n_outputs] the parameter that an output is computed into, or -1 */
    bool *donated;      /* [n_parameters] some output goes into it */
} Signature;

/* Of a graph, in the arena; partitioning and compiling keep it. */
void signature_of(Signature *signature, const cvn_graph *g, Arena *arena);

/* The parameter, or the output, that a pair is bound to; -1: there is none. */
int signature_parameter(const Signature *signature, Role role, int index);
int signature_output(const Signature *signature, Role role, int index);

#endif
