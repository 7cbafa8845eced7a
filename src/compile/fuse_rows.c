/*
 * The norm of a gradient that a product makes and rows are added to (that of an embedding which is the output layer, too)
 * needs no walk over it: the squares of the product are summed as it is made, and what the rows change is small.
 *
 *     %x = dot_general …                            %x, %before = region … { product, its squares down the columns }
 *     %y = add %x, (scatter zeros, …)         ->    %y, %s' = region %x, …, %before {
 *     %s = reduce (multiply %y, %y)                   %y = add %x, (scatter zeros, …)
 *                                                     %s' = maximum(%before + reduce(y y - x x), 0) }
 *
 * The kernel knows the rows that differ, and sums the difference over these alone. It is the same number up to the order of
 * its sum, and the only thing that fusion writes down anew.
 */
#include "compile/fuse_impl.h"

/* What is matched. */
typedef struct Rows {
    Op *product, *scatter, *add, *square, *sum;
} Rows;

static bool is_zero(const cvn_value *v)
{
    return tile_is_splat(v) && v->type.dtype == CVN_F32 &&
           element_get(CVN_F32, v->def->attr.literal.data, 0) == 0;
}

/* The product, and the rows that are added to it, by which y is made. */
static bool match_rows(const Fuse *f, Rows *rows, Op *sum)
{
    if (sum->kind != OP_REDUCE || sum->attr.reduce != CVN_SUM)
        return false;
    Op *square = sum->operand[0]->def, *add = square->n_operands ? square->operand[0]->def : NULL;
    if (square->kind != OP_MULTIPLY || square->operand[0] != square->operand[1] ||
        add->kind != OP_ADD || f->uses[sum->operand[0]->id] != 1 ||
        add->result[0]->type.dtype != CVN_F32)
        return false;
    for (int i = 0; i < 2; i++) {
        Op *product = add->operand[i]->def, *scatter = add->operand[1 - i]->def;
        if (product->kind != OP_DOT_GENERAL || scatter->kind != OP_SCATTER ||
            f->uses[scatter->result[0]->id] != 1 || !is_zero(scatter->operand[0]) ||
            f->position[scatter->result[0]->id] < f->position[product->result[0]->id])
            continue;
        *rows = (Rows){product, scatter, add, square, sum};
        return true;
    }
    return false;
}

/* Everything that used `from` uses `to`, but for one operation. */
static void redirect(cvn_graph *g, const cvn_value *from, cvn_value *to, const Op *but)
{
    for (Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_operands && op != but; i++)
            if (op->operand[i] == from)
                op->operand[i] = to;
    for (int i = 0; i < g->n_outputs; i++)
        if (g->output[i].value == from)
            g->output[i].value = to;
}

static void take_rows(Fuse *f, const Rows *r)
{
    cvn_graph *g = f->g;
    cvn_value *x = r->product->result[0], *s = r->sum->result[0];
    graph_insert_before(g, r->product->next);
    cvn_value *x2 = cvn_multiply(g, x, x), *before = graph_add_like(g, r->sum, &x2);
    Op *first[] = {r->product, x2->def, before->def};
    graph_insert_before(g, r->sum);
    cvn_value *again = cvn_multiply(g, x, x);
    cvn_value *growth = cvn_subtract(g, r->square->result[0], again);
    graph_insert_before(g, r->sum->next);
    cvn_value *more = cvn_add(g, before, s), *zero = cvn_splat(g, s->type, 0);
    cvn_value *norm = cvn_maximum(g, more, zero);
    graph_insert_before(g, NULL);
    if (g->err.code)
        return;
    r->sum->operand[0] = growth;
    redirect(g, s, norm, more->def);
    fuse_begin(f, false);
    Op *second[] = {r->scatter,  r->add, r->square, again->def,
                    growth->def, r->sum, more->def, norm->def};
    const int n = (int)(sizeof second / sizeof *second);
    Op *product = fuse_region(f, first, 3, NULL, false);
    Op *rows = product ? fuse_region(f, second, n, NULL, true) : NULL;
    if (rows) {
        fuse_put_region(f, product, first, 3, NULL, r->product);
        fuse_put_region(f, rows, second, n, NULL, r->add);
    } else {
        r->sum->operand[0] = r->square->result[0];
        redirect(g, norm, s, NULL);
    }
    graph_remove_dead(g);
    fuse_begin(f, false);
}

void fuse_rows(Fuse *f)
{
    fuse_begin(f, false);
    for (Op *op = f->g->first, *next; op; op = next) {
        Rows rows;
        next = op->next;
        if (match_rows(f, &rows, op))
            take_rows(f, &rows);
    }
}
