/*
 * Folding, in the order in which it is tried:
 *
 *     constant [5, 5, 5]                 -> splat 5             all elements are the same bytes
 *     slice(splat 5), reverse, max …     -> splat 5             elements are moved or chosen from
 *     add(splat 5, splat 2)              -> splat 7             computed on scalars
 *     add([1, 2], splat 2)               -> [3, 4]              computed, since it does not grow
 *     broadcast_in_dim([1, 2])           -> left alone          would grow
 *
 * Values are computed by the interpreter, which defines what operations mean.
 */
#include "graph/fold.h"

#include "graph/interp/interp.h"

#include <stdlib.h>
#include <string.h>

/* Results above the first limit are never computed; up to the second even where that grows. */
enum { FOLD_MOST_BYTES = 16384, FOLD_SMALL_BYTES = 64 };

static const Literal *literal_of(const cvn_value *v)
{
    return v->def->kind == OP_CONSTANT && !v->spec ? &v->def->attr.literal : NULL;
}

const Literal *fold_splat_of(const cvn_value *v)
{
    const Literal *literal = literal_of(v);
    return literal && literal->splat ? literal : NULL;
}

cvn_value *fold_constant(cvn_graph *g, const cvn_type *type, const Literal *literal)
{
    return graph_add(g, OP_CONSTANT, &(OpAttr){.literal = *literal}, 0, NULL, type);
}

/* True when all elements of packed data are the same bytes. i4 shares bytes, so it is not looked
 * at. */
static bool uniform(const cvn_type *type, const void *data)
{
    if (type->dtype == CVN_I4)
        return false;
    size_t size = cvn_dtype_bytes(type->dtype, 1), bytes = cvn_type_bytes(type);
    return bytes > 0 && memcmp(data, (const char *)data + size, bytes - size) == 0;
}

/* A constant with this data (in the arena), as a splat where it can be one. */
static cvn_value *make_constant(cvn_graph *g, const cvn_type *type, const void *data)
{
    bool splat = uniform(type, data);
    size_t bytes = splat ? cvn_dtype_bytes(type->dtype, 1) : cvn_type_bytes(type);
    Literal literal = {splat, bytes, data};
    return fold_constant(g, type, &literal);
}

/* Operations that make every element of the result out of elements of the first operands, without
   arithmetic: how many operands those are; 0 for other operations. */
static int moves(const Op *op)
{
    switch (op->kind) {
    case OP_BROADCAST_IN_DIM:
    case OP_RESHAPE:
    case OP_TRANSPOSE:
    case OP_SLICE:
    case OP_REVERSE:
    case OP_DYNAMIC_SLICE:
    case OP_GATHER: /* indices are clamped, so there is nothing else to read */
        return 1;
    case OP_SORT:
        return op->n_operands == 1;
    case OP_PAD:
    case OP_DYNAMIC_UPDATE_SLICE:
        return 2;
    case OP_CONCATENATE:
        return op->n_operands;
    case OP_REDUCE: /* the largest of equals, but of none the neutral element */
        return (op->attr.reduce == CVN_MAX || op->attr.reduce == CVN_MIN ||
                op->attr.reduce == CVN_ALL || op->attr.reduce == CVN_ANY) &&
               cvn_type_elements(&op->operand[0]->type) > 0;
    default:
        return 0;
    }
}

static cvn_value *fold_moved_splat(cvn_graph *g, const Op *op)
{
    int n = moves(op);
    if (n == 0)
        return NULL;
    const Literal *first = fold_splat_of(op->operand[0]);
    for (int i = 0; i < n; i++) {
        const Literal *other = fold_splat_of(op->operand[i]);
        if (!first || !other || first->bytes != other->bytes ||
            memcmp(first->data, other->data, first->bytes) != 0)
            return NULL;
    }
    return fold_constant(g, &op->result[0]->type, first);
}

