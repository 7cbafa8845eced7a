#include "model/family.h"

#include <stdio.h>
#include <string.h>

/* The build lists the files of src/model/families, FAMILY(llama) and so on: a family more is a file more. */
#define FAMILY(name) extern const Family family_##name;
#include <families.inc>
#undef FAMILY

static const Family *const families[] = {
#define FAMILY(name) &family_##name,
#include <families.inc>
#undef FAMILY
};
enum { FAMILIES = sizeof families / sizeof *families };

const Family *family_at(int i)
{
    return i < FAMILIES ? families[i] : NULL;
}

const Family *family_by_name(const char *name)
{
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(families[i]->name, name) == 0)
            return families[i];
    return NULL;
}

const Family *family_extended(const Family *family)
{
    return family->extends ? family_by_name(family->extends) : NULL;
}

const Family *family_by_gguf(const char *architecture, bool (*has)(const void *of, const char *key),
                             const void *of)
{
    const Family *found = NULL;
    for (int i = 0; i < FAMILIES; i++) {
        const Family *f = families[i];
        char key[96];
        if (!f->gguf || strcmp(f->gguf, architecture) != 0)
            continue;
        snprintf(key, sizeof key, "%s.%s", architecture, f->gguf_key ? f->gguf_key : "");
        if (f->gguf_key && has && has(of, key))
            return f;
        found = found || f->gguf_key ? found : f;
    }
    return found;
}

const char *family_names(bool gguf, char *text, size_t size)
{
    size_t n = 0;
    for (int i = 0; i < FAMILIES; i++) {
        const char *name = gguf ? families[i]->gguf : families[i]->name;
        bool again = false; /* an architecture of several families */
        for (int k = 0; gguf && name && k < i; k++)
            again |= families[k]->gguf && strcmp(families[k]->gguf, name) == 0;
        if (name && !again && n < size)
            n += (size_t)snprintf(text + n, size - n, "%s'%s'", n ? ", " : "", name);
    }
    return text;
}

static const TensorName *tensor_name(const Family *f, ParamKind kind)
{
    for (; f; f = family_extended(f))
        for (const TensorName *t = f->tensors; t && (t->name[NAMING_HF] || t->name[NAMING_GGUF] ||
                                                     t->fused[NAMING_HF] || t->fused[NAMING_GGUF]);
             t++)
            if (t->kind == kind)
                return t;
    return NULL;
}

const char *family_tensor_name(const Family *family, ParamKind kind, ParamNaming naming,
                               const char *usual)
{
    const TensorName *own = tensor_name(family, kind);
    if ((naming == NAMING_META && !family->meta) || (naming == NAMING_GGUF && !family->gguf))
        return NULL;
    return own && own->name[naming] ? own->name[naming] : usual;
}

const char *family_fused_name(const Family *family, ParamKind kind, ParamNaming naming,
                              unsigned *form)
{
    const TensorName *own = tensor_name(family, kind);
    *form = own && naming == NAMING_HF ? own->form : 0;
    return own ? own->fused[naming] : NULL;
}

const char *model_family(const Model *m)
{
    return m->family->name;
}

const char *model_within(const Model *m)
{
    return m->within;
}

void model_set_hf_pairs(Model *m)
{
    model_set_interleaved(m, m->family->pairs);
}

bool model_has_hf_pairs(const Model *m)
{
    return model_is_interleaved(m) == m->family->pairs;
}

/* ---- settings ---- */

