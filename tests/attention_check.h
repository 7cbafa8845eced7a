/* Operands of attention and of its gradient for tests of kernels, and one kernel against the interpreter. */
#ifndef CVN_TESTS_ATTENTION_CHECK_H
#define CVN_TESTS_ATTENTION_CHECK_H

#include "kernel_check.h"

#include "graph/attention.h"

/* From element `from` of each of n lines of `width` on: never written. */
static inline void check_attention_unwritten(cvn_dtype dtype, void *data, int64_t first, int64_t n,
                                             int64_t width, int64_t from)
{
    for (int64_t line = first; line < first + n; line++)
        for (int64_t e = line * width + from; e < (line + 1) * width; e++)
            element_set(dtype, data, e, NAN);
}

/* Numbers in [-2, 2). What no query sees and padding are NaN, of a cache in 8 bits its scales: it must not come out.
   backward: there is a gradient of the result, too. */
static inline void check_attention_fill(Check *c, const int64_t dim[6], const int32_t *starts,
                                        const int32_t *lengths, FirstKeys how, bool backward)
{
    int64_t b = dim[0], s = dim[1], g = dim[2], h = dim[3], n = dim[4], d = dim[5];
    const cvn_dtype q = c->op->operand[0]->type.dtype, kv = c->op->operand[1]->type.dtype;
    bool eight = kv == CVN_I8;
    int first = attention_first_at(c->op), sinks = attention_sinks(c->op);
    if (how != FIRST_NONE)
        check_fill_first(how, b, s, starts, n, c->in[first].data);
    if (sinks >= 0)
        check_fill(&c->op->operand[sinks]->type, c->in[sinks].data, -3, 3);
    for (int i = 0; i < 3; i++)
        check_fill(&c->op->operand[i]->type, c->in[i].data, eight && i ? -127 : -2,
                   eight && i ? 128 : 2);
    for (int i = 5; i < 7 && eight; i++)
        check_fill(&c->op->operand[i]->type, c->in[i].data, 0, 2.0 / 127);
    for (int64_t i = 0; i < b; i++) {
        ((int32_t *)c->in[3].data)[i] = starts[i];
        ((int32_t *)c->in[4].data)[i] = lengths[i];
        int64_t real = lengths[i] < s ? lengths[i] : s, seen = starts[i] + real;
        int64_t width = eight ? 1 : d;
        seen = seen > 0 ? seen : 0;
        for (int t = eight ? 5 : 1; t < (eight ? 7 : 3); t++)
            check_attention_unwritten(eight ? CVN_BF16 : kv, c->in[t].data, i * h, h, n * width,
                                      seen * width);
        check_attention_unwritten(q, c->in[0].data, i, 1, s * g * h * d, real * g * h * d);
        if (backward)
            check_attention_unwritten(q, c->in[5].data, i, 1, s * g * h * d, real * g * h * d);
    }
}

/* What an attention has beside what every one has; NULL: nothing. */
typedef struct Extra {
    int64_t window, chunk;
    double cap;
    bool sinks;
} Extra;

/* Parameters behind those that are always there. */
static inline cvn_attention_spec check_attention_spec(Check *c, const int64_t dim[6], cvn_dtype kv,
                                                      FirstKeys how, const Extra *extra)
{
    cvn_attention_spec spec = {.scale = 1 / sqrt((double)dim[5])};
    const cvn_type scales = CVN_TYPE(CVN_BF16, dim[0], dim[3], dim[4], 1);
    if (kv == CVN_I8) {
        spec.k_scale = check_parameter(c, scales);
        spec.v_scale = check_parameter(c, scales);
    }
    if (how != FIRST_NONE)
        spec.first = check_parameter(c, CVN_TYPE(CVN_I32, dim[0], dim[1]));
    if (!extra)
        return spec;
    spec.window = extra->window;
    spec.chunk = extra->chunk;
    spec.cap = extra->cap;
    if (extra->sinks)
        spec.sinks = check_parameter(c, CVN_TYPE(dim[4] % 2 ? CVN_BF16 : CVN_F32, dim[2] * dim[3]));
    return spec;
}

/* dim: b rows of s positions, g heads for each of h KV heads, context n, head_dim d. kv CVN_I8: with scales. */
static inline Check check_attention_begin(cvn_dtype q, cvn_dtype kv, const int64_t dim[6],
                                          const int32_t *starts, const int32_t *lengths,
                                          FirstKeys how, const Extra *extra)
{
    int64_t b = dim[0], s = dim[1], g = dim[2], h = dim[3], n = dim[4], d = dim[5];
    Check c = check_begin();
    cvn_value *v[5];
    v[0] = check_parameter(&c, CVN_TYPE(q, b, s, g * h, d));
    v[1] = check_parameter(&c, CVN_TYPE(kv, b, h, n, d));
    v[2] = check_parameter(&c, CVN_TYPE(kv, b, h, n, d));
    v[3] = check_parameter(&c, CVN_TYPE(CVN_I32, b));
    v[4] = check_parameter(&c, CVN_TYPE(CVN_I32, b));
    cvn_attention_spec spec = check_attention_spec(&c, dim, kv, how, extra);
    check_inputs(&c, cvn_attention(c.g, v[0], v[1], v[2], v[3], v[4], &spec));
    check_attention_fill(&c, dim, starts, lengths, how, false);
    return c;
}

static inline Check check_attention_backward_begin(cvn_dtype q, cvn_dtype kv, const int64_t dim[6],
                                                   const int32_t *starts, const int32_t *lengths,
                                                   FirstKeys how, const Extra *extra)
{
    int64_t b = dim[0], s = dim[1], g = dim[2], h = dim[3], n = dim[4], d = dim[5];
    Check c = check_begin();
    cvn_value *v[6], *out[4];
    v[0] = check_parameter(&c, CVN_TYPE(q, b, s, g * h, d));
    v[1] = check_parameter(&c, CVN_TYPE(kv, b, h, n, d));
    v[2] = check_parameter(&c, CVN_TYPE(kv, b, h, n, d));
    v[3] = check_parameter(&c, CVN_TYPE(CVN_I32, b));
    v[4] = check_parameter(&c, CVN_TYPE(CVN_I32, b));
    v[5] = check_parameter(&c, CVN_TYPE(q, b, s, g * h, d));
    cvn_attention_spec spec = check_attention_spec(&c, dim, kv, how, extra);
    cvn_attention_backward(c.g, v[0], v[1], v[2], v[3], v[4], v[5], &spec, out);
    check_inputs(&c, out[0]);
    check_attention_fill(&c, dim, starts, lengths, how, true);
    return c;
}

/* Holds one kernel to the interpreter, or to another kernel that is held to it elsewhere and is faster. */
static inline void check_one_kernel(Check *c, const Kernel *kernel, const Kernel *reference)
{
    const void *in[CHECK_OPERANDS];
    void *want[OP_MOST_RESULTS];
    for (int i = 0; i < c->op->n_operands; i++)
        in[i] = c->in[i].data;
    for (int r = 0; r < c->op->n_results; r++) {
        want[r] = malloc(cvn_type_bytes(&c->op->result[r]->type) + 1);
        assert_non_null(want[r]);
    }
    if (reference)
        check_run(c, reference, check_pool(1), in, want);
    else
        interp_op(c->op, in, want);
    check_kernel(c, kernel, want);
    for (int r = 0; r < c->op->n_results; r++)
        free(want[r]);
}

#endif
