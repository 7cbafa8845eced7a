/* Random collectives, among groups of one device, and random composites; drawn where the options say so. */
#ifndef TESTS_RANDOM_COMPOSITE_H
#define TESTS_RANDOM_COMPOSITE_H

#include "graph/panels.h"
#include "random_operand.h"

/* A collective among groups of one device. */
static inline cvn_value *random_collective(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 1);
    const int64_t self[2] = {0, 0};
    if (!r->options.collectives || !x || x->type.dtype == CVN_BOOL || x->type.dtype == CVN_I4)
        return NULL;
    int axis = random_below(r, x->type.rank);
    switch (kind) {
    case OP_ALL_REDUCE:
        return cvn_all_reduce(r->g, x, CVN_SUM, 1, 1, self);
    case OP_ALL_GATHER:
        return cvn_all_gather(r->g, x, axis, 1, 1, self);
    case OP_REDUCE_SCATTER:
        return cvn_reduce_scatter(r->g, x, CVN_MAX, axis, 1, 1, self);
    case OP_ALL_TO_ALL:
        return cvn_all_to_all(r->g, x, axis, random_below(r, x->type.rank), 1, 1, self);
    case OP_COLLECTIVE_PERMUTE:
        return cvn_collective_permute(r->g, x, random_below(r, 2), self);
    default:
        return cvn_partition_id(r->g);
    }
}

/* A quantized weight of 16 or 20 rows, or a product with it. */
static inline cvn_value *random_quantized(RandomGraph *r, OpKind kind, int64_t batch, int64_t dim)
{
    cvn_dtype dtype = random_chance(r, 50) ? CVN_I8 : CVN_I4,
              out = random_chance(r, 50) ? CVN_F32 : CVN_BF16;
    int64_t n = random_chance(r, 70) ? 32 : 20, k = dtype == CVN_I4 ? 8 : dim;
    cvn_linear_spec spec = {.contract = 1, .n_weights = 1};
    spec.q[0] = random_of_type(r, panel_type(dtype, n, k));
    spec.scale[0] = random_of_type(r, panel_scale_type(CVN_F32, n, 1));
    if (kind == OP_DEQUANTIZE && random_chance(r, 30))
        return panel_dequantize(r->g, spec.q[0], spec.scale[0], CVN_TYPE(out, n / 4, 4, k), 2);
    if (kind == OP_DEQUANTIZE) {
        bool rows =
            random_chance(r, 50); /* two dimensions of rows, or of columns in up to four groups */
        int64_t groups = 1 << random_below(r, 3);
        spec.q[0] =
            random_of_type(r, rows ? CVN_TYPE(dtype, n / 4, 4, k) : CVN_TYPE(dtype, n, 8, k));
        spec.scale[0] = random_of_type(r, rows ? CVN_TYPE(CVN_F32, n / 4, 4, 1)
                                               : CVN_TYPE(CVN_BF16, n, groups));
        return cvn_dequantize(r->g, spec.q[0], spec.scale[0], out);
    }
    cvn_value *results[OP_MOST_RESULTS] = {NULL};
    spec.type[0] = spec.type[1] = CVN_TYPE(out, batch, 1, n);
    if (random_chance(r, 50)) {
        spec.n_weights = 2;
        spec.q[1] = spec.q[0];
        spec.scale[1] = spec.scale[0];
    }
    cvn_value *x = random_of_type(r, CVN_TYPE(CVN_BF16, batch, 1, k));
    if (random_chance(r, 30))
        x = cvn_rms_norm(r->g, x, random_of_type(r, CVN_TYPE(CVN_F32, k)), 1e-5, CVN_BF16);
    cvn_linear(r->g, x, &spec, results);
    return results[0];
}

/* First keys, windows, chunks, caps and sinks, or none. */
static inline cvn_attention_spec random_attention(RandomGraph *r, int64_t batch, int64_t seq,
                                                  int64_t heads)
{
    cvn_attention_spec spec = {.scale = 0.5};
    if (random_chance(r, 50))
        spec.first = random_of_type(r, CVN_TYPE(CVN_I32, batch, seq));
    if (random_chance(r, 25))
        spec.window = 1 + random_below(r, 3);
    if (random_chance(r, 25))
        spec.chunk = 1 + random_below(r, 3);
    if (random_chance(r, 25))
        spec.cap = 0.7;
    if (random_chance(r, 25))
        spec.sinks = random_of_type(r, CVN_TYPE(CVN_F32, heads));
    return spec;
}

