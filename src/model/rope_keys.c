/*
 * Rope scaling in files: the object rope_scaling (transformers 4) or rope_parameters (5) of a config.json, and the keys
 * ARCHITECTURE.rope.scaling.* of a GGUF file. The rows say which numbers a scaling has, and what both call them.
 */
#include "base/json_file.h"
#include "base/json_reader.h"
#include "model/config_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    LINEAR = 1 << ROPE_LINEAR,
    DYNAMIC = 1 << ROPE_DYNAMIC,
    YARN = 1 << ROPE_YARN,
    LLAMA3 = 1 << ROPE_LLAMA3,
    LONGROPE = 1 << ROPE_LONGROPE
};

/* In the order in which they are written. */
static const struct RopeSetting {
    const char *key, *gguf;
    SettingKind kind;
    size_t offset;
    unsigned scalings; /* bits of those that have it */
} rows[] = {
    // clang-format off
    {"factor",                           "factor",                  SETTING_REAL, offsetof(Rope, factor),           LINEAR | DYNAMIC | YARN | LLAMA3 | LONGROPE},
    {"alpha",                            NULL,                      SETTING_REAL, offsetof(Rope, alpha),            DYNAMIC},
    {"attention_factor",                 "attn_factor",             SETTING_REAL, offsetof(Rope, sharpness),        YARN | LONGROPE},
    {"low_freq_factor",                  NULL,                      SETTING_REAL, offsetof(Rope, ramp[0]),          LLAMA3},
    {"high_freq_factor",                 NULL,                      SETTING_REAL, offsetof(Rope, ramp[1]),          LLAMA3},
    {"beta_slow",                        "yarn_beta_slow",          SETTING_REAL, offsetof(Rope, ramp[0]),          YARN},
    {"beta_fast",                        "yarn_beta_fast",          SETTING_REAL, offsetof(Rope, ramp[1]),          YARN},
    {"truncate",                         NULL,                      SETTING_BOOL, offsetof(Rope, truncate),         YARN},
    {"original_max_position_embeddings", "original_context_length", SETTING_INT,  offsetof(Rope, original_context), YARN | LLAMA3 | LONGROPE},
    {"llama_4_scaling_beta",             NULL,                      SETTING_REAL, offsetof(Rope, temper),           YARN},
    // clang-format on
};
enum { ROWS = sizeof rows / sizeof *rows };

static void *field(Rope *r, int row)
{
    return (char *)r + rows[row].offset;
}

static bool has(const Rope *r, int row)
{
    return rows[row].scalings >> r->scaling & 1;
}

void rope_set(Model *m, const Rope *rope, LayerSet set)
{
    for (int64_t i = 0; i < m->layers; i++) {
        Rope *r = &m->block[i].attention.rope, old = *r;
        if (!layer_is_in(&m->block[i], set))
            continue;
        *r = *rope;
        r->off = old.off;
        r->interleaved = old.interleaved;
    }
}

/* ---- config.json ---- */

/* What rope settings may hold. A key that its type does not use is without effect, as in transformers; "finetuned" says
   how the numbers were found. */
static const char rope_known[] =
    "type rope_type rope_theta factor alpha beta_fast beta_slow low_freq_factor "
    "high_freq_factor attention_factor mscale mscale_all_dim truncate "
    "original_max_position_embeddings finetuned long_factor short_factor llama_4_scaling_beta "
    "max_position_embeddings";
static const char rope_factors[] = "partial_rotary_factor attn_factor extrapolation_factor";

static void check_keys(JsonReader *r, bool partial)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)r->json, key, value)
    {
        if (json_is_null(value) || r->code != CVN_OK || config_lists(rope_known, key) ||
            (partial && strcmp(key, "partial_rotary_factor") == 0) ||
            (json_number_value(value) == 1 && config_lists(rope_factors, key)))
            continue;
        char name[160];
        snprintf(name, sizeof name, "'%.80s' in the rope settings", key);
        r->code = config_refuse(r->file, name, value, r->err);
    }
}

