#include "model/lora.h"

#include "base/file.h"
#include "base/json_file.h"
#include "base/rng.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANK = 4096, DEFAULT_ALPHA = 32, SUFFIX_A = 0, SUFFIX_B = 1 };

/* The matrix of layers whose name or, in PEFT's files, module is this; PARAM_KIND_COUNT: there is none. */
static ParamKind find_target(const char *name, size_t n, bool module)
{
    for (ParamKind kind = 0; kind < PARAM_KIND_COUNT; kind++) {
        const char *own = module ? param_kind_module(kind) : param_kind_name(kind);
        if (param_kind_is_adapted(kind) && strlen(own) == n && memcmp(own, name, n) == 0)
            return kind;
    }
    return PARAM_KIND_COUNT;
}

static uint64_t all_targets(void)
{
    uint64_t all = 0;
    for (ParamKind kind = 0; kind < PARAM_KIND_COUNT; kind++)
        if (param_kind_is_adapted(kind))
            all |= UINT64_C(1) << kind;
    return all;
}
static_assert(PARAM_KIND_COUNT <= 64, "targets are bits of 64");

/* One word of "targets=q,v". */
static int add_target(LoraOptions *options, const char *word, size_t n, cvn_err *err)
{
    ParamKind kind = find_target(word, n, false);
    SCOPED(strbuf_free) StrBuf names = {0};
    if (kind < PARAM_KIND_COUNT) {
        options->targets |= UINT64_C(1) << kind;
        return CVN_OK;
    }
    if (n == 3 && memcmp(word, "all", 3) == 0) {
        options->targets = all_targets();
        return CVN_OK;
    }
    for (kind = 0; kind < PARAM_KIND_COUNT; kind++)
        if (param_kind_is_adapted(kind))
            strbuf_printf(&names, "%s, ", param_kind_name(kind));
    return err_set(err, CVN_EINVAL, "LoRA cannot adapt '%.*s'; targets are %sor all",
                   (int)(n < 40 ? n : 40), word, names.text ? names.text : "");
}

static int add_number(const char *word, size_t n, const char *key, double low, double high,
                      double *number, cvn_err *err)
{
    char text[64], *end = text;
    if (n > 0 && n < sizeof text) {
        memcpy(text, word, n);
        text[n] = '\0';
        *number = strtod(text, &end);
    }
    if (n == 0 || n >= sizeof text || *end != '\0' || !(*number >= low && *number <= high))
        return err_set(err, CVN_EINVAL, "LoRA: %s=%.*s is not a number from %g to %g", key,
                       (int)(n < 40 ? n : 40), word, low, high);
    return CVN_OK;
}

int lora_parse(LoraOptions *options, const char *text, cvn_err *err)
{
    *options = (LoraOptions){0};
    double rank = 0;
    bool in_targets = false;
    for (const char *word = text;;) {
        int code;
        size_t n = strcspn(word, ","), key = strcspn(word, "=,");
        const char *value = word + key + 1;
        if (key == n && in_targets)
            code = add_target(options, word, n, err);
        else if (key == 1 && key < n && word[0] == 'r')
            code = add_number(value, n - 2, "r", 1, MAX_RANK, &rank, err);
        else if (key == 5 && key < n && memcmp(word, "alpha", 5) == 0)
            code = add_number(value, n - 6, "alpha", 1e-6, 1e6, &options->alpha, err);
        else if (key == 7 && key < n && memcmp(word, "dropout", 7) == 0)
            code = add_number(value, n - 8, "dropout", 0, 0.99, &options->dropout, err);
        else if ((in_targets = key == 7 && key < n && memcmp(word, "targets", 7) == 0))
            code = add_target(options, value, n - 8, err);
        else
            code = err_set(err, CVN_EINVAL,
                           "LoRA options are r=16,alpha=32,dropout=0.05,targets=q,v; '%.60s' is "
                           "not one of them",
                           word);
        if (code)
            return code;
        if (word[n] == '\0')
            break;
        word += n + 1;
    }
    if (rank < 1 || rank != floor(rank))
        return err_set(err, CVN_EINVAL, "LoRA needs a rank, a whole number: r=16");
    options->rank = (int64_t)rank;
    if (options->alpha == 0)
        options->alpha = DEFAULT_ALPHA;
    if (options->targets == 0)
        options->targets = all_targets();
    return CVN_OK;
}

int lora_check(const LoraOptions *options, const Model *model, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    ParamList params;
    TRY(arena_begin(&arena, err));
    params_list(&params, model, &arena);
    for (ParamKind kind = 0; kind < PARAM_KIND_COUNT && options->targets != all_targets(); kind++)
        if (options->targets >> kind & 1 && params.first[kind] < 0)
            return err_set(err, CVN_EUNSUPPORTED,
                           "LoRA cannot adapt '%s': no layer of this model has it%s; give targets "
                           "such as q,k,v,o",
                           param_kind_name(kind),
                           params.first[PARAM_EXPERT_GATE] >= 0 ? " outside of experts" : "");
    return CVN_OK;
}