/* Products by group of up to three groups; an index may be of none of them. */
static inline cvn_value *random_grouped(RandomGraph *r, OpKind kind, int64_t batch, int64_t dim)
{
    const int64_t slots = 1 + random_below(r, 3), groups = 1 + random_below(r, 3), n = 4;
    const cvn_dtype dtype = random_chance(r, 50) ? CVN_F32 : CVN_BF16;
    cvn_value *x = random_of_type(r, CVN_TYPE(dtype, batch, slots, dim));
    cvn_value *group = random_of_type(r, CVN_TYPE(CVN_I32, batch, slots));
    if (kind == OP_GROUPED_LINEAR) {
        const int64_t rows = groups * PANEL_ROWS;
        cvn_value *in[4] = {x, random_of_type(r, panel_type(CVN_I8, rows, dim)),
                            random_of_type(r, panel_scale_type(CVN_F32, rows, 1)), group};
        const OpAttr attr = {.group_size = 1};
        const cvn_type type = CVN_TYPE(dtype, batch, slots, PANEL_ROWS);
        return graph_add(r->g, kind, &attr, 4, in, &type);
    }
    if (kind == OP_GROUPED_OUTER)
        return cvn_grouped_outer(r->g, x, random_of_type(r, CVN_TYPE(dtype, batch, slots, n)),
                                 group, groups, dtype);
    return cvn_grouped_dot(r->g, x, random_of_type(r, CVN_TYPE(dtype, groups, dim, n)), group, 1,
                           dtype);
}

