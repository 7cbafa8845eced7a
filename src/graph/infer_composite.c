/* Shape inference of the composites; what they mean is said in caravan/graph.h. */
#include "graph/attention.h"
#include "graph/infer.h"

#include <math.h>

int infer_rms_norm(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0), *weight = op_in(op, 1);
    if (x->rank < 1 || weight->rank != 1 || weight->dim[0] != x->dim[x->rank - 1])
        return infer_fail(op, err, "the weight must be a vector over the last dimension");
    if (!(op->attr.eps >= 0) || isinf(op->attr.eps))
        return infer_fail(op, err, "eps must be a finite number, not negative");
    cvn_dtype dtype = type[0].dtype == CVN_DTYPE_COUNT ? x->dtype : type[0].dtype;
    if (!dtype_is_float(dtype))
        return infer_fail(op, err, "cannot give a result of %s", cvn_dtype_name(dtype));
    type[0] = *x;
    type[0].dtype = dtype;
    return CVN_OK;
}

int infer_rope(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0), *position = op_in(op, 1), *freq = op_in(op, 2);
    if (x->rank != 4 || !dtype_is_float(x->dtype))
        return infer_fail(op, err, "x must be floats [batch, seq, heads, head_dim]");
    if (position->dtype != CVN_I32 || position->rank != 2 || position->dim[0] != x->dim[0] ||
        position->dim[1] != x->dim[1])
        return infer_fail(op, err, "positions must be i32 [batch, seq]");
    if (freq->dtype != CVN_F32 || freq->rank != 1 || freq->dim[0] * 2 != x->dim[3])
        return infer_fail(op, err, "inv_freq must be f32 [head_dim / 2]");
    type[0] = *x;
    return CVN_OK;
}

/* Operand i is i32 [batch]. */
static int check_rows(const Op *op, int i, int64_t batch, const char *name, cvn_err *err)
{
    const cvn_type *t = op_in(op, i);
    if (t->dtype != CVN_I32 || t->rank != 1 || t->dim[0] != batch)
        return infer_fail(op, err, "%s must be i32 [batch]", name);
    return CVN_OK;
}

/* k and v are of 8 bits and have scales, or of floats and have none. */
static int check_scales(const Op *op, cvn_err *err)
{
    int at = attention_scales(op);
    if (at < 5) {
        if (op->kind == OP_ATTENTION && (at >= 0 || op->n_operands > 6))
            return infer_fail(op, err, "k and v have scales where they are i8, and only there");
        return CVN_OK;
    }
    cvn_type want = *op_in(op, 1);
    want.dtype = CVN_BF16;
    want.dim[3] = 1;
    if (!cvn_type_equal(op_in(op, at), &want) || !cvn_type_equal(op_in(op, at + 1), &want))
        return infer_fail(op, err, "scales must be bf16 [batch, kv_heads, context, 1]");
    return CVN_OK;
}

int infer_attention(const Op *op, cvn_type *type, cvn_err *err)
{
    bool eight = op->kind == OP_ATTENTION && op_in(op, 1)->dtype == CVN_I8;
    const cvn_type *q = op_in(op, 0), *k = op_in(op, 1);
    if (q->rank != 4 || !dtype_is_float(q->dtype))
        return infer_fail(op, err, "q must be floats [batch, seq, heads, head_dim]");
    if (k->rank != 4 || !(dtype_is_float(k->dtype) || eight) || !cvn_type_equal(k, op_in(op, 2)))
        return infer_fail(op, err,
                          "k and v must be floats, or i8, [batch, kv_heads, context, head_dim]");
    if (k->dim[0] != q->dim[0] || k->dim[3] != q->dim[3])
        return infer_fail(op, err, "batch and head_dim of q and k must agree");
    if (k->dim[1] < 1 || q->dim[2] % k->dim[1])
        return infer_fail(op, err, "%lld heads do not share %lld KV heads evenly",
                          (long long)q->dim[2], (long long)k->dim[1]);
    if (!isfinite(op->attr.scale))
        return infer_fail(op, err, "the scale must be finite");
    TRY(check_scales(op, err));
    TRY(check_rows(op, 3, q->dim[0], "start", err));
    TRY(check_rows(op, 4, q->dim[0], "length", err));
    const cvn_value *first = attention_first(op); /* there where documents share a row */
    cvn_type want = *q;
    want.dtype = CVN_I32;
    want.rank = 2;
    want.dim[2] = want.dim[3] = 0;
    if (first && !cvn_type_equal(&first->type, &want))
        return infer_fail(op, err, "first must be i32 [batch, seq]");
    type[0] = *q;
    return CVN_OK;
}

int infer_cache_update(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *cache = op_in(op, 0), *update = op_in(op, 1);
    if (cache->rank != 4 || update->rank != 4 || cache->dtype != update->dtype ||
        cache->dtype == CVN_I4)
        return infer_fail(op, err, "cache and update must be of one dtype and rank 4");
    if (cache->dim[0] != update->dim[0] || cache->dim[1] != update->dim[2] ||
        cache->dim[3] != update->dim[3])
        return infer_fail(op, err,
                          "cache is [batch, kv_heads, context, head_dim] and update "
                          "[batch, seq, kv_heads, head_dim]");
    if (update->dim[1] > cache->dim[2])
        return infer_fail(op, err, "the update is longer than the cache");
    TRY(check_rows(op, 2, cache->dim[0], "start", err));
    type[0] = *cache;
    return CVN_OK;
}

