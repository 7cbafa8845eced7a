#include "shard/layouts.h"

#include "base/map.h"
#include "model/params.h"
#include "shard/axes.h"

#include <string.h>

/* Parameters that a layout treats alike. */
typedef enum Group { GROUP_TABLES, GROUP_ATTENTION, GROUP_MLP, GROUP_COUNT } Group;

typedef struct LayoutRow {
    const char *layout;
    Group group;
    ModelAxis axis;
    const char *mesh_axis;
} LayoutRow;

static const LayoutRow rows[] = {
    {"tp", GROUP_TABLES, AXIS_VOCAB, "model"},
    {"tp", GROUP_ATTENTION, AXIS_HEADS, "model"},
    {"tp", GROUP_ATTENTION, AXIS_KV_HEADS, "model"},
    {"tp", GROUP_MLP, AXIS_FFN, "model"},
    {"fsdp", GROUP_TABLES, AXIS_EMBED, "data"},
    {"fsdp", GROUP_ATTENTION, AXIS_EMBED, "data"},
    {"fsdp", GROUP_MLP, AXIS_EMBED, "data"},
    {"2d", GROUP_TABLES, AXIS_VOCAB, "model"},
    {"2d", GROUP_TABLES, AXIS_EMBED, "data"},
    {"2d", GROUP_ATTENTION, AXIS_HEADS, "data"},
    {"2d", GROUP_ATTENTION, AXIS_KV_HEADS, "data"},
    {"2d", GROUP_ATTENTION, AXIS_EMBED, "model"},
    {"2d", GROUP_MLP, AXIS_FFN, "model"},
    {"2d", GROUP_MLP, AXIS_EMBED, "data"},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* Mesh axes of the batch, major to minor. */
static const struct {
    const char *layout, *axis[2];
} batches[] = {
    {"dp", {"dcn", "data"}},
    {"tp", {NULL, NULL}},
    {"fsdp", {"dcn", "data"}},
    {"2d", {"dcn", "data"}},
};
enum { N_LAYOUTS = sizeof batches / sizeof *batches };

const char *layout_name(size_t i)
{
    return i < N_LAYOUTS ? batches[i].layout : NULL;
}

/* The layouts that a product names, by index in batches. */
typedef struct Product {
    int n;
    size_t layout[N_LAYOUTS];
} Product;

static int parse_layout(const char *text, Product *product, cvn_err *err)
{
    *product = (Product){0};
    for (const char *p = text;; p++) {
        size_t length = strcspn(p, "+"), i = 0;
        while (i < N_LAYOUTS &&
               (strlen(batches[i].layout) != length || memcmp(batches[i].layout, p, length) != 0))
            i++;
        if (i == N_LAYOUTS || product->n == N_LAYOUTS)
            return err_set(err, CVN_EINVAL,
                           "\"%.64s\" is no layout; there are dp, tp, fsdp, 2d, and products of "
                           "them such as fsdp+tp",
                           text);
        product->layout[product->n++] = i;
        p += length;
        if (!*p)
            return CVN_OK;
    }
}

static int32_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return (int32_t)a;
}

/* Splits dimension d of size n also by this mesh axis, as far as it goes; see
 * layouts.h. */
static void split(cvn_graph *g, const Mesh *mesh, cvn_spec *spec, int d, int64_t n,
                  const char *axis)
{
    int at = mesh_axis(mesh, axis, strlen(axis));
    int64_t shards = 1;
    if (at < 0 || mesh->axis[at].size == 1 || spec->dim[d].n == CVN_MAX_SPEC_AXES)
        return;
    AxisRef ref = {at, 1, mesh->axis[at].size};
    for (int e = 0; e < spec->rank; e++)
        for (int i = 0; i < spec->dim[e].n; i++) {
            AxisRef used;
            if (axis_parse(mesh, spec->dim[e].axis[i], &used, NULL) || axis_overlaps(used, ref))
                return;
            shards *= e == d ? used.size : 1;
        }
    if (shards * ref.size > n)
        ref = axis_first(ref, n % shards ? 1 : gcd(ref.size, n / shards));
    if (ref.size == 1)
        return;
    char name[AXIS_NAME_SIZE];
    axis_name(mesh, ref, name, sizeof name);
    spec->dim[d].axis[spec->dim[d].n++] = arena_string(&g->arena, name);
}

/* Norms and biases belong to none. */
static Group group_of(const Param *p)
{
    if (p->rank < 2 || p->kind == PARAM_Q_BIAS || p->kind == PARAM_K_BIAS ||
        p->kind == PARAM_V_BIAS)
        return GROUP_COUNT;
    for (int d = 0; d < p->rank; d++) {
        if (p->axis[d] == AXIS_VOCAB)
            return GROUP_TABLES;
        if (p->axis[d] == AXIS_FFN)
            return GROUP_MLP;
    }
    return GROUP_ATTENTION;
}

static void mark_weight(cvn_graph *g, const Mesh *mesh, const Product *product, const Param *param,
                        cvn_value *v)
{
    Group group = group_of(param);
    cvn_spec spec = {.rank = v->type.rank, .priority = 1};
    if (group == GROUP_COUNT && param->init != INIT_ONES)
        return; /* biases follow what they are added to */
    for (int i = 0; i < product->n; i++)
        for (int r = 0; r < N_ROWS; r++) {
            if (strcmp(rows[r].layout, batches[product->layout[i]].layout) != 0 ||
                rows[r].group != group)
                continue;
            for (int d = 0; d < param->rank; d++)
                if (param->axis[d] == rows[r].axis)
                    split(g, mesh, &spec, d, param->dims[d], rows[r].mesh_axis);
        }
    cvn_mark_sharding(g, v, &spec);
}

static void mark_batch(cvn_graph *g, const Mesh *mesh, const Product *product, cvn_value *v)
{
    cvn_spec spec = {.rank = v->type.rank};
    for (int i = 0; i < product->n; i++)
        for (int k = 0; k < 2; k++)
            if (batches[product->layout[i]].axis[k])
                split(g, mesh, &spec, 0, v->type.dim[0], batches[product->layout[i]].axis[k]);
    cvn_mark_sharding(g, v, &spec);
}

int llama_mark(cvn_graph *g, const LlamaConfig *config, const Mesh *mesh, const char *layout,
               cvn_err *err)
{
    Product product;
    ParamList list;
    Arena arena;
    Map names;
    if (parse_layout(layout, &product, err))
        return CVN_EINVAL;
    if (arena_init(&arena, err))
        return CVN_EMEM;
    params_list(&list, config, &arena);
    map_init(&names, &arena);
    for (int i = 0; i < list.n; i++)
        *map_put(&names, list.param[i].name, strlen(list.param[i].name), NULL) = (uint64_t)i;
    for (int i = 0; i < g->n_parameters; i++) {
        cvn_value *v = g->parameter[i];
        const char *name = v->def->attr.name;
        const uint64_t *at = map_get(&names, name, strlen(name));
        if (at)
            mark_weight(g, mesh, &product, &list.param[*at], v);
        else if (strcmp(name, "tokens") == 0 || strcmp(name, "targets") == 0)
            mark_batch(g, mesh, &product, v);
    }
    arena_free(&arena);
    return cvn_graph_check(g, err);
}
