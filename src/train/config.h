/*
 * The options of a training run, by the rows of config.def: read from the JSON of `--config`, written as JSON in
 * checkpoints, and checked to be complete.
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

#define FIELD_DATA(field)                                                                          \
    const char *field[TRAIN_MAX_DATA]; /* [n_field] files and folders */                           \
    int64_t n_##field;
#define FIELD_TEXT(field) const char *field;
#define FIELD_INPUT FIELD_TEXT
#define FIELD_OUTPUT FIELD_TEXT
#define FIELD_PRESET FIELD_TEXT
#define FIELD_CHOICE FIELD_TEXT
#define FIELD_INT(field) int64_t field;
#define FIELD_SIZE FIELD_INT
#define FIELD_REAL(field) double field;
#define FIELD_FLAG(field) bool field;

/* A field for each row of config.def, which says what it is. Strings belong to the arena that they were read into, or to
   the caller. */
typedef struct TrainConfig {
#define KEY(type, change, field, ...) FIELD_##type(field)
#include "train/config.def"
} TrainConfig;

typedef enum TrainKeyType { KEY_INT, KEY_REAL, KEY_FLAG, KEY_TEXT, KEY_DATA } TrainKeyType;

/* Whether a run that goes on may change it. */
typedef enum TrainKeyKind {
    KEY_FREE,  /* yes: it does not change what a step computes */
    KEY_FIXED, /* no: the run would be another one */
} TrainKeyKind;

typedef struct TrainKey {
    const char *name;  /* as the option: "micro-batch" */
    const char *other; /* other names that it has, a blank between two, or NULL */
    TrainKeyType type;
    TrainKeyKind kind;
    bool path;                       /* KEY_TEXT: of a file or folder that is read */
    size_t offset;                   /* in TrainConfig */
    const char *(*choice)(size_t i); /* of KEY_TEXT: the names that it may be; NULL: any */
    double low, high;                /* of numbers: what they may be */
} TrainKey;

/* The choices of the keys that have some: the i-th name, NULL past the last. */
const char *train_optimizer_name(size_t i);
const char *train_schedule_name(size_t i);
const char *train_dtype_name(size_t i);
const char *train_remat_name(size_t i);
const char *train_numerics_name(size_t i);
const char *train_packing_name(size_t i);
const char *train_overlap_name(size_t i);

extern const TrainKey train_keys[];
extern const int train_n_keys;

/* The key of a name, or another of its names; NULL when there is none. '_' counts as '-'. */
const TrainKey *train_key_find(const char *name);

TrainConfig train_config_defaults(void);

/* Reads the keys of an object over those that are there, and sets given[i] (which may be NULL) of those that it has,
   in the order of train_keys. `file` is for messages. Strings go to the arena. */
int train_config_read(TrainConfig *config, const char *file, const json_t *json, bool *given,
                      Arena *arena, cvn_err *err);

/* The text of a KEY_TEXT, to be changed. */
const char **train_config_text(TrainConfig *config, const TrainKey *key);

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
