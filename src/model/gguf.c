#include "model/gguf.h"

#include "model/family.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool model_knows_gguf(const char *architecture)
{
    return family_by_gguf(architecture, NULL, NULL) != NULL;
}

static bool is_key(const char *name, const char *key, size_t n)
{
    return name && strlen(name) == n && memcmp(name, key, n) == 0;
}

bool model_knows_gguf_key(const char *architecture, const char *key, size_t n)
{
    size_t before = strlen(architecture) + 1;
    if (n <= before)
        return false;
    key += before;
    n -= before;
    for (int f = 0; family_at(f); f++) {
        const Setting *rows[FAMILY_SETTINGS];
        if (!is_key(family_at(f)->gguf, architecture, before - 1))
            continue;
        for (int i = family_settings(family_at(f), rows); i-- > 0;)
            if (is_key(rows[i]->gguf, key, n))
                return true;
        if (is_key(family_at(f)->foretelling, key, n))
            return true;
    }
    /* says in words that rows are permuted */
    return rope_knows_gguf(key, n) || is_key("tensor_data_layout", key, n);
}

/* 1 where a value was found, 0 where the key is absent. */
static int found(const GgufSource *s, const char *key, const char *what, bool there, cvn_err *err)
{
    if (there || !s->has(s->of, key))
        return there;
    return err_set(err, CVN_EFORMAT, "'%s': the key '%s' is missing or not of type %s", s->file,
                   key, what);
}

static int get_integer(void *of, const char *key, int64_t *out, cvn_err *err)
{
    const GgufSource *s = of;
    return found(s, key, "integer", s->integer(s->of, key, out), err);
}

static int get_real(void *of, const char *key, double *out, cvn_err *err)
{
    const GgufSource *s = of;
    return found(s, key, "number", s->real(s->of, key, out), err);
}

static int get_boolean(void *of, const char *key, bool *out, cvn_err *err)
{
    int64_t value = 0;
    int code = get_integer(of, key, &value, err);
    if (code > 0)
        *out = value != 0;
    return code;
}

static int get_text(void *of, const char *key, const char **out, cvn_err *err)
{
    const GgufSource *s = of;
    *out = s->text(s->of, key);
    return found(s, key, "text", *out != NULL, err);
}

static int get_list(void *of, const char *key, const char *type, int64_t n, int64_t *out,
                    int64_t *length, cvn_err *err)
{
    const GgufSource *s = of;
    int64_t every;
    if (type && s->integer(s->of, key, &every)) { /* all but every n-th slide */
        for (int64_t i = 0; i < n; i++)
            out[i] = every > 0 && (i + 1) % every != 0;
        *length = n;
        return 1;
    }
    return found(s, key, "list", s->list(s->of, key, n, out, length), err);
}

/* What the first layer has tensors for, all have. */
static void read_tensors(Model *m, const GgufSource *s)
{
    char name[KEY_SIZE];
    for (ParamKind kind = 0; kind < PARAM_KIND_COUNT; kind++) {
        const char *tensor = param_tensor(m, kind, NAMING_GGUF, 0, name, sizeof name);
        bool there = tensor && s->has_tensor(s->of, tensor);
        if (kind == PARAM_LM_HEAD)
            m->tied = !there;
        for (int64_t i = 0; i < m->layers && param_switch(&m->block[i], kind); i++)
            *param_switch(&m->block[i], kind) = there;
    }
    const bool shares = family_setting(m->family, true, offsetof(Block, attention.v_is_k)) != NULL;
    for (int64_t i = 0; i < m->layers && shares; i++)
        m->block[i].attention.v_is_k =
            !s->has_tensor(s->of, param_tensor(m, PARAM_V, NAMING_GGUF, (int)i, name, sizeof name));
    const Setting *own = family_setting(m->family, true, offsetof(Block, attention.qk_norm));
    const char *tensor = param_tensor(m, PARAM_Q_NORMS, NAMING_GGUF, 0, name, sizeof name);
    const bool one = own && own->kind == SETTING_QK_NORM; /* of the same name */
    const bool normed = s->has_tensor(s->of, tensor);
    for (int64_t i = 0; i < m->layers && own && (one || own->kind == SETTING_QK_NORMS); i++)
        m->block[i].attention.qk_norm = !normed ? QK_NORM_NONE : one ? QK_NORM_HEAD : QK_NORM_HEADS;
}

