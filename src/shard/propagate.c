#include "shard/propagate.h"

#include "base/num.h"

#include "shard/projection.h"

#include <stdio.h>
#include <string.h>

enum { FORWARD = 1, BACKWARD = 2, BOTH = 3 };
enum { N_STEPS = 5 };

/* An operation with its rule; or an output with the parameter whose memory it
   takes, as an identity between the two. */
typedef struct Node {
    const Op *op; /* NULL for an output */
    Rule rule;
    const cvn_value **tensor; /* [rule.n_tensors]; NULL where nothing is to be
                               split: scalars and constants */
    bool single_use;          /* every operand is used here only */
    bool dirty;               /* something around it changed since it was looked at */
} Node;

typedef struct State {
    const cvn_graph *g;
    const Mesh *mesh;
    ShardResult *out;
    Arena arena; /* scratch */
    Node *node;  /* [n_nodes] in execution order, outputs behind */
    int64_t n_nodes;
    int64_t **neighbour;  /* [n_values]: the nodes a value belongs to ... */
    int64_t *n_neighbour; /* [n_values] ... and how many */
    bool *constant;       /* [n_values]: made of constants alone */
    int *priority;        /* [n_values] of the mark; INT32_MIN where there is none */
    Sharding *mark;       /* [n_values] */
    Projection *seen;     /* [most tensors] of the node that is looked at */
    int step;
    bool aggressive;
} State;

/* ---- setting up ---- */

static void note_origin(State *s, const cvn_value *v, ShardOrigin origin)
{
    ShardOrigin *kept = arena_copy(&s->out->arena, &origin, sizeof origin);
    kept->next = s->out->origin[v->id];
    s->out->origin[v->id] = kept;
}

static int read_marks(State *s, cvn_err *err)
{
    for (const Op *op = s->g->first; op; op = op->next) {
        for (int i = 0; i < op->n_results; i++) {
            const cvn_value *v = op->result[i];
            char name[96];
            s->priority[v->id] = INT32_MIN;
            s->out->sharding[v->id] = sharding_open(v->type.rank);
            if (!v->spec)
                continue;
            snprintf(name, sizeof name, "%s%.80s", v->name ? "%" : "a value of ",
                     v->name ? v->name : op_info[v->def->kind].name);
            TRY(sharding_from_spec(s->mesh, v->spec, v->type.rank, name, &s->mark[v->id], err));
            s->priority[v->id] = v->spec->priority;
            for (int d = 0; d < v->type.rank; d++) {
                ShardOrigin origin = {.kind = ORIGIN_MARK, .dim = d, .from_dim = -1};
                origin.axes = s->mark[v->id].dim[d].axes;
                if (origin.axes.n)
                    note_origin(s, v, origin);
            }
        }
    }
    return CVN_OK;
}

void shard_constants(const cvn_graph *g, bool *is_constant)
{
    for (const Op *op = g->first; op; op = op->next) {
        bool leaf = op->kind == OP_CONSTANT || op->kind == OP_IOTA;
        bool constant =
            leaf || (op->n_operands > 0 && op->n_results == 1 &&
                     (factor_is_transparent(op->kind) || op->kind == OP_BROADCAST_IN_DIM));
        for (int i = 0; i < op->n_operands; i++)
            constant = constant && is_constant[op->operand[i]->id];
        for (int i = 0; i < op->n_results; i++)
            is_constant[op->result[i]->id] = constant && !op->result[i]->spec;
    }
}

static const cvn_value *tensor_or_null(const State *s, const cvn_value *v)
{
    return v->type.rank == 0 || s->constant[v->id] ? NULL : v;
}

static void add_node(State *s, Node node)
{
    int n = 0;
    for (int t = 0; t < node.rule.n_tensors; t++)
        n += node.tensor[t] != NULL;
    if (n > 0 && node.rule.n_factors > 0)
        s->node[s->n_nodes++] = node;
}

