/*
 * What running a model on a mesh would take, found without devices or weights: the graph is built, its tensors
 * are marked as a layout says, shardings are propagated, the graph is partitioned and its memory planned, all
 * of it on shapes alone.
 *
 *     ask: llama2-70b, mesh data=32,model=4, layout 2d, a training step of 512 rows of 1024 tokens
 *     answer: per device 2.1 GiB of weights, 4.2 of optimizer state, …; q lies as <data,_,model>; …
 *
 * Memory is that of one device. Weights, optimizer state, KV cache and inputs are the parameters of the graph;
 * temporaries are the arena that the compiler planned: activations, gradients, buffers of collectives and
 * scratch of this machine's kernels on one thread. Gradients are counted among them, at most all at once.
 */
#ifndef CVN_SIM_PLAN_H
#define CVN_SIM_PLAN_H

#include "base/strbuf.h"
#include "shard/mesh.h"
#include "sim/peak.h"
#include "train/step.h"

typedef enum SimTask { SIM_TRAIN, SIM_PREFILL, SIM_DECODE } SimTask;

typedef struct SimAsk {
    LlamaConfig config;
    const char *mesh;   /* "data=32,model=4"; "" for one device */
    const char *layout; /* "2d" */
    SimTask task;
    int64_t batch, seq;     /* rows; tokens of each that a step takes, 1 when decoding */
    int64_t context;        /* positions of the KV cache; not of training */
    cvn_dtype compute;      /* bf16 or f32 */
    TrainStepOptions train; /* optimizer, remat, …; batch, seq and compute are taken from above */
    bool compile;           /* plan memory too */
    bool blocking;          /* collectives end where they begin (see CompileOptions) */
} SimAsk;

/* What a tensor is kept for. */
typedef enum SimRole {
    SIM_WEIGHT,
    SIM_ROUNDED, /* in training: weights once more, in the type of products */
    SIM_OPTIMIZER,
    SIM_CACHE,
    SIM_INPUT,
    SIM_ACTIVATION, /* result of a product, attention or norm */
    SIM_ROLE_COUNT
} SimRole;

extern const char *const sim_role_names[SIM_ROLE_COUNT];

/* Tensors of one kind, which lie alike. */
typedef struct SimTensor {
    SimRole role;
    const char *kind;         /* "q", "exp_avg.q", "dot_general" */
    cvn_type type;            /* of one, whole */
    const char *spec;         /* "<data,_,model>" */
    int shards[CVN_MAX_RANK]; /* into how many each dimension is split */
    /* Who set the spec, and the chain of operations it came along; "" when not split. */
    const char *origin;
    int64_t count;       /* of them */
    double device_bytes; /* of all of them, on one device, padding included */
} SimTensor;

/* Collectives of one kind over the same axes. */
typedef struct SimCollective {
    OpKind kind;
    const char *axes; /* "model", "data*model" */
    int64_t devices;  /* in each group */
    int64_t count;
    /* That each device sends, by rings: (n - 1) / n of the whole tensor, twice for a sum. */
    double bytes;
} SimCollective;

typedef struct SimAnswer {
    Arena arena; /* owns everything below */
    Mesh mesh;
    SimTensor *tensor; /* [n_tensors] */
    int n_tensors;
    SimCollective *collective; /* [n_collectives] */
    int n_collectives;
    double role_bytes[SIM_ROLE_COUNT]; /* per device; activations: see temporaries */
    double gradients; /* of all weights, per device, f32: part of temporaries; 0 without training */
    double temporaries;        /* the planned arena; 0 when not compiled */
    Peak peak;                 /* what fills the arena; no rows when not compiled */
    double total;              /* weights + optimizer + cache + inputs + temporaries */
    double flops;              /* of a step, per device */
    double model_flops;        /* of a step, whole: 2 N or 6 N per token, and attention */
    int64_t operations, steps; /* of the device's graph; of its plan */
    int64_t n_involuntary;     /* gathers that no tensor asked for */
    int n_conflicts;           /* of propagation */
    double seconds;            /* that finding out took */
} SimAnswer;

int sim_plan(const SimAsk *ask, SimAnswer *answer, cvn_err *err);
void sim_answer_free(SimAnswer *answer);

/* The mesh, and how each kind of weight lies on it, as an SVG page. */
void sim_svg(StrBuf *out, const SimAsk *ask, const SimAnswer *answer);

#endif
