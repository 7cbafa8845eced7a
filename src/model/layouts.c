#include "model/layouts.h"

#include "base/json_file.h"
#include "base/num.h"
#include "graph/signature.h"
#include "model/params.h"
#include "shard/axes.h"

#include <stdio.h>
#include <string.h>

/* What a layout treats alike. */
typedef enum Group {
    GROUP_TOKENS,
    GROUP_TABLES,
    GROUP_ATTENTION,
    GROUP_MLP,
    GROUP_CACHE,
    GROUP_ACTIVATIONS, /* between blocks: what the embedding gives, and all that is added to it */
    GROUP_LAYERS,      /* of which each stage has some */
    GROUP_COUNT
} Group;

/* Logical axes: those of parameters, and of tokens and activations. */
enum { AXIS_BATCH = AXIS_COUNT, AXIS_SEQ, AXIS_LAYER, LOGICAL_AXES };

static const struct {
    const char *name;
    unsigned axes; /* a bit for each logical axis that it has */
} groups[GROUP_COUNT] = {[GROUP_TOKENS] = {"tokens", 1 << AXIS_BATCH | 1 << AXIS_SEQ},
                         [GROUP_TABLES] = {"tables", 1 << AXIS_VOCAB | 1 << AXIS_EMBED},
                         [GROUP_ATTENTION] = {"attention", 1 << AXIS_HEADS | 1 << AXIS_KV_HEADS |
                                                               1 << AXIS_HEAD_DIM |
                                                               1 << AXIS_EMBED},
                         [GROUP_MLP] = {"mlp", 1 << AXIS_FFN | 1 << AXIS_EXPERTS | 1 << AXIS_EMBED},
                         [GROUP_CACHE] = {"cache", 1 << AXIS_BATCH | 1 << AXIS_KV_HEADS},
                         [GROUP_ACTIVATIONS] = {"activations", 1 << AXIS_SEQ | 1 << AXIS_EMBED},
                         [GROUP_LAYERS] = {"layers", 1 << AXIS_LAYER}};

static const char *logical_name(int axis)
{
    return axis == AXIS_BATCH   ? "batch"
           : axis == AXIS_SEQ   ? "seq"
           : axis == AXIS_LAYER ? "layer"
                                : model_axis_name((ModelAxis)axis);
}

/* In a group, a logical axis is split by a mesh axis: also by it, where a rule before said so. */
typedef struct LayoutRule {
    Group group;
    int axis; /* logical */
    const char *mesh_axis;
} LayoutRule;

enum { DP = 1, TP = 2, SCATTER = 4, FSDP = 8, TWO_D = 16, EP = 32, CP = 64, PP = 128 };

