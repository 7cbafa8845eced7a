#include "train/config.h"

#include "base/json_file.h"
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

const TrainKey train_keys[] = {
    {"data", KEY_DATA, KEY_FREE, AT(data), NULL, 0, 0},
    {"dpo", KEY_TEXT, KEY_FREE, AT(dpo), NULL, 0, 0},
    {"beta", KEY_REAL, KEY_FIXED, AT(beta), NULL, 0x1p-20, 1000},
    {"preset", KEY_TEXT, KEY_FIXED, AT(preset), NULL, 0, 0},
    {"init", KEY_TEXT, KEY_FIXED, AT(init), NULL, 0, 0},
    {"lora", KEY_TEXT, KEY_FIXED, AT(lora), NULL, 0, 0},
    {"tokenizer", KEY_TEXT, KEY_FIXED, AT(tokenizer), NULL, 0, 0},
    {"out", KEY_TEXT, KEY_FIXED, AT(out), NULL, 0, 0},
    {"seq", KEY_INT, KEY_FIXED, AT(seq), NULL, 0, 1 << 24},
    {"batch", KEY_INT, KEY_FIXED, AT(batch), NULL, 0, 1 << 24},
    {"micro-batch", KEY_INT, KEY_FREE, AT(micro_batch), NULL, 0, 1 << 24},
    {"steps", KEY_INT, KEY_FREE, AT(steps), NULL, 1, 1e12},
    {"stop-after", KEY_INT, KEY_FREE, AT(stop_after), NULL, 0, 1e12},
    {"optimizer", KEY_TEXT, KEY_FIXED, AT(optimizer), train_optimizer_name, 0, 0},
    {"lr", KEY_REAL, KEY_FREE, AT(lr), NULL, 0, 100},
    {"warmup", KEY_INT, KEY_FREE, AT(warmup), NULL, -1, 1e12},
    {"schedule", KEY_TEXT, KEY_FREE, AT(schedule), train_schedule_name, 0, 0},
    {"decay", KEY_INT, KEY_FREE, AT(decay), NULL, -1, 1e12},
    {"final-lr", KEY_REAL, KEY_FREE, AT(final_lr), NULL, 0, 1},
    {"clip", KEY_REAL, KEY_FREE, AT(clip), NULL, 0, 1e9},
    {"weight-decay", KEY_REAL, KEY_FREE, AT(weight_decay), NULL, -1, 10},
    {"beta1", KEY_REAL, KEY_FREE, AT(beta1), NULL, 0, 0.999999},
    {"beta2", KEY_REAL, KEY_FREE, AT(beta2), NULL, 0, 0.9999999},
    {"eps", KEY_REAL, KEY_FREE, AT(eps), NULL, 0, 1},
    {"momentum", KEY_REAL, KEY_FREE, AT(momentum), NULL, 0, 0.999999},
    {"z-loss", KEY_REAL, KEY_FREE, AT(z_loss), NULL, 0, 1},
    {"seed", KEY_INT, KEY_FIXED, AT(seed), NULL, 0, 0x1p63},
    {"dtype", KEY_TEXT, KEY_FREE, AT(dtype), train_dtype_name, 0, 0},
    {"state-dtype", KEY_TEXT, KEY_FIXED, AT(state_dtype), train_dtype_name, 0, 0},
    {"remat", KEY_TEXT, KEY_FREE, AT(remat), train_remat_name, 0, 0},
    {"memory", KEY_INT, KEY_FREE, AT(memory), NULL, 0, 0x1p62},
    {"threads", KEY_INT, KEY_FREE, AT(threads), NULL, 0, 1024},
    {"device", KEY_TEXT, KEY_FREE, AT(device), NULL, 0, 0},
    {"mesh", KEY_TEXT, KEY_FREE, AT(mesh), NULL, 0, 0},
    {"layout", KEY_TEXT, KEY_FREE, AT(layout), NULL, 0, 0},
    {"overlap", KEY_TEXT, KEY_FREE, AT(overlap), train_overlap_name, 0, 0},
    {"packing", KEY_TEXT, KEY_FIXED, AT(packing), train_packing_name, 0, 0},
    {"cache", KEY_TEXT, KEY_FREE, AT(cache), NULL, 0, 0},
    {"validation", KEY_REAL, KEY_FIXED, AT(validation), NULL, 0, 0.5},
    {"validation-file", KEY_TEXT, KEY_FREE, AT(validation_file), NULL, 0, 0},
    {"evaluate-every", KEY_INT, KEY_FREE, AT(evaluate_every), NULL, 0, 1e12},
    {"save-every", KEY_INT, KEY_FREE, AT(save_every), NULL, 0, 1e12},
    {"save-minutes", KEY_REAL, KEY_FREE, AT(save_minutes), NULL, 0, 1e9},
    {"keep-last", KEY_INT, KEY_FREE, AT(keep_last), NULL, 0, 1 << 30},
    {"keep-every", KEY_INT, KEY_FREE, AT(keep_every), NULL, 0, 1e12},
    {"sample-every", KEY_INT, KEY_FREE, AT(sample_every), NULL, 0, 1e12},
    {"prompt", KEY_TEXT, KEY_FREE, AT(prompt), NULL, 0, 0},
    {"evaluate", KEY_TEXT, KEY_FREE, AT(evaluate), NULL, 0, 0},
};
const int train_n_keys = sizeof train_keys / sizeof *train_keys;