/* How many pairs turn where the others are divided by so much that they do not (Gemma 4's proportional scaling), or -1. */
static int64_t turning_pairs(const float *divisor, int64_t n)
{
    const float still = 1e29F;
    int64_t turning = 0;
    while (turning < n && divisor[turning] == 1)
        turning++;
    for (int64_t i = turning; i < n; i++)
        if (divisor[i] < still)
            return -1;
    return turning < n ? turning : -1;
}

/* rope_freqs.weight [head_dim/2] holds what each frequency is divided by. It stands for the llama3
 * scaling of one of the published models, or the proportional one, of layers without a window, or it is not understood. */
static int read_divisors(Model *m, const GgufSource *s, cvn_err *err)
{
    static const struct {
        double factor, ramp[2];
    } published[] = {{8, {1, 4}}, {32, {1, 4}}, {16, {1, 1}}}; /* Llama 3.1 and 3.3; 3.2; 4 Scout */
    enum { MOST = 512 };
    double plain[MOST], scaled[MOST];
    Attention a = *model_rotating(m);
    int64_t n = a.head_dim / 2, there = 0;
    const float *divisor = s->numbers(s->of, "rope_freqs.weight", &there);
    if (!s->has_tensor(s->of, "rope_freqs.weight"))
        return CVN_OK;
    if (a.rope.scaling != ROPE_PLAIN)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s' has both rope_freqs.weight and a scaling factor", s->file);
    TRY(model_check(m, s->file, err));
    if (!divisor || there != n || n > MOST)
        return err_set(err, CVN_EFORMAT, "'%s': rope_freqs.weight must have %" PRId64 " factors",
                       s->file, n);
    const int64_t turning = turning_pairs(divisor, n);
    if (turning > 0) {
        a.rope.scaling = ROPE_PROPORTIONAL;
        a.rope.fraction = 2 * (double)turning / (double)a.head_dim;
        rope_set(m, &a.rope, a.local ? LAYERS_ALL : LAYERS_GLOBAL);
        return CVN_OK;
    }
    rope_frequencies(&a, m->context, m->context, plain);
    a.rope.scaling = ROPE_LLAMA3;
    a.rope.original_context = 8192;
    for (size_t f = 0; f < sizeof published / sizeof *published; f++) {
        a.rope.factor = published[f].factor;
        memcpy(a.rope.ramp, published[f].ramp, sizeof a.rope.ramp);
        rope_frequencies(&a, m->context, m->context, scaled);
        int64_t same = 0;
        for (int64_t i = 0; i < n; i++)
            same += fabs((double)divisor[i] * scaled[i] / plain[i] - 1) < 1e-4;
        if (same == n) {
            rope_set(m, &a.rope, LAYERS_ALL);
            return CVN_OK;
        }
    }
    return err_set(err, CVN_EUNSUPPORTED,
                   "'%s': rope_freqs.weight is not a known llama3 frequency scaling", s->file);
}

