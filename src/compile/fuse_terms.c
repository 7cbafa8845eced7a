/*
 * What is made only to be summed is made where it is summed:
 *
 *     %s = multiply %g, broadcast %scale
 *     %q = multiply %s, %s
 *     %r = reduce %q                    ->      %r = reduce %g, %scale {fusion}
 *     %c = reduce %q                            %c = reduce %g, %scale {fusion}
 *
 * A tensor as large as a weight is then neither written nor read again, at the price of computing it for each sum. It is
 * done where what it is made of is no larger, and where nothing else wants it in memory. The bits are the same.
 */
#include "compile/fuse_impl.h"

#include <stdlib.h>

enum {
    MOST = 12, /* members */
    RUN = 256  /* neighbours that are read at a time at least: programs are slow to start */
};

typedef struct Terms {
    cvn_graph *g;
    const Backend *backend;
    uint32_t *uses; /* [n_values] */
    Op *op[MOST];   /* [n] what the terms of one sum are made by, each behind what it reads */
    int n;
} Terms;

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

static bool takes_terms(const Terms *t, const Op *op)
{
    const Kernel *kernel = op->kind == OP_REDUCE ? kernel_find(t->backend, op) : NULL;
    return kernel && kernel->terms && op->operand[0]->type.dtype == CVN_F32 && run_of(op) >= RUN;
}

/* Adds the elementwise operations that v is made by; false where there are too many. */
static bool collect(Terms *t, cvn_value *v, int64_t elements)
{
    cvn_value *root = fuse_root_of(v);
    Op *op = root->def;
    int64_t inner;
    if (cvn_type_elements(&root->type) != elements || fuse_is_splat(root) ||
        fuse_is_spread(root, &inner) || !fuse_member_kernel(t->backend, op) ||
        op->kind == OP_SELECT)
        return true;
    for (int i = 0; i < t->n; i++)
        if (t->op[i] == op)
            return true;
    for (int i = 0; i < op->n_operands; i++)
        if (!collect(t, op->operand[i], elements))
            return false;
    if (t->n == MOST)
        return false;
    t->op[t->n++] = op;
    return true;
}

/* Whether nothing but sums and elementwise operations read v: it need not lie in memory. */
static bool is_spared(const Terms *t, const cvn_value *v, const Op *after)
{
    uint32_t seen = 0;
    for (const Op *op = after->next; op && seen < t->uses[v->id]; op = op->next)
        for (int i = 0; i < op->n_operands; i++) {
            if (op->operand[i] != v)
                continue;
            if (!takes_terms(t, op) && !fuse_member_kernel(t->backend, op))
                return false;
            seen++;
        }
    return seen == t->uses[v->id];
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

static int take_terms(Terms *t, Op *reduce)
{
    cvn_value *v = reduce->operand[0];
    t->n = 0;
    if (!collect(t, v, cvn_type_elements(&v->type)) || t->n == 0 || t->op[t->n - 1] != v->def ||
        !is_spared(t, v, v->def))
        return CVN_OK;
    Making *m = calloc(1, sizeof *m);
    if (!m)
        return CVN_EMEM;
    *m = (Making){
        .g = t->g, .backend = t->backend, .uses = t->uses, .op = t->op, .n = t->n, .only = v};
    bool good = fuse_make_members(m) && is_worth_it(m, v) && put_shape_first(m, v);
    Fusion *f = good ? fuse_make(m) : NULL;
    if (f && f->program) {
        t->uses[v->id]--;
        reduce->operand =
            arena_copy(&t->g->arena, m->operand, (size_t)m->n_operands * sizeof *m->operand);
        reduce->n_operands = m->n_operands;
        reduce->attr.fusion = f;
    }
    free(m);
    return CVN_OK;
}

int fuse_terms(cvn_graph *g, const Backend *backend, Arena *arena)
{
    Terms terms = {.g = g, .backend = backend, .uses = graph_uses(g, arena)};
    int code = CVN_OK;
    for (Op *op = g->first; op && !code; op = op->next)
        if (takes_terms(&terms, op))
            code = take_terms(&terms, op);
    graph_remove_dead(g);
    return code;
}
