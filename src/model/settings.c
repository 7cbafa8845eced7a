/* The walks over a family's settings: what is read is what is written. */
#include "model/family.h"
#include "model/gguf.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
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

/* The key of a row in such a file, in `text`, or NULL. */
static const char *setting_key(const Family *family, const Setting *row, bool gguf,
                               char text[KEY_SIZE])
{
    if (!gguf || !row->gguf)
        return gguf ? NULL : row->key;
    snprintf(text, KEY_SIZE, "%s.%s", family->gguf, row->gguf);
    return text;
}

/* Field of a model or of one of its blocks. */
static void *field(const Model *m, const Setting *row, int64_t layer)
{
    return (char *)(row->of_block ? (void *)&m->block[layer] : (void *)(uintptr_t)m) + row->offset;
}

static LayerSet set_of(const Setting *row)
{
    return row->flags & SETTING_LOCAL    ? LAYERS_LOCAL
           : row->flags & SETTING_GLOBAL ? LAYERS_GLOBAL
                                         : LAYERS_ALL;
}

bool layer_is_in(const Block *block, LayerSet set)
{
    return set == LAYERS_ALL || block->attention.local == (set == LAYERS_LOCAL);
}

/* The first place of the row's field at or behind `i`, or -1 where there is none. */
static int64_t place(const Model *m, const Setting *row, int64_t i)
{
    if (!row->of_block)
        return i == 0 ? 0 : -1;
    while (i < m->layers && !layer_is_in(&m->block[i], set_of(row)))
        i++;
    return i < m->layers ? i : -1;
}

typedef union SettingValue {
    int64_t integer;
    double real;
    bool boolean;
    Activation activation;
} SettingValue;

static size_t value_size(SettingKind kind)
{
    switch (kind) {
    case SETTING_INT:
    case SETTING_WIDTHS:
    case SETTING_EACH:
        return sizeof(int64_t);
    case SETTING_REAL:
    case SETTING_ROOT:
    case SETTING_ROTATED:
        return sizeof(double);
    case SETTING_ACTIVATION:
    case SETTING_CHOICE:
    case SETTING_QK_NORM:
    case SETTING_QK_NORMS:
    case SETTING_QK_TURNED:
    case SETTING_SCORE:
        return sizeof(Activation);
    default:
        return sizeof(bool);
    }
}

static_assert(sizeof(Activation) == sizeof(QkNorm) && sizeof(Activation) == sizeof(NormKind) &&
                  sizeof(Activation) == sizeof(NormGain) &&
                  sizeof(Activation) == sizeof(RouterScore),
              "enums are read alike");

static void set(Model *m, const Setting *row, const SettingValue *value)
{
    for (int64_t i = place(m, row, 0); i >= 0; i = place(m, row, i + 1))
        memcpy(field(m, row, i), value, value_size(row->kind));
}

static SettingValue first_value(const Model *m, const Setting *row)
{
    SettingValue value = {0};
    memcpy(&value, field(m, row, place(m, row, 0)), value_size(row->kind));
    return value;
}

/* ---- reading ---- */

static SettingValue fallback(const Setting *row)
{
    SettingValue value = {0};
    if (row->kind == SETTING_INT || row->kind == SETTING_WIDTHS)
        value.integer = (int64_t)row->fallback;
    else if (value_size(row->kind) == sizeof value.real)
        value.real = row->fallback;
    else if (value_size(row->kind) == sizeof value.activation)
        value.activation = (Activation)row->fallback;
    else
        value.boolean = row->fallback != 0;
    return value;
}

/* The two models whose heads are scaled otherwise than by their width, which llama.cpp knows by their layers. */
static double scale_by_layers(const Model *m)
{
    const Attention *a = &m->block[0].attention;
    const bool by_width = m->layers == 46 || m->layers == 62; /* Gemma 2 27B, Gemma 3 27B */
    return 1 / sqrt(by_width ? (double)m->width / (double)a->heads : (double)a->head_dim);
}