/* Yarn's numbers where they are not given. Hugging Face counts 0 for turns and for mscale as not given, and 0 for the attention
   factor as given. */
static void begin_yarn(JsonReader *r, Rope *rope, int64_t context)
{
    double mscale = 0, all = 0;
    rope->truncate = true;
    rope->original_context = rope->original_context ? rope->original_context : context;
    if (!json_get(r, "factor"))
        rope->factor = (double)context / (double)rope->original_context;
    rope->ramp[0] = rope->ramp[0] != 0 ? rope->ramp[0] : 1;
    rope->ramp[1] = rope->ramp[1] != 0 ? rope->ramp[1] : 32;
    json_get_real(r, "mscale", &mscale);
    json_get_real(r, "mscale_all_dim", &all);
    if (!json_get(r, "attention_factor"))
        rope->sharpness = mscale != 0 && all != 0 ? rope_yarn_sharpness(rope->factor, mscale) /
                                                        rope_yarn_sharpness(rope->factor, all)
                                                  : rope_yarn_sharpness(rope->factor, 1);
    json_get_bool(r, "truncate", &rope->truncate);
}

/* A list of what frequencies are divided by, one for each pair. */
static const double *get_divisors(JsonReader *r, const char *key, int64_t pairs, Arena *arena)
{
    const json_t *list = json_get(r, key);
    double *out = arena_array(arena, (size_t)pairs, sizeof *out);
    if ((int64_t)json_array_size(list) != pairs && r->code == CVN_OK)
        r->code = err_set(r->err, CVN_EFORMAT,
                          "'%s': %s in the rope settings has %zu numbers; one for each of %" PRId64
                          " pairs is expected",
                          r->file, key, json_array_size(list), pairs);
    for (int64_t i = 0; r->code == CVN_OK && i < pairs; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        out[i] = json_number_value(value);
        if (!json_is_number(value))
            json_wrong_type(r, key, value, "a list of numbers");
    }
    return out;
}

/* longrope's numbers where they are not given. */
static void begin_longrope(JsonReader *r, Rope *rope, const Attention *a, int64_t context,
                           Arena *arena)
{
    Attention turned = *a;
    turned.rope = *rope;
    if (!json_get(r, "factor") && rope->original_context > 0)
        rope->factor = (double)context / (double)rope->original_context;
    if (!json_get(r, "attention_factor"))
        rope->sharpness = rope_longrope_sharpness(rope->factor, rope->original_context);
    rope->divisors[0] = get_divisors(r, "short_factor", rope_pairs(&turned), arena);
    rope->divisors[1] = get_divisors(r, "long_factor", rope_pairs(&turned), arena);
}

/* {"rope_type" or "type", "factor", …} of layers. `whole` is what has it, whose original_max_position_embeddings wins. */
static void read_object(JsonReader *r, JsonReader *whole, Model *m, LayerSet set, Arena *arena)
{
    const bool partial =
        family_setting(m->family, true, offsetof(Block, attention.rope.fraction)) != NULL;
    int64_t first = 0;
    while (first < m->layers && !layer_is_in(&m->block[first], set))
        first++;
    if (first == m->layers)
        return;
    const Attention *a = &m->block[first].attention;
    Rope read = a->rope, *rope = &read;
    check_keys(r, partial);
    const char *type = json_get_string(r, "rope_type");
    type = type ? type : json_get_string(r, "type");
    if (type && m->family->longrope &&
        (strcmp(type, "su") == 0 || strcmp(type, "yarn") == 0)) /* older names of it there */
        type = "longrope";
    json_get_real(r, "rope_theta", &rope->theta);
    json_get_real(r, "partial_rotary_factor", &rope->fraction);
    if (type && !rope_scaling_parse(type, &rope->scaling) && r->code == CVN_OK)
        r->code =
            err_set(r->err, CVN_EUNSUPPORTED,
                    "'%s': rope type '%.40s' is not supported; default, linear, dynamic, yarn, "
                    "llama3, longrope and proportional are",
                    r->file, type);
    if (rope->scaling == ROPE_PLAIN || rope->scaling == ROPE_PROPORTIONAL) {
        rope_set(m, rope, set);
        return;
    }
    rope->factor = 0; /* absent is an error that rope_check reports */
    rope->original_context = m->context;
    for (int i = 0; i < ROWS; i++) {
        if (!has(rope, i) && rows[i].kind != SETTING_INT)
            continue;
        if (rows[i].kind == SETTING_REAL)
            json_get_real(r, rows[i].key, field(rope, i));
        else if (rows[i].kind == SETTING_INT)
            json_get_int(r, rows[i].key, field(rope, i));
    }
    json_get_int(whole, "original_max_position_embeddings", &rope->original_context);
    if (rope->scaling == ROPE_YARN)
        begin_yarn(r, rope, m->context);
    if (rope->scaling == ROPE_LONGROPE)
        begin_longrope(r, rope, a, m->context, arena);
    rope_set(m, rope, set);
}

