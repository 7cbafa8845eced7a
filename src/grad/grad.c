/*
 * The walk from the loss back: see grad.h. The gradient of an operation is grad_NAME of graph/ops/, by op_record.
 */
#include "grad/grad.h"

#include "graph/grad_rule.h"

static bool is_float(const cvn_value *v)
{
    return dtype_is_float(v->type.dtype);
}

/* Marks the values that depend on one asked for, by way of floats and operations with rules; and by way of which
   operation that refuses each value depends on such: through integers too, where that operation made them, but not
   through what is flat, or converted to integers. */
static void mark(const cvn_graph *g, int n, cvn_value *const *wrt, bool *wanted, const Op **refused)
{
    for (int i = 0; i < n; i++)
        wanted[wrt[i]->id] = true;
    for (const Op *op = g->first; op; op = op->next) {
        const OpRecord *row = &op_record[op->kind];
        const Op *by = NULL;
        bool any = false;
        for (int i = 0; i < op->n_operands && !row->flat; i++) {
            const cvn_value *x = op->operand[i];
            any = any || (row->gradient && wanted[x->id]);
            if (!by && row->refused && wanted[x->id])
                by = op;
            else if (!by && (row->refused || !is_float(x) || is_float(op->result[0])))
                by = refused[x->id];
        }
        for (int i = 0; i < op->n_results; i++) {
            refused[op->result[i]->id] = by;
            wanted[op->result[i]->id] |= any && is_float(op->result[i]);
        }
    }
}

static int bits(const cvn_value *v)
{
    return cvn_dtype_bits(v->type.dtype);
}

/*
 * What is made of weights alone: of values asked for by sums, elementwise operations and those on shapes, also with others
 * that are not asked for (a scale, a frozen weight that adapters are merged into), and by products of what is not rounded.
 * Activations are not: a product made them that has read what was not asked for, or what was rounded for it.
 */
static void mark_weights(const cvn_graph *g, int n, cvn_value *const *wrt, Grad *d)
{
    for (int i = 0; i < n; i++)
        d->weight[wrt[i]->id] = wrt[i];
    for (const Op *op = g->first; op; op = op->next) {
        OpClass class_ = op_info[op->kind].class_;
        bool meets =
            class_is_elementwise(class_) || class_ == CLASS_SHAPE || class_ == CLASS_CONTROL;
        bool product = class_ == CLASS_CONTRACT, all = meets || product || class_ == CLASS_REDUCE;
        const cvn_value *widest = NULL;
        for (int i = 0; i < op->n_operands && all; i++) {
            const cvn_value *w = d->weight[op->operand[i]->id];
            all = w ? !product || bits(op->operand[i]) >= bits(w) : meets && !grad_wants(d, op, i);
            if (w && (!widest || bits(w) > bits(widest)))
                widest = w;
        }
        if (all && widest && !d->weight[op->result[0]->id])
            d->weight[op->result[0]->id] = widest;
    }
}

int graph_gradient(cvn_graph *g, cvn_value *loss, int n, cvn_value *const *wrt,
                   cvn_value **grad_out, cvn_err *err)
{
    char text[TYPE_TEXT];
    TRY(cvn_graph_check(g, err));
    if (loss->type.rank != 0 || !is_float(loss))
        return err_set(err, CVN_EINVAL, "the loss must be a scalar of floats, not %s",
                       type_text(&loss->type, text, sizeof text));
    for (int i = 0; i < n; i++)
        if (!is_float(wrt[i]))
            return err_set(err, CVN_EINVAL,
                           "cannot differentiate with respect to a value of type %s",
                           type_text(&wrt[i]->type, text, sizeof text));
    size_t n_values = g->n_values + (size_t)1;
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    bool *wanted = arena_array(&arena, n_values, sizeof *wanted);
    const Op **refused = arena_array(&arena, n_values, sizeof *refused);
    Grad d = {.g = g,
              .gradient = arena_array(&arena, n_values, sizeof(cvn_value *)),
              .wanted = wanted,
              .weight = arena_array(&arena, n_values, sizeof(cvn_value *)),
              .n_values = g->n_values};
    const char *file = g->file;
    int line = g->line;
    Op *last = g->last;
    mark(g, n, wrt, wanted, refused);
    if (refused[loss->id])
        grad_refuse(&d, refused[loss->id], op_record[refused[loss->id]->kind].refused);
    mark_weights(g, n, wrt, &d);
    cvn_value *one = like(g, loss, 1);
    if (wanted[loss->id])
        d.gradient[loss->id] = one;
    /* Calls the rules from the loss back. The operations that they append come after `last`. */
    for (const Op *op = last; op && !g->err.code; op = op->prev) {
        bool has_gradient = false, is_wanted = false;
        for (int i = 0; i < op->n_results; i++)
            has_gradient = has_gradient || d.gradient[op->result[i]->id];
        for (int i = 0; i < op->n_operands; i++)
            is_wanted = is_wanted || grad_wants(&d, op, i);
        if (!has_gradient || !is_wanted || !op_record[op->kind].gradient)
            continue;
        cvn_at(g, op->file, op->line);
        op_record[op->kind].gradient(&d, op);
    }
    cvn_at(g, file, line);
    for (int i = 0; i < n; i++) {
        cvn_value *v = d.gradient[wrt[i]->id];
        grad_out[i] = v ? v : like(g, wrt[i], 0);
    }
    return cvn_graph_check(g, err);
}
