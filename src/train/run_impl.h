/* The inside of a run: what its files (run_open.c, run_tokenizer.c, run_loop.c, run_report.c) share. */
#ifndef CVN_TRAIN_RUN_IMPL_H
#define CVN_TRAIN_RUN_IMPL_H

#include "text/chat_template.h"
#include "train/checkpoint/checkpoint.h"
#include "train/data/data.h"
#include "train/outlier.h"
#include "train/report/history.h"
#include "train/report/prometheus.h"
#include "train/report/report.h"
#include "train/report/tensorboard.h"
#include "train/run.h"
#include "train/straggler.h"
#include "train/trainer.h"

/* The folder of a run. While `fresh` is there the run may still be refused, and leaves nothing; `lock` is held from before
   anything of a run that was there is read until the process ends. */
typedef struct RunFolder {
    bool made;         /* it was not there before */
    const char *fresh; /* RUN/.new-XXXXXX, while it is there; NULL */
    int fresh_lock;    /* file descriptor that locks it, or -1 */
    int lock; /* the same of a run that was there before, or -1: the writer of checkpoints has it */
} RunFolder;

typedef struct RunTokenizer {
    Tokenizer *tokenizer; /* owned; NULL where the data are ids */
    const char *folder;   /* where its files lie while the run is opened */
    const char *file;     /* RUN/tokenizer.json or .model, or NULL */
    ChatTemplate *chat;   /* owned; NULL: there is none */
} RunTokenizer;

/* What checkpoints keep of the options: paths as they lead from the folder that the run was started in. */
typedef struct RunKept {
    const char *text;       /* JSON for manifests */
    const char *started_in; /* that folder, or NULL */
    const char *data_key;   /* of what the run was trained on, or NULL: this is its begin */
    bool starts_there;      /* some path was found from there */
} RunKept;

/* What the run begins from. `init` and `from` are open only while they are read: of what goes on, `from`, and with adapters
   or pairs of answers `init`, too. */
typedef struct RunBegin {
    bool resuming;   /* it is to go on from a checkpoint */
    bool resumed;    /* it did */
    IoModel init;    /* owned: the model to fine-tune, while has_init */
    Checkpoint from; /* owned: what the run goes on from, while has_from */
    bool has_init, has_from;
} RunBegin;

typedef struct RunRows {
    TrainData *data;               /* owned */
    TrainBatch batch;              /* owned, heap: [batch, seq] */
    float *reference[DATA_SPLITS]; /* [rows of the split], the arena's: of DPO, else NULL */
    bool sizes_batch;              /* no batch was asked for */
} RunRows;

/* Checkpoints. At most one is being written; `step` is set when it was handed over, and -1 again when it failed. */
typedef struct RunSaving {
    CheckpointWriter *writer; /* owned */
    int64_t step;             /* of the last save; -1: none */
    cvn_err failed;           /* why the last save failed, code 0 where it did not */
    bool ending;              /* a save that fails is the run's error, no warning */
    double at;                /* when the last save began, or the run; seconds of the clock */
    bool due;                 /* that was long enough ago; known after a step */
} RunSaving;

/* What is written beside checkpoints, by the first process alone: a line or more for each step that was done. */
typedef struct RunLog {
    RunMetrics metrics; /* owned */
    EventFile board;    /* owned */
    History history;    /* owned */
    double exported;    /* when metrics.prom was written */
    Samples samples;    /* owned */
    bool no_room;       /* the metrics wait for room, and that was said */
} RunLog;

/* How fast it goes. */
typedef struct RunPace {
    int64_t first;           /* steps done when this process began */
    double mean_seconds;     /* of a step, a running mean */
    double peak;             /* operations per second of the machine */
    int64_t next_peak;       /* step from which on it may be measured again */
    CommTable communication; /* of all steps of this process */
} RunPace;

/* What steps are warned of by, and ended by. */
typedef struct RunHealth {
    int skipped; /* steps in a row */
    Outlier loss, norm;
    Straggler straggler;
} RunHealth;

typedef struct Run {
    TrainConfig config;
    const TrainEvents *events; /* borrowed */
    Arena arena;               /* owned: strings */
    const char *out;           /* config.out */
    Model *model;              /* the arena's */
    LoraOptions lora;          /* rank 0: the whole model is trained */
    cvn_dtype export_dtype;    /* of the folder at the end */
    RunFolder folder;
    RunTokenizer tokens;
    RunKept kept;
    RunBegin begin;
    RunRows rows;
    Trainer trainer; /* owned */
    RunSaving saving;
    RunLog log;
    RunPace pace;
    RunHealth health;
    bool stopped; /* a process was told to stop, or its listener says so; known after a step */
    TrainResult result;
} Run;

/* Everything up to the first step. */
int run_open(Run *run, const TrainConfig *config, const bool *given, bool resume, cvn_err *err);
void run_close(Run *run);

/* Rows of a batch that begin at row `first` of a split, without those that no device of this process takes. */
int run_fill(Run *run, DataSplit split, int64_t first, int64_t n, cvn_err *err);

/* Sequences that validate are looked at up to this many. */
enum { RUN_MOST_VALIDATION = 256 };

/* Paths of a run that goes on (run_paths.c): those in the options are found where they were, from the folder it was
   started in, and what is not there is told unless its place is given now. Whether a path that is given now for an
   option that may not change is the same file, or where it has gone. And the options with the paths as checkpoints keep
   them, from run->started_in. */
int run_find_paths(Run *run, const bool *given, cvn_err *err);
bool run_same_path(const Run *run, const TrainConfig *now, const TrainKey *key);
int run_keep_paths(Run *run, TrainConfig *kept, cvn_err *err);

/* Whether there is a text of the step that was done last: of a run whose steps were all done before there is, unless its
   process was killed at the end. */
bool run_has_last_text(const Run *run);

/* The folder of a run, writable; the tokenizer, without taking its place in it; the tokenizer into its place,
   when nothing can be refused any more; what is left of all this where something was. */
int run_make_folder(Run *run, cvn_err *err);
int run_open_tokenizer(Run *run, cvn_err *err);
int run_keep_folder(Run *run, cvn_err *err);
void run_clear_folder(Run *run);

/* Of several processes (run_ranks.c). Whether this is the one that tells and writes; the same error on all where one
   has it; a path of the first one, and the least of the limits of memory, on all; that all have the same data, options
   and model; and, after each step, that it was the same, whether one was told to stop, and who was slowest (into the row, of
   which `seconds` and `comm_exposed_seconds` are there). */
bool run_is_first(const Run *run);
int run_together(const Run *run, int code, cvn_err *err);
int run_share_path(Run *run, const char **path, cvn_err *err);
int run_share_memory(const Run *run, size_t *limit, cvn_err *err);
int run_agree(const Run *run, cvn_err *err);
int run_check_step(Run *run, const TrainReport *report, MetricsRow *row, cvn_err *err);

/* What a step of this process has communicated, on average. */
void run_communication(const Run *run, CommTable *out);

/* RUN/report.html as of now; an error is a warning. */
void run_report(Run *run);

/* What work on the data asks as it proceeds; false when the run is told to stop before it has begun. The Run is the context. */
bool run_goes_on(void *run, int64_t done, int64_t total);

/* A sentence to one of the functions of the run's events. */
void run_say(const Run *run, void (*to)(void *context, const char *sentence), const char *format,
             ...) __attribute__((format(printf, 3, 4)));
#define run_note(run, ...) run_say((run), (run)->events->note, __VA_ARGS__)
#define run_warn(run, ...) run_say((run), (run)->events->warning, __VA_ARGS__)

#endif