/* A [rank, in axes] or B [out axes, rank] of a weight. AXIS_COUNT stands for the axis of the rank, which
 * the model does not name. */
static Param adapter(const Param *base, int64_t rank, int suffix, Arena *arena)
{
    static const char *const names[] = {"lora_a", "lora_b"}, *const files[] = {"lora_A", "lora_B"};
    int out =
        base->rank - 1; /* the axes from this on are contracted: those of its columns in the file */
    while (out > 0 && base->axis[out] == AXIS_HEAD_DIM)
        out--;
    const char *hf = base->file_name[NAMING_HF];
    Param p = {.kind = base->kind, .layer = base->layer, .init = INIT_ZEROS};
    p.rotated = base->rotated && suffix == SUFFIX_B;
    p.name = arena_printf(arena, "%s.%s", base->name, names[suffix]);
    p.file_name[NAMING_HF] = arena_printf(arena, "base_model.model.%.*s.%s.weight",
                                          (int)(strlen(hf) - strlen(".weight")), hf, files[suffix]);
    p.rank = 1 + (suffix == SUFFIX_A ? base->rank - out : out);
    p.n = 1;
    for (int i = 0; i < p.rank; i++) {
        bool added = i == (suffix == SUFFIX_A ? 0 : out);
        int from = suffix == SUFFIX_A ? out + i - 1 : i;
        p.axis[i] = added ? AXIS_COUNT : base->axis[from];
        p.dims[i] = added ? rank : base->dims[from];
        p.n *= p.dims[i];
    }
    p.file_rank = 2;
    p.file_dims[suffix] = rank;
    p.file_dims[1 - suffix] = p.n / rank;
    return p;
}

void lora_params(LoraParams *lora, const ParamList *base, const LoraOptions *options, Arena *arena)
{
    *lora = (LoraParams){.base = base->param};
    lora->a = arena_array(arena, (size_t)base->n, sizeof *lora->a);
    lora->list.param = arena_array(arena, 2 * (size_t)base->n, sizeof *lora->list.param);
    for (int i = 0; i < base->n; i++) {
        const Param *p = &base->param[i];
        lora->a[i] = -1;
        if (!(options->targets >> p->kind & 1) || p->form == PARAM_SCALES)
            continue;
        lora->a[i] = lora->list.n;
        lora->list.param[lora->list.n++] = adapter(p, options->rank, SUFFIX_A, arena);
        lora->list.param[lora->list.n++] = adapter(p, options->rank, SUFFIX_B, arena);
    }
}

void lora_fill(const Param *p, uint64_t seed, int64_t first, int64_t n, float *out)
{
    if (p->axis[0] != AXIS_COUNT) {
        memset(out, 0, (size_t)n * sizeof *out);
        return;
    }
    float bound = (float)(1 / sqrt((double)p->file_dims[1]));
    rng_uniform(rng_key(seed, p->file_name[NAMING_HF]), (uint64_t)first, (size_t)n, out);
    for (int64_t i = 0; i < n; i++)
        out[i] = bound * (2 * out[i] - 1);
}

void lora_merge(const LoraProduct *p, int64_t first, int64_t n, float *weight)
{
    enum { PIECE = 512 };
    double sum[PIECE];
    while (n > 0) {
        int64_t row = first / p->columns, column = first % p->columns, m = p->columns - column;
        m = m < n ? m : n;
        m = m < PIECE ? m : PIECE;
        memset(sum, 0, sizeof sum);
        for (int64_t k = 0; k < p->rank; k++) {
            double factor = (double)p->b[row * p->rank + k];
            const float *a = p->a + k * p->columns + column;
            for (int64_t i = 0; i < m; i++)
                sum[i] += factor * (double)a[i];
        }
        for (int64_t i = 0; i < m; i++)
            weight[i] = (float)((double)weight[i] + p->scale * sum[i]);
        first += m;
        weight += m;
        n -= m;
    }
}

int lora_config_write(const LoraOptions *options, const char *model, const char *folder,
                      cvn_err *err)
{
    json_t *modules = json_array();
    for (ParamKind kind = 0; kind < PARAM_KIND_COUNT; kind++)
        if (options->targets >> kind & 1)
            modules = json_append(modules, json_string(param_kind_module(kind)));
    json_auto_t *json =
        json_pack("{s:s, s:s, s:s?, s:b, s:I, s:f, s:f, s:s, s:b, s:o}", "peft_type", "LORA",
                  "task_type", "CAUSAL_LM", "base_model_name_or_path", model, "inference_mode", 1,
                  "r", (json_int_t)options->rank, "lora_alpha", options->alpha, "lora_dropout",
                  options->dropout, "bias", "none", "fan_in_fan_out", 0, "target_modules", modules);
    return json ? json_file_write(file_path(folder, LORA_CONFIG_NAME).text, json, err)
                : err_set(err, CVN_EMEM, "no memory to write '%s/" LORA_CONFIG_NAME "'", folder);
}