/* What is derived of numbers that rows before have set. */
static int derive(const Model *m, const Setting *row, const char *file, SettingValue *out,
                  cvn_err *err)
{
    const Attention *a = &m->block[0].attention;
    if (!row->of_block) {
        out->real = sqrt((double)m->width);
        return CVN_OK;
    }
    if (row->offset == offsetof(Block, attention.scale)) {
        out->real = scale_by_layers(m);
        return CVN_OK;
    }
    if (row->kind == SETTING_QK_TURNED) { /* llama.cpp knows Maverick by its experts */
        out->activation =
            (Activation)(m->block[0].experts.number == 128 ? QK_NORM_NONE : QK_NORM_TURNED);
        return CVN_OK;
    }
    out->integer = a->heads;
    if (row->offset == offsetof(Block, attention.kv_heads) && row->flags & SETTING_GLOBAL)
        for (int64_t i = m->layers; i-- > 0;)
            if (m->block[i].attention.local)
                out->integer = m->block[i].attention.kv_heads;
    if (row->offset == offsetof(Block, attention.kv_heads))
        return CVN_OK;
    if (a->heads < 1 || m->width < 1) { /* which model_check tells */
        out->integer = 1;
        return CVN_OK;
    }
    if (m->width % a->heads != 0)
        return err_set(err, CVN_EFORMAT,
                       "'%s': hidden_size %" PRId64
                       " is not a multiple of num_attention_heads %" PRId64
                       ", and there is no head_dim",
                       file, m->width, a->heads);
    out->integer = m->width / a->heads;
    return CVN_OK;
}

static int read_activation(const SettingSource *s, const Setting *row, const char *key,
                           Activation *out, cvn_err *err)
{
    const char *name = NULL;
    int found = s->text(s->of, key, &name, err);
    if (found <= 0)
        return found;
    if (strcmp(name, "swish") == 0)
        name = "silu";
    if (strcmp(name, "gelu") == 0 && row->flags & SETTING_GELU_TANH)
        name = "gelu_pytorch_tanh";
    for (int i = 0; i < ACTIVATIONS; i++)
        if (strcmp(activations[i], name) == 0) {
            *out = (Activation)i;
            return 1;
        }
    return err_set(err, CVN_EUNSUPPORTED,
                   "'%s': %s is '%.60s'; 'silu', 'gelu_pytorch_tanh' and 'relu' are supported",
                   s->file, key, name);
}

/* As GGUF files number them. */
static const int64_t scores[] = {
    [SCORE_SOFTMAX] = 1, [SCORE_SIGMOID] = 2, [SCORE_SOFTMAX_CHOSEN] = 3};
enum { SCORES = sizeof scores / sizeof *scores };

/* What norms of queries and keys are where a file says that there are. */
static QkNorm qk_norm_of(const Setting *row)
{
    return row->kind == SETTING_QK_NORM    ? QK_NORM_HEAD
           : row->kind == SETTING_QK_NORMS ? QK_NORM_HEADS
                                           : QK_NORM_TURNED;
}

/* The type of layers that have a switch. */
static const char *type_of(const Setting *row)
{
    return row->kind == SETTING_TYPES    ? "sliding_attention"
           : row->kind == SETTING_CHUNKS ? "chunked_attention"
                                         : NULL;
}

static bool widths_fit(int64_t n)
{
    return n >= 0 && n <= 1 << 10;
}