static void make_nodes(State *s)
{
    uint32_t *uses = graph_uses(s->g, &s->arena);
    int64_t most = 2;
    s->node = arena_array(&s->arena, (size_t)s->g->n_ops + (size_t)s->g->n_outputs, sizeof(Node));
    for (const Op *op = s->g->first; op; op = op->next) {
        Node node = {.op = op, .rule = factor_rule(op, &s->arena), .single_use = true};
        node.tensor = arena_array(&s->arena, (size_t)node.rule.n_tensors, sizeof(cvn_value *));
        for (int t = 0; t < op->n_operands; t++) {
            node.tensor[t] = tensor_or_null(s, op->operand[t]);
            node.single_use &= !node.tensor[t] || uses[op->operand[t]->id] == 1;
        }
        for (int t = 0; t < op->n_results; t++)
            node.tensor[op->n_operands + t] = tensor_or_null(s, op->result[t]);
        most = num_max(most, node.rule.n_tensors);
        add_node(s, node);
    }
    for (int i = 0; i < s->g->n_outputs; i++) {
        const Output *o = &s->g->output[i];
        if (!o->into || o->into == o->value)
            continue;
        Node node = {.rule = factor_identity(&o->value->type, &s->arena), .single_use = true};
        node.tensor = arena_array(&s->arena, 2, sizeof(cvn_value *));
        node.tensor[0] = tensor_or_null(s, o->into);
        node.tensor[1] = tensor_or_null(s, o->value);
        add_node(s, node);
    }
    s->seen = arena_array(&s->arena, (size_t)most, sizeof *s->seen);
}

static void find_neighbours(State *s)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < s->n_nodes; i++) {
            const Node *node = &s->node[i];
            for (int t = 0; t < node->rule.n_tensors; t++) {
                if (!node->tensor[t])
                    continue;
                uint32_t v = node->tensor[t]->id;
                if (pass == 1)
                    s->neighbour[v][s->n_neighbour[v]] = i;
                s->n_neighbour[v]++;
            }
        }
        for (uint32_t v = 0; pass == 0 && v < s->g->n_values; v++) {
            s->neighbour[v] = arena_array(&s->arena, (size_t)s->n_neighbour[v], sizeof(int64_t));
            s->n_neighbour[v] = 0;
        }
    }
}

/* ---- one operation ---- */

/* In which directions a factor of an operation may be looked at in a step. */
static int direction(const Node *node, int factor, int step)
{
    bool transparent = !node->op || factor_is_transparent(node->op->kind);
    FactorKind kind = node->rule.factor[factor].kind;
    OpKind op = node->op ? node->op->kind : OP_COUNT;
    if (kind >= FACTOR_WHOLE)
        return 0; /* it would be gathered anyway */
    if (transparent)
        return step > 0 || node->single_use ? BOTH : 0;
    if (op == OP_DYNAMIC_SLICE || op == OP_DYNAMIC_UPDATE_SLICE)
        return step < 2 ? FORWARD : BOTH;
    if (step < 2 || (step == 2 && kind != FACTOR_PASS))
        return 0;
    if (op == OP_BROADCAST_IN_DIM && step < 4)
        return BACKWARD;
    return BOTH;
}

/* The longest list of axes for a factor that none of its tensors contradicts. */
static AxisList compatible(const State *s, const Node *node, int f)
{
    AxisList axes = {0};
    const Rule *rule = &node->rule;
    int dir = direction(node, f, s->step);
    bool grow = true; /* whether axes that none had so far may be added */
    for (int side = 0; side < 2; side++) {
        bool results = (dir == BACKWARD) == (side == 0);
        if (side == 1 && dir != BOTH)
            grow = false;
        int from = results ? rule->n_operands : 0,
            to = results ? rule->n_tensors : rule->n_operands;
        for (int t = from; t < to; t++) {
            const AxisList *more = &s->seen[t].factor[f].axes;
            if (!node->tensor[t] || !s->seen[t].factor[f].present)
                continue;
            const AxisList common = axes_common_prefix(&axes, more);
            if (axes_equal(&common, &axes)) {
                axes = grow ? *more : axes;
            } else if (!axes_equal(&common, more)) {
                axes = common;
                grow = false;
            }
        }
    }
    return dir ? axes : (AxisList){0};
}

static bool grows(const AxisList *from, const AxisList *to)
{
    return axes_size(to) > axes_size(from) && axes_prefix_of(from, to);
}

/* Gives a factor the axes that every tensor of the operation can live with. */
static void basic(State *s, const Node *node, int f)
{
    AxisList axes = compatible(s, node, f);
    for (int t = 0; t < node->rule.n_tensors && axes.n; t++)
        if (node->tensor[t])
            axes = projection_fit(&s->seen[t], &node->rule, f, &axes);
    for (int t = 0; t < node->rule.n_tensors && axes.n; t++) {
        FactorAxes *own = &s->seen[t].factor[f];
        if (node->tensor[t] && own->present && grows(&own->axes, &axes))
            own->axes = axes;
    }
}

