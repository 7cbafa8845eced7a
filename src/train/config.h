/*
 * The options of a training run, as one table: a row per key, from which the JSON of `--config` is
 * read, the JSON in checkpoints is written, and the command line is checked to be complete.
 *
 *     {"data": ["stories.txt"], "preset": "tiny", "seq": 256, "batch": 32, "steps": 1000, "out": "RUN"}
 *
 * Keys are the long options without their dashes; '-' and '_' within one are the same.
 */
#ifndef CVN_TRAIN_CONFIG_H
#define CVN_TRAIN_CONFIG_H

#include "base/arena.h"
#include "grad/remat.h"
#include "train/data/data.h"
#include "train/optimizer.h"
#include "train/schedule.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { TRAIN_MAX_DATA = 64 };

/* Numbers whose 0 stands for a default say so; strings are NULL when not given. All belong to the
 * arena that they were read into, or to the caller. */
typedef struct TrainConfig {
    const char *data[TRAIN_MAX_DATA]; /* [n_data] files and folders */
    int64_t n_data;
    const char *dpo;          /* a file of pairs of answers to learn from, in place of data */
    double beta;              /* of dpo */
    const char *preset;       /* shape of a new model, or … */
    const char *init;         /* … the model to fine-tune */
    const char *lora;         /* "r=16,alpha=32,targets=q,v": adapters to train beside init */
    const char *tokenizer;    /* file or folder; NULL: init's, or one made from the data */
    const char *out;          /* folder of the run */
    int64_t seq;              /* tokens per sequence; 0: the model's context, 1,024 at most */
    int64_t batch;            /* sequences per step; 0: by the model's size, train_default_batch */
    int64_t micro_batch;      /* sequences at once; 0: all */
    int64_t steps;            /* of the whole run */
    int64_t stop_after;       /* steps after which this process ends, as if interrupted; 0: never */
    const char *optimizer;    /* a row of train/optimizer.h */
    double lr;                /* peak; 0: the optimizer's default */
    int64_t warmup;           /* steps; -1: a tenth, 100 at most */
    const char *schedule;     /* one of schedule_names */
    int64_t decay;            /* wsd: steps that fall; -1: a fifth */
    double final_lr;          /* factor of the peak at the last step */
    double clip;              /* greatest norm of the gradient; 0: no clipping */
    double weight_decay;      /* -1: the optimizer's default */
    double beta1, beta2, eps; /* AdamW's */
    double momentum;          /* Muon's */
    double z_loss;            /* coefficient; 0: none */
    int64_t seed;
    const char *dtype;           /* of what enters products: "f32", "bf16" */
    const char *state_dtype;     /* of what the optimizer keeps: the same */
    const char *remat;           /* "auto", or one of remat_policy_names */
    int64_t memory;              /* most bytes; 0: what is free */
    int64_t threads;             /* per device; 0: one per core, divided among the devices */
    const char *device;          /* "cpu", "tpu", "pjrt:PATH" */
    const char *mesh;            /* "data=2,model=2"; NULL or "": one device */
    const char *layout;          /* how the model lies on the mesh */
    const char *overlap;         /* "on", "off": compute while devices exchange */
    const char *packing;         /* one of data_packing_names */
    const char *cache;           /* folder of tokenised data; NULL: the user's cache */
    double validation;           /* part of the data that is held back, or … */
    const char *validation_file; /* … a file or folder that is looked at instead; or NULL */
    int64_t evaluate_every;      /* steps between two looks at it */
    int64_t save_every;          /* steps between checkpoints; 0: none by steps */
    double save_minutes;         /* also when so many have passed since the last; 0: none by time */
    int64_t keep_last;           /* checkpoints to keep; 0: all */
    int64_t keep_every;          /* also those of multiples of this; 0: none */
    int64_t sample_every;        /* steps between texts; 0: at the end only */
    const char *prompt;          /* of the texts */
    const char *evaluate; /* a file of questions (score --task), asked when there are texts */
} TrainConfig;

typedef enum TrainKeyType { KEY_INT, KEY_REAL, KEY_TEXT, KEY_DATA } TrainKeyType;

/* Whether a run that goes on may change it. */
typedef enum TrainKeyKind {
    KEY_FREE,  /* yes: it does not change what a step computes */
    KEY_FIXED, /* no: the run would be another one */
} TrainKeyKind;

typedef struct TrainKey {
    const char *name; /* as the option: "micro-batch" */
    TrainKeyType type;
    TrainKeyKind kind;
    size_t offset;                   /* in TrainConfig */
    const char *(*choice)(size_t i); /* of KEY_TEXT: the names that it may be; NULL: any */
    double low, high;                /* of numbers: what they may be */
} TrainKey;

/* The choices of the keys that have some: the i-th name, NULL past the last. */
const char *train_optimizer_name(size_t i);
const char *train_schedule_name(size_t i);
const char *train_dtype_name(size_t i);
const char *train_remat_name(size_t i);
const char *train_packing_name(size_t i);
const char *train_overlap_name(size_t i);

extern const TrainKey train_keys[];
extern const int train_n_keys;

/* The key of a name; NULL when there is none. '_' counts as '-'. */
const TrainKey *train_key_find(const char *name);

TrainConfig train_config_defaults(void);

/* Reads the keys of an object over those that are there, and sets given[i] (which may be NULL) of those that it has,
   in the order of train_keys. `file` is for messages. Strings go to the arena. */
int train_config_read(TrainConfig *config, const char *file, const json_t *json, bool *given,
                      Arena *arena, cvn_err *err);

/* One key from a JSON value, or from another config. */
int train_config_set(TrainConfig *config, const TrainKey *key, const char *file,
                     const json_t *value, Arena *arena, cvn_err *err);
void train_config_copy(TrainConfig *to, const TrainConfig *from, const TrainKey *key);
bool train_config_same(const TrainConfig *a, const TrainConfig *b, const TrainKey *key);

/* All keys that have a value; NULL when memory ran out. */
json_t *train_config_json(const TrainConfig *config);

/* What the config in a checkpoint's manifest says besides the options: which data it was (data_key), the folder that
   relative paths in it start from, and the type of the model at the end. Takes them away, so that options are left. */
#define TRAIN_DATA_KEY "data-key"
#define TRAIN_FOLDER_KEY "started-in"
#define TRAIN_EXPORT_KEY "export-dtype"
void train_config_only(json_t *json);

/* What can be seen without looking at any file: ranges,
   choices, and that nothing needed is missing. */
int train_config_check(const TrainConfig *config, cvn_err *err);

/* Choices of a config that was checked, as those who
   take them call them. REMAT_POLICY_COUNT is "auto". */
OptimizerOptions train_config_optimizer(const TrainConfig *config, const Model *model);
Schedule train_config_schedule(const TrainConfig *config);
cvn_dtype train_config_compute(const TrainConfig *config);
RematPolicy train_config_remat(const TrainConfig *config);
DataPacking train_config_packing(const TrainConfig *config);

/* Sequences per step where none are asked for: a small model learns from few tokens per step and
 * many steps, a large one wants more. 8,192 tokens for 15 million parameters and with the root of
 * their number, from 2,048 to 32,768; in whole sequences, a power of two, 32 at most, and then a
 * multiple of micro_batch unless that is 0. */
int64_t train_default_batch(int64_t n_params, int64_t seq, int64_t micro_batch);

#endif