static const struct {
    const char *key;
    LayerSet set;
} layer_types[] = {{"full_attention", LAYERS_GLOBAL}, {"sliding_attention", LAYERS_LOCAL}};
enum { LAYER_TYPES = sizeof layer_types / sizeof *layer_types };

/* Of all layers, or an object for each type of them. */
static int read_rope(JsonReader *whole, const json_t *object, Model *m, Arena *arena)
{
    JsonReader r = {whole->file, object, whole->err, CVN_OK};
    bool nested = false;
    const bool types = family_setting(m->family, true, offsetof(Block, attention.local)) != NULL;
    for (int i = 0; i < LAYER_TYPES && types && r.code == CVN_OK; i++) {
        const json_t *own = json_object_get(object, layer_types[i].key);
        JsonReader inner = {whole->file, own, whole->err, CVN_OK};
        nested |= json_is_object(own);
        if (json_is_object(own))
            read_object(&inner, whole, m, layer_types[i].set, arena);
        r.code = inner.code;
    }
    if (!nested)
        read_object(&r, whole, m, m->family->scaling_global ? LAYERS_GLOBAL : LAYERS_ALL, arena);
    return r.code;
}

int rope_read_json(Model *m, const char *file, const json_t *json, Arena *arena, cvn_err *err)
{
    JsonReader whole = {file, json, err, CVN_OK}, *r = &whole;
    const json_t *scaling = json_get(r, "rope_scaling"),
                 *parameters = json_get(r, "rope_parameters");
    const json_t *object = scaling ? scaling : parameters;
    if (scaling && parameters && !json_equal(scaling, parameters))
        return err_set(err, CVN_EFORMAT,
                       "'%s' gives both rope_scaling and rope_parameters; keep one", file);
    if (!object)
        return CVN_OK;
    if (!json_is_object(object)) {
        json_wrong_type(r, scaling ? "rope_scaling" : "rope_parameters", object, "an object");
        return r->code;
    }
    TRY(read_rope(r, object, m, arena));
    return r->code;
}

static json_t *numbers(const double *value, int64_t n)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < n; i++)
        list = json_append(list, json_real(value[i]));
    return list;
}

/* The settings of a layer as an object; null where positions are plain. */
static json_t *scaling_json(const Attention *a)
{
    Rope r = a->rope;
    if (r.scaling == ROPE_PLAIN)
        return json_null();
    json_t *json = json_pack("{s:s}", "rope_type", rope_scaling_name(r.scaling));
    for (int i = 0; i < ROWS; i++) {
        const void *value = field(&r, i);
        if (!has(&r, i) || (rows[i].scalings == DYNAMIC && r.alpha == 0) ||
            (rows[i].offset == offsetof(Rope, temper) && r.temper == 0))
            continue;
        json = json_with(json, rows[i].key,
                         rows[i].kind == SETTING_REAL  ? json_real(*(const double *)value)
                         : rows[i].kind == SETTING_INT ? json_integer(*(const int64_t *)value)
                                                       : json_boolean(*(const bool *)value));
    }
    for (int list = 0; r.scaling == ROPE_LONGROPE && list < 2; list++)
        json = json_with(json, list ? "long_factor" : "short_factor",
                         numbers(r.divisors[list], rope_pairs(a)));
    return json;
}