/* Of a model whose rows before are read. */
static int read_value(const Model *m, const SettingSource *s, const Setting *row, const char *key,
                      SettingValue *value, cvn_err *err)
{
    const char *name = NULL;
    int64_t dims = 0;
    int found = 0;
    switch (row->kind) {
    case SETTING_INT:
    case SETTING_INTERVAL:
    case SETTING_STEP:
    case SETTING_BETWEEN:
    case SETTING_BEHIND:
        return s->integer(s->of, key, &value->integer, err);
    case SETTING_WIDTHS:
        found = s->integer(s->of, key, &value->integer, err);
        return found < 0 ? found
               : found && !widths_fit(value->integer)
                   ? err_set(err, CVN_EFORMAT, "'%s': %s is %" PRId64 "; it must be from 0 to 2^10",
                             s->file, key, value->integer)
                   : found;
    case SETTING_SCORE:
        found = s->integer(s->of, key, &dims, err);
        for (int i = 0; found > 0 && i < SCORES; i++)
            if (scores[i] == dims) {
                value->activation = (Activation)i;
                return found;
            }
        return found <= 0 ? found
                          : err_set(err, CVN_EUNSUPPORTED,
                                    "'%s': %s is %" PRId64 "; 1, 2 and 3 are supported", s->file,
                                    key, dims);
    case SETTING_REAL:
        return s->real(s->of, key, &value->real, err);
    case SETTING_ROOT:
        found = s->real(s->of, key, &value->real, err);
        if (found > 0 && !(value->real > 0))
            return err_set(err, CVN_EFORMAT, "'%s': %s is %g; it must be over 0", s->file, key,
                           value->real);
        if (found > 0)
            value->real = 1 / sqrt(value->real);
        return found;
    case SETTING_ROTATED:
        if (!s->gguf)
            return s->real(s->of, key, &value->real, err);
        found = s->integer(s->of, key, &dims, err);
        if (found > 0)
            value->real = (double)dims / (double)m->block[place(m, row, 0)].attention.head_dim;
        return found;
    case SETTING_TRUTH:
        return s->truth(s->of, key, &value->boolean, err);
    case SETTING_BOOL:
        return s->boolean(s->of, key, &value->boolean, err);
    case SETTING_QK_NORM:
    case SETTING_QK_NORMS:
    case SETTING_QK_TURNED:
        found = s->boolean(s->of, key, &value->boolean, err);
        if (found > 0)
            value->activation = value->boolean ? (Activation)qk_norm_of(row) : (Activation)0;
        return found;
    case SETTING_ROPE_NAME:
        if (s->gguf) {
            found = s->boolean(s->of, key, &value->boolean, err);
            value->boolean ^= found > 0;
            return found;
        }
        found = s->text(s->of, key, &name, err);
        value->boolean = found > 0 ? strcmp(name, "rope") != 0 : value->boolean;
        return found;
    case SETTING_ACTIVATION:
        return read_activation(s, row, key, &value->activation, err);
    default:
        return 0;
    }
}

/* A switch of each layer, from a list. */
static int read_switches(Model *m, const Setting *row, const SettingSource *s, const char *key,
                         cvn_err *err)
{
    int64_t *list = calloc((size_t)m->layers, sizeof *list), n = 0;
    if (!list)
        return err_set(err, CVN_EMEM, "no memory to read '%s'", s->file);
    int code = s->list(s->of, key, type_of(row), m->layers, list, &n, err);
    if (code > 0 && n != m->layers)
        code = err_set(err, CVN_EFORMAT,
                       "'%s': %s has %" PRId64 " elements; one for each of %" PRId64
                       " layers is expected",
                       s->file, key, n, m->layers);
    for (int64_t i = 0; code > 0 && i < m->layers; i++) {
        if (list[i] != 0 && list[i] != 1)
            code = err_set(err, CVN_EFORMAT, "'%s': %s has %" PRId64 "; 0 and 1 are expected",
                           s->file, key, list[i]);
        *(bool *)field(m, row, i) = list[i] == (type_of(row) != NULL);
    }
    free(list);
    return code < 0 ? code : CVN_OK;
}

