/*
 * Which operations become one.
 *
 * One walk over the graph keeps open groups of elementwise operations of as many elements. An operation joins the
 * groups whose results it reads (which become one group), or else one that reads a tensor it reads, too. A group
 * is closed, and its fusion put in the graph, before the first operation that needs a result of it and is not
 * elementwise; so nothing is computed earlier than it was, and groups never depend on each other in a circle.
 * What stays open for long would keep its operands alive: after PATIENCE operations a group is closed.
 *
 * Reshapes and barriers of what a group computes are views of it: members read through them, and they go with the group,
 * to behind its fusion, for those that read them later. A barrier keeps passes over the graph from sharing what is
 * computed again (grad/remat.h); here nothing is shared, and what is computed again behind one is still computed again.
 */
#include "compile/fuse_impl.h"

enum { GROUPS = 8, PATIENCE = 24 };

typedef struct Group {
    Op *op
        [FUSION_MEMBERS]; /* [n] members and views of what they compute, in the order of the graph */
    int64_t position[FUSION_MEMBERS];
    int n; /* 0: not in use */
    int64_t elements;
    int64_t joined; /* position of the last operation that joined */
} Group;

typedef struct Fuser {
    const Fuse *fuse;     /* its uses are as fuse_uses has it */
    unsigned char *group; /* [n_values] 1 + the open group that computes a value, or 0 */
    Group open[GROUPS];
} Fuser;

/* ---- the graph ---- */

void fuse_own_results(Op *op)
{
    for (int i = 0; i < op->n_results; i++) {
        op->result[i]->def = op;
        op->result[i]->result = i;
    }
}

static cvn_value **with_one_more(cvn_graph *g, cvn_value *const *v, int n, cvn_value *more)
{
    cvn_value **out = arena_array(&g->arena, (size_t)n + 1, sizeof *out);
    for (int i = 0; i < n; i++)
        out[i] = v[i];
    out[n] = more;
    return out;
}

void fuse_add_operand(cvn_graph *g, Op *op, cvn_value *v)
{
    op->operand = with_one_more(g, op->operand, op->n_operands++, v);
}

void fuse_add_result(cvn_graph *g, Op *op, cvn_value *v)
{
    op->result = with_one_more(g, op->result, op->n_results++, v);
    fuse_own_results(op);
}

int64_t *fuse_positions(const cvn_graph *g, Arena *arena)
{
    int64_t *position = arena_array(arena, g->n_values + (size_t)1, sizeof *position), n = 0;
    for (const Op *op = g->first; op; op = op->next, n++)
        for (int i = 0; i < op->n_results; i++)
            position[op->result[i]->id] = n;
    return position;
}

/* Puts the fusion in front of `next`, which may be one of its members. */
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
    graph_put_before(g, op, next);
    for (int i = 0; i < m->n; i++)
        graph_remove(g, m->op[i]);
    fuse_own_results(op);
}

/* Makes a fusion of n operations; of each half where they are too many for one. What stays alone, and views, keep their
   order. */
static void fuse(const Fuse *f, Op *const *op, int n, Op *next)
{
    Op *member[FUSION_MEMBERS];
    int n_members = 0;
    Making *m = f->making;
    for (int i = 0; i < n; i++) {
        graph_remove(f->g, op[i]);
        graph_put_before(f->g, op[i], next);
        if (!fuse_is_whole(op[i]))
            member[n_members++] = op[i];
    }
    *m = (Making){.g = f->g, .backend = f->backend, .uses = f->uses, .op = member, .n = n_members};
    if (fuse_make_members(m)) {
        if (n_members > 1 || m->spared)
            put_fusion(m, op[0]);
    } else if (n_members > 1) {
        fuse(f, op, n / 2, next);
        fuse(f, op + n / 2, n - n / 2, next);
    }
}

static void close_group(Fuser *f, Group *group, Op *next)
{
    int n = group->n;
    for (int i = 0; i < n; i++)
        f->group[group->op[i]->result[0]->id] = 0;
    group->n = 0;
    if (n > 0)
        fuse(f->fuse, group->op, n, next);
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

static void join(Fuser *f, Op *op, int64_t position)
{
    Group *group = NULL;
    int64_t elements = cvn_type_elements(&op->result[0]->type);
    for (int k = 0; k < op->n_operands; k++) {
        Group *other = group_of(f, op->operand[k]);
        bool fits = other && other->elements == elements && other->n < FUSION_MEMBERS;
        if (other && fits && !group)
            group = other;
        if (!other || other == group)
            continue;
        if (!fits || group->n + other->n >= FUSION_MEMBERS) {
            close_group(f, other, op);
            continue;
        }
        for (int i = 0; i < other->n; i++) /* one group of two */
            add_member(f, group, other->op[i], other->position[i]);
        other->n = 0;
    }
    if (!group)
        group = sibling_of(f, op);
    if (!group) { /* one that is not in use; the one that waits longest is closed for it */
        group = &f->open[0];
        for (int i = 0; i < GROUPS && group->n > 0; i++)
            if (f->open[i].n == 0 || f->open[i].joined < group->joined)
                group = &f->open[i];
        close_group(f, group, op);
        group->joined = 0;
    }
    add_member(f, group, op, position);
}

static void walk(Fuser *f)
{
    int64_t position = 0;
    for (Op *op = f->fuse->g->first, *next; op; op = next, position++) {
        next = op->next;
        if (fuse_member_kernel(f->fuse->backend, op) ||
            (fuse_is_whole(op) && group_of(f, op->result[0]))) {
            join(f, op, position);
            continue;
        }
        /* It closes what it needs, and what has waited for long. */
        for (int k = 0; k < op->n_operands; k++) {
            Group *group = group_of(f, op->operand[k]);
            if (group)
                close_group(f, group, op);
        }
        for (int i = 0; i < GROUPS; i++)
            if (f->open[i].n && position - f->open[i].joined > PATIENCE)
                close_group(f, &f->open[i], op);
    }
    for (int i = 0; i < GROUPS; i++)
        close_group(f, &f->open[i], NULL);
}

static void apply(Fuse *f, FuseRule *rule, uint32_t *uses)
{
    f->uses = uses;
    f->position = fuse_positions(f->g, f->arena);
    for (Op *op = f->g->first, *next; op; op = next) {
        next = op->next;
        rule(f, op);
    }
    graph_remove_dead(f->g);
}

void fuse_graph(cvn_graph *g, const KernelSet *backend, Arena *scratch)
{
    Fuse f = {.g = g, .backend = backend, .arena = scratch};
    f.making = arena_alloc(scratch, sizeof *f.making);
    apply(&f, fuse_squares, graph_uses(g, scratch));
    apply(&f, fuse_convert, graph_uses(g, scratch));
    apply(&f, fuse_epilogue, graph_uses(g, scratch));
    /* Again, of products with residuals, which are there now. */
    apply(&f, fuse_squares, graph_uses(g, scratch));
    fuse_recompute(&f);
    apply(&f, fuse_reduce, graph_uses(g, scratch));
    f.uses = fuse_uses(g, scratch);
    Fuser fuser = {.fuse = &f,
                   .group = arena_array(scratch, g->n_values + (size_t)1, sizeof *fuser.group)};
    walk(&fuser);
    apply(&f, fuse_product, f.uses);
}