/* The two lists of longrope are tensors of all layers. */
static int read_longrope(Model *m, const GgufSource *s, Arena *arena, cvn_err *err)
{
    static const char *const name[] = {"rope_factors_short.weight", "rope_factors_long.weight"};
    char key[KEY_SIZE];
    Rope r = m->block[0].attention.rope;
    const int64_t n = rope_pairs(&m->block[0].attention);
    double *divisor[2] = {NULL};
    int64_t there = 0;
    if (!s->has_tensor(s->of, name[0]) && !s->has_tensor(s->of, name[1]))
        return CVN_OK;
    for (int list = 0; list < 2; list++) {
        const float *from = s->numbers(s->of, name[list], &there);
        if (!from || there != n)
            return err_set(err, CVN_EFORMAT, "'%s': %s must have %" PRId64 " factors", s->file,
                           name[list], n);
        divisor[list] = arena_array(arena, (size_t)n, sizeof **divisor);
        for (int64_t i = 0; i < n; i++)
            divisor[list][i] = (double)from[i];
        r.divisors[list] = divisor[list];
    }
    r.scaling = ROPE_LONGROPE;
    r.original_context = m->context;
    snprintf(key, sizeof key, "%s.rope.scaling.original_context_length", m->family->gguf);
    s->integer(s->of, key, &r.original_context);
    r.factor = (double)m->context / (double)r.original_context;
    r.sharpness = rope_longrope_sharpness(r.factor, r.original_context);
    snprintf(key, sizeof key, "%s.rope.scaling.attn_factor", m->family->gguf);
    s->real(s->of, key, &r.sharpness);
    rope_set(m, &r, LAYERS_ALL);
    return CVN_OK;
}

int model_of_gguf(Model **model, const GgufSource *s, Arena *arena, cvn_err *err)
{
    char names[512];
    const char *architecture = s->text(s->of, "general.architecture");
    const Family *family = architecture ? family_by_gguf(architecture, s->has, s->of) : NULL;
    const SettingSource source = {.gguf = true,
                                  .file = s->file,
                                  .of = (void *)(uintptr_t)s,
                                  .integer = get_integer,
                                  .real = get_real,
                                  .boolean = get_boolean,
                                  .truth = get_boolean,
                                  .text = get_text,
                                  .list = get_list};
    if (!family)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s': general.architecture is '%.40s'; only %s is supported", s->file,
                       architecture ? architecture : "not said",
                       family_names(true, names, sizeof names));
    int64_t vocab;
    char key[KEY_SIZE];
    TRY(settings_read(model, family, &source, arena, err));
    Model *m = *model;
    snprintf(key, sizeof key, "%s.vocab_size", architecture);
    if (!s->integer(s->of, key, &vocab) && s->vocab)
        m->vocab = s->vocab;
    m->begin = m->end = (SpecialIds){0};
    m->dtype = s->dtype;
    read_tensors(m, s);
    TRY(rope_read_gguf(m, &source, err));
    TRY(read_longrope(m, s, arena, err));
    return read_divisors(m, s, err);
}

bool model_gguf_above_one(const Model *m)
{
    return m->family->gguf_above_one;
}

bool model_gguf_interleaves(const Model *m)
{
    return m->family->pairs || !m->family->gguf_halves;
}

const char *model_gguf_architecture(const Model *m)
{
    return m->family->gguf;
}

static void put_integer(void *of, const char *key, int64_t value)
{
    const GgufSink *s = of;
    s->integer(s->of, key, value);
}

static void put_real(void *of, const char *key, double value)
{
    const GgufSink *s = of;
    s->real(s->of, key, value);
}

static void put_boolean(void *of, const char *key, bool value)
{
    const GgufSink *s = of;
    s->boolean(s->of, key, value);
}

static void put_text(void *of, const char *key, const char *value)
{
    const GgufSink *s = of;
    s->text(s->of, key, value);
}

static void put_list(void *of, const char *key, const int64_t *value, int64_t n, const char *type)
{
    const GgufSink *s = of;
    (void)type;
    s->switches(s->of, key, value, n);
}

static void put_integers(void *of, const char *key, const int64_t *value, int64_t n)
{
    const GgufSink *s = of;
    s->integers(s->of, key, value, n);
}

int model_to_gguf(const Model *m, const char *path, const GgufSink *s, cvn_err *err)
{
    const SettingSink sink = {.gguf = true,
                              .file = path,
                              .of = (void *)(uintptr_t)s,
                              .integer = put_integer,
                              .real = put_real,
                              .boolean = put_boolean,
                              .text = put_text,
                              .list = put_list,
                              .integers = put_integers};
    if (!m->family->gguf)
        return err_set(err, CVN_EUNSUPPORTED, "GGUF files cannot hold a %s such as '%s'",
                       m->family->name, path);
    TRY(settings_write(m, &sink, err));
    return rope_write_gguf(m, &sink, err);
}
