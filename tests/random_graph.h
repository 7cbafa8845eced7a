/*
 * Random legal graphs, random inputs for them, and the comparison of results: the material of
 * property tests. A pass is right when, for thousands of seeds, the graph computes the same before
 * and after it.
 *
 *     RandomOptions options = {.n_ops = 20, .n_parameters = 4, .most_elements = 200};
 *     cvn_graph *g = random_graph(seed, &options);
 *     void **inputs = random_inputs(g, seed, options.specials);
 *     … run, transform, run again, random_difference(type, a, b) < 0 for each output …
 *     random_free(inputs, g->n_parameters);
 *
 * Everything is a function of the seed. What is drawn is in random_operand.h, random_op.h, random_composite.h and
 * random_fused.h, inputs and their comparison in random_data.h.
 */
#ifndef TESTS_RANDOM_GRAPH_H
#define TESTS_RANDOM_GRAPH_H

#include "random_composite.h"
#include "random_fused.h"
#include "random_op.h"
#include "random_region.h"

typedef cvn_value *RandomMaker(RandomGraph *r, OpKind kind);

/* How operations of a kind are drawn; NULL where parameters are made otherwise. */
static inline RandomMaker *random_maker(OpKind kind)
{
    switch (op_info[kind].class_) {
    case CLASS_UNARY:
        return kind == OP_CONVERT ? random_convert : random_unary;
    case CLASS_BINARY:
        return random_binary;
    case CLASS_COLLECTIVE:
        return random_collective;
    case CLASS_COMPOSITE:
        return random_composite;
    case CLASS_CONTROL:
        return random_unary;
    default:
        break;
    }
    static RandomMaker *const table[OP_COUNT] = {
        [OP_CONSTANT] = random_new_constant,
        [OP_IOTA] = random_iota,
        [OP_SELECT] = random_select,
        [OP_CLAMP] = random_clamp,
        [OP_BROADCAST_IN_DIM] = random_broadcast,
        [OP_RESHAPE] = random_reshape,
        [OP_TRANSPOSE] = random_transpose,
        [OP_SLICE] = random_slice,
        [OP_CONCATENATE] = random_concatenate,
        [OP_PAD] = random_pad,
        [OP_REVERSE] = random_reverse,
        [OP_DYNAMIC_SLICE] = random_dynamic_slice,
        [OP_DYNAMIC_UPDATE_SLICE] = random_dynamic_update_slice,
        [OP_GATHER] = random_gather,
        [OP_SCATTER] = random_scatter,
        [OP_SORT] = random_sort,
        [OP_REDUCE] = random_reduce,
        [OP_CUMSUM] = random_running,
        [OP_CUMPROD] = random_running,
        [OP_DOT_GENERAL] = random_dot_general,
    };
    return table[kind];
}

/* Elementwise operations, what is free between them, and what they are fused with. */
static inline OpKind random_fused_kind(RandomGraph *r)
{
    static const OpKind others[] = {
        OP_RESHAPE, OP_RESHAPE, OP_OPTIMIZATION_BARRIER, OP_BROADCAST_IN_DIM, OP_SLICE,
        OP_CONVERT, OP_CONVERT, OP_DOT_GENERAL,          OP_REDUCE,           OP_TRANSPOSE};
    if (random_chance(r, 40))
        return others[random_below(r, 10)];
    for (;;) {
        OpKind kind = (OpKind)random_below(r, OP_COUNT);
        if (class_is_elementwise(op_info[kind].class_))
            return kind;
    }
}

static inline void random_note(RandomGraph *r, cvn_value *first)
{
    if (!first || first == r->g->poison)
        return;
    for (int i = 0; i < first->def->n_results; i++)
        if (r->n < (int)(sizeof r->value / sizeof *r->value))
            r->value[r->n++] = first->def->result[i];
}

static inline void random_mark(RandomGraph *r, cvn_value *v)
{
    cvn_spec spec = {.rank = v->type.rank};
    if (spec.rank) {
        int d = random_below(r, spec.rank);
        spec.dim[d].n = 1;
        spec.dim[d].axis[0] = random_chance(r, 50) ? "data" : "model";
    }
    cvn_mark_sharding(r->g, v, &spec);
}

/* Everything that nothing uses, and some of the rest, becomes an output. */
static inline void random_outputs(RandomGraph *r)
{
    uint32_t *uses = graph_uses(r->g, &r->g->arena);
    for (int i = 0; i < r->n && !r->g->err.code; i++) {
        cvn_value *v = r->value[i], *into = NULL;
        if (v->def->kind == OP_PARAMETER || (uses[v->id] && random_chance(r, 85)))
            continue;
        for (int p = 0; p < r->g->n_parameters && r->options.into; p++) {
            cvn_value *candidate = r->g->parameter[p];
            bool taken = !cvn_type_equal(&candidate->type, &v->type);
            for (int o = 0; o < r->g->n_outputs; o++)
                taken |= r->g->output[o].into == candidate;
            if (!taken)
                into = candidate;
        }
        if (into)
            cvn_output_into(r->g, v, into);
        else
            cvn_output(r->g, v);
    }
}

/* The graph of a seed; NULL when memory is out. Check it with cvn_graph_check: it is always legal. */
static inline cvn_graph *random_graph(uint64_t seed, const RandomOptions *options)
{
    RandomGraph *r = calloc(1, sizeof *r);
    cvn_graph *g = r ? cvn_graph_new("random", NULL) : NULL;
    if (!g) {
        free(r);
        return NULL;
    }
    r->g = g;
    r->options = *options;
    r->state = seed * UINT64_C(0x2545F4914F6CDD1D) + 1;
    for (int i = 0; i < options->n_parameters; i++) {
        static const cvn_dtype common[] = {CVN_F32, CVN_F32, CVN_I32, CVN_BF16, CVN_BOOL};
        bool any = random_chance(r, 30);
        cvn_dtype dtype =
            any ? (cvn_dtype)random_below(r, CVN_DTYPE_COUNT) : common[random_below(r, 5)];
        char name[16] = {'p', (char)('0' + i / 10 % 10), (char)('0' + i % 10)};
        random_note(r, cvn_parameter(g, name, random_type(r, dtype)));
    }
    OpKind kind = OP_CONSTANT;
    for (int i = 0; i < options->n_ops && !g->err.code; i++) {
        if (r->options.rows && random_chance(r, 75))
            kind = random_fused_kind(r);
        else if (!random_chance(r, 25)) /* or the same kind again, for chains of them */
            kind = (OpKind)random_below(r, OP_COUNT);
        bool region = options->regions && (kind == OP_REGION || random_chance(r, 15));
        RandomMaker *maker = region ? random_region : random_maker(kind);
        cvn_value *v = NULL;
        if (random_chance(r, 4))
            v = random_split_and_join(r, OP_CONCATENATE);
        else if (options->rows && random_chance(r, 10))
            v = random_fused(r);
        else if (maker)
            v = maker(r, kind);
        if (v && options->marks && random_chance(r, 10))
            random_mark(r, v);
        random_note(r, v);
    }
    random_outputs(r);
    free(r);
    return g;
}

#endif
