/*
 * The table of rules, and the walk from the loss back: see grad.h. The rules themselves are in
 * rule_*.c.
 */
#include "grad/grad.h"

#include "grad/rule.h"

#include <assert.h>
#include <stdlib.h>

/* A row per kind: the rule, or the reason why there is nothing to do. */
typedef struct GradRow {
    GradRule *rule;
    const char *flat; /* why no gradient goes on to the operands */
} GradRow;

static const char LEAF[] = "it has no operands";
static const char STEP[] = "it is constant but for jumps, where its gradient is zero";
static const char QUANTIZED[] = "quantized weights are not trained";
static const char WHOLE[] = "it is on integers or bools, which have no gradient";
static const char INDEX_OF[] = "its result is an index, which has no gradient";

static const GradRow table[OP_COUNT] = {
    [OP_PARAMETER] = {NULL, LEAF},
    [OP_CONSTANT] = {NULL, LEAF},
    [OP_IOTA] = {NULL, LEAF},
    [OP_NEGATE] = {grad_negate, NULL},
    [OP_ABS] = {grad_abs, NULL},
    [OP_SIGN] = {NULL, STEP},
    [OP_EXPONENTIAL] = {grad_exponential, NULL},
    [OP_EXPONENTIAL_MINUS_ONE] = {grad_exponential_minus_one, NULL},
    [OP_LOG] = {grad_log, NULL},
    [OP_LOG_PLUS_ONE] = {grad_log_plus_one, NULL},
    [OP_SQRT] = {grad_sqrt, NULL},
    [OP_RSQRT] = {grad_rsqrt, NULL},
    [OP_TANH] = {grad_tanh, NULL},
    [OP_LOGISTIC] = {grad_logistic, NULL},
    [OP_SINE] = {grad_sine, NULL},
    [OP_COSINE] = {grad_cosine, NULL},
    [OP_FLOOR] = {NULL, STEP},
    [OP_NOT] = {NULL, WHOLE},
    [OP_IS_FINITE] = {NULL, STEP},
    [OP_CONVERT] = {grad_convert, NULL},
    [OP_ADD] = {grad_add_rule, NULL},
    [OP_SUBTRACT] = {grad_subtract, NULL},
    [OP_MULTIPLY] = {grad_multiply, NULL},
    [OP_DIVIDE] = {grad_divide, NULL},
    [OP_MAXIMUM] = {grad_extremum, NULL},
    [OP_MINIMUM] = {grad_extremum, NULL},
    [OP_POWER] = {grad_power, NULL},
    [OP_REMAINDER] = {grad_remainder, NULL},
    [OP_AND] = {NULL, WHOLE},
    [OP_OR] = {NULL, WHOLE},
    [OP_XOR] = {NULL, WHOLE},
    [OP_SHIFT_LEFT] = {NULL, WHOLE},
    [OP_SHIFT_RIGHT_LOGICAL] = {NULL, WHOLE},
    [OP_COMPARE] = {NULL, STEP},
    [OP_SELECT] = {grad_select, NULL},
    [OP_CLAMP] = {grad_clamp, NULL},
    [OP_BROADCAST_IN_DIM] = {grad_broadcast_in_dim, NULL},
    [OP_RESHAPE] = {grad_reshape, NULL},
    [OP_TRANSPOSE] = {grad_transpose, NULL},
    [OP_SLICE] = {grad_slice, NULL},
    [OP_CONCATENATE] = {grad_concatenate, NULL},
    [OP_PAD] = {grad_pad, NULL},
    [OP_REVERSE] = {grad_reverse, NULL},
    [OP_DYNAMIC_SLICE] = {grad_dynamic_slice, NULL},
    [OP_DYNAMIC_UPDATE_SLICE] = {grad_dynamic_update_slice, NULL},
    [OP_GATHER] = {grad_gather, NULL},
    [OP_SCATTER] = {grad_scatter, NULL},
    [OP_SORT] = {grad_sort, NULL},
    [OP_REDUCE] = {grad_reduce, NULL},
    [OP_CUMSUM] = {grad_cumsum, NULL},
    [OP_DOT_GENERAL] = {grad_dot_general, NULL},
    [OP_ALL_REDUCE] = {grad_all_reduce, NULL},
    [OP_ALL_GATHER] = {grad_all_gather, NULL},
    [OP_REDUCE_SCATTER] = {grad_reduce_scatter, NULL},
    [OP_ALL_TO_ALL] = {grad_all_to_all, NULL},
    [OP_COLLECTIVE_PERMUTE] = {grad_collective_permute, NULL},
    [OP_PARTITION_ID] = {NULL, LEAF},
    [OP_OPTIMIZATION_BARRIER] = {grad_barrier, NULL},
    [OP_RMS_NORM] = {grad_rms_norm, NULL},
    [OP_ROPE] = {grad_rope, NULL},
    [OP_ATTENTION] = {grad_attention, NULL},
    [OP_CACHE_UPDATE] = {grad_cache_update, NULL},
    [OP_SOFTMAX_CROSS_ENTROPY] = {grad_softmax_cross_entropy, NULL},
    [OP_ARGMAX] = {NULL, INDEX_OF},
    [OP_RANDOM_BITS] = {NULL, WHOLE},
    [OP_KEEP_LIKELIEST] = {NULL, STEP},
    [OP_CATEGORICAL] = {NULL, INDEX_OF},
    [OP_DEQUANTIZE] = {NULL, QUANTIZED},
    [OP_QUANTIZE_ROWS] = {NULL, STEP},
    [OP_LINEAR_INT8] = {NULL, QUANTIZED},
    [OP_LINEAR] = {grad_linear, NULL},
    [OP_RMS_NORM_BACKWARD] = {grad_backward, NULL},
    [OP_ATTENTION_BACKWARD] = {grad_backward, NULL},
    [OP_SOFTMAX_CROSS_ENTROPY_BACKWARD] = {grad_backward, NULL},
};

