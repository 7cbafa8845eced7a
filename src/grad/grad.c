/*
 * The table of rules, and the walk from the loss back: see grad.h. The rules themselves are in
 * rule_*.c.
 */
#include "grad/grad.h"

#include "grad/rule.h"

#include <assert.h>

/* A row per kind: the rule, or why there is none. */
typedef struct GradRow {
    GradRule *rule;
    const char *flat;    /* why there is nothing to do: no gradient goes on to the operands */
    const char *refused; /* why a loss that depends on an operand by way of it has no gradient */
} GradRow;

static const char LEAF[] = "it has no operands";
static const char STEP[] = "it is constant but for jumps, where its gradient is zero";
static const char QUANTIZED[] = "with respect to quantized weights, which are not trained";
static const char ROUNDED[] =
    "through numbers of 8 bits; differentiate the graph that computes in floats";
static const char FUSED[] = "once it is fused"; /* which comes after the backward pass */
static const char BACKWARD[] = "of its own";
static const char WHOLE[] = "it is on integers or bools, which have no gradient";
static const char INDEX_OF[] = "its result is an index, which has no gradient";

static const GradRow table[OP_COUNT] = {
    [OP_PARAMETER] = {.flat = LEAF},
    [OP_CONSTANT] = {.flat = LEAF},
    [OP_IOTA] = {.flat = LEAF},
    [OP_NEGATE] = {.rule = grad_negate},
    [OP_ABS] = {.rule = grad_abs},
    [OP_SIGN] = {.flat = STEP},
    [OP_EXPONENTIAL] = {.rule = grad_exponential},
    [OP_EXPONENTIAL_MINUS_ONE] = {.rule = grad_exponential_minus_one},
    [OP_LOG] = {.rule = grad_log},
    [OP_LOG_PLUS_ONE] = {.rule = grad_log_plus_one},
    [OP_SQRT] = {.rule = grad_sqrt},
    [OP_RSQRT] = {.rule = grad_rsqrt},
    [OP_TANH] = {.rule = grad_tanh},
    [OP_LOGISTIC] = {.rule = grad_logistic},
    [OP_SINE] = {.rule = grad_sine},
    [OP_COSINE] = {.rule = grad_cosine},
    [OP_FLOOR] = {.flat = STEP},
    [OP_NOT] = {.flat = WHOLE},
    [OP_IS_FINITE] = {.flat = STEP},
    [OP_CONVERT] = {.rule = grad_convert},
    [OP_ADD] = {.rule = grad_add_rule},
    [OP_SUBTRACT] = {.rule = grad_subtract},
    [OP_MULTIPLY] = {.rule = grad_multiply},
    [OP_DIVIDE] = {.rule = grad_divide},
    [OP_MAXIMUM] = {.rule = grad_extremum},
    [OP_MINIMUM] = {.rule = grad_extremum},
    [OP_POWER] = {.rule = grad_power},
    [OP_REMAINDER] = {.rule = grad_remainder},
    [OP_AND] = {.flat = WHOLE},
    [OP_OR] = {.flat = WHOLE},
    [OP_XOR] = {.flat = WHOLE},
    [OP_SHIFT_LEFT] = {.flat = WHOLE},
    [OP_SHIFT_RIGHT_LOGICAL] = {.flat = WHOLE},
    [OP_COMPARE] = {.flat = STEP},
    [OP_SELECT] = {.rule = grad_select},
    [OP_CLAMP] = {.rule = grad_clamp},
    [OP_BROADCAST_IN_DIM] = {.rule = grad_broadcast_in_dim},
    [OP_RESHAPE] = {.rule = grad_reshape},
    [OP_TRANSPOSE] = {.rule = grad_transpose},
    [OP_SLICE] = {.rule = grad_slice},
    [OP_CONCATENATE] = {.rule = grad_concatenate},
    [OP_PAD] = {.rule = grad_pad},
    [OP_REVERSE] = {.rule = grad_reverse},
    [OP_DYNAMIC_SLICE] = {.rule = grad_dynamic_slice},
    [OP_DYNAMIC_UPDATE_SLICE] = {.rule = grad_dynamic_update_slice},
    [OP_GATHER] = {.rule = grad_gather},
    [OP_SCATTER] = {.rule = grad_scatter},
    [OP_SORT] = {.rule = grad_sort},
    [OP_REDUCE] = {.rule = grad_reduce},
    [OP_CUMSUM] = {.rule = grad_cumsum},
    [OP_DOT_GENERAL] = {.rule = grad_dot_general},
    [OP_ALL_REDUCE] = {.rule = grad_reducing_collective},
    [OP_ALL_GATHER] = {.rule = grad_all_gather},
    [OP_REDUCE_SCATTER] = {.rule = grad_reducing_collective},
    [OP_ALL_TO_ALL] = {.rule = grad_all_to_all},
    [OP_COLLECTIVE_PERMUTE] = {.rule = grad_collective_permute},
    [OP_PARTITION_ID] = {.flat = LEAF},
    [OP_OPTIMIZATION_BARRIER] = {.rule = grad_barrier},
    [OP_RMS_NORM] = {.rule = grad_rms_norm},
    [OP_ROPE] = {.rule = grad_rope},
    [OP_ATTENTION] = {.rule = grad_attention},
    [OP_CACHE_UPDATE] = {.rule = grad_cache_update},
    [OP_SOFTMAX_CROSS_ENTROPY] = {.rule = grad_softmax_cross_entropy},
    [OP_ARGMAX] = {.flat = INDEX_OF},
    [OP_RANDOM_BITS] = {.flat = WHOLE},
    [OP_KEEP_LIKELIEST] = {.rule = grad_keep_likeliest},
    [OP_CATEGORICAL] = {.flat = INDEX_OF},
    [OP_DEQUANTIZE] = {.refused = QUANTIZED},
    [OP_QUANTIZE_ROWS] = {.refused = ROUNDED},
    [OP_LINEAR_INT8] = {.refused = ROUNDED},
    [OP_LINEAR] = {.refused = FUSED},
    [OP_RMS_NORM_BACKWARD] = {.refused = BACKWARD},
    [OP_ATTENTION_BACKWARD] = {.refused = BACKWARD},
    [OP_SOFTMAX_CROSS_ENTROPY_BACKWARD] = {.refused = BACKWARD},
};