/* A key that must be absent, null, false or empty. */
static bool is_neutral(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

/* Modules in which Hugging Face has the matrices of several, or of one by another name. */
static const struct {
    const char *module;
    uint64_t targets;
} joined[] = {
    {"qkv_proj", UINT64_C(1) << PARAM_Q | UINT64_C(1) << PARAM_K | UINT64_C(1) << PARAM_V},
    {"gate_up_proj", UINT64_C(1) << PARAM_GATE | UINT64_C(1) << PARAM_UP},
    {"input_linear", UINT64_C(1) << PARAM_GATE | UINT64_C(1) << PARAM_UP},
    {"output_linear", UINT64_C(1) << PARAM_DOWN},
};

static uint64_t targets_of(const char *module)
{
    const ParamKind kind = find_target(module, strlen(module), true);
    if (kind < PARAM_KIND_COUNT)
        return UINT64_C(1) << kind;
    for (size_t i = 0; i < sizeof joined / sizeof *joined; i++)
        if (strcmp(joined[i].module, module) == 0)
            return joined[i].targets;
    return 0;
}

static int read_targets(LoraOptions *options, const char *path, const json_t *modules, cvn_err *err)
{
    size_t i;
    const json_t *module;
    json_array_foreach(modules, i, module)
    {
        const char *name = json_string_value(module);
        const uint64_t targets = name ? targets_of(name) : 0;
        if (!targets)
            return err_set(err, CVN_EUNSUPPORTED,
                           "'%s' adapts '%.60s'; expected are matrices of attention and of the "
                           "feed-forward part, q_proj to down_proj; merge adapters of others into "
                           "their model by PEFT",
                           path, name ? name : "(no name)");
        options->targets |= targets;
    }
    if (options->targets == 0)
        return err_set(err, CVN_EUNSUPPORTED, "'%s' has no list of \"target_modules\"", path);
    return CVN_OK;
}

static int read_json(LoraOptions *options, const char *path, const json_t *json, cvn_err *err)
{
    static const char *const neutral[] = {
        "use_rslora",          "use_dora",          "fan_in_fan_out",
        "modules_to_save",     "rank_pattern",      "alpha_pattern",
        "layers_to_transform", "layer_replication", "trainable_token_indices",
        "lora_bias",           "target_parameters"};
    const char *type = json_string_value(json_object_get(json, "peft_type"));
    const char *bias = json_string_value(json_object_get(json, "bias"));
    const json_t *rank = json_object_get(json, "r"), *alpha = json_object_get(json, "lora_alpha");
    if (!type || strcmp(type, "LORA") != 0)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s' is not a LoRA adapter: \"peft_type\" is '%.40s', not 'LORA'", path,
                       type ? type : "");
    if (bias && strcmp(bias, "none") != 0)
        return err_set(err, CVN_EUNSUPPORTED, "'%s': adapters with biases are not supported", path);
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
        if (!is_neutral(json_object_get(json, neutral[i])))
            return err_set(err, CVN_EUNSUPPORTED, "'%s': \"%s\" is not supported", path,
                           neutral[i]);
    options->rank = json_integer_value(rank);
    options->alpha = json_number_value(alpha);
    if (options->rank < 1 || options->rank > MAX_RANK || !isfinite(options->alpha) ||
        !json_is_number(alpha))
        return err_set(
            err, CVN_EFORMAT,
            "'%s': \"r\" must be a whole number from 1 to %d, and \"lora_alpha\" a number", path,
            MAX_RANK);
    const json_t *dropout = json_object_get(json, "lora_dropout");
    options->dropout = json_number_value(dropout);
    if (!(options->dropout >= 0 && options->dropout < 1))
        return err_set(err, CVN_EFORMAT,
                       "'%s': \"lora_dropout\" must be a number from 0 to below 1", path);
    return read_targets(options, path, json_object_get(json, "target_modules"), err);
}

int lora_config_read(LoraOptions *options, const char **model, const char *folder, Arena *arena,
                     cvn_err *err)
{
    *options = (LoraOptions){0};
    *model = NULL;
    const char *path = arena_printf(arena, "%s/" LORA_CONFIG_NAME, folder);
    json_t *json = json_object_read(path, err);
    if (!json)
        return CVN_EFORMAT;
    SCOPED(cleanup_run) Cleanup cleanup;
    cleanup_push(&cleanup, json_release, json);
    const char *base = json_string_value(json_object_get(json, "base_model_name_or_path"));
    TRY(read_json(options, path, json, err));
    *model = base ? arena_string(arena, base) : NULL;
    return CVN_OK;
}
