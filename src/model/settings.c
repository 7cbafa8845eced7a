/* The walks over a family's settings: what is read is what is written. */
#include "model/family.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const activations[] = {[ACTIVATION_SILU] = "silu",
                                          [ACTIVATION_GELU] = "gelu",
                                          [ACTIVATION_GELU_TANH] = "gelu_pytorch_tanh",
                                          [ACTIVATION_RELU] = "relu"};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

const char *activation_name(Activation activation)
{
    return activations[activation];
}

const char *setting_key(const Family *family, const Setting *row, bool gguf, char text[KEY_SIZE])
{
    if (!gguf || !row->gguf)
        return gguf ? NULL : row->key;
    snprintf(text, KEY_SIZE, "%s.%s", family->gguf, row->gguf);
    return text;
}

static bool is_last(const Setting *row)
{
    return !row->key && !row->gguf;
}

/* Field of a model or of one of its blocks. */
static void *field(const Model *m, const Setting *row, int64_t layer)
{
    return (char *)(row->of_block ? (void *)&m->block[layer] : (void *)(uintptr_t)m) + row->offset;
}

static int64_t places(const Model *m, const Setting *row)
{
    return row->of_block ? m->layers : 1;
}

typedef union Value {
    int64_t integer;
    double real;
    bool boolean;
    Activation activation;
} Value;

static size_t value_size(SettingKind kind)
{
    return kind == SETTING_INT          ? sizeof(int64_t)
           : kind == SETTING_REAL       ? sizeof(double)
           : kind == SETTING_ACTIVATION ? sizeof(Activation)
                                        : sizeof(bool);
}

static void set(Model *m, const Setting *row, const Value *value)
{
    for (int64_t i = 0; i < places(m, row); i++)
        memcpy(field(m, row, i), value, value_size(row->kind));
}

static Value first_value(const Model *m, const Setting *row)
{
    Value value = {0};
    memcpy(&value, field(m, row, 0), value_size(row->kind));
    return value;
}

/* ---- reading ---- */

static Value fallback(const Setting *row)
{
    Value value = {0};
    if (row->kind == SETTING_INT)
        value.integer = (int64_t)row->fallback;
    else if (row->kind == SETTING_REAL)
        value.real = row->fallback;
    else if (row->kind == SETTING_ACTIVATION)
        value.activation = (Activation)row->fallback;
    else
        value.boolean = row->fallback != 0;
    return value;
}

/* What is derived of numbers that rows before have set. */
static int derive(const Model *m, const Setting *row, const char *file, int64_t *out, cvn_err *err)
{
    const Attention *a = &m->block[0].attention;
    *out = a->heads;
    if (row->offset == offsetof(Block, attention.kv_heads))
        return CVN_OK;
    if (a->heads < 1 || m->width < 1) { /* which model_check tells */
        *out = 1;
        return CVN_OK;
    }
    if (m->width % a->heads != 0)
        return err_set(err, CVN_EFORMAT,
                       "'%s': hidden_size %" PRId64
                       " is no multiple of num_attention_heads %" PRId64
                       ", and there is no head_dim",
                       file, m->width, a->heads);
    *out = m->width / a->heads;
    return CVN_OK;
}

static int read_activation(const SettingSource *s, const char *key, Activation *out, cvn_err *err)
{
    const char *name = NULL;
    int found = s->text(s->of, key, &name, err);
    if (found <= 0)
        return found;
    if (strcmp(name, "swish") == 0)
        name = "silu";
    for (int i = 0; i < ACTIVATIONS; i++)
        if (strcmp(activations[i], name) == 0) {
            *out = (Activation)i;
            return 1;
        }
    return err_set(err, CVN_EUNSUPPORTED, "'%s': %s is '%.60s'; only 'silu' is supported", s->file,
                   key, name);
}

static int read_value(const SettingSource *s, SettingKind kind, const char *key, Value *value,
                      cvn_err *err)
{
    switch (kind) {
    case SETTING_INT:
    case SETTING_INTERVAL:
        return s->integer(s->of, key, &value->integer, err);
    case SETTING_REAL:
        return s->real(s->of, key, &value->real, err);
    case SETTING_BOOL:
        return s->boolean(s->of, key, &value->boolean, err);
    case SETTING_ACTIVATION:
        return read_activation(s, key, &value->activation, err);
    case SETTING_SWITCHES:
        break;
    }
    return 0;
}