bool grad_has_rule(OpKind kind)
{
    return table[kind].rule != NULL;
}

const char *grad_is_flat(OpKind kind)
{
    return table[kind].flat;
}

static bool is_float(const cvn_value *v)
{
    return dtype_is_float(v->type.dtype);
}

cvn_value *grad_of(Grad *d, const Op *op, int i)
{
    cvn_value *v = d->gradient[op->result[i]->id];
    return v ? v : grad_like(d->g, op->result[i], 0);
}

static void accumulate(Grad *d, cvn_value *of, cvn_value *v)
{
    if (!d->wanted[of->id] || d->g->err.code)
        return;
    assert(cvn_type_equal(&of->type, &v->type));
    cvn_value **sum = &d->gradient[of->id];
    *sum = *sum ? cvn_add(d->g, *sum, v) : v;
}

void grad_add(Grad *d, const Op *op, int i, cvn_value *v)
{
    accumulate(d, op->operand[i], v);
}

void grad_refuse(Grad *d, const Op *op, const char *why)
{
    graph_fail(d->g, CVN_EINVAL, "%s has no gradient %s", op_info[op->kind].name, why);
}

/* Marks the values that depend on one asked for, by way of floats and operations with rules. */
static void mark_wanted(const cvn_graph *g, int n, cvn_value *const *wrt, bool *wanted)
{
    for (int i = 0; i < n; i++)
        wanted[wrt[i]->id] = true;
    for (const Op *op = g->first; op; op = op->next) {
        bool any = false;
        for (int i = 0; i < op->n_operands && table[op->kind].rule; i++)
            any = any || wanted[op->operand[i]->id];
        for (int i = 0; i < op->n_results && any; i++)
            if (is_float(op->result[i]))
                wanted[op->result[i]->id] = true;
    }
}

/* Calls the rules from the loss back. The operations that they append come after `last`. */
static void walk_back(Grad *d, Op *last)
{
    for (const Op *op = last; op && !d->g->err.code; op = op->prev) {
        bool has_gradient = false, is_wanted = false;
        for (int i = 0; i < op->n_results; i++)
            has_gradient = has_gradient || d->gradient[op->result[i]->id];
        for (int i = 0; i < op->n_operands; i++)
            is_wanted = is_wanted || grad_wants(d, op, i);
        if (!has_gradient || !is_wanted || !table[op->kind].rule)
            continue;
        cvn_at(d->g, op->file, op->line);
        table[op->kind].rule(d, op);
    }
}

static int check_arguments(const cvn_value *loss, int n, cvn_value *const *wrt, cvn_err *err)
{
    char text[TYPE_TEXT];
    if (loss->type.rank != 0 || !is_float(loss))
        return err_set(err, CVN_EINVAL, "the loss must be a scalar of floats, not %s",
                       type_text(&loss->type, text, sizeof text));
    for (int i = 0; i < n; i++)
        if (!is_float(wrt[i]))
            return err_set(err, CVN_EINVAL, "a gradient was asked for a value of type %s",
                           type_text(&wrt[i]->type, text, sizeof text));
    return CVN_OK;
}

int graph_gradient(cvn_graph *g, cvn_value *loss, int n, cvn_value *const *wrt,
                   cvn_value **grad_out, cvn_err *err)
{
    if (cvn_graph_check(g, err))
        return g->err.code;
    if (check_arguments(loss, n, wrt, err))
        return CVN_EINVAL;
    size_t n_values = g->n_values + (size_t)1;
    bool *wanted = calloc(n_values, sizeof *wanted);
    Grad d = {.g = g, .gradient = calloc(n_values, sizeof(cvn_value *)), .wanted = wanted};
    int code = CVN_EMEM;
    if (!wanted || !d.gradient) {
        err_set(err, code, "no memory to differentiate graph '%s'", g->name);
        goto done;
    }
    const char *file = g->file;
    int line = g->line;
    Op *last = g->last;
    mark_wanted(g, n, wrt, wanted);
    accumulate(&d, loss, grad_like(g, loss, 1));
    walk_back(&d, last);
    cvn_at(g, file, line);
    for (int i = 0; i < n; i++) {
        cvn_value *v = d.gradient[wrt[i]->id];
        grad_out[i] = v ? v : grad_like(g, wrt[i], 0);
    }
    code = cvn_graph_check(g, err);
done:
    free(wanted);
    free(d.gradient);
    return code;
}
