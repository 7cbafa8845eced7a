#include "graph/attention.h"
#include "graph/decompose.h"
#include "graph/steps.h"
#include "shard/partition_impl.h"
#include "shard/projection.h"

#include <string.h>

/* The shardings of a graph's values, which the functions below look at. */
typedef struct Prepare {
    const Mesh *mesh;
    const Sharding *sharding; /* [n_values] by id at the start; later values have their marks */
    uint32_t n_values;
    Arena *arena;
    bool any; /* the graph has something to change */
} Prepare;

static Sharding sharding_of(const Prepare *p, const cvn_value *v)
{
    Sharding s = sharding_open(v->type.rank);
    if (v->id < p->n_values)
        return p->sharding[v->id];
    if (v->spec)
        sharding_from_spec(p->mesh, v->spec, v->type.rank, "a value", &s, NULL);
    return s;
}

/* A tensor is split along a factor that the composite has a reduction over, inside. */
static bool needs_parts(const Prepare *p, const Op *op)
{
    Rule rule = factor_rule(op, p->arena);
    Projection seen;
    for (int t = 0; t < rule.n_tensors; t++) {
        Sharding s = sharding_of(p, factor_tensor(op, t));
        project(&s, &rule, t, &seen);
        for (int f = 0; f < rule.n_factors; f++)
            if (rule.factor[f].local == LOCAL_PARTS && seen.factor[f].axes.n)
                return true;
    }
    return false;
}

static bool keep(const Op *op, void *context)
{
    return !needs_parts(context, op);
}

/* The heads of the queries are split in a way that the KV heads cannot follow, as 12 heads of 3
   groups by 4. */
static bool needs_heads(const Prepare *p, const Op *op)
{
    const int heads[] = {0, op->kind == OP_ATTENTION ? op->n_operands : 5}; /* y, or dy */
    Rule rule = factor_rule(op, p->arena);
    Projection seen;
    if (op->kind != OP_ATTENTION && op->kind != OP_ATTENTION_BACKWARD)
        return false;
    if (op->operand[0]->type.dim[2] == op->operand[1]->type.dim[1])
        return false;
    for (int i = 0; i < 2; i++) {
        int t = heads[i];
        Sharding s = sharding_of(p, factor_tensor(op, t));
        project(&s, &rule, t, &seen);
        for (int f = 0; f < rule.n_factors; f++)
            if (seen.factor[f].overflow.n)
                return true;
    }
    return false;
}

/* ---- repeating KV heads ---- */

static const cvn_gather_dims by_head = {.n_window = 3,
                                        .window = {0, 2, 3},
                                        .n_collapsed = 1,
                                        .collapsed = {1},
                                        .n_index_map = 1,
                                        .index_map = {1},
                                        .index_vector_dim = 1};

/* k or v [batch, kv_heads, context, head_dim] -> [batch, heads, context, head_dim] */
static cvn_value *repeat_heads(cvn_graph *g, cvn_value *x, cvn_value *index)
{
    int64_t sizes[4];
    memcpy(sizes, x->type.dim, sizeof sizes);
    sizes[1] = 1;
    return cvn_gather(g, x, index, &by_head, sizes);
}

static void give_every_head_its_own(cvn_graph *g, Op *op)
{
    int64_t heads = op->operand[0]->type.dim[2], kv = op->operand[1]->type.dim[1];
    graph_insert_before(g, op);
    cvn_at(g, op->file, op->line);
    /* The KV head of every head, i32 [heads]: counted, so that a device counts its own. */
    cvn_value *index = cvn_iota(g, CVN_TYPE(CVN_I32, heads), 0);
    index = cvn_divide(g, index, like(g, index, (double)(heads / kv)));
    cvn_value *operand[ATTENTION_MOST_OPERANDS];
    int scales = attention_scales(op);
    for (int i = 0; i < op->n_operands; i++) {
        bool keys = i == 1 || i == 2 || (scales >= 0 && (i == scales || i == scales + 1));
        operand[i] = keys ? repeat_heads(g, op->operand[i], index) : op->operand[i];
    }
    const cvn_value *made = graph_add(g, op->kind, &op->attr, op->n_operands, operand, NULL);
    for (int i = 0; i < op->n_results && !g->err.code; i++) {
        cvn_value *out = made->def->result[i];
        if (op->kind == OP_ATTENTION_BACKWARD && (i == 1 || i == 2)) {
            /* dk and dv: sums over the heads of each group */
            cvn_type type = with_dtype(op->result[i]->type, out->type.dtype);
            out = cvn_scatter_add(g, cvn_splat(g, type, 0), index, out, &by_head);
        }
        out->spec = op->result[i]->spec;
        graph_replace(op->result[i], out);
    }
}

/* ---- the copy ---- */

/* Every value that is no constant is marked with its sharding; values by the ids of the copy. */
static int copy_marks(const cvn_graph *from, const Mesh *mesh, const ShardResult *result,
                      cvn_graph *to, Sharding *sharding, Arena *arena, cvn_err *err)
{
    bool *constant = arena_array(arena, from->n_values + (size_t)1, sizeof *constant);
    shard_constants(from, constant);
    const Op *a = from->first;
    for (Op *b = to->first; a && b; a = a->next, b = b->next)
        for (int i = 0; i < a->n_results; i++) {
            const cvn_value *v = a->result[i];
            cvn_spec spec;
            sharding[b->result[i]->id] = result->sharding[v->id];
            if (constant[v->id])
                continue;
            TRY(sharding_to_spec(mesh, &result->sharding[v->id], &to->arena, &spec, err));
            b->result[i]->spec = arena_copy(&to->arena, &spec, sizeof spec);
        }
    return CVN_OK;
}

int part_prepare(const cvn_graph *g, const Mesh *mesh, const ShardResult *result, cvn_graph **copy,
                 ShardResult *again, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    *copy = NULL;
    TRY(arena_begin(&arena, err));
    Prepare p = {mesh, result->sharding, g->n_values, &arena, false};
    for (const Op *op = g->first; op && !p.any; op = op->next)
        p.any = op_info[op->kind].class_ == CLASS_COMPOSITE &&
                (needs_parts(&p, op) || needs_heads(&p, op));
    if (!p.any)
        return CVN_OK;
    SCOPED(graph_release) cvn_graph *made = graph_clone(g, err);
    if (!made)
        return CVN_EMEM;
    p.n_values = made->n_values;
    Sharding *sharding = arena_array(&arena, p.n_values + (size_t)1, sizeof *sharding);
    p.sharding = sharding;
    TRY(copy_marks(g, mesh, result, made, sharding, &arena, err));
    for (Op *op = made->first; op; op = op->next)
        if (op_info[op->kind].class_ == CLASS_COMPOSITE && needs_heads(&p, op))
            give_every_head_its_own(made, op);
    graph_insert_before(made, NULL);
    graph_resolve(made);
    graph_remove_dead(made);
    TRY(graph_decompose(made, keep, &p, NULL, err));
    TRY(shard_propagate(made, mesh, again, err));
    *copy = made;
    made = NULL;
    return CVN_OK;
}