/* A factor, what it could have, and what decides whether it comes first. */
typedef struct Wish {
    int factor;
    AxisList axes;
    int64_t source_size; /* elements of the largest tensor that has the axes */
    int64_t shards;
} Wish;

static bool comes_before(const Wish *a, const Wish *b, bool elementwise)
{
    if (elementwise && a->shards != b->shards)
        return a->shards > b->shards;
    if (a->source_size != b->source_size)
        return a->source_size > b->source_size;
    return a->factor < b->factor;
}

/* The wishes of all factors, first those that come first. */
static int collect_wishes(const State *s, const Node *node, bool elementwise, Wish *wish)
{
    int n = 0;
    for (int f = 0; f < node->rule.n_factors; f++) {
        Wish w = {.factor = f, .axes = compatible(s, node, f)};
        if (w.axes.n == 0)
            continue;
        w.shards = axes_size(&w.axes);
        for (int t = 0; t < node->rule.n_tensors; t++) {
            if (!node->tensor[t] || !s->seen[t].factor[f].present ||
                !axes_equal(&s->seen[t].factor[f].axes, &w.axes))
                continue;
            int64_t size = cvn_type_elements(&node->tensor[t]->type);
            w.source_size = num_max(w.source_size, size);
        }
        int at = n++;
        for (; at > 0 && comes_before(&w, &wish[at - 1], elementwise); at--)
            wish[at] = wish[at - 1];
        wish[at] = w;
    }
    return n;
}

/* Gives each tensor what it can take, results first. An operand of an
   elementwise operation is not split further than the result. */
static void aggressive(State *s, const Node *node)
{
    Wish wish[FACTORS_MAX];
    const Rule *rule = &node->rule;
    bool elementwise = node->op && factor_is_transparent(node->op->kind) &&
                       node->op->kind != OP_RESHAPE && node->op->kind != OP_TRANSPOSE;
    int n = collect_wishes(s, node, elementwise, wish);
    for (int k = 0; k < rule->n_tensors; k++) {
        int t = (k + rule->n_operands) % rule->n_tensors;
        if (!node->tensor[t])
            continue;
        for (int i = 0; i < n; i++) {
            FactorAxes *own = &s->seen[t].factor[wish[i].factor];
            AxisList axes = wish[i].axes;
            if (!own->present)
                continue;
            if (elementwise && t < rule->n_operands && node->tensor[rule->n_operands])
                axes = axes_common_prefix(&axes,
                                          &s->seen[rule->n_operands].factor[wish[i].factor].axes);
            axes = projection_fit(&s->seen[t], rule, wish[i].factor, &axes);
            if (grows(&own->axes, &axes))
                own->axes = axes;
        }
    }
}

/* The tensor and dimension of a node that had these axes on factor f before;
   NULL when it cannot be said. Only for the report. */
static const cvn_value *source_of(const State *s, const Node *node, int but, int d, int *dim)
{
    const DimFactors *mine = &node->rule.dim[but][d];
    const cvn_value *best = NULL;
    int32_t most = 1;
    for (int t = 0; t < node->rule.n_tensors; t++) {
        const cvn_value *v = node->tensor[t];
        for (int e = 0; v && t != but && e < v->type.rank; e++)
            for (int i = 0; i < node->rule.dim[t][e].n; i++)
                for (int j = 0; j < mine->n; j++) {
                    int32_t size = axes_size(&s->out->sharding[v->id].dim[e].axes);
                    if (node->rule.dim[t][e].factor[i] != mine->factor[j] || size <= most)
                        continue;
                    best = v;
                    *dim = e;
                    most = size;
                }
    }
    return best;
}

