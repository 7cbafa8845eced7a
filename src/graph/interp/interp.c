/* Carries out one operation, by op_record: what it means is interp_NAME of graph/ops/, or of composites composite.c. Whole
   graphs are in run.c. */
#include "graph/interp/interp_impl.h"

#include <assert.h>

void interp_op(const Op *op, const void *const *in, void *const *out)
{
    assert(op->kind < OP_COUNT);
    op_record[op->kind].interp(op, in, out);
    /* The nibble after an odd number of i4 is zero. */
    for (int i = 0; i < op->n_results && op->kind != OP_PARAMETER; i++) {
        const cvn_type *type = op_out(op, i);
        int64_t n = cvn_type_elements(type);
        if (type->dtype == CVN_I4 && n % 2)
            element_set(CVN_I4, out[i], n, 0);
    }
}