/* A bit for each layout that has the rule. */
static const struct {
    int layouts;
    LayoutRule rule;
} rows[] = {
    {DP | FSDP | TWO_D, {GROUP_TOKENS, AXIS_BATCH, "dcn"}},
    {DP | FSDP | TWO_D, {GROUP_TOKENS, AXIS_BATCH, "data"}},
    {TP | SCATTER | TWO_D, {GROUP_TABLES, AXIS_VOCAB, "model"}},
    {FSDP | TWO_D, {GROUP_TABLES, AXIS_EMBED, "data"}},
    {TP | SCATTER, {GROUP_ATTENTION, AXIS_HEADS, "model"}},
    {TP | SCATTER, {GROUP_ATTENTION, AXIS_KV_HEADS, "model"}},
    {FSDP, {GROUP_ATTENTION, AXIS_EMBED, "data"}},
    {TWO_D, {GROUP_ATTENTION, AXIS_HEADS, "data"}},
    {TWO_D, {GROUP_ATTENTION, AXIS_KV_HEADS, "data"}},
    {TWO_D, {GROUP_ATTENTION, AXIS_EMBED, "model"}},
    {TP | SCATTER | TWO_D, {GROUP_MLP, AXIS_FFN, "model"}},
    {FSDP | TWO_D, {GROUP_MLP, AXIS_EMBED, "data"}},
    {EP, {GROUP_MLP, AXIS_EXPERTS, "expert"}},
    {DP | FSDP | TWO_D, {GROUP_CACHE, AXIS_BATCH, "dcn"}},
    {DP | FSDP | TWO_D, {GROUP_CACHE, AXIS_BATCH, "data"}},
    {TP | SCATTER | TWO_D, {GROUP_CACHE, AXIS_KV_HEADS, "model"}},
    {SCATTER, {GROUP_ACTIVATIONS, AXIS_SEQ, "model"}},
    {CP, {GROUP_TOKENS, AXIS_SEQ, "context"}},
    {CP, {GROUP_ACTIVATIONS, AXIS_SEQ, "context"}},
    {PP, {GROUP_LAYERS, AXIS_LAYER, "stage"}},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* In the order of the bits. */
static const char *const layouts[] = {"dp", "tp", "tp-scatter", "fsdp", "2d", "ep", "cp", "pp"};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

const char *layout_name(size_t i)
{
    return i < N_LAYOUTS ? layouts[i] : NULL;
}

enum { MOST_RULES = N_LAYOUTS * N_ROWS };

typedef struct Rules {
    int n;
    LayoutRule rule[MOST_RULES]; /* [n] */
} Rules;

/* ---- layouts by name ---- */

static int named_rules(const char *text, Rules *rules, cvn_err *err)
{
    bool named[N_LAYOUTS] = {false};
    char names[16 * N_LAYOUTS] = "";
    for (const char *p = text;; p++) {
        size_t length = strcspn(p, "+"), i = 0;
        while (i < N_LAYOUTS &&
               (strlen(layouts[i]) != length || memcmp(layouts[i], p, length) != 0))
            i++;
        if (i == N_LAYOUTS || named[i]) {
            for (size_t k = 0, at = 0; k < N_LAYOUTS; k++)
                at += (size_t)snprintf(names + at, sizeof names - at, "%s, ", layouts[k]);
            return err_set(err, CVN_EINVAL,
                           "\"%.64s\" is not a layout; give one of %sa product such as fsdp+tp, or "
                           "a file of rules, FILE.json",
                           text, names);
        }
        named[i] = true;
        for (int r = 0; r < N_ROWS; r++)
            if (rows[r].layouts >> i & 1)
                rules->rule[rules->n++] = rows[r].rule;
        p += length;
        if (!*p)
            return CVN_OK;
    }
}

/* ---- rules from a file ---- */

typedef struct RuleFile {
    const char *path;
    const Mesh *mesh;
    Arena *arena;
    Rules *rules;
    cvn_err *err;
} RuleFile;

static int read_mesh_axis(const RuleFile *f, Group group, int axis, const json_t *value)
{
    const char *name = json_string_value(value);
    if (!name)
        return err_set(f->err, CVN_EFORMAT,
                       "%s: %s.%s must be the name of a mesh axis, or a list of such", f->path,
                       groups[group].name, logical_name(axis));
    if (group != GROUP_LAYERS && mesh_axis(f->mesh, name, strlen(name)) < 0)
        return err_set(f->err, CVN_EINVAL,
                       "%s: %s.%s names \"%.64s\", which is not an axis of the mesh; see --mesh",
                       f->path, groups[group].name, logical_name(axis), name);
    if (f->rules->n == MOST_RULES)
        return err_set(f->err, CVN_EFORMAT, "%s has more than %d rules", f->path, MOST_RULES);
    f->rules->rule[f->rules->n++] = (LayoutRule){group, axis, arena_string(f->arena, name)};
    return CVN_OK;
}

static int read_axis(const RuleFile *f, Group group, const char *name, const json_t *value)
{
    int axis = 0;
    while (axis < LOGICAL_AXES &&
           (!(groups[group].axes >> axis & 1) || strcmp(logical_name(axis), name) != 0))
        axis++;
    if (axis == LOGICAL_AXES)
        return err_set(f->err, CVN_EFORMAT, "%s: %s have no axis \"%.64s\"; see docs/SHARDING.md",
                       f->path, groups[group].name, name);
    if (!json_is_array(value))
        return read_mesh_axis(f, group, axis, value);
    for (size_t i = 0; i < json_array_size(value); i++)
        TRY(read_mesh_axis(f, group, axis, json_array_get(value, i)));
    return CVN_OK;
}

static int read_group(const RuleFile *f, const char *name, json_t *value)
{
    int group = 0;
    const char *axis;
    json_t *mesh_axes;
    while (group < GROUP_COUNT && strcmp(groups[group].name, name) != 0)
        group++;
    if (group == GROUP_COUNT)
        return err_set(f->err, CVN_EFORMAT,
                       "%s: \"%.64s\" is not one of tokens, tables, attention, mlp, cache, "
                       "activations, layers",
                       f->path, name);
    if (!json_is_object(value))
        return err_set(f->err, CVN_EFORMAT, "%s: %s must be an object", f->path, name);
    json_object_foreach(value, axis, mesh_axes)
    {
        TRY(read_axis(f, (Group)group, axis, mesh_axes));
    }
    return CVN_OK;
}

static int rules_from_file(const char *path, const Mesh *mesh, Arena *arena, Rules *rules,
                           cvn_err *err)
{
    cvn_err own = {0};
    RuleFile f = {path, mesh, arena, rules, err ? err : &own};
    json_t *root = json_object_read(path, f.err);
    const char *name;
    json_t *value;
    if (!root)
        return f.err->code;
    SCOPED(cleanup_run) Cleanup cleanup;
    cleanup_push(&cleanup, json_release, root);
    json_object_foreach(root, name, value)
    {
        TRY(read_group(&f, name, value));
    }
    /* Caches of which a file says nothing lie as what is computed from them: rows as tokens, heads as attention's. */
    int n = rules->n;
    for (int i = 0; i < n; i++)
        if (rules->rule[i].group == GROUP_CACHE)
            return CVN_OK;
    for (int i = 0; i < n && rules->n < MOST_RULES; i++) {
        LayoutRule rule = rules->rule[i];
        if ((rule.group != GROUP_TOKENS || rule.axis != AXIS_BATCH) &&
            (rule.group != GROUP_ATTENTION || rule.axis != AXIS_KV_HEADS))
            continue;
        rule.group = GROUP_CACHE;
        rules->rule[rules->n++] = rule;
    }
    return CVN_OK;
}

/* ---- marks ---- */

typedef struct Marking {
    cvn_graph *g;
    const Mesh *mesh;
    const Rules *rules;
    int64_t slots; /* of the caches; 0: the graph has none */
} Marking;

/* Splits dimension d of size n also by this mesh axis, as far as it goes (see layouts.h); perhaps only evenly. */
static void split(const Marking *m, cvn_spec *spec, int d, int64_t n, const char *axis, bool evenly)
{
    int at = mesh_axis(m->mesh, axis, strlen(axis));
    int64_t shards = 1;
    if (at < 0 || m->mesh->axis[at].size == 1 || spec->dim[d].n == CVN_MAX_SPEC_AXES)
        return;
    AxisRef ref = {at, 1, m->mesh->axis[at].size};
    for (int e = 0; e < spec->rank; e++)
        for (int i = 0; i < spec->dim[e].n; i++) {
            AxisRef used;
            if (axis_parse(m->mesh, spec->dim[e].axis[i], &used, NULL) || axis_overlaps(used, ref))
                return;
            shards *= e == d ? used.size : 1;
        }
    if (shards * ref.size > n || (evenly && n % (shards * ref.size)))
        ref = axis_first(ref, n % shards ? 1 : (int32_t)num_gcd(ref.size, n / shards));
    if (ref.size == 1)
        return;
    char name[AXIS_NAME_SIZE];
    axis_name(m->mesh, ref, name, sizeof name);
    spec->dim[d].axis[spec->dim[d].n++] = arena_string(&m->g->arena, name);
}

/* Norms and biases belong to none. */
static Group group_of(const Param *p)
{
    unsigned axes = 0;
    for (int d = 0; d < p->rank; d++)
        axes |= 1u << p->axis[d];
    if (p->rank < 2 || p->init != INIT_NORMAL)
        return GROUP_COUNT;
    return axes & 1 << AXIS_VOCAB ? GROUP_TABLES
           : axes & (1 << AXIS_FFN | 1 << AXIS_EXPERTS | 1 << AXIS_SHARED_FFN | 1 << AXIS_ONE)
               ? GROUP_MLP
               : GROUP_ATTENTION;
}

/* What rules call an axis: the widths of all feed-forward parts are one to them. */
static int rule_axis(ModelAxis axis)
{
    return axis == AXIS_EXPERT_FFN || axis == AXIS_SHARED_FFN ? AXIS_FFN : (int)axis;
}

/* A rule splits dimension d of a matrix. Where columns share scales, or are blocks, only their outermost dimension is split, and
   evenly, by whole ones. */
static void split_weight(const Marking *m, const Param *param, cvn_spec *spec, int d,
                         const char *axis)
{
    bool shared = param->form == PARAM_BLOCKS || param->quant.groups > 1;
    if (d < param->n_rows || param->form == PARAM_PLAIN ||
        (!shared && param->form == PARAM_QUANTIZED))
        split(m, spec, d, param->dims[d], axis, false);
    else if (shared && d == param->n_rows)
        split(m, spec, d,
              num_gcd(param->dims[d], param->form == PARAM_BLOCKS
                                          ? param_type(param, CVN_F32).dim[d]
                                          : param->quant.groups),
              axis, true);
}

static void mark_weight(const Marking *m, const Param *param, cvn_value *v)
{
    Group group = group_of(param);
    cvn_spec spec = {.rank = v->type.rank, .priority = 1};
    if (param->form == PARAM_PLAIN && group == GROUP_COUNT && param->init != INIT_ONES)
        return; /* biases follow what they are added to */
    for (int r = 0; r < m->rules->n && group != GROUP_COUNT; r++) {
        const LayoutRule *rule = &m->rules->rule[r];
        for (int d = 0; d < param->rank; d++)
            if (rule->group == group && rule_axis(param->axis[d]) == rule->axis)
                split_weight(m, param, &spec, d, rule->mesh_axis);
    }
    cvn_mark_sharding(m->g, v, &spec);
}

/* Splits dimension 0, the batch. Rows lie with their slots, so axes that do not divide the slots split no rows. */
static void split_batch(const Marking *m, cvn_spec *spec, int64_t n)
{
    for (int r = 0; r < m->rules->n; r++) {
        const LayoutRule *rule = &m->rules->rule[r];
        const int at = mesh_axis(m->mesh, rule->mesh_axis, strlen(rule->mesh_axis));
        if (rule->group == GROUP_TOKENS && rule->axis == AXIS_BATCH && at >= 0 &&
            (!m->slots || num_gcd(m->slots, m->mesh->axis[at].size) > 1))
            split(m, spec, 0, n, rule->mesh_axis, false);
    }
}

/* Whether a mesh axis divides n positions, so that each device has as many. */
static bool divides(const Marking *m, const char *axis, int64_t n)
{
    int at = mesh_axis(m->mesh, axis, strlen(axis));
    return at >= 0 && n % m->mesh->axis[at].size == 0;
}

/* [batch, seq] */
static void mark_tokens(const Marking *m, cvn_value *v)
{
    cvn_spec spec = {.rank = v->type.rank};
    split_batch(m, &spec, v->type.dim[0]);
    for (int r = 0; r < m->rules->n && v->type.rank == 2; r++) {
        const LayoutRule *rule = &m->rules->rule[r];
        if (rule->group == GROUP_TOKENS && rule->axis == AXIS_SEQ &&
            divides(m, rule->mesh_axis, v->type.dim[1]))
            split(m, &spec, 1, v->type.dim[1], rule->mesh_axis, true);
    }
    cvn_mark_sharding(m->g, v, &spec);
}

static bool splits_weights(const Rules *rules, const char *axis)
{
    for (int r = 0; r < rules->n; r++)
        if (rules->rule[r].group >= GROUP_TABLES && rules->rule[r].group <= GROUP_MLP &&
            strcmp(rules->rule[r].mesh_axis, axis) == 0)
            return true;
    return false;
}

/* What the embedding gives, [batch, seq, embed]; what is added to it follows. A sequence that its
   axes do not divide, as the one token of decoding, leaves them to embed, if they split weights. */
static void mark_activation(const Marking *m, cvn_value *v)
{
    cvn_spec spec = {.rank = v->type.rank, .priority = 2};
    bool any = false;
    for (int r = 0; r < m->rules->n; r++)
        any = any || m->rules->rule[r].group == GROUP_ACTIVATIONS;
    if (!any || v->type.rank != 3)
        return;
    split_batch(m, &spec, v->type.dim[0]);
    for (int r = 0; r < m->rules->n; r++) {
        const LayoutRule *rule = &m->rules->rule[r];
        if (rule->group != GROUP_ACTIVATIONS)
            continue;
        bool along = rule->axis == AXIS_SEQ && divides(m, rule->mesh_axis, v->type.dim[1]);
        int d = along ? 1 : 2;
        if (along || rule->axis != AXIS_SEQ || splits_weights(m->rules, rule->mesh_axis))
            split(m, &spec, d, v->type.dim[d], rule->mesh_axis, false);
    }
    cvn_mark_sharding(m->g, v, &spec);
}

/* What stages of a model give each other, [batch, seq, embed]: as tokens and activations do, and the same on both sides. */
static void mark_boundary(const Marking *m, cvn_value *v)
{
    cvn_spec spec = {.rank = v->type.rank};
    split_batch(m, &spec, v->type.dim[0]);
    for (int r = 0; r < m->rules->n; r++) {
        const LayoutRule *rule = &m->rules->rule[r];
        if (rule->group == GROUP_ACTIVATIONS && rule->axis == AXIS_SEQ &&
            divides(m, rule->mesh_axis, v->type.dim[1]))
            split(m, &spec, 1, v->type.dim[1], rule->mesh_axis, true);
    }
    cvn_mark_sharding(m->g, v, &spec);
}

/* [rows or pages, kv_heads, positions of it, …]: rows, or slots with the pages of each part, by whole axes, so that each part has as
   many. */
static void mark_cache(const Marking *m, cvn_value *v)
{
    cvn_spec spec = {.rank = v->type.rank};
    for (int r = 0; r < m->rules->n; r++) {
        const LayoutRule *rule = &m->rules->rule[r];
        int d = rule->axis == AXIS_BATCH ? 0 : 1;
        if (rule->group == GROUP_CACHE)
            split(m, &spec, d, d ? v->type.dim[d] : m->slots, rule->mesh_axis, true);
    }
    cvn_mark_sharding(m->g, v, &spec);
}

static void mark_all(const Marking *m, const Model *config, Arena *arena)
{
    ParamList list;
    params_list(&list, config, arena);
    for (int i = 0; i < m->g->n_parameters; i++) {
        cvn_value *v = m->g->parameter[i];
        switch ((Role)v->role) {
        case ROLE_WEIGHT:
        case ROLE_TRAINED:
        case ROLE_ROUNDED: /* lies as the weight that it is a copy of */
        case ROLE_SUM:     /* … or whose gradient it is */
        case ROLE_PEER:
            if (v->index < list.n) /* adapters follow what they are multiplied with */
                mark_weight(m, &list.param[v->index], v);
            break;
        case ROLE_BOUNDARY:
            mark_boundary(m, v);
            break;
        case ROLE_CACHE:
            mark_cache(m, v);
            break;
        case ROLE_TOKENS:
        case ROLE_TARGETS:
        case ROLE_STARTS:
            mark_tokens(m, v);
            break;
        default:
            break;
        }
    }
    for (Op *op = m->g->first; op; op = op->next) {
        const Op *gather = op;
        if (op->kind == OP_DEQUANTIZE && op->attr.blocks) /* rows that were looked up */
            gather = op->operand[0]->def;
        const Op *source = gather->n_operands ? gather->operand[0]->def : NULL;
        while (source && source->kind == OP_CONVERT)
            source = source->operand[0]->def;
        const cvn_value *v = gather->kind == OP_GATHER ? source->result[0] : NULL;
        if (v && (v->role == ROLE_WEIGHT || v->role == ROLE_TRAINED) &&
            v->index == list.first[PARAM_EMBED])
            mark_activation(m, op->result[0]);
    }
}

static int read_rules(const char *layout, const Mesh *mesh, Arena *arena, Rules *rules,
                      cvn_err *err)
{
    size_t n = strlen(layout);
    return n > 5 && strcmp(layout + n - 5, ".json") == 0
               ? rules_from_file(layout, mesh, arena, rules, err)
               : named_rules(layout, rules, err);
}

static bool rules_name(const Rules *rules, int n, const char *mesh_axis)
{
    for (int i = 0; i < n; i++)
        if (strcmp(rules->rule[i].mesh_axis, mesh_axis) == 0)
            return true;
    return false;
}

/* Devices along an axis that no rule names would all do the same. */
static int check_axes(const char *layout, const Rules *rules, const Mesh *mesh, cvn_err *err)
{
    int lost = 0;
    while (lost < mesh->n_axes &&
           (mesh->axis[lost].size == 1 || rules_name(rules, rules->n, mesh->axis[lost].name)))
        lost++;
    if (lost == mesh->n_axes)
        return CVN_OK;
    SCOPED(strbuf_free) StrBuf known = {0};
    for (int i = 0; i < rules->n; i++)
        if (!rules_name(rules, i, rules->rule[i].mesh_axis))
            strbuf_printf(&known, "%s%s", known.length ? ", " : "", rules->rule[i].mesh_axis);
    return err_set(
        err, CVN_EINVAL,
        "the %d devices along the mesh's axis %s would all compute the same: layout %s "
        "shards nothing over it, only over %s; name such an axis, or use a layout that knows %s",
        (int)mesh->axis[lost].size, mesh->axis[lost].name, layout,
        known.text ? known.text : "nothing", mesh->axis[lost].name);
}

const char *layout_for(const char *text, bool training)
{
    enum { WHOLE, DATA, MODEL, BOTH, DATA_IN_TRAINING };
#define WITH(layout)                                                                               \
    {                                                                                              \
        {layout, layout "+pp"},                                                                    \
        {                                                                                          \
            layout "+cp", layout "+cp+pp"                                                          \
        }                                                                                          \
    }
    /* [what is split][whether context is][whether stages are] */
    static const char *const names[5][2][2] = {
        {{"2d", "pp"}, {"cp", "cp+pp"}}, WITH("dp"), WITH("tp"), WITH("2d"), WITH("fsdp")};
#undef WITH
    Mesh mesh;
    SCOPED(arena_free) Arena arena = {0};
    bool context = false, stage = false;
    int split = WHOLE;
    if (arena_begin(&arena, NULL))
        return "2d";
    int code = mesh_parse(&mesh, text, &arena, NULL);
    for (int i = 0; code == CVN_OK && i < mesh.n_axes; i++) {
        const char *name = mesh.axis[i].name;
        bool several = mesh.axis[i].size > 1;
        if (strcmp(name, "model") == 0)
            split |= several ? MODEL : 0;
        else if (strcmp(name, "data") == 0 || strcmp(name, "dcn") == 0)
            split |= several ? DATA : 0;
        else if (strcmp(name, "context") == 0)
            context |= several;
        else if (strcmp(name, "stage") == 0)
            stage |= several;
        else
            return "2d";
    }
    if (training && split == DATA)
        split = DATA_IN_TRAINING;
    return names[split][context][stage];
}

/* The axis that layers are divided over, of several devices; or NULL. */
static const char *stages_axis(const Rules *rules, const Mesh *mesh)
{
    for (int i = 0; i < rules->n; i++) {
        const char *name = rules->rule[i].mesh_axis;
        int at = mesh_axis(mesh, name, strlen(name));
        if (rules->rule[i].group == GROUP_LAYERS && at >= 0 && mesh->axis[at].size > 1)
            return name;
    }
    return NULL;
}

int layout_stages(const char *layout, const char *text, Arena *arena, LayoutStages *out,
                  cvn_err *err)
{
    Rules rules = {0};
    Mesh mesh;
    TRY(mesh_parse(&mesh, text, arena, err));
    *out = (LayoutStages){1, NULL, text, mesh.n_devices};
    TRY(read_rules(layout, &mesh, arena, &rules, err));
    const char *axis = stages_axis(&rules, &mesh);
    if (!axis)
        return CVN_OK;
    if (mesh.order)
        return err_set(err, CVN_EUNSUPPORTED,
                       "a mesh with stages cannot list its devices; leave out what is behind ':'");
    StrBuf rest = {0};
    CLEANUP(strbuf_release, &rest);
    out->axis = arena_string(arena, axis);
    out->n = mesh_take_axis(&mesh, axis);
    out->devices = mesh.n_devices;
    mesh_print(&rest, &mesh);
    out->mesh = arena_string(arena, rest.text ? rest.text : "");
    return CVN_OK;
}

int layout_check(const char *layout, const Mesh *mesh, cvn_err *err)
{
    Rules rules = {0};
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    TRY(read_rules(layout, mesh, &arena, &rules, err));
    return check_axes(layout, &rules, mesh, err);
}

int model_mark(cvn_graph *g, const Model *config, const Mesh *mesh, const char *layout,
               cvn_err *err)
{
    Rules rules = {0};
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    TRY(read_rules(layout, mesh, &arena, &rules, err));
    const char *stages = stages_axis(&rules, mesh);
    if (stages)
        return err_set(err, CVN_EUNSUPPORTED,
                       "only train, plan and simulate divide layers over stages (the mesh's axis "
                       "%s); leave it out of the mesh",
                       stages);
    Marking m = {.g = g, .mesh = mesh, .rules = &rules};
    for (int i = 0; i < g->n_parameters; i++)
        if (g->parameter[i]->role == ROLE_TABLE ||
            (g->parameter[i]->role == ROLE_CACHE && !m.slots))
            m.slots = g->parameter[i]->type.dim[0];
    mark_all(&m, config, &arena);
    return cvn_graph_check(g, err);
}

int layout_mark(void *context, cvn_graph *g, const Mesh *mesh, cvn_err *err)
{
    const ModelLayout *of = context;
    return model_mark(g, of->model, mesh, of->layout, err);
}
