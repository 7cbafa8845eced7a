#include "model/params.h"

#include "model/family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Initialisers by role: see add. */
typedef enum InitRole {
    AS_NORM,
    AS_BIAS,
    AS_ROTATED_BIAS,
    AS_ROUTER,
    AS_WEIGHT,
    AS_ROTATED,
    AS_RESIDUAL
} InitRole;

#define OUTSIDE false
#define LAYER true
#define AXIS_NONE AXIS_COUNT

static const struct {
    const char *name; /* ours, inside of a layer where per_layer */
    bool per_layer;
    InitRole role;
    int rank;
    ModelAxis axis[PARAM_MAX_RANK];
    const char *file_name[NAMING_COUNT]; /* after the layer's prefix where per_layer */
} table[PARAM_KIND_COUNT] = {
#define PARAM(KIND, name, place, presence, role, a, b, c, hf, meta, gguf)                          \
    [PARAM_##KIND] = {#name,                                                                       \
                      place,                                                                       \
                      AS_##role,                                                                   \
                      1 + (AXIS_##b != AXIS_NONE) + (AXIS_##c != AXIS_NONE),                       \
                      {AXIS_##a, AXIS_##b, AXIS_##c},                                              \
                      {hf, meta, gguf}},
#include "model/kinds.def"
#undef PARAM
};

static const char *const layer_prefix[NAMING_COUNT] = {
    [NAMING_HF] = "model.layers.", [NAMING_META] = "layers.", [NAMING_GGUF] = "blk."};

const char *model_axis_name(ModelAxis axis)
{
    static const char *const names[AXIS_COUNT] = {
        [AXIS_VOCAB] = "vocab",           [AXIS_EMBED] = "embed",
        [AXIS_HEADS] = "heads",           [AXIS_KV_HEADS] = "kv_heads",
        [AXIS_HEAD_DIM] = "head_dim",     [AXIS_FFN] = "ffn",
        [AXIS_EXPERTS] = "experts",       [AXIS_EXPERT_FFN] = "expert_ffn",
        [AXIS_SHARED_FFN] = "shared_ffn", [AXIS_ONE] = "one"};
    return names[axis];
}

static int64_t axis_size(const Model *m, const Block *b, ModelAxis axis)
{
    const int64_t sizes[AXIS_COUNT] = {
        [AXIS_VOCAB] = m->vocab,
        [AXIS_EMBED] = m->width,
        [AXIS_HEADS] = b->attention.heads,
        [AXIS_KV_HEADS] = b->attention.kv_heads,
        [AXIS_HEAD_DIM] = b->attention.head_dim,
        [AXIS_FFN] = b->mlp.width,
        [AXIS_EXPERTS] = b->experts.number,
        [AXIS_EXPERT_FFN] = experts_width(b),
        [AXIS_SHARED_FFN] = b->experts.shared_width,
        [AXIS_ONE] = 1,
    };
    return sizes[axis];
}

const char *param_kind_name(ParamKind kind)
{
    return table[kind].name;
}

bool param_kind_is_matrix(ParamKind kind)
{
    return table[kind].per_layer && table[kind].role >= AS_WEIGHT;
}

bool param_kind_is_adapted(ParamKind kind)
{
    return param_kind_is_matrix(kind) && kind < PARAM_ROUTER;
}

const char *param_kind_module(ParamKind kind)
{
    const char *name = table[kind].file_name[NAMING_HF], *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* The offset in a Block of what says whether the layer has it, -1 where that is no field of its own. */
#define ALWAYS (-1)
#define UNTIED (-1)
#define WHEN(condition) (-1)
#define FIELD(field) ((int)offsetof(Block, field))
static const int switches[PARAM_KIND_COUNT] = {
#define PARAM(KIND, name, place, presence, role, a, b, c, hf, meta, gguf) [PARAM_##KIND] = presence,
#include "model/kinds.def"
#undef PARAM
};
#undef ALWAYS
#undef UNTIED
#undef WHEN
#undef FIELD

bool *param_switch(Block *block, ParamKind kind)
{
    return switches[kind] >= 0 ? (bool *)((char *)block + switches[kind]) : NULL;
}

/* Of a tied model: whether its head is to be of another form than the embedding. */
static bool quantizes_head(const Model *m)
{
    return m->quant.kind != QUANT_NONE && !(m->quant.blocks && !m->quant.blocks->head);
}

/* The embedding is the first. */
#define ALWAYS true
#define UNTIED (!m->tied || quantizes_head(m) || (m->blocks && m->blocks[0]))
#define WHEN(condition) (condition)
#define FIELD(field) (b->field)
static bool is_present(const Model *m, const Block *b, ParamKind kind)
{
    switch (kind) {
#define PARAM(KIND, name, place, presence, role, first, second, third, hf, meta, gguf)             \
    case PARAM_##KIND:                                                                             \
        return presence;
#include "model/kinds.def"
#undef PARAM
    default:
        return false;
    }
}

bool model_has_names(const Model *m, ParamNaming naming)
{
    return family_tensor_name(m->family, PARAM_EMBED, naming, "") != NULL;
}

bool model_leaves_out(const Model *m, ParamNaming naming, const char *tensor)
{
    const size_t n = strlen(layer_prefix[naming]);
    return m->family->foretelling && strncmp(tensor, layer_prefix[naming], n) == 0 &&
           tensor[n] >= '0' && tensor[n] <= '9' && strtoll(tensor + n, NULL, 10) >= m->layers;
}

static bool enters_products(ParamKind kind)
{
    return table[kind].role >= AS_WEIGHT;
}

static bool is_bias(ParamKind kind)
{
    return table[kind].role == AS_BIAS || table[kind].role == AS_ROTATED_BIAS;
}

const char *param_tensor(const Model *m, ParamKind kind, ParamNaming naming, int layer, char *text,
                         size_t size)
{
    const char *name = family_tensor_name(m->family, kind, naming, table[kind].file_name[naming]);
    const bool bare = kind == PARAM_SINKS || kind == PARAM_LAYER_SCALE;
    const char *ending = bare ? naming == NAMING_HF ? "" : ".weight"
                         : kind == PARAM_CORRECTION && naming == NAMING_HF ? ""
                         : is_bias(kind)                                   ? ".bias"
                                                                           : ".weight";
    if (!name)
        return NULL;
    if (table[kind].per_layer)
        snprintf(text, size, "%s%d.%s%s", layer_prefix[naming], layer, name, ending);
    else
        snprintf(text, size, "%s%s", name, ending);
    return text;
}

static void set_shape(Param *param, const Model *m, const Block *b)
{
    const ModelAxis *axis = table[param->kind].axis;
    param->rank = table[param->kind].rank;
    /* Norms with a weight for each head keep the two apart in files, too. */
    const bool apart = (param->kind == PARAM_Q_NORMS || param->kind == PARAM_K_NORMS) &&
                       b->attention.qk_norm == QK_NORM_HEADS;
    const bool experts = param->rank > 1 && axis[0] == AXIS_EXPERTS && param->kind != PARAM_ROUTER;
    param->n_rows = param->rank == 3 && (axis[1] == AXIS_HEAD_DIM || experts) ? 2 : 1;
    param->experts = experts ? b->experts.number : 0;
    param->n = 1;
    for (int i = 0; i < param->rank; i++) {
        int64_t size = axis_size(m, b, axis[i]);
        param->axis[i] = axis[i];
        param->dims[i] = size;
        param->n *= size;
        if (i > 0 && ((axis[i] == AXIS_HEAD_DIM && !apart) || (i == 1 && experts)))
            param->file_dims[param->file_rank - 1] *= size;
        else
            param->file_dims[param->file_rank++] = size;
    }
}

static void add(ParamList *list, const Model *m, Arena *arena, ParamKind kind, int layer)
{
    char text[128];
    Param *param = &list->param[list->n];
    InitRole role = table[kind].role;
    bool per_layer = table[kind].per_layer;
    if (list->first[kind] < 0)
        list->first[kind] = list->n;
    param->kind = kind;
    param->layer = per_layer ? layer : -1;
    param->name = per_layer ? arena_printf(arena, "layers.%d.%s", param->layer, table[kind].name)
                            : table[kind].name;
    for (int naming = 0; naming < NAMING_COUNT; naming++) {
        const char *name =
            param_tensor(m, kind, (ParamNaming)naming, param->layer, text, sizeof text);
        param->file_name[naming] = name ? arena_string(arena, name) : NULL;
        unsigned form;
        const char *fused = family_fused_name(m->family, kind, (ParamNaming)naming, &form);
        if (fused)
            param->fused[naming] =
                arena_printf(arena, "%s%d.%s%s", layer_prefix[naming], layer, fused,
                             form & TENSOR_BARE ? ""
                             : is_bias(kind)    ? ".bias"
                                                : ".weight");
        param->form_fused |= form;
    }
    set_shape(param, m, &m->block[per_layer ? layer : 0]);
    param->rotated = role == AS_ROTATED || role == AS_ROTATED_BIAS;
    param->above_one =
        role == AS_NORM && kind != PARAM_LAYER_SCALE &&
        m->block[per_layer ? layer : m->layers - 1].norms.gain == GAIN_ONE_PLUS_WEIGHT;
    /* Weights as Hugging Face draws them, except that what writes into the residual stream (o, down) is scaled by
       1/sqrt(2 layers), as GPT-2 and llama2.c do, so that its variance does not grow with depth. */
    param->init = is_bias(kind) || param->above_one ? INIT_ZEROS
                  : role == AS_NORM                 ? INIT_ONES
                                                    : INIT_NORMAL;
    if (role == AS_RESIDUAL)
        param->std = m->init_range / sqrt(2.0 * (double)m->layers);
    else if (param->init == INIT_NORMAL)
        param->std = m->init_range;
    list->n++;
}

/* The name without what stands for the number of an expert: "mlp.experts.%d.up_proj" becomes "mlp.experts.up_proj". */
static const char *joined_name(const char *name, Arena *arena)
{
    const char *at = name ? strstr(name, ".%d") : NULL;
    return at ? arena_printf(arena, "%.*s%s", (int)(at - name), name, at + 3) : name;
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
    default: /* what decides between experts is as exact as it was saved */
        return cvn_type_make(param->kind == PARAM_CORRECTION ? CVN_F32 : dtype, param->rank,
                             param->dims);
    }
}

size_t param_bytes(const Param *param, cvn_dtype dtype)
{
    cvn_type type = param_type(param, dtype);
    return cvn_type_bytes(&type);
}

static size_t count_present(const Model *m)
{
    size_t n = 0;
    for (int kind = 0; kind < PARAM_KIND_COUNT; kind++)
        for (int64_t i = 0; i < (table[kind].per_layer ? m->layers : 1); i++)
            n += is_present(m, &m->block[i], (ParamKind)kind);
    return n;
}

BlockKind param_block(const Param *p, const Model *m, const WeightType *type)
{
    /* Rows of no multiple of 256: as llama.cpp has it. */
    static const BlockKind small[BLOCK_KINDS] = {
        [BLOCK_Q4_K] = BLOCK_Q5_0, [BLOCK_Q5_K] = BLOCK_Q5_1, [BLOCK_Q6_K] = BLOCK_Q8_0};
    const int64_t n = m->layers, i = p->layer;
    const bool v = p->kind == PARAM_V;
    const bool down =
        p->kind == PARAM_DOWN || p->kind == PARAM_EXPERT_DOWN || p->kind == PARAM_SHARED_DOWN;
    BlockKind kind = type->block;
    if (p->init != INIT_NORMAL || !kind || !enters_products(p->kind))
        return BLOCK_NONE;
    if (p->kind == PARAM_LM_HEAD || (p->kind == PARAM_EMBED && m->tied))
        kind = type->head;
    else if (type->first && ((v && i < 4) || (down && i < n / 8)))
        kind = type->first;
    else if (type->spread && (v || down) && (i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2))
        kind = type->spread;
    if (!kind)
        return BLOCK_NONE;
    if (p->file_dims[1] % block_info[kind].elements != 0 && small[kind])
        kind = small[kind];
    return p->file_dims[1] % block_info[kind].elements == 0 ? kind : BLOCK_NONE;
}

void params_list(ParamList *list, const Model *config, Arena *arena)
{
    int layers = (int)config->layers;
    int *first = arena_array(arena, (size_t)layers + 1, sizeof *first);
    *list = (ParamList){.layer = first};
    for (int kind = 0; kind < PARAM_KIND_COUNT; kind++)
        list->first[kind] = -1;
    list->param = arena_array(arena, 2 * count_present(config), sizeof *list->param);
    add(list, config, arena, PARAM_EMBED, -1);
    for (int layer = 0; layer < layers; layer++) {
        first[layer] = list->n;
        for (int kind = 0; kind < PARAM_KIND_COUNT; kind++)
            if (table[kind].per_layer && is_present(config, &config->block[layer], (ParamKind)kind))
                add(list, config, arena, (ParamKind)kind, layer);
    }
    first[layers] = list->n;
    add(list, config, arena, PARAM_FINAL_NORM, -1);
    if (is_present(config, &config->block[0], PARAM_LM_HEAD))
        add(list, config, arena, PARAM_LM_HEAD, -1);
    int plain = list->n;
    for (int i = 0; i < plain && config->quant.kind != QUANT_NONE; i++) {
        Param *param = &list->param[i];
        int64_t rows = 1;
        if (param->kind == PARAM_EMBED || !enters_products(param->kind))
            continue;
        if (config->quant.kind == QUANT_BLOCKS) {
            param->blocks = param_block(param, config, config->quant.blocks);
            param->form = param->blocks ? PARAM_BLOCKS : PARAM_PLAIN;
            continue;
        }
        for (int d = 0; d < param->n_rows; d++)
            rows *= param->dims[d];
        const bool eight =
            param->kind == PARAM_LM_HEAD ||
            (config->eight && config->eight[param->layer * PARAM_KIND_COUNT + param->kind]);
        param->quant = quant_form(eight ? (QuantScheme){.kind = QUANT_INT8} : config->quant, rows,
                                  param->n / rows);
        param->file_name[NAMING_HF] = joined_name(param->file_name[NAMING_HF], arena);
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
            if (param->file_name[naming])
                scale->file_name[naming] =
                    arena_printf(arena, "%s_scale", param->file_name[naming]);
        set_form(scale, PARAM_SCALES, param->quant.groups);
        param->scale = list->n++;
    }
}

ParamTensor params_tensor(const ParamList *list, int i, ParamNaming naming)
{
    const Param *p = &list->param[i];
    const char *fused = p->form == PARAM_PLAIN ? p->fused[naming] : NULL;
    ParamTensor t = {.name = fused ? fused : p->file_name[naming],
                     .pieces = !fused && param_has_pieces(p, naming) ? p->experts : 1,
                     .form = fused && naming == NAMING_HF ? p->form_fused : 0,
                     .rank = p->file_rank};
    for (int k = fused ? list->layer[p->layer] : i;
         k <= i || (fused && k < list->layer[p->layer + 1]); k++) {
        const Param *other = &list->param[k];
        if (fused && (!other->fused[naming] || strcmp(other->fused[naming], fused) != 0))
            continue;
        t.member[t.n++] = k;
        t.rows += other->file_dims[0];
        t.elements += other->n;
    }
    if (t.member[0] != i)
        t.n = 0;
    memcpy(t.dims, p->file_dims, sizeof t.dims);
    t.dims[0] = t.rows / t.pieces;
    if (fused && p->experts) {
        const int64_t rows = t.rows / p->experts, columns = p->file_dims[1];
        const bool turned = t.form & TENSOR_TURNED;
        t.rank = p->file_rank + 1;
        t.dims[0] = p->experts;
        t.dims[1] = turned ? columns : rows;
        t.dims[2] = turned ? rows : columns;
    }
    return t;
}

bool param_has_pieces(const Param *param, ParamNaming naming)
{
    const char *name = param->file_name[naming];
    return param->experts && name && strstr(name, "%d");
}

const char *param_expert_name(const char *pattern, int64_t expert, char *text, size_t size)
{
    const char *at = strstr(pattern, "%d");
    snprintf(text, size, "%.*s%lld%s", (int)(at - pattern), pattern, (long long)expert, at + 2);
    return text;
}

int param_gguf_dims(const Param *param, int64_t dims[PARAM_FILE_RANK])
{
    int n = 0;
    if (param->kind == PARAM_SHARED_ROUTER) {
        dims[0] = param->n;
        return 1;
    }
    if (param->experts)
        dims[n++] = param->experts;
    for (int d = 0; d < param->file_rank; d++)
        dims[n++] = param->file_dims[d] / (d == 0 && param->experts ? param->experts : 1);
    return n;
}

/* The layer that part s of n begins with. The head is as much work as so many layers, which the last part has fewer. */
static int64_t part_begin(const Model *m, int s, int n)
{
    double head = (double)m->vocab * (double)m->width;
    double layer = ((double)model_size(m).matmul_params - head) / (double)m->layers;
    double all = (double)m->layers + head / layer;
    int64_t begin = s == n ? m->layers : (int64_t)(all * s / n + 0.5);
    int64_t most = m->layers - (n - s); /* each part has one */
    return begin < s ? s : begin > most ? most : begin;
}

ModelPart model_part(const Model *m, int s, int n)
{
    return n > 1 ? (ModelPart){part_begin(m, s, n), part_begin(m, s + 1, n)} : (ModelPart){0, 0};
}

bool model_part_is_first(const ModelPart *part)
{
    return part->first == 0;
}

bool model_part_is_last(const ModelPart *part, const Model *m)
{
    return part->end == 0 || part->end == m->layers;
}

bool model_part_has(const ModelPart *part, const Model *m, const Param *p)
{
    if (p->layer >= 0)
        return part->end == 0 || (p->layer >= part->first && p->layer < part->end);
    bool looked_up = p->kind == PARAM_EMBED && model_part_is_first(part);
    return looked_up || (model_part_is_last(part, m) && (p->kind != PARAM_EMBED || m->tied));
}

const Param *params_find(const ParamList *list, ParamKind kind, int layer)
{
    int first = list->first[kind];
    if (first < 0 || !table[kind].per_layer)
        return first < 0 ? NULL : &list->param[first];
    for (int i = list->layer[layer]; i < list->layer[layer + 1]; i++)
        if (list->param[i].kind == kind)
            return &list->param[i];
    return NULL;
}

ModelSize model_size(const Model *m)
{
    ModelSize size = {0};
    for (int kind = 0; kind < PARAM_KIND_COUNT; kind++)
        for (int64_t layer = 0; layer < (table[kind].per_layer ? m->layers : 1); layer++) {
            const Block *b = &m->block[layer];
            int64_t n = 1;
            for (int i = 0; i < table[kind].rank; i++)
                n *= axis_size(m, b, table[kind].axis[i]);
            bool present = is_present(m, b, (ParamKind)kind);
            if (present)
                size.params += n;
            if (table[kind].axis[0] == AXIS_EXPERTS && kind != PARAM_ROUTER && n)
                n = n / b->experts.number * b->experts.chosen;
            if (enters_products((ParamKind)kind) && kind != PARAM_EMBED &&
                (present || kind == PARAM_LM_HEAD))
                size.matmul_params += n;
        }
    return size;
}

int64_t model_bytes(const Model *m, cvn_dtype dtype)
{
    return (int64_t)cvn_dtype_bytes(dtype, model_size(m).params);
}
