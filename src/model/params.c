#include "model/params.h"

#include <assert.h>
#include <math.h>

/* When a config has the parameter. */
typedef enum Presence { ALWAYS, IF_ATTENTION_BIAS, IF_MLP_BIAS, IF_UNTIED } Presence;

/* Initialisers by role: see init_of. */
typedef enum Role { ROLE_NORM, ROLE_BIAS, ROLE_WEIGHT, ROLE_RESIDUAL } Role;

#define OUTSIDE false
#define LAYER true
#define AXIS_NONE AXIS_COUNT

static const struct {
    const char *name; /* ours, inside of a layer where per_layer */
    bool per_layer;
    Presence presence;
    Role role;
    int rank;
    ModelAxis axis[PARAM_MAX_RANK];
    const char *file_name[NAMING_COUNT]; /* after the layer's prefix where per_layer */
} table[PARAM_KIND_COUNT] = {
#define PARAM(KIND, name, place, presence, role, a, b, c, hf, meta, gguf)                          \
    [PARAM_##KIND] = {#name,                                                                       \
                      place,                                                                       \
                      presence,                                                                    \
                      ROLE_##role,                                                                 \
                      1 + (AXIS_##b != AXIS_NONE) + (AXIS_##c != AXIS_NONE),                       \
                      {AXIS_##a, AXIS_##b, AXIS_##c},                                              \
                      {hf, meta, gguf}},
#include "model/params.def"
#undef PARAM
};

static const char *const layer_prefix[NAMING_COUNT] = {
    [NAMING_HF] = "model.layers.", [NAMING_META] = "layers.", [NAMING_GGUF] = "blk."};

const char *model_axis_name(ModelAxis axis)
{
    static const char *const names[AXIS_COUNT] = {
        [AXIS_VOCAB] = "vocab",       [AXIS_EMBED] = "embed",       [AXIS_HEADS] = "heads",
        [AXIS_KV_HEADS] = "kv_heads", [AXIS_HEAD_DIM] = "head_dim", [AXIS_FFN] = "ffn"};
    return names[axis];
}

int64_t model_axis_size(const Model *config, ModelAxis axis)
{
    const int64_t sizes[AXIS_COUNT] = {
        [AXIS_VOCAB] = config->vocab,       [AXIS_EMBED] = config->dim,
        [AXIS_HEADS] = config->n_heads,     [AXIS_KV_HEADS] = config->n_kv_heads,
        [AXIS_HEAD_DIM] = config->head_dim, [AXIS_FFN] = config->ffn};
    return sizes[axis];
}

const char *param_kind_name(ParamKind kind)
{
    return table[kind].name;
}

static bool is_present(const Model *config, ParamKind kind)
{
    switch (table[kind].presence) {
    case IF_ATTENTION_BIAS:
        return config->attention_bias;
    case IF_MLP_BIAS:
        return config->mlp_bias;
    case IF_UNTIED:
        return !config->tied || config->quant.kind != QUANT_NONE ||
               (config->blocks && config->blocks[0]); /* the embedding is the first */
    case ALWAYS:
        break;
    }
    return true;
}

static void set_shape(Param *param, const Model *config)
{
    param->rank = table[param->kind].rank;
    param->n_rows =
        param->kind == PARAM_Q || param->kind == PARAM_K || param->kind == PARAM_V ? 2 : 1;
    param->n = 1;
    for (int i = 0; i < param->rank; i++) {
        ModelAxis axis = table[param->kind].axis[i];
        int64_t size = model_axis_size(config, axis);
        param->axis[i] = axis;
        param->dims[i] = size;
        param->n *= size;
        if (axis == AXIS_HEAD_DIM)
            param->file_dims[param->file_rank - 1] *= size;
        else
            param->file_dims[param->file_rank++] = size;
    }
}

static void add(ParamList *list, const Model *config, Arena *arena, ParamKind kind, int layer)
{
    Param *param = &list->param[list->n];
    if (layer <= 0)
        list->first[kind] = list->n;
    param->kind = kind;
    bool per_layer = table[kind].per_layer;
    param->layer = per_layer ? layer : -1;
    Role role = table[kind].role;
    const char *ending = role == ROLE_BIAS ? "bias" : "weight";
    param->name = per_layer ? arena_printf(arena, "layers.%d.%s", param->layer, table[kind].name)
                            : table[kind].name;
    for (int naming = 0; naming < NAMING_COUNT; naming++) {
        const char *name = table[kind].file_name[naming];
        param->file_name[naming] = per_layer
                                       ? arena_printf(arena, "%s%d.%s.%s", layer_prefix[naming],
                                                      param->layer, name, ending)
                                       : arena_printf(arena, "%s.%s", name, ending);
    }
    set_shape(param, config);
    /* Weights as Hugging Face draws them, except that what writes into the residual stream (o, down) is scaled by
       1/sqrt(2 layers), as GPT-2 and llama2.c do, so that its variance does not grow with depth. */
    param->init = role == ROLE_NORM ? INIT_ONES : role == ROLE_BIAS ? INIT_ZEROS : INIT_NORMAL;
    if (role == ROLE_WEIGHT)
        param->std = config->init_range;
    else if (role == ROLE_RESIDUAL)
        param->std = config->init_range / sqrt(2.0 * (double)config->n_layers);
    list->n++;
}

static bool enters_products(ParamKind kind)
{
    return table[kind].role == ROLE_WEIGHT || table[kind].role == ROLE_RESIDUAL;
}

/* Makes a parameter's array the one that holds this: in files one of n rows. */
static void set_form(Param *param, ParamForm form, int64_t columns)
{
    param->form = form;
    param->file_rank = 2;
    param->file_dims[0] = param->quant.n;
    param->file_dims[1] = columns;
}

cvn_type param_type(const Param *param, cvn_dtype dtype)
{
    const QuantForm *q = &param->quant;
    switch (param->form) {
    case PARAM_QUANTIZED:
        return cvn_type_make(q->dtype, param->rank, param->dims);
    case PARAM_BLOCKS: {
        cvn_type plain = cvn_type_make(dtype, param->rank, param->dims);
        return block_type(param->blocks, &plain, param->n_rows);
    }
    case PARAM_SCALES: {
        cvn_type scales = cvn_type_make(q->scale_dtype, param->n_rows + 1, param->dims);
        scales.dim[param->n_rows] = q->groups;
        return scales;
    }
    default:
        return cvn_type_make(dtype, param->rank, param->dims);
    }
}

size_t param_bytes(const Param *param, cvn_dtype dtype)
{
    cvn_type type = param_type(param, dtype);
    return cvn_type_bytes(&type);
}

void params_list(ParamList *list, const Model *config, Arena *arena)
{
    int layers = (int)config->n_layers, outside = 0;
    *list = (ParamList){0};
    for (int kind = 0; kind < PARAM_KIND_COUNT; kind++) {
        list->first[kind] = -1;
        if (is_present(config, (ParamKind)kind))
            *(table[kind].per_layer ? &list->per_layer : &outside) += 1;
    }
    size_t n = (size_t)layers * (size_t)list->per_layer + (size_t)outside;
    list->param = arena_array(arena, 2 * n, sizeof *list->param);
    add(list, config, arena, PARAM_EMBED, -1);
    for (int layer = 0; layer < layers; layer++)
        for (int kind = 0; kind < PARAM_KIND_COUNT; kind++)
            if (table[kind].per_layer && is_present(config, (ParamKind)kind))
                add(list, config, arena, (ParamKind)kind, layer);
    add(list, config, arena, PARAM_FINAL_NORM, -1);
    if (is_present(config, PARAM_LM_HEAD))
        add(list, config, arena, PARAM_LM_HEAD, -1);
    int plain = list->n;
    for (int i = 0; i < plain && config->quant.kind != QUANT_NONE; i++) {
        Param *param = &list->param[i];
        int64_t rows = 1;
        if (param->kind == PARAM_EMBED || !enters_products(param->kind))
            continue;
        for (int d = 0; d < param->n_rows; d++)
            rows *= param->dims[d];
        param->quant = quant_form(config->quant, rows, param->n / rows);
        set_form(param, PARAM_QUANTIZED,
                 (int64_t)cvn_dtype_bytes(param->quant.dtype, param->quant.k));
    }
    for (int i = 0; i < plain && config->blocks; i++)
        if (config->blocks[i]) {
            list->param[i].form = PARAM_BLOCKS;
            list->param[i].blocks = (BlockKind)config->blocks[i];
        }
    for (int i = 0; i < plain; i++) {
        Param *param = &list->param[i], *scale = &list->param[list->n];
        if (param->form != PARAM_QUANTIZED)
            continue;
        *scale = *param;
        scale->name = arena_printf(arena, "%s.scale", param->name);
        for (int naming = 0; naming < NAMING_COUNT; naming++)
            scale->file_name[naming] = arena_printf(arena, "%s_scale", param->file_name[naming]);
        set_form(scale, PARAM_SCALES, param->quant.groups);
        param->scale = list->n++;
    }
}

const Param *params_find(const ParamList *list, ParamKind kind, int layer)
{
    int first = list->first[kind];
    if (first < 0)
        return NULL;
    int index = table[kind].per_layer ? first + layer * list->per_layer : first;
    assert(index >= 0 && index < list->n && list->param[index].kind == kind);
    return &list->param[index];
}

ModelSize model_size(const Model *config)
{
    ModelSize size = {0};
    for (int kind = 0; kind < PARAM_KIND_COUNT; kind++) {
        int64_t n = table[kind].per_layer ? config->n_layers : 1;
        for (int i = 0; i < table[kind].rank; i++)
            n *= model_axis_size(config, table[kind].axis[i]);
        if (is_present(config, (ParamKind)kind))
            size.params += n;
        if (enters_products((ParamKind)kind) && kind != PARAM_EMBED)
            size.matmul_params += n;
    }
    return size;
}

int64_t model_bytes(const Model *config, cvn_dtype dtype)
{
    return (int64_t)cvn_dtype_bytes(dtype, model_size(config).params);
}

int64_t kv_cache_bytes(const Model *config, int64_t batch, int64_t length, cvn_dtype dtype)
{
    int64_t scale = dtype == CVN_I8 ? (int64_t)sizeof(uint16_t) : 0; /* bf16 */
    int64_t n = config->n_layers * 2 * config->n_kv_heads * (config->head_dim + scale);
    if (batch < 0 || length < 0 || __builtin_mul_overflow(n, batch, &n) ||
        __builtin_mul_overflow(n, length, &n))
        return -1;
    size_t bytes = cvn_dtype_bytes(dtype, n);
    return bytes > INT64_MAX ? -1 : (int64_t)bytes;
}