/* Takes over what the factors of tensor t gained into its dimensions. */
static bool commit(State *s, const Node *node, int t, ShardOriginKind kind)
{
    const cvn_value *v = node->tensor[t];
    Sharding *sharding = &s->out->sharding[v->id];
    bool any = false;
    for (int d = 0; d < v->type.rank; d++) {
        AxisList axes = unproject(&s->seen[t], &node->rule, t, d), *old = &sharding->dim[d].axes;
        if (sharding->dim[d].closed || !grows(old, &axes))
            continue;
        ShardOrigin origin = {.kind = kind, .dim = d, .op = node->op, .from_dim = -1};
        origin.axes = axes_without_prefix(&axes, old);
        origin.from = source_of(s, node, t, d, &origin.from_dim);
        note_origin(s, v, origin);
        *old = axes;
        any = true;
    }
    for (int64_t i = 0; any && i < s->n_neighbour[v->id]; i++)
        s->node[s->neighbour[v->id][i]].dirty = true;
    return any;
}

static void look_at(State *s, const Node *node)
{
    for (int t = 0; t < node->rule.n_tensors; t++)
        if (node->tensor[t])
            project(&s->out->sharding[node->tensor[t]->id], &node->rule, t, &s->seen[t]);
}

/* Whether a tensor of the node is split: where none is, there is nothing to pass on. */
static bool has_axes(const State *s, const Node *node)
{
    for (int t = 0; t < node->rule.n_tensors; t++)
        for (int d = 0; node->tensor[t] && d < node->tensor[t]->type.rank; d++)
            if (s->out->sharding[node->tensor[t]->id].dim[d].axes.n)
                return true;
    return false;
}

/* True when something changed; nothing is looked at where nothing around it has changed. */
static bool visit(State *s, Node *node)
{
    bool any = false;
    if (!node->dirty)
        return false;
    node->dirty = false;
    if (!has_axes(s, node))
        return false;
    look_at(s, node);
    for (int f = 0; f < node->rule.n_factors; f++)
        basic(s, node, f);
    if (s->aggressive)
        aggressive(s, node);
    for (int t = 0; t < node->rule.n_tensors; t++)
        if (node->tensor[t])
            any |= commit(s, node, t, node->op ? ORIGIN_OP : ORIGIN_OUTPUT);
    return any;
}

/* ---- the whole graph ---- */

/* Which nodes are to be visited in a step, beside those around which something changed. A step after the first looks at what it
   permits and the one before did not: the others have settled. */
static void start_step(State *s)
{
    for (int64_t i = 0; i < s->n_nodes; i++) {
        Node *node = &s->node[i];
        bool other = s->step == 0;
        for (int f = 0; f < node->rule.n_factors && !other; f++)
            other = direction(node, f, s->step) != direction(node, f, s->step - 1);
        node->dirty |= other;
    }
}

/* Sweeps over what changed, down and up in turn, until nothing does. */
static void settle(State *s)
{
    for (bool any = true; any;) {
        any = false;
        for (int64_t i = 0; i < s->n_nodes; i++)
            any |= visit(s, &s->node[i]);
        for (int64_t i = s->n_nodes - 1; i >= 0; i--)
            any |= visit(s, &s->node[i]);
    }
}

/* Marks of a priority appear; later ones are kept from using their axes for
 * anything else. */
static void show_marks(State *s, int priority, bool hide_later)
{
    for (uint32_t v = 0; v < s->g->n_values; v++) {
        if (s->priority[v] == INT32_MIN || s->priority[v] < priority)
            continue;
        Sharding *now = &s->out->sharding[v];
        if (s->priority[v] == priority) {
            *now = s->mark[v];
        } else if (hide_later) {
            *now = sharding_open(s->mark[v].rank);
            for (int d = 0; d < now->rank; d++) {
                now->dim[d].closed = true;
                axes_add_list(&now->replicated, &s->mark[v].dim[d].axes);
            }
        }
    }
}

/* See the head of propagate.h. True when a result took axes. */
static bool exchange(State *s, const Node *node)
{
    const Rule *rule = &node->rule;
    if (!node->op || node->op->kind != OP_DOT_GENERAL)
        return false;
    if (!node->tensor[0] || !node->tensor[1] || !node->tensor[2] || !has_axes(s, node))
        return false;
    look_at(s, node);
    AxisList partial = {0}; /* that both operands split their contraction by */
    for (int f = 0; f < rule->n_factors; f++) {
        const AxisList *a = &s->seen[0].factor[f].axes, *b = &s->seen[1].factor[f].axes;
        if (rule->factor[f].kind == FACTOR_REDUCE && axes_equal(a, b))
            axes_add_list(&partial, a);
    }
    Projection *result = &s->seen[2];
    for (int f = 0; f < rule->n_factors && partial.n; f++) {
        FactorAxes *own = &result->factor[f];
        bool wanted = s->seen[0].factor[f].axes.n > 0 || s->seen[1].factor[f].axes.n > 0;
        if (!own->present || own->axes.n || !wanted)
            continue;
        AxisList axes = projection_fit(result, rule, f, &partial);
        if (axes.n == 0)
            continue;
        own->axes = axes;
        return commit(s, node, 2, ORIGIN_EXCHANGE);
    }
    return false;
}

