#include "model/presets.h"

#include "base/file.h"
#include "base/json_file.h"
#include "base/num.h"
#include "base/strbuf.h"
#include "model/config_json.h"
#include "model/family.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t presets_count(void)
{
    size_t n = 0;
    for (int f = 0; family_at(f); f++)
        for (const FamilyPreset *p = family_at(f)->presets; p && p->name; p++)
            n++;
    return n;
}

/* The i-th of all families' presets. */
static const FamilyPreset *find(size_t i, const Family **family)
{
    for (int f = 0; (*family = family_at(f)); f++)
        for (const FamilyPreset *p = (*family)->presets; p && p->name; p++)
            if (i-- == 0)
                return p;
    return NULL;
}

Preset preset_at(size_t i)
{
    const Family *family;
    const FamilyPreset *p = find(i, &family);
    return (Preset){p->name, p->about};
}

const char *preset_family_at(int i)
{
    return family_at(i) ? family_at(i)->name : NULL;
}

/* A model as a config.json has it that says these words and this shape. */
static int make(Model **model, const Family *family, const ModelShape *shape, const char *words,
                const char *name, Arena *arena, cvn_err *err)
{
    json_t *json = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "model_type",
                             family->name, "hidden_size", (json_int_t)shape->width,
                             "num_hidden_layers", (json_int_t)shape->layers, "num_attention_heads",
                             (json_int_t)shape->heads, "num_key_value_heads",
                             (json_int_t)shape->kv_heads, "head_dim", (json_int_t)shape->head_dim,
                             family_setting(family, true, offsetof(Block, mlp.width))->key,
                             (json_int_t)shape->ffn, "vocab_size", (json_int_t)shape->vocab,
                             "max_position_embeddings", (json_int_t)shape->context);
    const Setting *rows[FAMILY_SETTINGS];
    for (int i = family_settings(family, rows); i-- > 0;)
        if (rows[i]->key && rows[i]->of_block && rows[i]->flags & SETTING_GLOBAL &&
            rows[i]->offset == offsetof(Block, attention.head_dim)) /* unless the words say it */
            json = json_with(json, rows[i]->key, json_integer((json_int_t)shape->head_dim));
    json = json_merged(json, config_words(words, name, arena, err));
    if (!json)
        return err_set(err, CVN_EMEM, "no memory for '%.60s'", name);
    CLEANUP(json_release, json);
    return model_parse(model, name, json, NULL, arena, err);
}

/* ---- shapes of one's own ---- */

