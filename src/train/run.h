/*
 * A run of training, from its options to a model on the disk.
 *
 *   RUN/tokenizer.json …        the tokenizer, copied at the beginning
 *   RUN/checkpoints/step-N/     everything to go on exactly (checkpoint/)
 *   RUN/metrics.jsonl           a line per step (report/metrics.h), and event files for TensorBoard
 *   RUN/samples.jsonl           texts made on the way; RUN/report.html: all of it to look at (report/)
 *   RUN/config.json, model.safetensors …   the model, as a Hugging Face folder, when the process ends;
 *                               with LoRA the adapters, as a PEFT folder
 *
 * The next step depends on the state and the options alone, so a run that is interrupted and goes on from
 * a checkpoint computes, bit for bit, what it would have computed.
 */
#ifndef CVN_TRAIN_RUN_H
#define CVN_TRAIN_RUN_H

#include "comm/account.h"
#include "comm/cluster.h"
#include "train/config.h"
#include "train/report/metrics.h"

#include <signal.h>

typedef struct TrainProgress {
    MetricsRow row;      /* of the step that was just done */
    int64_t steps;       /* of the whole run */
    double left;         /* seconds until the last step, as it looks now */
    size_t memory;       /* bytes of weights, optimizer and temporaries */
    const char *options; /* as TrainRecord has them */
} TrainProgress;

/* What a run was, when all its steps are done and the model is in config->out. */
typedef struct TrainRecord {
    /* Its folder, and the model that was trained further, or NULL: as they are found from here. */
    const char *out, *init;
    /* JSON, as checkpoints keep them: with the key of the data and the folder it was started in. */
    const char *options;
    const char *kernels;       /* that computed the last steps */
    const RunMetrics *metrics; /* of every step, those before a resumption, too */
} TrainRecord;

/* Whom a run tells what happens; every function may be NULL. */
typedef struct TrainEvents {
    void *context;
    void (*note)(void *context, const char *sentence);    /* what is being done */
    void (*warning)(void *context, const char *sentence); /* what is not as it should be */
    /* After each step; false: this was the last one of the process, as with `stop`. */
    bool (*step)(void *context, const TrainProgress *progress);
    /* Makes a text that goes on from `prompt` with the model in a folder; malloc'ed. An error is told
       as a warning. */
    int (*sample)(void *context, const char *folder, const char *prompt, char **text, cvn_err *err);
    /* One sentence of what the model in a folder makes of the questions of config->evaluate; malloc'ed. An error is told as a
       warning. */
    int (*evaluate)(void *context, const char *folder, const char *file, char **text, cvn_err *err);
    /* After the last step, on the first process alone. An error is the run's. */
    int (*finished)(void *context, const TrainRecord *record, cvn_err *err);
    /* Nonzero: end after the current step, or at once (CVN_EINTERRUPTED, nothing is left behind) while the run is opened;
       or NULL. */
    const volatile int *stop;
    const char *profile; /* where to write what every thread did when; or NULL */
    /* The processes that run it together, of which the first tells; or NULL: alone. */
    Cluster *cluster;
} TrainEvents;

typedef struct TrainResult {
    int64_t step; /* steps done */
    int64_t steps;
    double loss;             /* of the last step; NAN where none was done */
    bool finished;           /* all steps are done */
    bool stopped;            /* they are not, because somebody said so */
    bool lora;               /* what is in the folder are adapters */
    double seconds;          /* of all steps of this process */
    int64_t tokens;          /* in them */
    int compilations;        /* of graphs */
    CommTable communication; /* of a step of this process, on average; no rows on one device */
} TrainResult;

/* Runs. With `resume` the options are those of the newest whole checkpoint in config->out, and of `config`
   only the keys count for which given[i] holds (in the order of train_keys; NULL: none); those that would
   make another run of it are refused. */
int train_run(const TrainConfig *config, const bool *given, bool resume, const TrainEvents *events,
              TrainResult *result, cvn_err *err);

#endif