static inline cvn_value *random_composite(RandomGraph *r, OpKind kind)
{
    cvn_graph *g = r->g;
    if (!r->options.composites)
        return NULL;
    cvn_dtype dtype = random_chance(r, 50) ? CVN_F32 : CVN_BF16;
    int64_t batch = 1 + random_below(r, 2), seq = 1 + random_below(r, 4),
            kv = 1 + random_below(r, 2);
    int64_t group = 1 + random_below(r, 3), dim = 2 + 2 * random_below(r, 2);
    int64_t context = seq + random_below(r, 3), heads = kv * group;
    cvn_type rows = CVN_TYPE(CVN_I32, batch), q = CVN_TYPE(dtype, batch, seq, heads, dim);
    cvn_type cache = CVN_TYPE(dtype, batch, kv, context, dim);
    cvn_value *v[7], *out[4];
    cvn_attention_spec spec;
    switch (kind) {
    case OP_RMS_NORM:
        v[0] = random_of_type(r, q);
        v[1] = random_of_type(r, CVN_TYPE(dtype, dim));
        return cvn_rms_norm(g, v[0], v[1], 1e-5, random_chance(r, 50) ? CVN_F32 : dtype);
    case OP_ROPE:
        v[0] = random_of_type(r, q);
        v[1] = random_of_type(r, CVN_TYPE(CVN_I32, batch, seq));
        v[2] = random_of_type(r, CVN_TYPE(CVN_F32, dim / 2));
        return cvn_rope(g, v[0], v[1], v[2], random_chance(r, 50));
    case OP_ATTENTION:
        v[0] = random_of_type(r, q);
        v[1] = random_of_type(r, cache);
        v[2] = random_of_type(r, cache);
        v[3] = random_of_type(r, rows);
        v[4] = random_of_type(r, rows);
        spec = random_attention(r, batch, seq, q.dim[2]);
        if (random_chance(r, 30)) {
            cvn_type eight = CVN_TYPE(CVN_I8, batch, kv, context, dim);
            cvn_type scales = CVN_TYPE(CVN_BF16, batch, kv, context, 1);
            v[1] = random_of_type(r, eight);
            spec.k_scale = random_of_type(r, scales);
            v[2] = random_of_type(r, eight);
            spec.v_scale = random_of_type(r, scales);
            spec.scale = 0.01;
        }
        if (random_chance(r, 50)) {
            /* A row's own slot, with which it lies on a device, or one that is not there. */
            int32_t slot[2];
            for (int i = 0; i < 2; i++)
                slot[i] = random_chance(r, 70) ? i : -1;
            spec.slot = cvn_constant(g, rows, slot);
            spec.table = cvn_reshape(g, cvn_iota(g, rows, 0), 2, (const int64_t[]){batch, 1});
        }
        return cvn_attention(g, v[0], v[1], v[2], v[3], v[4], &spec);
    case OP_CACHE_UPDATE:
        v[0] = random_of_type(r, cache);
        v[1] = random_of_type(r, CVN_TYPE(dtype, batch, seq, kv, dim));
        v[2] = random_of_type(r, rows);
        return cvn_cache_update(g, v[0], v[1], v[2], NULL, NULL);
    case OP_SOFTMAX_CROSS_ENTROPY:
        v[0] = random_of_type(r, CVN_TYPE(dtype, batch, context));
        v[1] = random_of_type(r, rows);
        cvn_softmax_cross_entropy(g, v[0], v[1], out);
        return out[0];
    case OP_RMS_NORM_BACKWARD:
        v[0] = random_of_type(r, q);
        v[1] = random_of_type(r, CVN_TYPE(dtype, dim));
        v[2] = random_of_type(r, q);
        cvn_rms_norm_backward(g, v[0], v[1], v[2], 1e-5, out);
        return out[0];
    case OP_ATTENTION_BACKWARD:
        for (int i = 0; i < 3; i++)
            v[i] = random_of_type(r, i ? cache : q);
        v[3] = random_of_type(r, rows);
        v[4] = random_of_type(r, rows);
        v[5] = random_of_type(r, q);
        spec = random_attention(r, batch, seq, q.dim[2]);
        cvn_attention_backward(g, v[0], v[1], v[2], v[3], v[4], v[5], &spec, out);
        return out[0];
    case OP_SOFTMAX_CROSS_ENTROPY_BACKWARD:
        v[0] = random_of_type(r, CVN_TYPE(dtype, batch, context));
        v[1] = random_of_type(r, rows);
        for (int i = 2; i < 5; i++)
            v[i] = random_of_type(r, CVN_TYPE(CVN_F32, batch));
        return cvn_softmax_cross_entropy_backward(g, v[0], v[1], v[2], v[3], v[4]);
    case OP_GROUPED_DOT:
    case OP_GROUPED_OUTER:
    case OP_GROUPED_LINEAR:
        return random_grouped(r, kind, batch, dim);
    case OP_DEQUANTIZE:
    case OP_LINEAR:
        return random_quantized(r, kind, batch, dim);
    case OP_LINEAR_INT8:
        v[0] = random_of_type(r, CVN_TYPE(CVN_I8, batch, seq, dim));
        v[1] = random_of_type(r, CVN_TYPE(CVN_BF16, batch, seq, 1));
        if (random_chance(r, 50)) {
            v[2] = random_of_type(r, panel_type(CVN_I8, 20, dim));
            v[3] = random_of_type(r, panel_scale_type(CVN_F32, 20, 1));
            return panel_linear_int8(g, v, CVN_TYPE(dtype, batch, seq, 20));
        }
        v[2] = random_of_type(r, CVN_TYPE(CVN_I8, 5, 4, dim));
        v[3] = random_of_type(r, CVN_TYPE(CVN_F32, 5, 4, 1));
        return cvn_linear_int8(g, v[0], v[1], v[2], v[3], CVN_TYPE(dtype, batch, seq, 5, 4));
    case OP_QUANTIZE_ROWS:
        cvn_quantize_rows(g, random_of_type(r, q), out);
        return out[random_below(r, 2)];
    case OP_ARGMAX: {
        cvn_value *x = random_pick(r, kind, 1);
        int axis = x ? random_below(r, x->type.rank) : 0;
        return x && x->type.dim[axis] > 0 ? cvn_argmax(g, x, axis) : NULL;
    }
    case OP_KEEP_LIKELIEST:
        v[0] = random_of_type(r, CVN_TYPE(CVN_F32, batch, context));
        v[1] = random_of_type(r, rows);
        for (int i = 2; i < 4; i++)
            v[i] = random_of_type(r, CVN_TYPE(CVN_F32, batch));
        return cvn_keep_likeliest(g, v[0], v[1], v[2], v[3]);
    case OP_CATEGORICAL:
        v[0] = random_of_type(r, CVN_TYPE(CVN_F32, batch, context));
        v[1] = random_of_type(r, CVN_TYPE(CVN_BOOL, batch));
        v[2] = random_of_type(r, CVN_TYPE(CVN_U32, batch, 2));
        return cvn_categorical(g, v[0], v[1], v[2], random_of_type(r, rows));
    default:
        for (int i = 0; i < 4; i++)
            v[i] = random_of_type(r, CVN_TYPE(CVN_U32, batch, dim));
        return cvn_random_bits(g, v[0], v[1], v[2], v[3]);
    }
}

#endif
