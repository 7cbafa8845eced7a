/*
 * What is made only to be reduced is made where it is: its producers become part of the reduction's region:
 *
 *     %s = multiply %g, broadcast %scale
 *     %q = multiply %s, %s
 *     %r = reduce %q                    ->      %r = region %g, %scale { … }
 *     %c = reduce %q                            %c = region %g, %scale { … }
 *
 * A tensor as large as a weight is then neither written nor read again, at the price of computing it for each reduce. It is
 * done where what it is made of is no larger, and where nothing else wants it in memory. The bits are the same.
 */
#include "compile/fuse_impl.h"
#include "graph/region.h"

enum {
    MOST = 12, /* members */
    RUN = 256  /* neighbours that are read at a time at least: programs are slow to start */
};

/* Operations, [n]. */
typedef struct Producers {
    Op *op[MOST + 1]; /* of what a reduce reads, each behind what it reads */
    int n;
} Producers;

/* A reduction, or one of squares, whose terms are operand 0. */
static const Op *reduction_of(const Op *op)
{
    const Op *root = op->kind == OP_REGION ? body_root(op->attr.body) : op;
    return root && root->kind == OP_REDUCE && op->n_operands == 1 && op->n_results == 1 ? root
                                                                                        : NULL;
}

static bool takes_prologue(const Fuse *f, const Op *op)
{
    const Op *reduce = reduction_of(op);
    if (!reduce)
        return false;
    const cvn_type *x = op_in(reduce, 0);
    int64_t run = 1; /* elements that a sum, or a row of sums down columns, reads in one go */
    bool along = x->rank > 0 && ints_contain(&reduce->attr.dims, x->rank - 1);
    for (int d = x->rank - 1; d >= 0 && ints_contain(&reduce->attr.dims, d) == along; d--)
        run *= x->dim[d];
    return run >= RUN && x->dtype == CVN_F32 && kernel_find(f->backend, reduce);
}

/* Adds the elementwise operations that v is made by; false where there are too many. */
static bool collect(const Fuse *f, Producers *r, cvn_value *v, int64_t elements)
{
    cvn_value *root = tile_root_of(v);
    Op *op = root->def;
    int64_t inner;
    if (cvn_type_elements(&root->type) != elements || tile_is_splat(root) ||
        tile_is_spread(root, &inner) || !tile_takes(f->backend, op) || op->kind == OP_SELECT)
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
            if (!takes_prologue(f, op) && !tile_takes(f->backend, op))
                return false;
            seen++;
        }
    return seen == f->uses[v->id];
}

static void take_producers(Fuse *f, Op *reduce)
{
    if (!takes_prologue(f, reduce))
        return;
    cvn_value *v = reduce->operand[0];
    Producers r = {.n = 0};
    if (!collect(f, &r, v, cvn_type_elements(&v->type)) || r.n == 0 || r.op[r.n - 1] != v->def ||
        !is_spared(f, v, v->def))
        return;
    r.op[r.n++] = reduce;
    Op *region = fuse_region(f, r.op, r.n, reduce->result[0], true);
    size_t bytes = 0; /* of the tensors that the terms are made of: no more than of the terms */
    for (int i = 0; region && i < region->n_operands; i++)
        if (cvn_type_elements(op_in(region, i)) == cvn_type_elements(&v->type))
            bytes += cvn_type_bytes(op_in(region, i));
    if (region && bytes <= cvn_type_bytes(&v->type))
        fuse_put_region(f, region, r.op, r.n, reduce->result[0], reduce);
}

void fuse_reduce(Fuse *f)
{
    fuse_begin(f, false);
    for (Op *op = f->g->first, *next; op; op = next) {
        next = op->next;
        take_producers(f, op);
    }
    graph_remove_dead(f->g);
}