/* A switch of each layer, true in those whose numbers are listed. */
static int read_indices(Model *m, const Setting *row, const SettingSource *s, const char *key,
                        cvn_err *err)
{
    int64_t n = 0;
    SCOPED(scoped_free) int64_t *list = calloc((size_t)m->layers, sizeof *list);
    if (!list)
        return err_set(err, CVN_EMEM, "no memory to read '%s'", s->file);
    int code = s->list(s->of, key, NULL, m->layers, list, &n, err);
    for (int64_t i = 0; code > 0 && i < m->layers; i++)
        *(bool *)field(m, row, i) = false;
    for (int64_t i = 0; code > 0 && i < n; i++) {
        if (i >= m->layers || list[i] < 0 || list[i] >= m->layers)
            return err_set(err, CVN_EFORMAT,
                           "'%s': %s must have numbers of layers, each from 0 to below %" PRId64
                           " and once",
                           s->file, key, m->layers);
        *(bool *)field(m, row, list[i]) = true;
    }
    return code < 0 ? code : CVN_OK;
}

/* A number of each layer: a list, or one number. */
static int read_each(Model *m, const Setting *row, const SettingSource *s, const char *key,
                     cvn_err *err)
{
    int64_t one = 0, n = 0;
    if (s->integer(s->of, key, &one, NULL) > 0) {
        for (int64_t i = 0; i < m->layers; i++)
            *(int64_t *)field(m, row, i) = one;
        return CVN_OK;
    }
    SCOPED(scoped_free) int64_t *list = calloc((size_t)m->layers, sizeof *list);
    if (!list)
        return err_set(err, CVN_EMEM, "no memory to read '%s'", s->file);
    int code = s->list(s->of, key, NULL, m->layers, list, &n, err);
    if (code > 0 && n != m->layers)
        code = err_set(err, CVN_EFORMAT,
                       "'%s': %s has %" PRId64 " elements; one for each of %" PRId64
                       " layers is expected",
                       s->file, key, n, m->layers);
    for (int64_t i = 0; code > 0 && i < m->layers; i++)
        *(int64_t *)field(m, row, i) = list[i];
    return code < 0 ? code : CVN_OK;
}

static bool is_by(const Setting *row, int64_t interval, int64_t layer)
{
    if (row->kind == SETTING_BEHIND)
        return layer >= interval;
    return (interval > 0 && (layer + 1) % interval == 0) != (row->kind == SETTING_BETWEEN);
}

/* By a number of layers, a setting of each. */
static bool is_counted(const Setting *row)
{
    return row->kind == SETTING_INTERVAL || row->kind == SETTING_STEP ||
           row->kind == SETTING_BETWEEN || row->kind == SETTING_BEHIND;
}

static void set_interval(const Model *m, const Setting *row, int64_t interval)
{
    for (int64_t i = 0; i < m->layers; i++)
        *(bool *)field(m, row, i) = is_by(row, interval, i);
}

static int read_row(Model *m, const Setting *row, const SettingSource *s, cvn_err *err)
{
    char text[KEY_SIZE];
    const char *key = setting_key(m->family, row, s->gguf, text);
    SettingValue value = fallback(row);
    if (row->kind == SETTING_INDICES)
        return key ? read_indices(m, row, s, key, err) : CVN_OK;
    if (row->kind == SETTING_SWITCHES || type_of(row))
        return key ? read_switches(m, row, s, key, err) : CVN_OK;
    if (row->kind == SETTING_EACH)
        return key ? read_each(m, row, s, key, err) : CVN_OK;
    if (place(m, row, 0) < 0)
        return CVN_OK;
    int found = key ? read_value(m, s, row, key, &value, err) : 0;
    if (found < 0)
        return found;
    if (!found && s->gguf && row->flags & SETTING_NEEDED)
        return err_set(err, CVN_EFORMAT, "'%s': the key '%s' is missing or not of type integer",
                       s->file, key);
    if (row->flags & SETTING_AGAIN) {
        const SettingValue first = first_value(m, row);
        const bool real = row->kind == SETTING_REAL;
        if (found && memcmp(&value, &first, value_size(row->kind)) != 0)
            return err_set(err, CVN_EUNSUPPORTED,
                           "'%s': %s is %.9g where what it repeats is %.9g; both must be equal",
                           s->file, key, real ? value.real : (double)value.integer,
                           real ? first.real : (double)first.integer);
        return CVN_OK;
    }
    if (is_counted(row)) {
        set_interval(m, row, found ? value.integer : (int64_t)row->fallback);
        return CVN_OK;
    }
    if (!s->gguf && row->flags & SETTING_ROPED)
        return CVN_OK;
    if (!found && !s->gguf && row->flags & SETTING_NULL)
        value = (SettingValue){0};
    if (!found && row->fallback == SETTING_DERIVED)
        TRY(derive(m, row, s->file, &value, err));
    if (row->kind == SETTING_WIDTHS &&
        __builtin_mul_overflow(value.integer, experts_width(&m->block[place(m, row, 0)]),
                               &value.integer))
        value.integer = -1; /* which model_check tells */
    set(m, row, &value);
    return CVN_OK;
}