/* A switch of each layer, from a list that has 1 where it is off. */
static int read_switches(Model *m, const Setting *row, const SettingSource *s, const char *key,
                         cvn_err *err)
{
    int64_t *list = calloc((size_t)m->layers, sizeof *list), n = 0;
    if (!list)
        return err_set(err, CVN_EMEM, "no memory to read '%s'", s->file);
    int code = s->list(s->of, key, m->layers, list, &n, err);
    if (code > 0 && n != m->layers)
        code = err_set(err, CVN_EFORMAT,
                       "'%s': %s has %" PRId64 " elements; one for each of %" PRId64
                       " layers is expected",
                       s->file, key, n, m->layers);
    for (int64_t i = 0; code > 0 && i < m->layers; i++) {
        if (list[i] != 0 && list[i] != 1)
            code = err_set(err, CVN_EFORMAT, "'%s': %s has %" PRId64 "; 0 and 1 are expected",
                           s->file, key, list[i]);
        *(bool *)field(m, row, i) = list[i] == 0;
    }
    free(list);
    return code < 0 ? code : CVN_OK;
}

static void set_interval(const Model *m, const Setting *row, int64_t interval)
{
    for (int64_t i = 0; i < m->layers; i++)
        *(bool *)field(m, row, i) = interval > 0 && (i + 1) % interval == 0;
}

static int read_row(Model *m, const Setting *row, const SettingSource *s, cvn_err *err)
{
    char text[KEY_SIZE];
    const char *key = setting_key(m->family, row, s->gguf, text);
    Value value = fallback(row);
    if (row->kind == SETTING_SWITCHES)
        return key ? read_switches(m, row, s, key, err) : CVN_OK;
    int found = key ? read_value(s, row->kind, key, &value, err) : 0;
    if (found < 0)
        return found;
    if (!found && s->gguf && row->flags & SETTING_NEEDED)
        return err_set(err, CVN_EFORMAT, "'%s': the key '%s' is missing or no integer", s->file,
                       key);
    if (row->flags & SETTING_AGAIN) {
        if (found && value.integer != first_value(m, row).integer)
            return err_set(err, CVN_EUNSUPPORTED,
                           "'%s': %s is %" PRId64 " for heads of %" PRId64 "; all must be equal",
                           s->file, key, value.integer, first_value(m, row).integer);
        return CVN_OK;
    }
    if (row->kind == SETTING_INTERVAL) {
        set_interval(m, row, found ? value.integer : (int64_t)row->fallback);
        return CVN_OK;
    }
    if (!found && row->fallback == SETTING_DERIVED)
        TRY(derive(m, row, s->file, &value.integer, err));
    set(m, row, &value);
    return CVN_OK;
}

int settings_read(Model **model, const Family *family, const SettingSource *source, Arena *arena,
                  cvn_err *err)
{
    char text[KEY_SIZE];
    Value layers = {0};
    const Setting *row = family->settings;
    while (row->of_block || row->offset != offsetof(Model, layers))
        row++;
    const char *key = setting_key(family, row, source->gguf, text);
    int found = read_value(source, row->kind, key, &layers, err);
    if (found < 0)
        return found;
    if (!found && source->gguf)
        return err_set(err, CVN_EFORMAT, "'%s': the key '%s' is missing or no integer",
                       source->file, key);
    layers = found ? layers : fallback(row);
    TRY(model_check_layers(layers.integer, source->file, err));
    Model *m = *model = model_new(layers.integer, arena);
    m->family = family;
    m->begin = family->begin;
    m->end = family->end;
    for (row = family->settings; !is_last(row); row++)
        TRY(read_row(m, row, source, err));
    return CVN_OK;
}

/* ---- writing ---- */