const TrainKey *train_key_find(const char *name)
{
    for (int i = 0; i < train_n_keys; i++) {
        const char *key = train_keys[i].name, *at = name;
        while (*key && (*key == *at || (*key == '-' && *at == '_'))) {
            key++;
            at++;
        }
        if (!*key && !*at)
            return &train_keys[i];
    }
    return NULL;
}

TrainConfig train_config_defaults(void)
{
    OptimizerOptions adamw = optimizer_defaults(OPTIMIZER_ADAMW, 1);
    return (TrainConfig){.beta = 0.1,
                         .steps = 1000,
                         .optimizer = "adamw",
                         .warmup = -1,
                         .schedule = "cosine",
                         .decay = -1,
                         .final_lr = 0.1,
                         .clip = 1,
                         .weight_decay = -1,
                         .beta1 = adamw.beta1,
                         .beta2 = adamw.beta2,
                         .eps = adamw.eps,
                         .momentum = adamw.momentum,
                         .dtype = "bf16",
                         .state_dtype = "f32",
                         .remat = "auto",
                         .layout = "auto",
                         .overlap = "on",
                         .packing = "auto",
                         .evaluate_every = 100,
                         .save_every = 500,
                         .save_minutes = 10,
                         .keep_last = 2};
}

/* ---- a field by its key ---- */

/* What a key names, of the type that the key says. */
typedef union Field {
    int64_t integer;
    double real;
    const char *text;
} Field;

static Field *field(const TrainConfig *c, const TrainKey *key)
{
    return (Field *)(uintptr_t)((const char *)c + key->offset);
}

void train_config_copy(TrainConfig *to, const TrainConfig *from, const TrainKey *key)
{
    static const size_t bytes[] = {[KEY_INT] = sizeof(int64_t),
                                   [KEY_REAL] = sizeof(double),
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
        return err_set(err, CVN_EINVAL, "\"%s\" cannot be \"%.60s\"; give one of %s", key->name,
                       have ? have : "", list);
    }
    if (key->type == KEY_TEXT || key->type == KEY_DATA)
        return CVN_OK;
    double value = key->type == KEY_REAL ? field(c, key)->real : (double)field(c, key)->integer;
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

int train_config_read(TrainConfig *c, const char *file, const json_t *json, bool *given,
                      Arena *arena, cvn_err *err)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, name, value)
    {
        const TrainKey *key = train_key_find(name);
        if (!key)
            return err_set(err, CVN_EFORMAT,
                           "%s: there is no option \"%.60s\"; see caravan train --help", file,
                           name);
        TRY(train_config_set(c, key, file, value, arena, err));
        if (given)
            given[key - train_keys] = true;
    }
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
        bool unset =
            key->type == KEY_TEXT ? !field(c, key)->text : key->type == KEY_DATA && !c->n_data;
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
    s.warmup = c->warmup >= 0 ? c->warmup : c->steps / 10 < 100 ? c->steps / 10 : 100;
    s.decay = c->decay >= 0 ? c->decay : c->steps / 5;
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
        return err_set(err, CVN_EINVAL, "say what to train on: --data FILE");
    if (c->n_data > 0 && c->dpo)
        return err_set(err, CVN_EINVAL,
                       "either --data, texts to learn, or --dpo, pairs of answers of which one is "
                       "better");
    if (c->dpo && !c->init)
        return err_set(err, CVN_EINVAL,
                       "pairs of answers (--dpo) need a model that can answer: --init DIR");
    if (!c->preset == !c->init)
        return err_set(
            err, CVN_EINVAL,
            "give either --preset NAME, for a new model, or --init DIR, to go on from one");
    if (!c->out || !*c->out)
        return err_set(err, CVN_EINVAL, "say where the run is to be kept: --out DIR");
    if (c->lora && !c->init)
        return err_set(err, CVN_EINVAL,
                       "adapters (--lora) need a model that they adapt: --init DIR");
    if (c->batch && c->micro_batch && c->batch % c->micro_batch)
        return err_set(err, CVN_EINVAL,
                       "a batch of %" PRId64 " does not divide into micro-batches of %" PRId64
                       "; give a --micro-batch that divides it",
                       c->batch, c->micro_batch);
    LoraOptions lora;
    Schedule schedule = train_config_schedule(c);
    if (c->lora)
        TRY(lora_parse(&lora, c->lora, err));
    return schedule_check(&schedule, err);
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
