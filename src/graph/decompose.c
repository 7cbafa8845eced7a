/*
 * Decompositions of the composites: decompose_NAME (ops/), by op_record.
 *
 * Each function gets the composite and builds, before it, plain operations that compute the same;
 * it returns the values that take the place of the results. An example, x f32[2,8] and w f32[8]:
 *
 *     %y f32[2,8] = rms_norm %x, %w {eps = 1e-5}
 *
 *     %0 f32[2,8] = multiply %x, %x              %4 f32[2] = rsqrt %3
 *     %1 f32[2]   = reduce %0 {sum, dims = 1}    %5 f32[2,8] = broadcast_in_dim %4 {dims = 0}
 *     %2 f32[2]   = divide %1, splat 8           %6 f32[2,8] = multiply %x, %5
 *     %3 f32[2]   = add %2, splat 1e-5           %y f32[2,8] = multiply %6, broadcast %w
 *
 * Arithmetic is in f32 (f64 for f64 data) and converted back once, at the end. Masks are made from
 * iota so that no constant as large as the data is ever stored.
 */
#include "graph/decompose.h"

#include "graph/decompose_impl.h"

#include <assert.h>

/* Builds what op stands for before it and puts that in its place. Returns the first operation to look at next: of those
   that were built, which may be composites, too. */
static Op *decompose_op(cvn_graph *g, Op *op)
{
    cvn_value *out[OP_MOST_RESULTS];
    Op *before = op->prev;
    assert(op->n_results <= OP_MOST_RESULTS);
    graph_insert_before(g, op);
    cvn_at(g, op->file, op->line);
    op_record[op->kind].decompose(g, op, out);
    for (int i = 0; i < op->n_results && !g->err.code; i++) {
        cvn_value *old = op->result[i];
        assert(cvn_type_equal(&old->type, &out[i]->type));
        out[i]->spec = old->spec;
        if (old->name)
            out[i]->name = old->name;
        graph_replace(old, out[i]);
    }
    graph_remove(g, op);
    return before ? before->next : g->first;
}

int graph_decompose(cvn_graph *g, bool (*keep)(const Op *op, void *context), void *context,
                    bool *changed, cvn_err *err)
{
    const char *file = g->file;
    int line = g->line;
    bool any = false;
    for (Op *op = g->first, *next; op && !g->err.code; op = next) {
        next = op->next;
        graph_resolve_op(op);
        if (!op_record[op->kind].decompose || (keep && keep(op, context)))
            continue;
        next = decompose_op(g, op);
        any = true;
    }
    graph_insert_before(g, NULL);
    cvn_at(g, file, line);
    graph_resolve(g);
    TRY(cvn_graph_check(g, err));
    if (any)
        graph_remove_dead(g);
    if (changed)
        *changed = any;
    return CVN_OK;
}