/* What a file means that does not have the key. */
static bool is_implied(const Model *m, const Setting *row, const Value *value)
{
    Value absent = fallback(row);
    if (row->fallback == SETTING_DERIVED && derive(m, row, "", &absent.integer, NULL))
        return false;
    return memcmp(value, &absent, value_size(row->kind)) == 0;
}

/* Of a switch without a key: the row with its interval says which layers have it. */
static bool is_by_interval(const Model *m, const Setting *row)
{
    const Setting *interval = m->family->settings;
    while (!is_last(interval) &&
           (interval->kind != SETTING_INTERVAL || interval->offset != row->offset))
        interval++;
    int64_t every = is_last(interval) ? 0 : (int64_t)interval->fallback;
    for (int64_t i = 0; i < m->layers; i++)
        if (*(bool *)field(m, row, i) != (every > 0 && (i + 1) % every == 0))
            return false;
    return true;
}

static int refuse(const Model *m, const Setting *row, const SettingSink *s, cvn_err *err)
{
    return err_set(err, CVN_EUNSUPPORTED, "'%s': %s cannot say what %s of this model is, a %s",
                   s->file, s->gguf ? "a GGUF file" : "a config.json",
                   row->key ? row->key : row->gguf, m->family->name);
}

static int write_switches(const Model *m, const Setting *row, const SettingSink *s, const char *key,
                          cvn_err *err)
{
    if (!key)
        return is_by_interval(m, row) ? CVN_OK : refuse(m, row, s, err);
    int64_t *list = calloc((size_t)m->layers, sizeof *list);
    if (!list)
        return err_set(err, CVN_EMEM, "no memory to write '%s'", s->file);
    for (int64_t i = 0; i < m->layers; i++)
        list[i] = !*(bool *)field(m, row, i);
    s->list(s->of, key, list, m->layers);
    free(list);
    return CVN_OK;
}

/* The first row with the same key of config.json, where one key sets several fields. */
static const Setting *first_of_key(const Model *m, const Setting *row)
{
    const Setting *first = m->family->settings;
    while (!first->key || strcmp(first->key, row->key) != 0)
        first++;
    return first;
}

static int write_row(const Model *m, const Setting *row, const SettingSink *s, cvn_err *err)
{
    char text[KEY_SIZE];
    const char *key = setting_key(m->family, row, s->gguf, text);
    const Value value = first_value(m, row);
    if (row->kind == SETTING_INTERVAL)
        return CVN_OK;
    if (row->kind == SETTING_SWITCHES)
        return write_switches(m, row, s, key, err);
    for (int64_t i = 1; i < places(m, row); i++)
        if (memcmp(field(m, row, i), &value, value_size(row->kind)) != 0)
            return refuse(m, row, s, err);
    if (!key) {
        bool said = row->flags & (SETTING_FRESH | (s->gguf ? SETTING_TENSORS : SETTING_AGAIN));
        return said || is_implied(m, row, &value) ? CVN_OK : refuse(m, row, s, err);
    }
    if (s->gguf && row->flags & SETTING_IMPLIED &&
        m->block[0].attention.head_dim * m->block[0].attention.heads == m->width)
        return CVN_OK;
    if (!s->gguf && first_of_key(m, row) != row)
        return memcmp(field(m, first_of_key(m, row), 0), &value, value_size(row->kind)) == 0
                   ? CVN_OK
                   : refuse(m, row, s, err);
    switch (row->kind) {
    case SETTING_INT:
        s->integer(s->of, key, value.integer);
        break;
    case SETTING_REAL:
        s->real(s->of, key,
                row->of_block && row->offset == offsetof(Block, attention.rope.theta) && s->gguf
                    ? rope_theta(&m->block[0].attention, m->context, m->context)
                    : value.real);
        break;
    case SETTING_BOOL:
        s->boolean(s->of, key, value.boolean);
        break;
    default:
        s->text(s->of, key, activations[value.activation]);
        break;
    }
    return CVN_OK;
}

int settings_write(const Model *m, const SettingSink *sink, cvn_err *err)
{
    for (const Setting *row = m->family->settings; !is_last(row); row++)
        TRY(write_row(m, row, sink, err));
    return CVN_OK;
}