/* The first layer of a set; where it is empty, of all. */
static const Attention *first_of(const Model *m, LayerSet set)
{
    for (int64_t i = 0; i < m->layers; i++)
        if (layer_is_in(&m->block[i], set))
            return &m->block[i].attention;
    return &m->block[0].attention;
}

/* Whether a layer is scaled as `of` says, or as another is. */
static bool is_scaled_as(const Rope *rope, const Rope *of)
{
    Rope a = *rope, b = *of;
    bool same = a.scaling == b.scaling;
    for (int i = 0; same && i < ROWS; i++) {
        const size_t size = rows[i].kind == SETTING_BOOL ? sizeof(bool) : sizeof(double);
        const void *own = field(&a, i);
        same = !has(&a, i) || memcmp(own, field(&b, i), size) == 0;
    }
    for (int list = 0; same && a.scaling == ROPE_LONGROPE && list < 2; list++)
        same = a.divisors[list] == b.divisors[list];
    return same;
}

/* Whether one scaling is that of all layers, or of those without a window where the family has it so. */
static bool is_one_scaling(const Model *m)
{
    const LayerSet set = m->family->scaling_global ? LAYERS_GLOBAL : LAYERS_ALL;
    const Rope plain = {.scaling = ROPE_PLAIN}, *one = &first_of(m, set)->rope;
    for (int64_t i = 0; i < m->layers; i++) {
        const Rope *said = layer_is_in(&m->block[i], set) ? one : &plain;
        if (!is_scaled_as(&m->block[i].attention.rope, said))
            return false;
    }
    return true;
}

json_t *rope_json(json_t *json, const Model *m)
{
    const LayerSet set = m->family->scaling_global ? LAYERS_GLOBAL : LAYERS_ALL;
    if (is_one_scaling(m))
        return json_with(json, "rope_scaling", scaling_json(first_of(m, set)));
    json_t *nested = json_object();
    for (int i = 0; i < LAYER_TYPES; i++) {
        const Attention *a = first_of(m, layer_types[i].set);
        json_t *own = scaling_json(a);
        if (json_is_null(own))
            own = json_pack("{s:s}", "rope_type", "default");
        own = json_with(own, "rope_theta", json_real(a->rope.theta));
        if (a->rope.fraction != 1)
            own = json_with(own, "partial_rotary_factor", json_real(a->rope.fraction));
        nested = json_with(nested, layer_types[i].key, own);
    }
    return json_with(json, "rope_parameters", nested);
}

/* ---- GGUF ---- */

/* Keys that are read or change nothing, beside those of the rows. */
static const char *const gguf_known[] = {"rope.scaling.type",
                                         "rope.scaling.finetuned",
                                         "rope.scaling.yarn_ext_factor",
                                         "rope.scaling.yarn_attn_factor",
                                         "rope.scale_linear",
                                         "rope.scaling.yarn_log_multiplier",
                                         "attention.temperature_scale",
                                         NULL};

bool rope_knows_gguf(const char *key, size_t n)
{
    static const char before[] = "rope.scaling.";
    const size_t length = sizeof before - 1;
    for (int i = 0; gguf_known[i]; i++)
        if (strlen(gguf_known[i]) == n && memcmp(gguf_known[i], key, n) == 0)
            return true;
    for (int i = 0; i < ROWS; i++)
        if (rows[i].gguf && n == length + strlen(rows[i].gguf) &&
            memcmp(key, before, length) == 0 && memcmp(key + length, rows[i].gguf, n - length) == 0)
            return true;
    return false;
}

static const char *key_of(const Model *m, const char *name, char text[KEY_SIZE])
{
    snprintf(text, KEY_SIZE, "%s.rope.%s", m->family->gguf, name);
    return text;
}

static int get_real(const SettingSource *s, const Model *m, const char *name, double *out,
                    cvn_err *err)
{
    char key[KEY_SIZE];
    return s->real(s->of, key_of(m, name, key), out, err);
}

