/*
 * Which operations become one.
 *
 * One walk over the graph keeps open groups of elementwise operations of as many elements. An operation joins the
 * groups whose results it reads (which become one group), or else one that reads a tensor it reads, too. A group
 * is closed, and its fusion put in the graph, before the first operation that needs a result of it and is not
 * elementwise; so nothing is computed earlier than it was, and groups never depend on each other in a circle.
 * What stays open for long would keep its operands alive: after PATIENCE operations a group is closed.
 */
#include "compile/fuse_impl.h"

#include <stdlib.h>
#include <string.h>

enum { GROUPS = 8, PATIENCE = 24 };

typedef struct Group {
    Op *op[FUSION_MEMBERS]; /* [n], in the order of the graph */
    int64_t position[FUSION_MEMBERS];
    int n; /* 0: not in use */
    int64_t elements;
    int64_t joined; /* position of the last operation that joined */
} Group;

typedef struct Fuser {
    cvn_graph *g;
    const Backend *backend;
    uint32_t *uses;       /* [n_values] by operations and outputs, before anything was fused */
    unsigned char *group; /* [n_values] 1 + the open group that computes a value, or 0 */
    Group open[GROUPS];
} Fuser;

/* ---- the graph ---- */

void fuse_put_before(cvn_graph *g, Op *op, Op *next)
{
    Op *prev = next ? next->prev : g->last;
    op->prev = prev;
    op->next = next;
    *(prev ? &prev->next : &g->first) = op;
    *(next ? &next->prev : &g->last) = op;
    g->n_ops++;
}

static void put_fusion(Making *m, Op *next)
{
    cvn_graph *g = m->g;
    Arena *arena = &g->arena;
    Fusion *f = fuse_make(m);
    Op *op = arena_alloc(arena, sizeof *op);
    *op = (Op){
        .kind = OP_FUSION,
        .n_operands = m->n_operands,
        .n_results = m->n_results,
        .operand = arena_copy(arena, m->operand, sizeof m->operand),
        .result = arena_copy(arena, m->result, sizeof m->result),
        .attr = {.fusion = f},
        .file = m->op[m->n - 1]->file,
        .line = m->op[m->n - 1]->line,
    };
    for (int i = 0; i < m->n; i++)
        graph_remove(g, m->op[i]);
    for (int k = 0; k < m->n_results; k++) {
        m->result[k]->def = op;
        m->result[k]->result = k;
    }
    fuse_put_before(g, op, next);
}

/* Makes a fusion of n operations; of each half where they are too many for one. What stays alone keeps its order. */
static int fuse(const Fuser *f, Op *const *op, int n, Op *next)
{
    Making *m = calloc(1, sizeof *m);
    if (!m)
        return CVN_EMEM;
    *m = (Making){.g = f->g, .backend = f->backend, .uses = f->uses, .op = op, .n = n};
    int code = CVN_OK;
    bool fits = fuse_make_members(m);
    if (fits && (n > 1 || m->spared)) {
        put_fusion(m, next);
    } else if (n > 1) {
        code = fuse(f, op, n / 2, next);
        if (!code)
            code = fuse(f, op + n / 2, n - n / 2, next);
    } else {
        graph_remove(f->g, op[0]);
        fuse_put_before(f->g, op[0], next);
    }
    free(m);
    return code;
}

static int close_group(Fuser *f, Group *group, Op *next)
{
    int n = group->n;
    for (int i = 0; i < n; i++)
        f->group[group->op[i]->result[0]->id] = 0;
    group->n = 0;
    return n ? fuse(f, group->op, n, next) : CVN_OK;
}

/* ---- the walk ---- */

static Group *group_of(Fuser *f, cvn_value *v)
{
    int group = f->group[fuse_root_of(v)->id];
    return group ? &f->open[group - 1] : NULL;
}

static void add_member(Fuser *f, Group *group, Op *op, int64_t position)
{
    int i = group->n++;
    for (; i > 0 && group->position[i - 1] > position; i--) {
        group->op[i] = group->op[i - 1];
        group->position[i] = group->position[i - 1];
    }
    group->op[i] = op;
    group->position[i] = position;
    group->elements = cvn_type_elements(&op->result[0]->type);
    group->joined = position > group->joined ? position : group->joined;
    f->group[op->result[0]->id] = (unsigned char)(group - f->open + 1);
}