static const struct {
    const char *key;
    size_t offset;
} sizes[] = {
    {"dim", offsetof(ModelShape, width)},         {"layers", offsetof(ModelShape, layers)},
    {"heads", offsetof(ModelShape, heads)},       {"kv_heads", offsetof(ModelShape, kv_heads)},
    {"head_dim", offsetof(ModelShape, head_dim)}, {"ffn", offsetof(ModelShape, ffn)},
    {"vocab", offsetof(ModelShape, vocab)},       {"context", offsetof(ModelShape, context)},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Of experts; the row of the family's settings says the key of config.json. */
static const struct {
    const char *key;
    size_t offset; /* of the field in a Block */
} expert_sizes[] = {
    {"experts", offsetof(Block, experts.number)},
    {"experts_per_token", offsetof(Block, experts.chosen)},
    {"expert_ffn", offsetof(Block, experts.width)},
    {"shared_ffn", offsetof(Block, experts.shared_width)},
};
enum { EXPERT_SIZES = sizeof expert_sizes / sizeof *expert_sizes, EXPERT_FFN = 2 };

/* A shape that is being read, and whose it is. */
typedef struct Own {
    const char *name; /* for messages */
    const Family *family;
    ModelShape shape; /* 0: not said */
    int64_t experts[EXPERT_SIZES];
} Own;

static int set_family(Own *own, const char *name, cvn_err *err)
{
    char names[512];
    own->family = family_by_name(name);
    return own->family ? CVN_OK
                       : err_set(err, CVN_EINVAL, "%.60s: unknown family '%.40s'; known are %s",
                                 own->name, name, family_names(false, names, sizeof names));
}

static int set_size(Own *own, const char *key, int64_t value, cvn_err *err)
{
    void *field = NULL;
    for (int i = 0; i < SIZES; i++)
        if (strcmp(sizes[i].key, key) == 0)
            field = (char *)&own->shape + sizes[i].offset;
    for (int i = 0; i < EXPERT_SIZES; i++)
        if (strcmp(expert_sizes[i].key, key) == 0)
            field = &own->experts[i];
    if (!field)
        return err_set(err, CVN_EINVAL,
                       "%.60s: unknown \"%.40s\" in a shape; known are family, dim, layers, heads, "
                       "kv_heads, head_dim, ffn, vocab, context, and of families with experts "
                       "experts, experts_per_token, expert_ffn and shared_ffn",
                       own->name, key);
    if (value < 1 || value > INT32_MAX)
        return err_set(err, CVN_EINVAL, "%.60s: %s is not a number from 1 to %d", own->name, key,
                       INT32_MAX);
    memcpy(field, &value, sizeof value);
    return CVN_OK;
}

/* What a shape says of experts, as a config.json of the family has it. */
static int expert_words(const Own *own, StrBuf *words, cvn_err *err)
{
    for (int i = 0; i < EXPERT_SIZES; i++) {
        const Setting *row = family_setting(own->family, true, expert_sizes[i].offset);
        if (own->experts[i] && (!row || !row->key))
            return err_set(err, CVN_EINVAL, "%.60s: models of the family %s have no %s", own->name,
                           own->family->name, expert_sizes[i].key);
        if (!own->experts[i])
            continue;
        const int64_t width = row->kind == SETTING_WIDTHS ? own->experts[EXPERT_FFN] : 1;
        if (width == 0 || own->experts[i] % width)
            return err_set(err, CVN_EINVAL,
                           "%.60s: %s must be a multiple of expert_ffn in models of the family %s",
                           own->name, expert_sizes[i].key, own->family->name);
        strbuf_printf(words, ", '%s': %" PRId64, row->key, own->experts[i] / width);
    }
    return CVN_OK;
}

/* What a shape need not say follows from the rest, as in Llama 2. */
static int finish_shape(Model **model, const Own *own, Arena *arena, cvn_err *err)
{
    ModelShape s = own->shape;
    if (s.width == 0 || s.layers == 0 || s.heads == 0)
        return err_set(err, CVN_EINVAL, "%.60s: a shape requires dim, layers and heads", own->name);
    if (s.head_dim == 0 && s.width % s.heads != 0)
        return err_set(err, CVN_EINVAL,
                       "%.60s: dim %" PRId64 " cannot be divided among %" PRId64
                       " heads; give a dim "
                       "that is a multiple of heads, or head_dim as well",
                       own->name, s.width, s.heads);
    s.kv_heads = s.kv_heads ? s.kv_heads : s.heads;
    s.head_dim = s.head_dim ? s.head_dim : s.width / s.heads;
    s.ffn = s.ffn ? s.ffn : num_round_up(num_pieces(8 * s.width, 3), 32);
    s.vocab = s.vocab ? s.vocab : 32000;
    s.context = s.context ? s.context : 2048;
    SCOPED(strbuf_free) StrBuf experts = {0};
    TRY(expert_words(own, &experts, err));
    const char *words = arena_printf(
        arena, "'torch_dtype': 'bfloat16', 'bos_token_id': 1, 'eos_token_id': 2%s%s%s%s%s",
        own->family == family_by_name("llama") ? ", 'rms_norm_eps': 1e-5"
                                               : ", 'pad_token_id': null",
        own->family == family_by_name("granitemoehybrid")
            ? ", 'num_local_experts': 0, 'position_embedding_type': 'rope'"
            : "",
        own->family->own ? ", " : "", own->family->own ? own->family->own : "",
        experts.text ? experts.text : "");
    return make(model, own->family, &s, words, own->name, arena, err);
}

/* "family=qwen3,dim=512,layers=8,heads=8" */
static int shape_of_pairs(const char *text, Model **model, Arena *arena, cvn_err *err)
{
    Own own = {.name = text, .family = family_by_name("llama")};
    for (const char *at = text; *at;) {
        char pair[64];
        size_t n = strcspn(at, ","), digits;
        snprintf(pair, sizeof pair, "%.*s", (int)(n < 63 ? n : 63), at);
        at += n + (at[n] == ',');
        char *equals = strchr(pair, '=');
        if (equals && strncmp(pair, "family=", 7) == 0) {
            TRY(set_family(&own, equals + 1, err));
            continue;
        }
        digits = equals ? strspn(equals + 1, "0123456789") : 0;
        if (!equals || digits == 0 || digits > 10 || equals[1 + digits])
            return err_set(err, CVN_EINVAL,
                           "%.60s: \"%s\" is not KEY=NUMBER; a shape looks like "
                           "dim=512,layers=8,heads=8,vocab=4096, with family=NAME for families "
                           "other than llama",
                           text, pair);
        *equals = '\0';
        TRY(set_size(&own, pair, strtoll(equals + 1, NULL, 10), err));
    }
    return finish_shape(model, &own, arena, err);
}

/* The same as a JSON object, or a model's folder or config.json. */
static int shape_of_file(const char *path, Model **model, Arena *arena, cvn_err *err)
{
    if (file_is_folder(path))
        return model_read(model, path, arena, err);
    json_t *json = json_object_read(path, err);
    CLEANUP(json_release, json);
    if (!json)
        return CVN_EFORMAT;
    if (json_object_get(json, "model_type"))
        return model_parse(model, path, json, NULL, arena, err);
    Own own = {.name = path, .family = family_by_name("llama")};
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value)
    {
        if (strcmp(key, "family") == 0 && json_is_string(value))
            TRY(set_family(&own, json_string_value(value), err));
        else
            TRY(set_size(&own, key, json_integer_value(value), err));
    }
    return finish_shape(model, &own, arena, err);
}

