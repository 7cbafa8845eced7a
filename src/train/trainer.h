/*
 * A model in training, on a mesh of one device or more: its state and its programs (run/program.h).
 *
 *     Trainer t;
 *     trainer_open(&t, &config, &options, &err);       compiles, says what does not fit, allocates
 *     trainer_random(&t, seed, &err);                  or weights from a model, or a checkpoint
 *     for (…)
 *         trainer_step(&t, &batch, &report, &err);
 *     trainer_close(&t);
 *
 * A mesh with an axis of stages is one of each: of several stages each has its layers, on a runtime of its own (stages.h).
 *
 * At most two graphs are compiled: the step, and that of evaluation where there is any; or, where the batch is
 * taken in micro-batches, what adds up gradients and what updates. Then evaluation runs the first of these, and
 * throws the gradients away. Everything is compiled before any memory is taken. (Where `remat` is left to
 * the trainer and memory is short, the policies that do not fit were compiled before.)
 */
#ifndef CVN_TRAIN_TRAINER_H
#define CVN_TRAIN_TRAINER_H

#include "io/model.h"
#include "run/program.h"
#include "train/schedule.h"
#include "train/state.h"
#include "train/step.h"

typedef struct TrainerOptions {
    int64_t batch;       /* sequences per step */
    int64_t micro_batch; /* sequences at once, divides batch; 0: all */
    int64_t seq;         /* tokens per sequence */
    cvn_dtype compute;   /* f32 or bf16; weights and optimizer are f32 in any case */
    double clip, z_loss; /* see step.h */
    RouterOptions routers;
    DropoutRates dropout;
    bool exact;        /* the forward pass has the bits of decoding */
    bool portable;     /* the same bits on every processor */
    RematPolicy remat; /* REMAT_POLICY_COUNT: the cheapest that fits in memory_limit */
    OptimizerOptions optimizer;
    Schedule schedule;
    LoraOptions lora;     /* rank 0: every weight is trained */
    double beta;          /* of DPO, see step.h; 0: rows are learned as they are */
    int threads;          /* per device; 0: what the machine allows */
    const char *device;   /* as backend_find reads it; NULL: the CPU */
    const char *mesh;     /* "data=2,model=2"; NULL or "": one device */
    const char *layout;   /* how the model lies on the mesh; NULL: "2d" */
    bool blocking;        /* compute nothing while devices exchange */
    Cluster *cluster;     /* processes that the mesh is spread over, or NULL; borrowed */
    size_t memory_limit;  /* bytes of everything together; 0: what the machine has free now */
    bool evaluates;       /* trainer_evaluate will be called */
    const char *dump_dir; /* graphs and plans are written there; NULL: nowhere */
} TrainerOptions;

/* A stage of the model that has devices in this process; all of it where there is but one. */
typedef struct TrainStage {
    Runtime rt;                    /* owned: the devices and what lies on them */
    Program program[TRAIN_GRAPHS]; /* owned; those that there are: step, or gradient and update */
    int number;                    /* of all stages, from 0 */
} TrainStage;

typedef struct Trainer {
    const Model *model;     /* the state's */
    TrainerOptions options; /* with the defaults filled in, and the policy that was chosen */
    Arena arena;            /* owned: tables */
    TrainStage *stage;      /* [n_stages], owned, the arena's: those that are here, one at least */
    int n_stages, stages;   /* here; of all */
    const char *stage_axis; /* of the mesh, the arena\'s; NULL: there is but one */
    struct StageLinks *links; /* owned: what is between stages; NULL: there is but one */
    Cluster *part;    /* owned: the processes of the stage that is here, of several; or NULL */
    TrainState state; /* owned */
    float scalar[OPTIMIZER_MAX_SCALARS]; /* of the step that runs */
    float sums[TRAIN_TOTALS + 1];        /* of the step that runs: ROLE_SUMS */
    uint32_t *key; /* [batch][2], the arena's, with dropout: of the rows of the step that runs */
    bool *need;    /* [micro_batch], the arena's: rows that devices of this process take */
    size_t bytes;  /* of state, accumulators and temporaries together, in this process */
} Trainer;

/* What a step was. */
typedef struct TrainReport {
    double loss; /* mean cross-entropy, nats per token with a target; of DPO, mean over pairs */
    double z;    /* mean of logsumexp^2; of DPO, part of the pairs that are in order */
    double lr;   /* learning rate of the update */
    double grad_norm; /* before clipping */
    double tokens;    /* with a target */
    bool updated;     /* false: something was not finite and nothing changed */
} TrainReport;

/* What can be known to be wrong without compiling: options, and weights and optimizer that do not fit. */
int trainer_check(const Model *config, const TrainerOptions *options, cvn_err *err);

/* Compiles, and fails with CVN_EMEM and the sum before anything is allocated when it does not fit. The
   state is all 0: give it weights. */
int trainer_open(Trainer *trainer, const Model *config, const TrainerOptions *options,
                 cvn_err *err);

/* Safe after a failed open and on {0}. */
void trainer_close(Trainer *trainer);

/* Weights (fill.c): drawn from a seed, with LoRA the adapters; of an opened and audited model whose parameters are the
   trainer's, with LoRA those that are frozen; or everything, from a checkpoint of whatever mesh. */
int trainer_random(Trainer *trainer, uint64_t seed, cvn_err *err);
int trainer_from_model(Trainer *trainer, const IoModel *model, cvn_err *err);
int trainer_restore(Trainer *trainer, const Checkpoint *checkpoint, cvn_err *err);

/* The program of a graph of training, by which the runtime knows the tensors of the state. */
int train_program(Program *program, Runtime *rt, TrainGraph kind, const Model *config,
                  const TrainStepOptions *step, const char *layout, cvn_err *err);

/* Rows to learn from, as data_fill gives them: [rows, seq] each. Borrowed while a step runs. Rows that trainer_needs
   says no to may hold anything. */
typedef struct TrainBatch {
    int32_t *tokens, *targets, *starts;
    float *reference; /* [rows], of DPO: all of them, needed or not */
} TrainBatch;

/* Memory for rows of seq tokens, all 0; free it after a failure, too. */
int train_batch_new(TrainBatch *batch, int64_t rows, int64_t seq, cvn_err *err);
void train_batch_free(TrainBatch *batch);

/* Runs a graph of a stage on the rows from number `first` on; batch is NULL for a program without. */
int trainer_run(Trainer *trainer, TrainStage *stage, TrainGraph kind, const TrainBatch *batch,
                int64_t first, cvn_err *err);

/* What a device of the first stage here has communicated until now, with other stages too, for which it has waited, be it that they computed. */
void trainer_communication(const Trainer *trainer, CommTable *out);

/* Whether devices of this process take a row of a batch, of a step or of an evaluation: of a mesh over several processes
   each reads its own part of the data. */
bool trainer_needs(const Trainer *trainer, int64_t row);

/* One step on `batch` rows; advances the counters of the state: step, tokens, position. On error the state is
   as it was, but for accumulators that the next step clears. */
int trainer_step(Trainer *trainer, const TrainBatch *batch, TrainReport *report, cvn_err *err);

/* What the targets of each of micro_batch rows cost the model as it is, [micro_batch]: of DPO, the reference. */
int trainer_score(Trainer *trainer, const TrainBatch *batch, float *out, cvn_err *err);

/* Adds up the loss of micro_batch rows, and how many tokens had a target. The state is not touched. */
int trainer_evaluate(Trainer *trainer, const TrainBatch *batch, double *sum, double *count,
                     cvn_err *err);

#endif