/* One group of two, if it is not too large. */
static bool merge(Fuser *f, Group *into, Group *from)
{
    if (into->n + from->n >= FUSION_MEMBERS || into->elements != from->elements)
        return false;
    for (int i = 0; i < from->n; i++)
        add_member(f, into, from->op[i], from->position[i]);
    from->n = 0;
    return true;
}

static bool reads(const Group *group, const cvn_value *root)
{
    for (int i = 0; i < group->n; i++)
        for (int k = 0; k < group->op[i]->n_operands; k++)
            if (fuse_root_of(group->op[i]->operand[k]) == root)
                return true;
    return false;
}

/* An open group that reads a tensor that op reads. */
static Group *sibling_of(Fuser *f, const Op *op)
{
    int64_t n = cvn_type_elements(&op->result[0]->type), inner;
    for (int k = 0; k < op->n_operands; k++) {
        cvn_value *root = fuse_root_of(op->operand[k]);
        if (cvn_type_elements(&root->type) != n || fuse_is_splat(root) ||
            fuse_is_spread(root, &inner))
            continue;
        for (int i = 0; i < GROUPS; i++)
            if (f->open[i].n && f->open[i].n < FUSION_MEMBERS && f->open[i].elements == n &&
                reads(&f->open[i], root))
                return &f->open[i];
    }
    return NULL;
}

/* A group that is not in use; the one that waits longest is closed for it. */
static int new_group(Fuser *f, Op *next, Group **out)
{
    Group *oldest = &f->open[0];
    for (int i = 0; i < GROUPS; i++) {
        if (f->open[i].n == 0) {
            f->open[i].joined = 0;
            *out = &f->open[i];
            return CVN_OK;
        }
        if (f->open[i].joined < oldest->joined)
            oldest = &f->open[i];
    }
    *out = oldest;
    int code = close_group(f, oldest, next);
    oldest->joined = 0;
    return code;
}

static int join(Fuser *f, Op *op, int64_t position)
{
    Group *group = NULL;
    int64_t elements = cvn_type_elements(&op->result[0]->type);
    for (int k = 0; k < op->n_operands; k++) {
        Group *other = group_of(f, op->operand[k]);
        bool fits = other && other->elements == elements && other->n < FUSION_MEMBERS;
        if (other && fits && !group)
            group = other;
        else if (other && other != group && !(fits && merge(f, group, other)))
            if (close_group(f, other, op))
                return CVN_EMEM;
    }
    if (!group)
        group = sibling_of(f, op);
    if (!group && new_group(f, op, &group))
        return CVN_EMEM;
    add_member(f, group, op, position);
    return CVN_OK;
}

/* Closes what an operation that is not elementwise needs, and what has waited for long. */
static int pass_by(Fuser *f, Op *op, int64_t position)
{
    int code = CVN_OK;
    for (int k = 0; k < op->n_operands && !code; k++) {
        Group *group = group_of(f, op->operand[k]);
        if (group)
            code = close_group(f, group, op);
    }
    for (int i = 0; i < GROUPS && !code; i++)
        if (f->open[i].n && position - f->open[i].joined > PATIENCE)
            code = close_group(f, &f->open[i], op);
    return code;
}

static int walk(Fuser *f)
{
    int64_t position = 0;
    int code = CVN_OK;
    for (Op *op = f->g->first, *next; op && !code; op = next, position++) {
        next = op->next;
        code =
            fuse_member_kernel(f->backend, op) ? join(f, op, position) : pass_by(f, op, position);
    }
    for (int i = 0; i < GROUPS && !code; i++)
        code = close_group(f, &f->open[i], NULL);
    return code;
}

int fuse_graph(cvn_graph *g, const Backend *backend, cvn_err *err)
{
    Fuser *f = calloc(1, sizeof *f);
    Arena arena;
    int code = arena_init(&arena, err);
    if (!f || code) {
        free(f);
        return code ? code : err_set(err, CVN_EMEM, "no memory to lower graph '%s'", g->name);
    }
    fuse_neighbours(g, backend, &arena);
    fuse_written(g, backend, &arena);
    fuse_again(g, backend, &arena);
    bool failed = fuse_terms(g, backend, &arena);
    *f = (Fuser){.g = g, .backend = backend, .uses = graph_uses(g, &arena)};
    f->group = arena_array(&arena, g->n_values + (size_t)1, sizeof *f->group);
    if (failed || walk(f) || fuse_follow(g, backend, f->uses, &arena))
        code = err_set(err, CVN_EMEM, "no memory to lower graph '%s'", g->name);
    else
        graph_remove_dead(g);
    arena_free(&arena);
    free(f);
    return code;
}