/* Elementwise on splats: computed once, on scalars. */
static cvn_value *fold_elementwise_splat(cvn_graph *g, const Op *op)
{
    enum { MOST = 3 };
    if (!class_is_elementwise(op_info[op->kind].class_))
        return NULL;
    cvn_value scalar[MOST], result;
    cvn_value *operand[MOST], *results[1] = {&result};
    const void *in[MOST];
    for (int i = 0; i < op->n_operands; i++) {
        const Literal *literal = fold_splat_of(op->operand[i]);
        if (!literal)
            return NULL;
        scalar[i] = (cvn_value){.type = cvn_scalar(op->operand[i]->type.dtype)};
        operand[i] = &scalar[i];
        in[i] = literal->data;
    }
    result = (cvn_value){.type = cvn_scalar(op->result[0]->type.dtype)};
    Op on_scalars = *op;
    on_scalars.operand = operand;
    on_scalars.result = results;
    size_t bytes = cvn_type_bytes(&result.type);
    void *data = arena_alloc(&g->arena, bytes);
    interp_op(&on_scalars, in, &data);
    return fold_constant(g, &op->result[0]->type, &(Literal){true, bytes, data});
}

/* The packed elements of a constant; a splat is written
   out in heap memory, which is put in *owned. */
static const void *elements_of(const cvn_value *v, void **owned)
{
    const Literal *literal = literal_of(v);
    if (!literal->splat)
        return literal->data;
    size_t bytes = cvn_type_bytes(&v->type);
    int64_t n = cvn_type_elements(&v->type);
    char *data = calloc(bytes ? bytes : 1, 1);
    *owned = data;
    if (data && v->type.dtype == CVN_I4) {
        memset(data, (*(const char *)literal->data & 15) * 0x11, bytes);
        if (n % 2)
            data[bytes - 1] &= 15;
    }
    for (int64_t i = 0; data && i < n && v->type.dtype != CVN_I4; i++)
        memcpy(data + (size_t)i * literal->bytes, literal->data, literal->bytes);
    return data;
}

/* Where the result is small enough to be stored in the graph. */
static cvn_value *fold_small(cvn_graph *g, const Op *op)
{
    enum { MOST = 16 };
    void *owned[MOST] = {0};
    const void *in[MOST];
    size_t stored = 0, bytes = cvn_type_bytes(&op->result[0]->type);
    for (int i = 0; i < op->n_operands; i++) {
        const Literal *literal = literal_of(op->operand[i]);
        if (!literal || cvn_type_bytes(&op->operand[i]->type) > FOLD_MOST_BYTES)
            return NULL;
        stored += literal->bytes;
    }
    if (op->n_operands > MOST || bytes > FOLD_MOST_BYTES ||
        (bytes > FOLD_SMALL_BYTES && bytes > stored))
        return NULL;
    void *data = arena_alloc(&g->arena, bytes ? bytes : 1);
    bool all = true;
    for (int i = 0; i < op->n_operands && all; i++) {
        in[i] = elements_of(op->operand[i], &owned[i]);
        all = in[i] != NULL;
    }
    if (all)
        interp_op(op, in, &data);
    for (int i = 0; i < op->n_operands; i++)
        free(owned[i]);
    return all ? make_constant(g, &op->result[0]->type, data) : NULL;
}

cvn_value *fold_op(cvn_graph *g, const Op *op)
{
    OpClass class_ = op_info[op->kind].class_;
    const cvn_type *type = &op->result[0]->type;
    const Literal *literal = &op->attr.literal;
    if (op->kind == OP_CONSTANT)
        return literal->splat || !uniform(type, literal->data)
                   ? NULL
                   : make_constant(g, type, literal->data);
    if (op->kind == OP_RESHAPE && literal_of(op->operand[0])) /* the same bytes, shared */
        return fold_constant(g, type, literal_of(op->operand[0]));
    if (op->n_results != 1 || op->n_operands == 0 || class_ == CLASS_COLLECTIVE ||
        class_ == CLASS_CONTROL)
        return NULL;
    cvn_value *folded = fold_moved_splat(g, op);
    if (!folded)
        folded = fold_elementwise_splat(g, op);
    if (!folded)
        folded = fold_small(g, op);
    return folded;
}
