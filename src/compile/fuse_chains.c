/*
 * Chains: elementwise operations that read each other's results, or the same tensors, become one region. What is between
 * them stays in cache and has no place in memory; constants of one value, and broadcasts, are written out for a tile at a
 * time and take none either.
 *
 *     %m1 = multiply %m, splat 0.9          %m2 = region %m, %g {
 *     %g1 = multiply %g, splat 0.1    ->      …
 *     %m2 = add %m1, %g1                      return %m2 }
 *
 * One walk over the graph keeps open groups of elementwise operations of as many elements. An operation joins the
 * groups whose results it reads (which become one group), or else one that reads a tensor it reads, too. A group
 * is closed, and its region put in the graph, before the first operation that needs a result of it and is not
 * elementwise; so nothing is computed earlier than it was, and groups never depend on each other in a circle.
 * What stays open for long would keep its operands alive: after PATIENCE operations a group is closed.
 *
 * Reshapes and barriers of what a group computes are views of it: members read through them, and they go with the group,
 * to behind it, for those that read them later. A barrier keeps passes over the graph from sharing what is
 * computed again (grad/remat.h); here nothing is shared, and what is computed again behind one is still computed again.
 */
#include "compile/fuse_impl.h"

enum { GROUPS = 8, PATIENCE = 24 };

typedef struct Group {
    Op *op[TILE_OPS]; /* [n] members and views of what they compute, in the order of the graph */
    int64_t position[TILE_OPS];
    int n; /* 0: not in use */
    int64_t elements;
    int64_t joined; /* position of the last operation that joined */
} Group;

typedef struct Fuser {
    Fuse *fuse;           /* by root */
    unsigned char *group; /* [n_values] 1 + the open group that computes a value, or 0 */
    Group open[GROUPS];
} Fuser;

/* Whether a constant or a broadcast need not be written out. */
static bool spares(const cvn_graph *body)
{
    for (const Op *op = body->first; op; op = op->next)
        if (op->kind == OP_CONSTANT || op->kind == OP_BROADCAST_IN_DIM)
            return true;
    return false;
}

/* Makes a region of n operations; of each half where they are too many for one. What stays alone, and views, keep their
   order. */
static void fuse(Fuse *f, Op *const *op, int n, Op *next)
{
    Op *member[TILE_OPS];
    int n_members = 0;
    for (int i = 0; i < n; i++) {
        graph_remove(f->g, op[i]);
        graph_put_before(f->g, op[i], next);
        if (!tile_is_view(op[i]))
            member[n_members++] = op[i];
    }
    Op *region = n_members ? fuse_region(f, member, n_members, NULL, true) : NULL;
    if (region && (n_members > 1 || spares(region->attr.body))) {
        fuse_put_region(f, region, member, n_members, NULL, op[0]);
    } else if (!region && n_members > 1) {
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
    int group = f->group[tile_root_of(v)->id];
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
            if (tile_root_of(group->op[i]->operand[k]) == root)
                return true;
    return false;
}

/* An open group that reads a tensor that op reads. */
static Group *sibling_of(Fuser *f, const Op *op)
{
    int64_t n = cvn_type_elements(&op->result[0]->type), inner;
    for (int k = 0; k < op->n_operands; k++) {
        cvn_value *root = tile_root_of(op->operand[k]);
        if (cvn_type_elements(&root->type) != n || tile_is_splat(root) ||
            tile_is_spread(root, &inner))
            continue;
        for (int i = 0; i < GROUPS; i++)
            if (f->open[i].n && f->open[i].n < TILE_OPS && f->open[i].elements == n &&
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
        bool fits = other && other->elements == elements && other->n < TILE_OPS;
        if (other && fits && !group)
            group = other;
        if (!other || other == group)
            continue;
        if (!fits || group->n + other->n >= TILE_OPS) {
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
        if (tile_takes(f->fuse->backend, op) || (tile_is_view(op) && group_of(f, op->result[0]))) {
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

void fuse_chains(Fuse *f)
{
    fuse_begin(f, true);
    Fuser fuser = {.fuse = f, .group = arena_array(f->arena, f->g->n_values + (size_t)1, 1)};
    walk(&fuser);
    graph_remove_dead(f->g);
}
