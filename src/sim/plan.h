/*
 * What running a model on a mesh would take, found without devices or weights: the programs that an engine or a trainer
 * would run are made (run/program.h), on shapes alone, for a back end that only adds up (sim/backend.h).
 *
 *     ask: llama2-70b, mesh data=32,model=4, layout 2d, a training step of 512 rows of 1024 tokens
 *     answer: per device 2.1 GiB of weights, 4.2 of optimizer state, …; q lies as <data,_,model>; …
 *
 * Memory is that of one device, for the programs that were made: of decoding the engine's program for that many rows, whose
 * caches have as many positions as an engine's; of a prefill that one too, which says how caches lie, and then as many of the engine's
 * programs of chunks (serve/list.h) as all rows take. What is timed on a chip is a section of all rows at once, as published
 * measurements have it. Temporaries are what the
 * device's compiler planned: activations, gradients, buffers of collectives and scratch of kernels. Gradients are counted
 * among them, at most all at once.
 */
#ifndef CVN_SIM_PLAN_H
#define CVN_SIM_PLAN_H

#include "base/strbuf.h"
#include "run/runtime.h"
#include "sim/backend.h"
#include "sim/peak.h"
#include "train/step.h"

typedef enum SimTask { SIM_TRAIN, SIM_PREFILL, SIM_DECODE } SimTask;

typedef struct SimAsk {
    const Model *model; /* borrowed */
    const char *mesh;   /* "data=32,model=4"; "" for one device */
    const char *layout; /* "2d" */
    SimTask task;
    int64_t batch, seq;     /* rows; tokens of each that a step takes, 1 when decoding */
    int64_t context;        /* tokens that a row may have; when decoding, that it has */
    cvn_dtype compute;      /* bf16 or f32 */
    bool kv_int8;           /* keys and values in 8 bits */
    uint64_t kv_memory;     /* bytes that they may take on all devices; 0: what all rows can fill */
    bool int8_inputs;       /* what enters weights in 8 bits is rounded to 8 bits, too */
    const Chip *chip;       /* for which steps are timed; NULL: they are not */
    const StepClock *clock; /* by which they are timed; NULL: by the chip's fit */
    bool spans;             /* what of a step was when is wanted */
    int64_t micro_batch;    /* of training: rows at a time; 0: all */
    TrainStepOptions train; /* optimizer, remat, …; batch, seq and compute are taken from above */
    /* Bytes of memory on a chip that temporaries are in rather than in the device's: not counted. */
    double on_chip;
    /* for which graphs are compiled; NULL: none are, and temporaries are 0 */
    const Backend *device;
    const char *name;            /* which of its devices (DeviceOptions); NULL: as it likes */
    const char *topology, *save; /* as there */
    int threads;                 /* of each device; 0: one */
    bool blocking;               /* nothing is computed while devices exchange */
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
    double device_bytes; /* of all of them, on one device, as they lie there */
} SimTensor;

/* A stage of training. */
typedef struct SimStage {
    double memory;            /* of each of its devices */
    double forward, gradient; /* of a micro-batch: operations of each, or, on a chip, seconds */
} SimStage;

/* Of training in stages: memory, tensors and work are those of a device of the stage that needs the most memory. */
typedef struct SimAnswer {
    Runtime rt;          /* owns everything below */
    int devices;         /* of all stages */
    SimStage *stage;     /* [n_stages] of training; NULL without stages */
    int n_stages, micro; /* 1 without; micro-batches of a step */
    double boundary; /* bytes that a device sends to the next stage, and back, for a micro-batch */
    double bubble;   /* share of the stages' time in which they wait for each other */
    SimTensor *tensor; /* [n_tensors] */
    int n_tensors;
    const CountedCollective *collective; /* [n_collectives] */
    int n_collectives;
    DeviceMemory memory;
    double kept;      /* of stages: part of temporaries, of the micro-batches that wait */
    double gradients; /* of all weights, per device, f32: part of temporaries; 0 without training */
    Peak peak;        /* what fills the arena; no rows when the device does not say */
    const Compiled *compiled;  /* what the device's compiler says, or NULL */
    double flops;              /* of a step, per device; of attention what the positions need */
    double model_flops;        /* of a step, whole: 2 N or 6 N per token, and attention */
    int64_t operations, steps; /* of the device's graph; of what is compiled of it */
    int64_t n_involuntary;     /* gathers that no tensor asked for */
    int n_interpreted;         /* steps without a kernel, on one thread … */
    const char *interpreted;   /* … of these operations, "sort, gather" */
    int n_conflicts;           /* of propagation */
    Timed timed;               /* the step on the chip */
    double seconds;            /* that finding out took */
} SimAnswer;

/* On an error, too, the answer is to be freed. */
int sim_plan(const SimAsk *ask, SimAnswer *answer, cvn_err *err);
void sim_answer_free(SimAnswer *answer);

/* What a device's memory goes to, the mesh, and how each kind of weight lies on it, as an SVG page under the name. */
void sim_svg(StrBuf *out, const SimAsk *ask, const SimAnswer *answer, const char *name);

#endif
