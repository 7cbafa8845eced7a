/*
 * What composites mean: their decompositions (decompose.c), carried out in f64 where they are about floats, and rounded
 * once. But what the bytes of blocks mean is code, and so are products of whole numbers (ops/quantized.c).
 */
#include "graph/decompose.h"
#include "graph/interp/interp_impl.h"
#include "graph/linear.h"
#include "graph/steps.h"

#include <stdio.h>
#include <stdlib.h>

/* Whether ops/quantized.c has a function of it. */
static bool is_defined(const Op *op, void *context)
{
    (void)context;
    return op->kind == OP_LINEAR_INT8 || (op->kind == OP_DEQUANTIZE && op->attr.blocks);
}

static int run(const Op *op, const void *const *in, void **result, cvn_err *err)
{
    SCOPED(graph_release) cvn_graph *g = cvn_graph_new(op_info[op->kind].name, err);
    const unsigned wide = op_record[op->kind].wide;
    cvn_type type[OP_MOST_RESULTS];
    if (!g)
        return err->code;
    cvn_value **operand = arena_array(&g->arena, (size_t)op->n_operands + 1, sizeof *operand);
    for (int i = 0; i < op->n_operands; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        operand[i] = cvn_parameter(g, name, *op_in(op, i));
        if (wide >> i & 1 && dtype_is_float(op_in(op, i)->dtype))
            operand[i] = as(g, operand[i], CVN_F64);
    }
    for (int i = 0; i < op->n_results; i++) {
        type[i] = *op_out(op, i);
        if (wide && dtype_is_float(type[i].dtype))
            type[i].dtype = CVN_F64;
    }
    const cvn_value *first = graph_add(g, op->kind, &op->attr, op->n_operands, operand, type);
    for (int i = 0; i < op->n_results && !g->err.code; i++)
        cvn_output(g, as(g, first->def->result[i], op_out(op, i)->dtype));
    TRY(graph_decompose(g, is_defined, NULL, NULL, err));
    return interp_run_one(g, in, result, err);
}

void interp_composite(const Op *op, const void *const *in, void *const *out)
{
    cvn_err err = {0};
    void *result[OP_MOST_RESULTS] = {NULL};
    if (is_defined(op, NULL)) {
        (op->kind == OP_DEQUANTIZE ? interp_dequantize : interp_linear_int8)(op, in, out);
        return;
    }
    if (run(op, in, result, &err)) /* it was verified: only memory can have run out */
        protect_abandon(0);
    for (int i = 0; i < op->n_results; i++) {
        memcpy(out[i], result[i], cvn_type_bytes(op_out(op, i)));
        free(result[i]);
    }
}