int settings_read(Model **model, const Family *family, const SettingSource *source, Arena *arena,
                  cvn_err *err)
{
    char text[KEY_SIZE];
    const Setting *rows[FAMILY_SETTINGS];
    const int n = family_settings(family, rows);
    const Setting *row = family_setting(family, false, offsetof(Model, layers));
    const char *key = setting_key(family, row, source->gguf, text);
    SettingValue layers = {0};
    int found = source->integer(source->of, key, &layers.integer, err);
    if (found < 0)
        return found;
    if (!found && source->gguf)
        return err_set(err, CVN_EFORMAT, "'%s': the key '%s' is missing or not of type integer",
                       source->file, key);
    layers = found ? layers : fallback(row);
    if (source->gguf && family->foretelling) {
        SettingValue more = {0};
        snprintf(text, sizeof text, "%s.%s", family->gguf, family->foretelling);
        if (source->integer(source->of, text, &more.integer, err) < 0)
            return CVN_EFORMAT;
        if (more.integer < 0 || more.integer >= layers.integer)
            return err_set(err, CVN_EFORMAT, "'%s': %s is %" PRId64 " of %" PRId64 " layers",
                           source->file, text, more.integer, layers.integer);
        layers.integer -= more.integer;
    }
    TRY(model_check_layers(layers.integer, source->file, err));
    Model *m = *model = model_new(layers.integer, arena);
    m->family = family;
    m->begin = family->begin;
    m->end = family->end;
    for (int locals = 1; locals >= 0;
         locals--) { /* rows may be of some layers: which are local comes first */
        for (int i = 0; i < n; i++)
            if ((rows[i]->of_block && rows[i]->offset == offsetof(Block, attention.local)) ==
                locals)
                TRY(read_row(m, rows[i], source, err));
        if (family->last_global && !source->gguf)
            m->block[m->layers - 1].attention.local = false;
    }
    const bool chunks = family_setting(family, true, offsetof(Block, attention.chunk)) != NULL;
    for (int64_t i = 0; i < m->layers && chunks; i++) /* without any, all see all */
        m->block[i].attention.local &= m->block[i].attention.chunk > 0;
    model_set_interleaved(m, source->gguf ? model_gguf_interleaves(m) : family->pairs);
    return CVN_OK;
}

/* ---- writing ---- */

/* What a file means that does not have the key. */
static bool is_implied(const Model *m, const Setting *row, const SettingValue *value)
{
    SettingValue absent = fallback(row);
    if (row->fallback == SETTING_DERIVED && derive(m, row, "", &absent, NULL))
        return false;
    if (row->kind == SETTING_WIDTHS)
        absent.integer *= experts_width(&m->block[place(m, row, 0)]);
    return memcmp(value, &absent, value_size(row->kind)) == 0;
}

