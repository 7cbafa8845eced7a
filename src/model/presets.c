#include "model/presets.h"

#include "base/file.h"
#include "base/json_file.h"
#include "base/num.h"
#include "base/strbuf.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the presets of one family share. */
typedef enum Family {
    LLAMA1,  /* eps 1e-6 */
    LLAMA2,  /* eps 1e-5 */
    LLAMA31, /* theta 500000, llama3 scaling by 8, 128256 tokens with three that end a text */
    LLAMA32, /* the same with scaling by 32 and tied embeddings */
    STORIES, /* llama2.c: as Llama 2, tied, f32 */
} Family;

static const struct {
    const char *name, *about;
    Family family;
    int64_t dim, layers, heads, kv_heads, ffn, vocab, context;
} table[] = {
    {"tiny", "1M parameters, trains on a CPU in minutes", STORIES, 128, 5, 8, 4, 384, 512, 512},
    {"stories260k", "shape of llama2.c's stories260K", STORIES, 64, 5, 8, 4, 172, 512, 512},
    {"stories15m", "shape of llama2.c's stories15M", STORIES, 288, 6, 6, 6, 768, 32000, 256},
    {"stories42m", "shape of llama2.c's stories42M", STORIES, 512, 8, 8, 8, 1376, 32000, 1024},
    {"stories110m", "shape of llama2.c's stories110M", STORIES, 768, 12, 12, 12, 2048, 32000, 1024},
    {"llama-7b", "Llama 1 7B", LLAMA1, 4096, 32, 32, 32, 11008, 32000, 2048},
    {"llama-13b", "Llama 1 13B", LLAMA1, 5120, 40, 40, 40, 13824, 32000, 2048},
    {"llama-33b", "Llama 1 33B", LLAMA1, 6656, 60, 52, 52, 17920, 32000, 2048},
    {"llama-65b", "Llama 1 65B", LLAMA1, 8192, 80, 64, 64, 22016, 32000, 2048},
    {"llama-175b", "Llama at the OPT-175B size", LLAMA1, 12288, 96, 96, 96, 32768, 32000, 2048},
    {"llama2-7b", "Llama 2 7B", LLAMA2, 4096, 32, 32, 32, 11008, 32000, 4096},
    {"llama2-13b", "Llama 2 13B", LLAMA2, 5120, 40, 40, 40, 13824, 32000, 4096},
    {"llama2-70b", "Llama 2 70B", LLAMA2, 8192, 80, 64, 8, 28672, 32000, 4096},
    {"llama3.1-8b", "Llama 3.1 8B", LLAMA31, 4096, 32, 32, 8, 14336, 128256, 131072},
    {"llama3.1-70b", "Llama 3.1 70B", LLAMA31, 8192, 80, 64, 8, 28672, 128256, 131072},
    {"llama3.1-405b", "Llama 3.1 405B", LLAMA31, 16384, 126, 128, 8, 53248, 128256, 131072},
    {"llama3.2-1b", "Llama 3.2 1B", LLAMA32, 2048, 16, 32, 8, 8192, 128256, 131072},
    {"llama3.2-3b", "Llama 3.2 3B", LLAMA32, 3072, 28, 24, 8, 8192, 128256, 131072},
};
#define N_PRESETS (sizeof table / sizeof *table)

size_t presets_count(void)
{
    return N_PRESETS;
}

Preset preset_at(size_t i)
{
    return (Preset){table[i].name, table[i].about};
}

static void apply_family(Model *c, Family family)
{
    c->rms_eps = family == LLAMA1 ? 1e-6 : 1e-5;
    c->dtype = family == STORIES                      ? CVN_F32
               : family == LLAMA1 || family == LLAMA2 ? CVN_F16
                                                      : CVN_BF16;
    c->tied = family == STORIES || family == LLAMA32;
    if (family != LLAMA31 && family != LLAMA32)
        return;
    c->rope_theta = 500000;
    c->rope_scaling = ROPE_LLAMA3;
    c->rope_factor = family == LLAMA31 ? 8 : 32;
    c->rope_ramp[0] = 1;
    c->rope_ramp[1] = 4;
    c->rope_original_context = 8192;
    c->bos = (SpecialIds){1, {128000}};
    c->eos = (SpecialIds){3, {128001, 128008, 128009}};
}

/* ---- shapes of one's own ---- */

static const struct {
    const char *key;
    size_t offset;
} sizes[] = {
    {"dim", offsetof(Model, dim)},           {"layers", offsetof(Model, n_layers)},
    {"heads", offsetof(Model, n_heads)},     {"kv_heads", offsetof(Model, n_kv_heads)},
    {"head_dim", offsetof(Model, head_dim)}, {"ffn", offsetof(Model, ffn)},
    {"vocab", offsetof(Model, vocab)},       {"context", offsetof(Model, max_context)},
};
enum { SIZES = sizeof sizes / sizeof *sizes };