int infer_softmax_cross_entropy(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *logits = op_in(op, 0), *targets = op_in(op, 1);
    if (logits->rank < 1 || !dtype_is_float(logits->dtype) || logits->dim[logits->rank - 1] < 1)
        return infer_fail(op, err, "logits must be floats [..., vocab]");
    cvn_type rows = *logits;
    rows.rank--;
    rows.dim[rows.rank] = 0;
    rows.dtype = CVN_I32;
    if (!cvn_type_equal(&rows, targets))
        return infer_fail(op, err, "targets must be i32, the shape of logits without vocab");
    rows.dtype = CVN_F32;
    type[0] = type[1] = rows;
    return CVN_OK;
}

int infer_argmax(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    TRY(infer_check_axis(op, op->attr.axis, x->rank, err));
    int axis = (int)op->attr.axis;
    if (x->dim[axis] < 1 || x->dim[axis] > INT32_MAX)
        return infer_fail(op, err, "axis %d has %lld elements", axis, (long long)x->dim[axis]);
    type[0] = (cvn_type){.dtype = CVN_I32};
    for (int i = 0; i < x->rank; i++)
        if (i != axis)
            type[0].dim[type[0].rank++] = x->dim[i];
    return CVN_OK;
}

int infer_random_bits(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    for (int i = 0; i < 4; i++)
        if (op_in(op, i)->dtype != CVN_U32 || !cvn_type_equal(op_in(op, i), &type[0]))
            return infer_fail(op, err, "keys and counters must be u32 of one shape");
    return CVN_OK;
}

int infer_keep_likeliest(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    if (x->dtype != CVN_F32 || x->rank != 2 || x->dim[1] > INT32_MAX)
        return infer_fail(op, err, "logits must be f32 [batch, vocab]");
    for (int i = 1; i < 4; i++) {
        cvn_type row = CVN_TYPE(i == 1 ? CVN_I32 : CVN_F32, x->dim[0]);
        if (!cvn_type_equal(op_in(op, i), &row))
            return infer_fail(op, err, "operand %d must be %s [batch]", i, i == 1 ? "i32" : "f32");
    }
    type[0] = *x;
    return CVN_OK;
}

int infer_categorical(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    if (x->dtype != CVN_F32 || x->rank != 2 || x->dim[1] < 1 || x->dim[1] > INT32_MAX)
        return infer_fail(op, err, "logits must be f32 [batch, vocab]");
    const cvn_type greedy = CVN_TYPE(CVN_BOOL, x->dim[0]), key = CVN_TYPE(CVN_U32, x->dim[0], 2);
    type[0] = CVN_TYPE(CVN_I32, x->dim[0]);
    if (!cvn_type_equal(op_in(op, 1), &greedy) || !cvn_type_equal(op_in(op, 2), &key) ||
        !cvn_type_equal(op_in(op, 3), &type[0]))
        return infer_fail(op, err,
                          "greedy must be i1 [batch], key u32 [batch, 2], position i32 [batch]");
    return CVN_OK;
}

/* Operand i is of floats, and of the shape of operand `as`. */
static int check_gradient(const Op *op, int i, int as, const char *name, cvn_err *err)
{
    cvn_type shape = *op_in(op, as);
    shape.dtype = op_in(op, i)->dtype;
    if (!dtype_is_float(shape.dtype) || !cvn_type_equal(&shape, op_in(op, i)))
        return infer_fail(op, err, "%s must be floats of the shape of operand %d", name, as);
    return CVN_OK;
}

int infer_rms_norm_backward(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0].dtype = CVN_DTYPE_COUNT;
    TRY(infer_rms_norm(op, type, err));
    TRY(check_gradient(op, 2, 0, "dy", err));
    type[0] = *op_in(op, 0);
    type[1] = *op_in(op, 1);
    return CVN_OK;
}

int infer_attention_backward(const Op *op, cvn_type *type, cvn_err *err)
{
    TRY(infer_attention(op, type, err));
    TRY(check_gradient(op, 5, 0, "dy", err));
    for (int i = 0; i < 3; i++)
        type[i] = *op_in(op, i);
    return CVN_OK;
}

int infer_softmax_cross_entropy_backward(const Op *op, cvn_type *type, cvn_err *err)
{
    static const char *const names[] = {"lse", "dloss", "dlse"};
    cvn_type rows[2];
    TRY(infer_softmax_cross_entropy(op, rows, err));
    for (int i = 0; i < 3; i++)
        if (!cvn_type_equal(op_in(op, 2 + i), &rows[0]))
            return infer_fail(op, err, "%s must be f32, the shape of targets", names[i]);
    type[0] = *op_in(op, 0);
    return CVN_OK;
}