/* Of a switch without a key: the row with its interval says which layers have it. */
static bool is_by_interval(const Model *m, const Setting *row)
{
    const Setting *interval = family_setting(m->family, true, row->offset);
    bool has = is_counted(interval);
    for (int64_t i = 0; i < m->layers; i++)
        if (*(bool *)field(m, row, i) !=
            (has ? is_by(interval, (int64_t)interval->fallback, i) : interval->fallback != 0))
            return false;
    return true;
}

static int refuse(const Model *m, const Setting *row, const SettingSink *s, cvn_err *err)
{
    return err_set(err, CVN_EUNSUPPORTED, "'%s': %s cannot express %s of this model, a %s", s->file,
                   s->gguf ? "a GGUF file" : "a config.json", row->key ? row->key : row->gguf,
                   m->family->name);
}

static int write_switches(const Model *m, const Setting *row, const SettingSink *s, const char *key,
                          cvn_err *err)
{
    if (!key)
        return is_by_interval(m, row) ? CVN_OK : refuse(m, row, s, err);
    int64_t *list = calloc((size_t)m->layers, sizeof *list);
    if (!list)
        return err_set(err, CVN_EMEM, "no memory to write '%s'", s->file);
    const char *type = type_of(row);
    for (int64_t i = 0; i < m->layers; i++)
        list[i] = *(bool *)field(m, row, i) == (type != NULL);
    s->list(s->of, key, list, m->layers, type);
    free(list);
    return CVN_OK;
}

static int write_each(const Model *m, const Setting *row, const SettingSink *s, const char *key,
                      cvn_err *err)
{
    SCOPED(scoped_free) int64_t *list = calloc((size_t)m->layers, sizeof *list);
    bool same = true;
    if (!list)
        return err_set(err, CVN_EMEM, "no memory to write '%s'", s->file);
    for (int64_t i = 0; i < m->layers; i++) {
        list[i] = *(int64_t *)field(m, row, i);
        same = same && list[i] == list[0];
    }
    if (same)
        s->integer(s->of, key, list[0]);
    else
        s->integers(s->of, key, list, m->layers);
    return CVN_OK;
}

/* The first row with the same key of config.json, where one key sets several fields. */
static const Setting *first_of_key(const Model *m, const Setting *row)
{
    const Setting *rows[FAMILY_SETTINGS];
    const int n = family_settings(m->family, rows);
    for (int i = 0; i < n; i++)
        if (rows[i]->key && strcmp(rows[i]->key, row->key) == 0)
            return rows[i];
    return row;
}

/* A whole number that was rooted is one again. */
static double rounded(double x)
{
    return fabs(x - round(x)) < 1e-9 * x ? round(x) : x;
}

static void put_value(const Model *m, const Setting *row, const SettingSink *s, const char *key,
                      SettingValue value)
{
    const Attention *a = &m->block[row->of_block ? place(m, row, 0) : 0].attention;
    const SettingValue none = {0};
    if (row->flags & SETTING_NULL && memcmp(&value, &none, value_size(row->kind)) == 0 &&
        (!s->gguf || row->fallback == 0)) {
        if (!s->gguf)
            s->text(s->of, key, NULL);
        return;
    }
    switch (row->kind) {
    case SETTING_INT:
        s->integer(s->of, key, value.integer);
        break;
    case SETTING_REAL:
        s->real(s->of, key,
                row->of_block && row->offset == offsetof(Block, attention.rope.theta) && s->gguf
                    ? rope_theta(a, m->context, m->context)
                    : value.real);
        break;
    case SETTING_ROOT:
        s->real(s->of, key, rounded(1 / (value.real * value.real)));
        break;
    case SETTING_ROTATED:
        if (s->gguf)
            s->integer(s->of, key, 2 * rope_pairs(a));
        else
            s->real(s->of, key, value.real);
        break;
    case SETTING_TRUTH:
    case SETTING_BOOL:
        s->boolean(s->of, key, value.boolean);
        break;
    case SETTING_QK_NORM:
    case SETTING_QK_NORMS:
    case SETTING_QK_TURNED:
        s->boolean(s->of, key, value.activation != 0);
        break;
    case SETTING_SCORE:
        s->integer(s->of, key, scores[value.activation]);
        break;
    case SETTING_WIDTHS:
        s->integer(s->of, key, value.integer / experts_width(&m->block[place(m, row, 0)]));
        break;
    case SETTING_ROPE_NAME:
        if (s->gguf)
            s->boolean(s->of, key, !value.boolean);
        else
            s->text(s->of, key, value.boolean ? "nope" : "rope");
        break;
    default:
        s->text(s->of, key, activations[value.activation]);
        break;
    }
}