/* Where an architecture has the temperature of queries, it has mscale_all_dim by this key, too. */
static bool has_log_multiplier(const Model *m)
{
    return family_setting(m->family, true, offsetof(Block, attention.rope.temper)) != NULL;
}

/* What mscale_all_dim is that makes yarn as sharp as it is. */
static double log_multiplier_of(const Rope *r)
{
    const double own = rope_yarn_sharpness(r->factor, 1);
    return own == 1 ? 0 : (own / r->sharpness - 1) / (own - 1);
}

/* llama.cpp multiplies yarn's own sharpening by attn_factor; the converter of Hugging Face's files writes all of it as
   yarn_attn_factor, which llama.cpp does not read for this architecture. */
static int read_yarn(const Model *m, Rope *r, const SettingSource *s, cvn_err *err)
{
    char key[KEY_SIZE], name[64];
    double more = 1, extrapolated = 1, log_multiplier = 0;
    r->original_context = m->context;
    r->ramp[0] = 1;
    r->ramp[1] = 32;
    r->truncate = !m->family->ramp_whole;
    for (int i = 0; i < ROWS; i++) {
        if (!has(r, i) || !rows[i].gguf || rows[i].offset == offsetof(Rope, factor))
            continue;
        snprintf(name, sizeof name, "scaling.%s", rows[i].gguf);
        void *to = rows[i].offset == offsetof(Rope, sharpness) ? &more : field(r, i);
        int found = rows[i].kind == SETTING_INT ? s->integer(s->of, key_of(m, name, key), to, err)
                                                : s->real(s->of, key_of(m, name, key), to, err);
        if (found < 0)
            return found;
    }
    r->sharpness = rope_yarn_sharpness(r->factor, 1) * more;
    if (has_log_multiplier(m) &&
        get_real(s, m, "scaling.yarn_log_multiplier", &log_multiplier, err) < 0)
        return CVN_EFORMAT;
    r->sharpness /= rope_yarn_sharpness(r->factor, log_multiplier);
    if (get_real(s, m, "scaling.yarn_attn_factor", &r->sharpness, err) < 0 ||
        get_real(s, m, "scaling.yarn_ext_factor", &extrapolated, err) < 0)
        return CVN_EFORMAT;
    if (extrapolated >= 0 && extrapolated != 1)
        return err_set(err, CVN_EUNSUPPORTED, "'%s': %s is %g; only 1 is supported", s->file,
                       key_of(m, "scaling.yarn_ext_factor", key), extrapolated);
    return CVN_OK;
}

int rope_read_gguf(Model *m, const SettingSource *s, cvn_err *err)
{
    char key[KEY_SIZE];
    const char *type = NULL;
    const LayerSet set = m->family->scaling_global ? LAYERS_GLOBAL : LAYERS_ALL;
    Rope rope = first_of(m, set)->rope;
    double factor = 1;
    int found = s->text(s->of, key_of(m, "scaling.type", key), &type, err);
    if (found >= 0)
        found = get_real(s, m, "scaling.factor", &factor, err);
    if (found == 0)
        found = get_real(s, m, "scale_linear", &factor, err);
    if (found < 0)
        return found;
    rope.factor = factor = factor != 0 ? factor : 1; /* llama.cpp writes 0 where there is none */
    if (type && strcmp(type, "yarn") == 0) {
        rope.scaling = ROPE_YARN;
        TRY(read_yarn(m, &rope, s, err));
    } else if (type && strcmp(type, "none") != 0 && strcmp(type, "linear") != 0) {
        return err_set(err, CVN_EUNSUPPORTED, "'%s': rope scaling '%.40s' is not supported",
                       s->file, type);
    } else if (factor != 1 && !(type && strcmp(type, "none") == 0)) {
        rope.scaling = ROPE_LINEAR;
    }
    if (rope.scaling != ROPE_PLAIN)
        rope_set(m, &rope, set);
    return CVN_OK;
}

