#include "train/config.h"

#include "base/json_file.h"
#include "base/suggest.h"
#include "model/lora.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const cvn_dtype compute_dtypes[] = {CVN_F32, CVN_BF16};
enum { N_COMPUTE = sizeof compute_dtypes / sizeof *compute_dtypes };

/* ---- what a key may be: names in the order of an enumeration ---- */

const char *train_optimizer_name(size_t i)
{
    return i < OPTIMIZER_COUNT ? optimizers[i].name : NULL;
}

const char *train_schedule_name(size_t i)
{
    return i < SCHEDULE_COUNT ? schedule_names[i] : NULL;
}

const char *train_dtype_name(size_t i)
{
    return i < N_COMPUTE ? cvn_dtype_name(compute_dtypes[i]) : NULL;
}

const char *train_remat_name(size_t i)
{
    if (i == 0)
        return "auto";
    return i <= REMAT_POLICY_COUNT ? remat_policy_names[i - 1] : NULL;
}

const char *train_numerics_name(size_t i)
{
    static const char *const names[] = {"fast", "exact", "portable"};
    return i < 3 ? names[i] : NULL;
}

const char *train_packing_name(size_t i)
{
    return i < DATA_PACK_COUNT ? data_packing_names[i] : NULL;
}

const char *train_overlap_name(size_t i)
{
    static const char *const names[] = {"on", "off"};
    return i < 2 ? names[i] : NULL;
}

/* ---- keys ---- */

#define AT(field) offsetof(TrainConfig, field)

/* The place of each key in the table, by the name of its field. */
enum {
#define KEY(type, change, field, ...) KEY_AT_##field,
#include "train/config.def"
    TRAIN_KEYS
};

#define TYPE_DATA KEY_DATA
#define TYPE_TEXT KEY_TEXT
#define TYPE_INPUT KEY_TEXT
#define TYPE_OUTPUT KEY_TEXT
#define TYPE_PRESET KEY_TEXT
#define TYPE_CHOICE KEY_TEXT
#define TYPE_INT KEY_INT
#define TYPE_SIZE KEY_INT
#define TYPE_REAL KEY_REAL
#define TYPE_FLAG KEY_FLAG
#define FIRST(first, ...) first

/* The types of rows whose text is a path that is read. */
enum {
    IS_DATA,
    IS_TEXT,
    IS_OUTPUT,
    IS_PRESET,
    IS_CHOICE,
    IS_INT,
    IS_SIZE,
    IS_REAL,
    IS_FLAG,
    IS_INPUT
};

const TrainKey train_keys[] = {
#define KEY(type, change, field, name, fallback, low, high, choice, value, help, ...)              \
    {name,                                                                                         \
     FIRST(__VA_ARGS__, NULL),                                                                     \
     TYPE_##type,                                                                                  \
     KEY_##change,                                                                                 \
     IS_##type == IS_INPUT,                                                                        \
     AT(field),                                                                                    \
     choice,                                                                                       \
     low,                                                                                          \
     high},
#include "train/config.def"
};
const int train_n_keys = TRAIN_KEYS;

/* Whether `name`, with '_' for '-' or not, is the n bytes at `key`. */
static bool is_name(const char *name, const char *key, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (name[i] != key[i] && !(key[i] == '-' && name[i] == '_'))
            return false;
    return !name[n];
}

const TrainKey *train_key_find(const char *name)
{
    for (int i = 0; i < train_n_keys; i++)
        if (is_name(name, train_keys[i].name, strlen(train_keys[i].name)))
            return &train_keys[i];
    for (int i = 0; i < train_n_keys; i++) {
        size_t n;
        for (const char *at = train_keys[i].other; at && (n = strcspn(at, " "));
             at += n + (at[n] == ' '))
            if (is_name(name, at, n))
                return &train_keys[i];
    }
    return NULL;
}

TrainConfig train_config_defaults(void)
{
    TrainConfig c = {0};
#define SET_DATA(field, value)
#define SET_TEXT(field, value) c.field = value;
#define SET_INPUT SET_TEXT
#define SET_OUTPUT SET_TEXT
#define SET_PRESET SET_TEXT
#define SET_CHOICE SET_TEXT
#define SET_INT SET_TEXT
#define SET_SIZE SET_TEXT
#define SET_REAL SET_TEXT
#define SET_FLAG SET_TEXT
#define KEY(type, change, field, name, fallback, ...) SET_##type(field, fallback)
#include "train/config.def"
    return c;
}

