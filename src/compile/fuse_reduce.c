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

/* Operations, [n]. */
typedef struct Producers {
    Op *op[MOST]; /* of what a reduce reads, each behind what it reads */
    int n;
} Producers;

static bool takes_prologue(const Fuse *f, const Op *op)
{
    if (op->kind != OP_REDUCE)
        return false;
    const cvn_type *x = op_in(op, 0);
    int64_t run = 1; /* elements that a sum, or a row of sums down columns, reads in one go */
    bool along = x->rank > 0 && ints_contain(&op->attr.dims, x->rank - 1);
    for (int d = x->rank - 1; d >= 0 && ints_contain(&op->attr.dims, d) == along; d--)
        run *= x->dim[d];
    return run >= RUN && x->dtype == CVN_F32 && kernel_fuses(f->backend, op, PROLOGUE_PROGRAM);
}

/* Adds the elementwise operations that v is made by; false where there are too many. */
static bool collect(const Fuse *f, Producers *r, cvn_value *v, int64_t elements)
{
    cvn_value *root = fuse_root_of(v);
    Op *op = root->def;
    int64_t inner;
    if (cvn_type_elements(&root->type) != elements || fuse_is_splat(root) ||
        fuse_is_spread(root, &inner) || !fuse_member_kernel(f->backend, op) ||
        op->kind == OP_SELECT)
        return true;
    for (int i = 0; i < r->n; i++)
        if (r->op[i] == op)
            return true;
    for (int i = 0; i < op->n_operands; i++)
        if (!collect(f, r, op->operand[i], elements))
            return false;
    if (r->n == MOST)
        return false;
    r->op[r->n++] = op;
    return true;
}

/* Whether nothing but sums and elementwise operations read v: it need not lie in memory. */
static bool is_spared(const Fuse *f, const cvn_value *v, const Op *after)
{
    uint32_t seen = 0;
    for (const Op *op = after->next; op && seen < f->uses[v->id]; op = op->next)
        for (int i = 0; i < op->n_operands; i++) {
            if (op->operand[i] != v)
                continue;
            if (!takes_prologue(f, op) && !fuse_member_kernel(f->backend, op))
                return false;
            seen++;
        }
    return seen == f->uses[v->id];
}

/* Makes one of the shape of the terms operand 0, by which a sum knows what it goes over; false where there is none. */
static bool put_shape_first(Making *m, const cvn_value *v)
{
    int k = 0;
    for (; k < m->n_operands; k++) {
        cvn_type shape = m->operand[k]->type;
        shape.dtype = v->type.dtype;
        if (cvn_type_equal(&shape, &v->type))
            break;
    }
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

void fuse_reduce(Fuse *f, Op *reduce)
{
    if (!takes_prologue(f, reduce))
        return;
    cvn_value *v = reduce->operand[0];
    Producers r = {.n = 0};
    if (!collect(f, &r, v, cvn_type_elements(&v->type)) || r.n == 0 || r.op[r.n - 1] != v->def ||
        !is_spared(f, v, v->def))
        return;
    Making *m = f->making;
    *m = (Making){
        .g = f->g, .backend = f->backend, .uses = f->uses, .op = r.op, .n = r.n, .only = v};
    bool good = fuse_make_members(m);
    size_t bytes = 0; /* of the tensors that the terms are made of: no more than of the terms */
    for (int i = 0; i < m->n_operands; i++)
        if (cvn_type_elements(&m->operand[i]->type) == cvn_type_elements(&v->type))
            bytes += cvn_type_bytes(&m->operand[i]->type);
    good = good && bytes <= cvn_type_bytes(&v->type) && put_shape_first(m, v);
    Fusion *made = good ? fuse_make(m) : NULL;
    if (made && made->program) {
        f->uses[v->id]--;
        reduce->operand =
            arena_copy(&f->g->arena, m->operand, (size_t)m->n_operands * sizeof *m->operand);
        reduce->n_operands = m->n_operands;
        reduce->attr.fusion = made;
    }
}