static int set_size(Model *c, const char *shape, const char *key, int64_t value, cvn_err *err)
{
    for (int i = 0; i < SIZES; i++) {
        if (strcmp(sizes[i].key, key) != 0)
            continue;
        if (value < 1 || value > INT32_MAX)
            return err_set(err, CVN_EINVAL, "%.60s: %s is no number from 1 to %d", shape, key,
                           INT32_MAX);
        memcpy((char *)c + sizes[i].offset, &value, sizeof value);
        return CVN_OK;
    }
    return err_set(err, CVN_EINVAL,
                   "%.60s: there is no \"%.40s\" in a shape; there are dim, layers, heads, "
                   "kv_heads, head_dim, ffn, vocab and context",
                   shape, key);
}

/* What a shape need not say follows from the rest, as in Llama 2. */
static int finish_shape(Model *c, const char *shape, cvn_err *err)
{
    if (c->dim == 0 || c->n_layers == 0 || c->n_heads == 0)
        return err_set(err, CVN_EINVAL, "%.60s: a shape has at least dim, layers and heads", shape);
    if (c->head_dim == 0 && c->dim % c->n_heads != 0)
        return err_set(err, CVN_EINVAL,
                       "%.60s: dim %" PRId64 " does not divide into %" PRId64 " heads; give a dim "
                       "that is a multiple of heads, or head_dim as well",
                       shape, c->dim, c->n_heads);
    c->n_kv_heads = c->n_kv_heads ? c->n_kv_heads : c->n_heads;
    c->head_dim = c->head_dim ? c->head_dim : c->dim / c->n_heads;
    c->ffn = c->ffn ? c->ffn : num_round_up(num_pieces(8 * c->dim, 3), 32);
    c->vocab = c->vocab ? c->vocab : 32000;
    c->max_context = c->max_context ? c->max_context : 2048;
    return model_check(c, shape, err);
}

static Model empty_shape(void)
{
    Model c = model_default();
    apply_family(&c, LLAMA2);
    c.dtype = CVN_BF16;
    for (int i = 0; i < SIZES; i++)
        memset((char *)&c + sizes[i].offset, 0, sizeof(int64_t));
    return c;
}

/* "dim=512,layers=8,heads=8" */
static int shape_of_pairs(const char *text, Model *config, cvn_err *err)
{
    Model c = empty_shape();
    for (const char *at = text; *at;) {
        char pair[64];
        size_t n = strcspn(at, ","), digits;
        snprintf(pair, sizeof pair, "%.*s", (int)(n < 63 ? n : 63), at);
        at += n + (at[n] == ',');
        char *equals = strchr(pair, '=');
        digits = equals ? strspn(equals + 1, "0123456789") : 0;
        if (!equals || digits == 0 || digits > 10 || equals[1 + digits])
            return err_set(err, CVN_EINVAL,
                           "%.60s: \"%s\" is not KEY=NUMBER; a shape is such as "
                           "dim=512,layers=8,heads=8,vocab=4096",
                           text, pair);
        *equals = '\0';
        TRY(set_size(&c, text, pair, strtoll(equals + 1, NULL, 10), err));
    }
    TRY(finish_shape(&c, text, err));
    *config = c;
    return CVN_OK;
}

/* The same as a JSON object, or a model's folder or config.json. */
static int shape_of_file(const char *path, Model *config, cvn_err *err)
{
    if (file_is_folder(path))
        return model_read(config, path, err);
    json_auto_t *json = json_object_read(path, err);
    if (!json)
        return CVN_EFORMAT;
    if (json_object_get(json, "model_type"))
        return model_parse(config, path, json, NULL, err);
    Model c = empty_shape();
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value)
    {
        TRY(set_size(&c, path, key, json_integer_value(value), err));
    }
    TRY(finish_shape(&c, path, err));
    *config = c;
    return CVN_OK;
}

bool preset_is_own(const char *name)
{
    return strchr(name, '=') || strchr(name, '/') || file_exists(name);
}

int preset_config(const char *name, Model *config, cvn_err *err)
{
    for (size_t i = 0; i < N_PRESETS; i++) {
        if (strcmp(table[i].name, name) != 0)
            continue;
        Model c = model_default();
        c.dim = table[i].dim;
        c.n_layers = table[i].layers;
        c.n_heads = table[i].heads;
        c.n_kv_heads = table[i].kv_heads;
        c.head_dim = c.dim / c.n_heads;
        c.ffn = table[i].ffn;
        c.vocab = table[i].vocab;
        c.max_context = table[i].context;
        apply_family(&c, table[i].family);
        *config = c;
        return model_check(config, name, err);
    }
    if (preset_is_own(name))
        return strchr(name, '=') && !file_exists(name) ? shape_of_pairs(name, config, err)
                                                       : shape_of_file(name, config, err);
    SCOPED(strbuf_free) StrBuf names = {0};
    for (size_t i = 0; i < N_PRESETS; i++)
        strbuf_printf(&names, "%s%s", i ? ", " : "", table[i].name);
    return err_set(err, CVN_EINVAL, "there is no preset '%.60s'; there are %s", name,
                   names.failed ? "some" : names.text);
}