/* ---- a field by its key ---- */

/* What a key names, of the type that the key says. */
typedef union Field {
    int64_t integer;
    double real;
    bool flag;
    const char *text;
} Field;

static Field *field(const TrainConfig *c, const TrainKey *key)
{
    return (Field *)(uintptr_t)((const char *)c + key->offset);
}

const char **train_config_text(TrainConfig *c, const TrainKey *key)
{
    return &field(c, key)->text;
}

void train_config_copy(TrainConfig *to, const TrainConfig *from, const TrainKey *key)
{
    static const size_t bytes[] = {[KEY_INT] = sizeof(int64_t),
                                   [KEY_REAL] = sizeof(double),
                                   [KEY_FLAG] = sizeof(bool),
                                   [KEY_TEXT] = sizeof(const char *),
                                   [KEY_DATA] = sizeof from->data};
    memcpy((char *)to + key->offset, (const char *)from + key->offset, bytes[key->type]);
    if (key->type == KEY_DATA)
        to->n_data = from->n_data;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

bool train_config_same(const TrainConfig *a, const TrainConfig *b, const TrainKey *key)
{
    const Field *x = field(a, key), *y = field(b, key);
    bool same = true;
    switch (key->type) {
    case KEY_DATA:
        for (int64_t i = 0; i < a->n_data && i < b->n_data; i++)
            same = same && same_text(a->data[i], b->data[i]);
        return same && a->n_data == b->n_data;
    case KEY_TEXT:
        return same_text(x->text, y->text);
    case KEY_REAL:
        return !(x->real < y->real || x->real > y->real);
    case KEY_FLAG:
        return x->flag == y->flag;
    case KEY_INT:
        return x->integer == y->integer;
    }
    return false;
}

/* ---- JSON ---- */

static int wrong(const char *file, const TrainKey *key, const char *wanted, cvn_err *err)
{
    return err_set(err, CVN_EFORMAT, "%s: \"%s\" must be %s", file, key->name, wanted);
}

/* Which of a key's choices the config has; -1: none of them. */
static int choice_of(const TrainConfig *c, const TrainKey *key)
{
    const char *have = field(c, key)->text, *name;
    for (int i = 0; (name = key->choice((size_t)i)); i++)
        if (same_text(name, have))
            return i;
    return -1;
}

/* That a value is one of the key's choices, or in its range. */
static int check_value(const TrainConfig *c, const TrainKey *key, cvn_err *err)
{
    if (key->choice && choice_of(c, key) < 0) {
        char list[256] = "";
        const char *name, *have = field(c, key)->text;
        for (size_t i = 0, n = 0; (name = key->choice(i)) && n < sizeof list; i++)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", name);
        return err_set(err, CVN_EINVAL, "\"%s\" is \"%.60s\"; give one of %s", key->name,
                       have ? have : "", list);
    }
    if (key->type != KEY_INT && key->type != KEY_REAL)
        return CVN_OK;
    double value = key->type == KEY_REAL ? field(c, key)->real : (double)field(c, key)->integer;
    const bool default_is_minus_1 =
        key->low < 0; /* and nothing between that and 0 means anything */
    if (default_is_minus_1 && value > -1 && value < 0)
        return err_set(err, CVN_EINVAL, "\"%s\" is %.10g; give a number from 0 to %.10g, or -1",
                       key->name, value, key->high);
    if (value >= key->low && value <= key->high)
        return CVN_OK;
    return err_set(err, CVN_EINVAL, "\"%s\" is %.10g; give a number from %.10g to %.10g", key->name,
                   value, key->low, key->high);
}

static int set_value(TrainConfig *c, const TrainKey *key, const char *file, const json_t *value,
                     Arena *arena, cvn_err *err)
{
    size_t n = json_is_string(value) ? 1 : json_array_size(value);
    switch (key->type) {
    case KEY_DATA:
        for (size_t i = 0; i < n && n <= TRAIN_MAX_DATA; i++) {
            const json_t *path = json_is_string(value) ? value : json_array_get(value, i);
            if (!json_is_string(path))
                return wrong(file, key, "a path or a list of 1 to 64 paths", err);
            c->data[i] = arena_string(arena, json_string_value(path));
        }
        if (n == 0 || n > TRAIN_MAX_DATA)
            return wrong(file, key, "a path or a list of 1 to 64 paths", err);
        c->n_data = (int64_t)n;
        return CVN_OK;
    case KEY_TEXT:
        if (!json_is_string(value))
            return wrong(file, key, "a text", err);
        field(c, key)->text = arena_string(arena, json_string_value(value));
        return CVN_OK;
    case KEY_REAL:
        if (!json_is_number(value))
            return wrong(file, key, "a number", err);
        field(c, key)->real = json_number_value(value);
        return CVN_OK;
    case KEY_FLAG:
        if (!json_is_boolean(value))
            return wrong(file, key, "true or false", err);
        field(c, key)->flag = json_is_true(value);
        return CVN_OK;
    case KEY_INT:
        if (!json_is_integer(value))
            return wrong(file, key, "a whole number", err);
        field(c, key)->integer = json_integer_value(value);
        return CVN_OK;
    }
    return CVN_OK;
}

int train_config_set(TrainConfig *c, const TrainKey *key, const char *file, const json_t *value,
                     Arena *arena, cvn_err *err)
{
    int code = set_value(c, key, file, value, arena, err);
    if (code == CVN_OK && (code = check_value(c, key, err)) != CVN_OK)
        err_prefix(err, "%s", file);
    return code;
}

static const char *name_of_key(const void *keys, size_t i)
{
    return i < TRAIN_KEYS ? ((const TrainKey *)keys)[i].name : NULL;
}

static int unknown(const char *file, const char *name, cvn_err *err)
{
    char typed[64];
    snprintf(typed, sizeof typed, "%s", name);
    for (char *c = typed; *c; c++)
        *c = *c == '_' ? '-' : *c;
    const char *near = suggest(typed, name_of_key, train_keys);
    if (near)
        return err_set(err, CVN_EFORMAT, "%s: unknown option \"%.60s\"; did you mean \"%s\"?", file,
                       name, near);
    return err_set(err, CVN_EFORMAT, "%s: unknown option \"%.60s\"; see caravan train --help", file,
                   name);
}

int train_config_read(TrainConfig *c, const char *file, const json_t *json, bool *given,
                      Arena *arena, cvn_err *err)
{
    const char *name;
    json_t *value;
    bool seen[TRAIN_KEYS] = {false};
    json_object_foreach((json_t *)(uintptr_t)json, name, value)
    {
        const TrainKey *key = train_key_find(name);
        if (!key)
            return unknown(file, name, err);
        if (seen[key - train_keys])
            return err_set(
                err, CVN_EFORMAT,
                "%s: \"%.60s\" is an alias of \"%s\", which is also given; give one of them", file,
                name, key->name);
        seen[key - train_keys] = true;
        TRY(train_config_set(c, key, file, value, arena, err));
        if (given)
            given[key - train_keys] = true;
    }
    if (seen[KEY_AT_steps] && seen[KEY_AT_epochs] && c->epochs > 0)
        return err_set(err, CVN_EFORMAT, "%s: give either \"steps\" or \"epochs\"", file);
    return CVN_OK;
}

static json_t *key_json(const TrainConfig *c, const TrainKey *key)
{
    json_t *list;
    switch (key->type) {
    case KEY_DATA:
        list = json_array();
        for (int64_t i = 0; i < c->n_data; i++)
            list = json_append(list, json_string(c->data[i]));
        return list;
    case KEY_TEXT:
        return json_string(field(c, key)->text);
    case KEY_REAL:
        return json_real(field(c, key)->real);
    case KEY_FLAG:
        return json_boolean(field(c, key)->flag);
    case KEY_INT:
        return json_integer(field(c, key)->integer);
    }
    return NULL;
}

json_t *train_config_json(const TrainConfig *c)
{
    json_t *json = json_object();
    for (int i = 0; i < train_n_keys; i++) {
        const TrainKey *key = &train_keys[i];
        bool unset = (key->type == KEY_TEXT && !field(c, key)->text) ||
                     (key->type == KEY_FLAG && !field(c, key)->flag) ||
                     (key->type == KEY_DATA && !c->n_data);
        unset = unset || (c->epochs > 0 && i == KEY_AT_steps); /* they follow from the data */
        if (!unset)
            json = json_with(json, key->name, key_json(c, key));
    }
    return json;
}

void train_config_only(json_t *json)
{
    json_object_del(json, TRAIN_DATA_KEY);
    json_object_del(json, TRAIN_FOLDER_KEY);
    json_object_del(json, TRAIN_EXPORT_KEY);
}

/* The best rate of adapters is about ten times that of all weights, whatever the rank where alpha is the same: "LoRA
   Without Regret" (Schulman et al. 2025), measured with the alpha that is lora_parse's default. */
enum { LORA_RATE = 10 };

/* ---- checks, and what a config that was checked says ---- */

static int choice_named(const TrainConfig *c, const char *name)
{
    int i = choice_of(c, train_key_find(name));
    assert(i >= 0);
    return i;
}

OptimizerOptions train_config_optimizer(const TrainConfig *c, const Model *model)
{
    OptimizerKind kind = (OptimizerKind)choice_named(c, "optimizer");
    OptimizerOptions o = optimizer_defaults(kind, model_size(model).params);
    if (c->lr > 0)
        o.lr = c->lr;
    else if (c->init) /* what is there already should not be shaken up */
        o.lr *= (c->dpo ? 0.01 : 0.1) * (c->lora ? LORA_RATE : 1);
    if (c->weight_decay >= 0)
        o.weight_decay = c->weight_decay;
    o.beta1 = c->beta1;
    o.beta2 = c->beta2;
    o.eps = c->eps;
    o.momentum = c->momentum;
    o.state = compute_dtypes[choice_named(c, "state-dtype")];
    return o;
}

Schedule train_config_schedule(const TrainConfig *c)
{
    Schedule s = {
        .kind = (ScheduleKind)choice_named(c, "schedule"), .steps = c->steps, .final = c->final_lr};
    s.warmup = c->warmup >= 0 ? c->warmup : s.steps / 10 < 100 ? s.steps / 10 : 100;
    s.decay = c->decay >= 0 ? c->decay : s.steps / 5;
    return s;
}

cvn_dtype train_config_compute(const TrainConfig *c)
{
    return compute_dtypes[choice_named(c, "dtype")];
}

RematPolicy train_config_remat(const TrainConfig *c)
{
    int i = choice_named(c, "remat"); /* "auto" is the first here, and the last there */
    return i == 0 ? REMAT_POLICY_COUNT : (RematPolicy)(i - 1);
}

DataPacking train_config_packing(const TrainConfig *c)
{
    return (DataPacking)choice_named(c, "packing");
}

int train_config_check(const TrainConfig *c, cvn_err *err)
{
    for (int i = 0; i < train_n_keys; i++)
        TRY(check_value(c, &train_keys[i], err));
    if (c->n_data == 0 && !c->dpo)
        return err_set(err, CVN_EINVAL, "training data are missing: give --data FILE");
    if (c->n_data > 0 && c->dpo)
        return err_set(err, CVN_EINVAL,
                       "give either --data, training texts, or --dpo, preference pairs");
    if (c->dpo && !c->init)
        return err_set(err, CVN_EINVAL,
                       "preference pairs (--dpo) need an instruction-tuned model: --init DIR");
    if (!c->preset == !c->init)
        return err_set(
            err, CVN_EINVAL,
            "give either --preset NAME, for a new model, or --init DIR, to fine-tune one");
    if (!c->out || !*c->out)
        return err_set(err, CVN_EINVAL, "the run folder is missing: give --out DIR");
    if (c->lora && !c->init)
        return err_set(err, CVN_EINVAL, "adapters (--lora) need a base model: --init DIR");
    if (c->batch && c->micro_batch && c->batch % c->micro_batch)
        return err_set(err, CVN_EINVAL,
                       "a batch of %" PRId64 " cannot be divided into micro-batches of %" PRId64
                       "; give a --micro-batch that divides it",
                       c->batch, c->micro_batch);
    LoraOptions lora;
    Schedule schedule = train_config_schedule(c);
    if (c->lora)
        TRY(lora_parse(&lora, c->lora, err));
    return c->epochs > 0 ? CVN_OK : schedule_check(&schedule, err);
}

int64_t train_default_batch(int64_t n_params, int64_t seq, int64_t micro_batch)
{
    double tokens = fmin(fmax(8192 * sqrt((double)n_params / 15e6), 2048), 32768);
    int64_t batch = 1;
    while (batch < 32 && 2 * batch <= (int64_t)tokens / seq)
        batch *= 2;
    if (micro_batch > 0 && batch % micro_batch)
        batch += micro_batch - batch % micro_batch;
    return batch;
}
