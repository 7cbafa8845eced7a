/* What is shared by those who make, check, print and run plans. */
#include "compile/plan.h"

void plan_free(Plan *plan)
{
    if (plan)
        cvn_graph_free(plan->graph);
}

bool ref_overlap(const BufferRef *a, const BufferRef *b)
{
    return a->bytes && b->bytes && a->space == b->space && a->parameter == b->parameter &&
           a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* A slice is dense when, past the outermost dimension of which it takes a part, it takes all; and before
   it, one. f32[4,8,2] cut to [1,3,2] is; cut to [2,3,2] is not. */
static bool slice_is_view(const Op *op, size_t *offset)
{
    const cvn_type *from = &op->operand[0]->type, *to = &op->result[0]->type;
    int64_t first = 0; /* element at which the slice begins */
    bool inside = false;
    for (int d = 0; d < from->rank; d++) {
        if (op->attr.stride.v[d] != 1 && to->dim[d] > 1)
            return false;
        if (inside && to->dim[d] != from->dim[d])
            return false;
        inside = inside || to->dim[d] != 1;
        first = first * from->dim[d] + op->attr.start.v[d];
    }
    int bits = cvn_dtype_bits(from->dtype);
    /* Packed elements: a view may not share a byte with its neighbours, whose nibble would not be zero. */
    if (bits < 8 && (first % 2 != 0 || cvn_type_elements(to) % 2 != 0))
        return false;
    *offset = (size_t)first * (size_t)bits / 8;
    /* Kernels may count on 64-byte alignment of what the plan owns. */
    return *offset % 64 == 0;
}

bool op_is_view(const Op *op, size_t *offset)
{
    *offset = 0;
    switch (op->kind) {
    case OP_RESHAPE:
        return true;
    case OP_OPTIMIZATION_BARRIER:
        return !op_is_copy(op);
    case OP_SLICE:
        return cvn_type_elements(&op->result[0]->type) > 0 && slice_is_view(op, offset);
    default:
        return false;
    }
}

cvn_value *op_root_of(cvn_value *v)
{
    size_t offset;
    while (op_is_view(v->def, &offset))
        v = v->def->operand[0];
    return v;
}