/* How many layers come before the first, behind which all have it. */
static int write_behind(const Model *m, const Setting *row, const SettingSink *s, const char *key,
                        cvn_err *err)
{
    int64_t n = 0;
    while (n < m->layers && !*(bool *)field(m, row, n))
        n++;
    for (int64_t i = n; i < m->layers; i++)
        if (!*(bool *)field(m, row, i))
            return refuse(m, row, s, err);
    s->integer(s->of, key, n);
    return CVN_OK;
}

/* Every how many layers have it. */
static int write_step(const Model *m, const Setting *row, const SettingSink *s, const char *key,
                      cvn_err *err)
{
    int64_t n = 0;
    while (n < m->layers && !*(bool *)field(m, row, n))
        n++;
    for (int64_t i = 0; i < m->layers; i++)
        if (*(bool *)field(m, row, i) != is_by(row, n + 1, i))
            return refuse(m, row, s, err);
    s->integer(s->of, key, n + 1);
    return CVN_OK;
}

static int write_row(const Model *m, const Setting *row, const SettingSink *s, cvn_err *err)
{
    char text[KEY_SIZE];
    const char *key = setting_key(m->family, row, s->gguf, text);
    if (row->kind == SETTING_BEHIND)
        return key ? write_behind(m, row, s, key, err) : CVN_OK;
    if (row->kind == SETTING_STEP)
        return write_step(m, row, s, key, err);
    if (row->kind == SETTING_INTERVAL || row->kind == SETTING_BETWEEN ||
        row->kind == SETTING_INDICES || place(m, row, 0) < 0)
        return CVN_OK;
    if (row->kind == SETTING_SWITCHES || type_of(row))
        return write_switches(m, row, s, key, err);
    if (row->kind == SETTING_EACH)
        return key ? write_each(m, row, s, key, err) : CVN_OK;
    const SettingValue value = first_value(m, row);
    for (int64_t i = place(m, row, 0); i >= 0; i = place(m, row, i + 1))
        if (memcmp(field(m, row, i), &value, value_size(row->kind)) != 0)
            return refuse(m, row, s, err);
    if (row->kind == SETTING_WIDTHS && value.integer % experts_width(&m->block[0]) != 0)
        return refuse(m, row, s, err);
    if (!key) {
        bool said = row->flags &
                    (SETTING_FRESH | (s->gguf ? SETTING_TENSORS : SETTING_AGAIN | SETTING_ROPED));
        return said || is_implied(m, row, &value) ? CVN_OK : refuse(m, row, s, err);
    }
    if (s->gguf && row->flags & SETTING_IMPLIED &&
        m->block[0].attention.head_dim * m->block[0].attention.heads == m->width)
        return CVN_OK;
    const Setting *first = s->gguf ? row : first_of_key(m, row);
    if (first == row)
        put_value(m, row, s, key, value);
    return first == row || memcmp(field(m, first, 0), &value, value_size(row->kind)) == 0
               ? CVN_OK
               : refuse(m, row, s, err);
}

int settings_write(const Model *m, const SettingSink *sink, cvn_err *err)
{
    const Setting *rows[FAMILY_SETTINGS];
    const int n = family_settings(m->family, rows);
    for (int i = 0; i < n; i++)
        TRY(write_row(m, rows[i], sink, err));
    return CVN_OK;
}