static bool node_conflicts(const State *s, const Node *node, int f)
{
    const FactorAxes *first = NULL;
    for (int t = 0; t < node->rule.n_tensors; t++) {
        const FactorAxes *own = &s->seen[t].factor[f];
        if (!node->tensor[t] || !own->present)
            continue;
        if (own->overflow.n || (node->rule.factor[f].kind >= FACTOR_WHOLE && own->axes.n))
            return true;
        if (first && !axes_equal(&first->axes, &own->axes))
            return true;
        first = own;
    }
    return false;
}

static void find_conflicts(State *s)
{
    ShardResult *r = s->out;
    size_t most = 0;
    for (int64_t i = 0; i < s->n_nodes; i++)
        most += (size_t)s->node[i].rule.n_factors;
    ShardConflict *all = arena_array(&s->arena, most, sizeof *all);
    for (int64_t i = 0; i < s->n_nodes; i++) {
        const Node *node = &s->node[i];
        if (!has_axes(s, node))
            continue;
        look_at(s, node);
        for (int f = 0; node->op && f < node->rule.n_factors; f++)
            if (node_conflicts(s, node, f))
                all[r->n_conflicts++] = (ShardConflict){node->op, f};
    }
    r->conflict = arena_copy(&r->arena, all, (size_t)r->n_conflicts * sizeof *all);
}

static int propagate(State *s, cvn_err *err)
{
    TRY(read_marks(s, err));
    shard_constants(s->g, s->constant);
    if (s->mesh->n_devices > 1) /* else nothing can be split, and nothing spreads */
        make_nodes(s);
    find_neighbours(s);
    for (int64_t last = INT32_MIN;;) {
        int64_t next = INT64_MAX; /* the least priority that is larger */
        for (uint32_t v = 0; v < s->g->n_values; v++)
            if (s->priority[v] > last && s->priority[v] < next)
                next = s->priority[v];
        if (next == INT64_MAX)
            break;
        show_marks(s, (int)next, last == INT32_MIN);
        for (s->step = 0; s->step < N_STEPS; s->step++)
            for (int mode = 0; mode < 2; mode++) {
                s->aggressive = mode == 1;
                start_step(s);
                settle(s);
            }
        s->step = N_STEPS - 1;
        last = next;
    }
    for (int64_t i = 0; i < s->n_nodes; i++)
        if (exchange(s, &s->node[i])) /* which spreads before the next is looked at */
            settle(s);
    find_conflicts(s);
    return CVN_OK;
}

int shard_propagate(const cvn_graph *g, const Mesh *mesh, ShardResult *result, cvn_err *err)
{
    State s = {.g = g, .mesh = mesh, .out = result};
    size_t n = g->n_values + (size_t)1;
    *result = (ShardResult){.n_values = g->n_values};
    TRY(arena_begin(&result->arena, err));
    if (arena_begin(&s.arena, err)) {
        arena_free(&result->arena);
        return CVN_EMEM;
    }
    result->sharding = arena_array(&result->arena, n, sizeof *result->sharding);
    result->origin = arena_array(&result->arena, n, sizeof(ShardOrigin *));
    s.neighbour = arena_array(&s.arena, n, sizeof(int64_t *));
    s.n_neighbour = arena_array(&s.arena, n, sizeof *s.n_neighbour);
    s.constant = arena_array(&s.arena, n, sizeof *s.constant);
    s.priority = arena_array(&s.arena, n, sizeof *s.priority);
    s.mark = arena_array(&s.arena, n, sizeof *s.mark);
    for (size_t v = 0; v < n; v++)
        s.priority[v] = INT32_MIN;
    int code = propagate(&s, err);
    arena_free(&s.arena);
    if (code)
        arena_free(&result->arena);
    return code;
}

void shard_result_free(ShardResult *result)
{
    arena_free(&result->arena);
}