/* What all families have; of those that lack it, it says what is so. */
static const Setting common[] = {
    // clang-format off
    /* config.json,             GGUF file,                         kind,               field,                            where absent, flags */
    {"num_hidden_layers",       "block_count",                      SETTING_INT,        OF_MODEL(layers),                 32,    SETTING_NEEDED},
    {"max_position_embeddings", "context_length",                   SETTING_INT,        OF_MODEL(context),                2048,  SETTING_NEEDED},
    {"hidden_size",             "embedding_length",                 SETTING_INT,        OF_MODEL(width),                  4096,  SETTING_NEEDED},
    {"intermediate_size",       "feed_forward_length",              SETTING_INT,        OF_BLOCK(mlp.width),              11008, SETTING_NEEDED},
    {"num_attention_heads",     "attention.head_count",             SETTING_INT,        OF_BLOCK(attention.heads),        32,    SETTING_NEEDED},
    {"num_key_value_heads",     "attention.head_count_kv",          SETTING_INT,        OF_BLOCK(attention.kv_heads),     SETTING_DERIVED, 0},
    {"head_dim",                "attention.key_length",             SETTING_INT,        OF_BLOCK(attention.head_dim),     SETTING_DERIVED, SETTING_IMPLIED},
    {NULL,                      "attention.value_length",           SETTING_INT,        OF_BLOCK(attention.head_dim),     SETTING_DERIVED, SETTING_IMPLIED | SETTING_AGAIN},
    {"rms_norm_eps",            "attention.layer_norm_rms_epsilon", SETTING_REAL,       OF_BLOCK(norms.eps),              1e-6,  SETTING_NEEDED},
    {NULL,                      "rope.dimension_count",             SETTING_INT,        OF_BLOCK(attention.head_dim),     SETTING_DERIVED, SETTING_AGAIN},
    {"rope_theta",              "rope.freq_base",                   SETTING_REAL,       OF_BLOCK(attention.rope.theta),   10000, 0},
    {"vocab_size",              "vocab_size",                       SETTING_INT,        OF_MODEL(vocab),                  32000, 0},
    {"tie_word_embeddings",     NULL,                               SETTING_BOOL,       OF_MODEL(tied),                   false, SETTING_TENSORS},
    {"hidden_act",              NULL,                               SETTING_ACTIVATION, OF_BLOCK(mlp.activation),         ACTIVATION_SILU, 0},
    {"initializer_range",       NULL,                               SETTING_REAL,       OF_MODEL(init_range),             0.02,  SETTING_FRESH},
    {0},
    // clang-format on
};

static bool is_same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Whether a row stands in place of another: of one that is of the same field, or says another key of it again. */
static bool replaces(const Setting *row, const Setting *old)
{
    if (row->gguf && !old->key && is_same(row->gguf, old->gguf))
        return true;
    if (!row->key && row->gguf && row->flags & SETTING_AGAIN)
        return false;
    return row->of_block == old->of_block && row->offset == old->offset &&
           !(old->flags & SETTING_AGAIN);
}

/* Rows of one family: where the first of those that one replaces was, or at the end; several of one field behind each other. */
static int add_rows(const Setting *own, const Setting **rows, int n)
{
    for (const Setting *row = own; row && row->kind; row++) {
        int at = n, kept = 0;
        for (int i = 0; i < n; i++) {
            const bool mine = rows[i] >= own && rows[i] < row;
            if (replaces(row, rows[i]))
                at = mine ? kept + 1 : at == n ? kept : at;
            if (mine || !replaces(row, rows[i]))
                rows[kept++] = rows[i];
        }
        at = at > kept ? kept : at;
        memmove(rows + at + 1, rows + at, (size_t)(kept - at) * sizeof *rows);
        rows[at] = row;
        n = kept + 1;
    }
    return n;
}

static int add_family(const Family *family, const Setting **rows)
{
    int n = family->extends ? add_family(family_extended(family), rows) : add_rows(common, rows, 0);
    return add_rows(family->settings, rows, n);
}

int family_settings(const Family *family, const Setting *rows[FAMILY_SETTINGS])
{
    return add_family(family, rows);
}

const Setting *family_setting(const Family *family, bool of_block, size_t offset)
{
    const Setting *rows[FAMILY_SETTINGS];
    const int n = family_settings(family, rows);
    for (int i = 0; i < n; i++)
        if (rows[i]->of_block == of_block && rows[i]->offset == offset)
            return rows[i];
    return NULL;
}

bool config_lists(const char *words, const char *key)
{
    for (size_t n;; words += n + 1) {
        n = strcspn(words, " ");
        if (n == strlen(key) && memcmp(words, key, n) == 0)
            return true;
        if (!words[n])
            return false;
    }
}

bool family_is_harmless(const Family *family, const char *key)
{
    for (; family; family = family_extended(family))
        if (family->harmless && config_lists(family->harmless, key))
            return true;
    return false;
}
