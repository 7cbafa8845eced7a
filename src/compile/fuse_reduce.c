/*
 * What is made only to be reduced is made where it is: its producers become the prologue of the reduce:
 *
 *     %s = multiply %g, broadcast %scale
 *     %q = multiply %s, %s
 *     %r = reduce %q                    ->      %r = reduce %g, %scale {fusion}
 *     %c = reduce %q                            %c = reduce %g, %scale {fusion}
 *
 * A tensor as large as a weight is then neither written nor read again, at the price of computing it for each reduce. It is
 * done where what it is made of is no larger, and where nothing else wants it in memory. The bits are the same.
 */
#include "compile/fuse_impl.h"

enum {
    MOST = 12, /* members */
    RUN = 256  /* neighbours that are read at a time at least: programs are slow to start */
};

typedef struct Reduces {
    cvn_graph *g;
    const KernelSet *backend;
    uint32_t *uses; /* [n_values] */
    Op *op[MOST];   /* [n] the producers of what one of them reads, each behind what it reads */
    int n;
    Making *making; /* for one fusion after the other */
} Reduces;

/* Elements that a sum, or a row of sums down columns, reads in one go. */
static int64_t run_of(const Op *reduce)
{
    const cvn_type *x = &reduce->operand[0]->type;
    int64_t run = 1;
    bool along = x->rank > 0 && ints_contain(&reduce->attr.dims, x->rank - 1);
    for (int d = x->rank - 1; d >= 0 && ints_contain(&reduce->attr.dims, d) == along; d--)
        run *= x->dim[d];
    return run;
}

static bool takes_prologue(const Reduces *r, const Op *op)
{
    return op->kind == OP_REDUCE && kernel_fuses(r->backend, op, PROLOGUE_PROGRAM) &&
           op->operand[0]->type.dtype == CVN_F32 && run_of(op) >= RUN;
}

/* Adds the elementwise operations that v is made by; false where there are too many. */
static bool collect(Reduces *r, cvn_value *v, int64_t elements)
{
    cvn_value *root = fuse_root_of(v);
    Op *op = root->def;
    int64_t inner;
    if (cvn_type_elements(&root->type) != elements || fuse_is_splat(root) ||
        fuse_is_spread(root, &inner) || !fuse_member_kernel(r->backend, op) ||
        op->kind == OP_SELECT)
        return true;
    for (int i = 0; i < r->n; i++)
        if (r->op[i] == op)
            return true;
    for (int i = 0; i < op->n_operands; i++)
        if (!collect(r, op->operand[i], elements))
            return false;
    if (r->n == MOST)
        return false;
    r->op[r->n++] = op;
    return true;
}

/* Whether nothing but sums and elementwise operations read v: it need not lie in memory. */
static bool is_spared(const Reduces *r, const cvn_value *v, const Op *after)
{
    uint32_t seen = 0;
    for (const Op *op = after->next; op && seen < r->uses[v->id]; op = op->next)
        for (int i = 0; i < op->n_operands; i++) {
            if (op->operand[i] != v)
                continue;
            if (!takes_prologue(r, op) && !fuse_member_kernel(r->backend, op))
                return false;
            seen++;
        }
    return seen == r->uses[v->id];
}

static bool same_shape(const cvn_type *a, const cvn_type *b)
{
    bool same = a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++)
        same = a->dim[d] == b->dim[d];
    return same;
}

/* Whether the tensors that the terms are made of are no larger than the terms. */
static bool is_worth_it(const Making *m, const cvn_value *v)
{
    size_t bytes = 0;
    for (int i = 0; i < m->n_operands; i++)
        if (cvn_type_elements(&m->operand[i]->type) == cvn_type_elements(&v->type))
            bytes += cvn_type_bytes(&m->operand[i]->type);
    return bytes <= cvn_type_bytes(&v->type);
}

/* Makes one of the shape of the terms operand 0, by which a sum knows what it goes over; false where there is none. */
static bool put_shape_first(Making *m, const cvn_value *v)
{
    int k = 0;
    while (k < m->n_operands && !same_shape(&m->operand[k]->type, &v->type))
        k++;
    if (k == m->n_operands)
        return false;
    cvn_value *first = m->operand[0];
    m->operand[0] = m->operand[k];
    m->operand[k] = first;
    for (int i = 0; i < m->n_slots; i++) {
        Slot *slot = &m->slot[i];
        if (slot->kind == SLOT_OPERAND || slot->kind == SLOT_WHOLE || slot->kind == SLOT_SPREAD)
            slot->index = slot->index == 0 ? k : slot->index == k ? 0 : slot->index;
    }
    return true;
}

static void take_prologue(Reduces *r, Op *reduce)
{
    cvn_value *v = reduce->operand[0];
    r->n = 0;
    if (!collect(r, v, cvn_type_elements(&v->type)) || r->n == 0 || r->op[r->n - 1] != v->def ||
        !is_spared(r, v, v->def))
        return;
    Making *m = r->making;
    *m = (Making){
        .g = r->g, .backend = r->backend, .uses = r->uses, .op = r->op, .n = r->n, .only = v};
    bool good = fuse_make_members(m) && is_worth_it(m, v) && put_shape_first(m, v);
    Fusion *f = good ? fuse_make(m) : NULL;
    if (f && f->program) {
        r->uses[v->id]--;
        reduce->operand =
            arena_copy(&r->g->arena, m->operand, (size_t)m->n_operands * sizeof *m->operand);
        reduce->n_operands = m->n_operands;
        reduce->attr.fusion = f;
    }
}

void fuse_reduce(cvn_graph *g, const KernelSet *backend, Arena *arena)
{
    Reduces r = {.g = g,
                 .backend = backend,
                 .uses = graph_uses(g, arena),
                 .making = arena_alloc(arena, sizeof *r.making)};
    for (Op *op = g->first; op; op = op->next)
        if (takes_prologue(&r, op))
            take_prologue(&r, op);
    graph_remove_dead(g);
}