bool preset_is_own(const char *name)
{
    return strchr(name, '=') || strchr(name, '/') || file_exists(name);
}

int preset_model(const char *name, Model **model, Arena *arena, cvn_err *err)
{
    const Family *family;
    const FamilyPreset *p;
    for (size_t i = 0; (p = find(i, &family)); i++) {
        if (strcmp(p->name, name) != 0)
            continue;
        const ModelShape shape = {.width = p->width,
                                  .layers = p->layers,
                                  .heads = p->heads,
                                  .kv_heads = p->kv_heads,
                                  .head_dim = p->width / p->heads,
                                  .ffn = p->ffn,
                                  .vocab = p->vocab,
                                  .context = p->context};
        return make(model, family, &shape, p->words, name, arena, err);
    }
    if (preset_is_own(name))
        return strchr(name, '=') && !file_exists(name) ? shape_of_pairs(name, model, arena, err)
                                                       : shape_of_file(name, model, arena, err);
    SCOPED(strbuf_free) StrBuf names = {0};
    for (size_t i = 0; (p = find(i, &family)); i++)
        strbuf_printf(&names, "%s%s", i ? ", " : "", p->name);
    return err_set(err, CVN_EINVAL, "unknown preset '%.60s'; known are %s", name,
                   names.failed ? "some" : names.text);
}

int preset_shape(const char *name, ModelShape *shape, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    Model *model;
    TRY(arena_begin(&arena, err));
    TRY(preset_model(name, &model, &arena, err));
    *shape = model_shape(model);
    return CVN_OK;
}