bool grad_has_rule(OpKind kind)
{
    return table[kind].rule != NULL;
}

const char *grad_is_flat(OpKind kind)
{
    return table[kind].flat;
}

const char *grad_is_refused(OpKind kind)
{
    return table[kind].refused;
}

static bool is_float(const cvn_value *v)
{
    return dtype_is_float(v->type.dtype);
}

cvn_value *grad_of(Grad *d, const Op *op, int i)
{
    cvn_value *v = d->gradient[op->result[i]->id];
    return v ? v : like(d->g, op->result[i], 0);
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

/* Marks the values that depend on one asked for, by way of floats and operations with rules; and by way of which
   operation that refuses each value depends on such: through integers too, where that operation made them, but not
   through what is flat, or converted to integers. */
static void mark(const cvn_graph *g, int n, cvn_value *const *wrt, bool *wanted, const Op **refused)
{
    for (int i = 0; i < n; i++)
        wanted[wrt[i]->id] = true;
    for (const Op *op = g->first; op; op = op->next) {
        const GradRow *row = &table[op->kind];
        const Op *by = NULL;
        bool any = false;
        for (int i = 0; i < op->n_operands && !row->flat; i++) {
            const cvn_value *x = op->operand[i];
            any = any || (row->rule && wanted[x->id]);
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
            return err_set(err, CVN_EINVAL, "a gradient was asked for a value of type %s",
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
        grad_refuse(&d, refused[loss->id], table[refused[loss->id]->kind].refused);
    mark_weights(g, n, wrt, &d);
    accumulate(&d, loss, like(g, loss, 1));
    /* Calls the rules from the loss back. The operations that they append come after `last`. */
    for (const Op *op = last; op && !g->err.code; op = op->prev) {
        bool has_gradient = false, is_wanted = false;
        for (int i = 0; i < op->n_results; i++)
            has_gradient = has_gradient || d.gradient[op->result[i]->id];
        for (int i = 0; i < op->n_operands; i++)
            is_wanted = is_wanted || grad_wants(&d, op, i);
        if (!has_gradient || !is_wanted || !table[op->kind].rule)
            continue;
        cvn_at(g, op->file, op->line);
        table[op->kind].rule(&d, op);
    }
    cvn_at(g, file, line);
    for (int i = 0; i < n; i++) {
        cvn_value *v = d.gradient[wrt[i]->id];
        grad_out[i] = v ? v : like(g, wrt[i], 0);
    }
    return cvn_graph_check(g, err);
}