/* Its lists are tensors there. What the factor is, the two lengths say. */
static int write_longrope(const Model *m, const Rope *r, const SettingSink *s, cvn_err *err)
{
    char key[KEY_SIZE];
    if (fabs(r->factor * (double)r->original_context / (double)m->context - 1) > 1e-9)
        return err_set(err, CVN_EUNSUPPORTED,
                       "a GGUF file cannot express that '%s' has longrope by %g from %" PRId64
                       " positions to %" PRId64,
                       s->file, r->factor, r->original_context, m->context);
    s->integer(s->of, key_of(m, "scaling.original_context_length", key), r->original_context);
    s->real(s->of, key_of(m, "scaling.attn_factor", key), r->sharpness);
    return CVN_OK;
}

/* A tensor there, of the layers without a window; those with one turn whole. */
static int is_proportional(const Model *m, const SettingSink *s, cvn_err *err)
{
    for (int64_t i = 0; i < m->layers; i++) {
        const Attention *a = &m->block[i].attention;
        const bool plain = a->rope.scaling == ROPE_PLAIN && a->rope.fraction == 1;
        if (a->local ? !plain : !is_scaled_as(&a->rope, &first_of(m, LAYERS_GLOBAL)->rope))
            return err_set(err, CVN_EUNSUPPORTED,
                           "a GGUF file cannot express that '%s' has rotary positions in part of a "
                           "head in layers with a window",
                           s->file);
    }
    return CVN_OK;
}

/* Llama3's scaling is a tensor there, and what is dynamic is said by nothing but the base. */
int rope_write_gguf(const Model *m, const SettingSink *s, cvn_err *err)
{
    char key[KEY_SIZE], name[64];
    const LayerSet set = m->family->scaling_global ? LAYERS_GLOBAL : LAYERS_ALL;
    Rope r = first_of(m, set)->rope;
    if (r.scaling == ROPE_PROPORTIONAL ||
        first_of(m, LAYERS_GLOBAL)->rope.scaling == ROPE_PROPORTIONAL)
        return is_proportional(m, s, err);
    if (!is_one_scaling(m))
        return err_set(err, CVN_EUNSUPPORTED,
                       "a GGUF file cannot express that '%s' scales the positions of layers with a "
                       "window by rope_parameters of their own",
                       s->file);
    if (set == LAYERS_GLOBAL && (r.scaling == ROPE_LLAMA3 || r.scaling == ROPE_LONGROPE))
        return err_set(err, CVN_EUNSUPPORTED,
                       "a GGUF file cannot express that '%s' has %s scaling in some layers only",
                       s->file, rope_scaling_name(r.scaling));
    if (r.scaling == ROPE_YARN && r.truncate == m->family->ramp_whole)
        return err_set(err, CVN_EUNSUPPORTED,
                       "a GGUF file cannot express that '%s' has yarn scaling that is %struncated",
                       s->file, r.truncate ? "" : "not ");
    if (r.scaling == ROPE_LONGROPE)
        return write_longrope(m, &r, s, err);
    if (r.scaling != ROPE_LINEAR && r.scaling != ROPE_YARN)
        return CVN_OK;
    s->text(s->of, key_of(m, "scaling.type", key), rope_scaling_name(r.scaling));
    const bool by_log = r.scaling == ROPE_YARN && has_log_multiplier(m);
    if (by_log)
        s->real(s->of, key_of(m, "scaling.yarn_log_multiplier", key), log_multiplier_of(&r));
    if (r.scaling == ROPE_YARN)
        r.sharpness = by_log ? 1 : r.sharpness / rope_yarn_sharpness(r.factor, 1);
    for (int i = 0; i < ROWS; i++) {
        if (!has(&r, i) || !rows[i].gguf || (by_log && rows[i].offset == offsetof(Rope, sharpness)))
            continue;
        snprintf(name, sizeof name, "scaling.%s", rows[i].gguf);
        if (rows[i].kind == SETTING_INT)
            s->integer(s->of, key_of(m, name, key), *(int64_t *)field(&r, i));
        else
            s->real(s->of, key_of(m, name, key), *(double *)field(&r, i));
    }
    return CVN_OK;
}
