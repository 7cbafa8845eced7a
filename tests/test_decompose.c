/* Decompositions against the interpreter's direct definitions of the composites. */
#include "graph/decompose.h"
#include "graph/interp/interp.h"
#include "graph/record.h"
#include "graph/simplify.h"
#include "model/forward.h"
#include "model_make.h"
#include "random_graph.h"
#include "unit.h"

static cvn_graph *new_graph(void)
{
    cvn_graph *g = cvn_graph_new("decompose", NULL);
    assert_non_null(g);
    return g;
}

static int count_composites(const cvn_graph *g)
{
    int n = 0;
    for (const Op *op = g->first; op; op = op->next)
        n += op_info[op->kind].class_ == CLASS_COMPOSITE;
    return n;
}

/* Both NaN, the same infinity, or as near as rounding twice instead of once allows; `slack` times that
   for graphs that do so again and again. */
static bool near_enough(cvn_dtype dtype, double a, double b, double slack)
{
    double unit = dtype == CVN_F64   ? 1e-12
                  : dtype == CVN_F32 ? 2e-5
                  : dtype == CVN_F16 ? 2e-3
                                     : 1e-2;
    if (!random_is_float(dtype) || isnan(a) || isnan(b) || isinf(a) || isinf(b))
        return a == b || (isnan(a) && isnan(b));
    return fabs(a - b) <= unit * slack * (1 + fabs(a));
}

static void **run(const cvn_graph *g, void **inputs, const char *what)
{
    cvn_err err = {0};
    void **outputs = calloc((size_t)g->n_outputs + 1, sizeof *outputs);
    assert_non_null(outputs);
    if (interp_run_one(g, (const void *const *)inputs, outputs, &err))
        fail_msg("%s: %s", what, err.message);
    return outputs;
}

/* Runs g as it is, decomposed, and simplified too, on the same inputs, and compares all outputs. */
static void compare(cvn_graph *g, void **inputs, double slack, const char *what)
{
    cvn_err err = {0};
    bool changed = false;
    cvn_graph *plain = graph_clone(g, &err);
    if (!plain || graph_decompose(plain, NULL, NULL, &changed, &err) || graph_verify(plain, &err))
        fail_msg("%s: %s", what, err.message);
    assert_true(changed);
    assert_int_equal(count_composites(plain), 0);

    void **expected = run(g, inputs, what), **got = run(plain, inputs, what);
    assert_int_equal(graph_simplify(plain, NULL, &err), 0);
    void **simplified = run(plain, inputs, what);
    for (int o = 0; o < g->n_outputs; o++) {
        const cvn_type *type = &g->output[o].value->type;
        for (int64_t i = 0; i < cvn_type_elements(type); i++) {
            double a = element_get(type->dtype, expected[o], i);
            double b = element_get(type->dtype, got[o], i);
            if (!near_enough(type->dtype, a, b, slack))
                fail_msg("%s: output %d, element %d: %.9g directly, %.9g decomposed", what, o,
                         (int)i, a, b);
        }
        if (random_difference(type, got[o], simplified[o]) >= 0)
            fail_msg("%s: output %d differs when the decomposition is simplified", what, o);
    }
    random_free(expected, g->n_outputs);
    random_free(got, g->n_outputs);
    random_free(simplified, g->n_outputs);
    cvn_graph_free(plain);
}

static void compare_with_decomposed(cvn_graph *g, void **inputs, const char *what)
{
    compare(g, inputs, 1, what);
}

/* Random numbers in every parameter; i32 ones in [low, high]. */
static void **inputs_in(const cvn_graph *g, uint64_t seed, int low, int high)
{
    void **inputs = random_inputs(g, seed, false);
    assert_non_null(inputs);
    for (int p = 0; p < g->n_parameters; p++) {
        const cvn_type *type = &g->parameter[p]->type;
        assert_non_null(inputs[p]);
        for (int64_t i = 0; type->dtype == CVN_I32 && i < cvn_type_elements(type); i++)
            ((int32_t *)inputs[p])[i] =
                low + (int32_t)(splitmix(&seed) % (uint64_t)(high - low + 1));
    }
    return inputs;
}

static void check(cvn_graph *g, uint64_t seed, int low, int high, const char *what)
{
    cvn_err err = {0};
    char name[160];
    if (cvn_graph_check(g, &err))
        fail_msg("%s: %s", what, err.message);
    void **inputs = inputs_in(g, seed, low, high);
    snprintf(name, sizeof name, "%s, seed %d", what, (int)seed);
    compare_with_decomposed(g, inputs, name);
    random_free(inputs, g->n_parameters);
    cvn_graph_free(g);
}

static const cvn_dtype floats[] = {CVN_F32, CVN_BF16, CVN_F16, CVN_F64};
enum { N_FLOATS = 4 };

static void every_composite_and_nothing_else_has_one(void **state)
{
    for (int kind = 0; kind < OP_COUNT; kind++)
        assert_int_equal(op_record[kind].decompose != NULL,
                         op_info[kind].class_ == CLASS_COMPOSITE || kind == OP_REGION);
}

static void rms_norm_agrees(void **state)
{
    for (int seed = 0; seed < 20; seed++) {
        cvn_graph *g = new_graph();
        cvn_dtype dtype = floats[seed % N_FLOATS];
        int64_t d = 1 + seed * 7 % 33;
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(dtype, 2, 3, d));
        cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(floats[seed / 4 % N_FLOATS], d));
        cvn_output(g, cvn_rms_norm(g, x, w, 1e-5, dtype));
        cvn_output(g, cvn_rms_norm(g, x, w, 0, CVN_F32));
        check(g, (uint64_t)seed, 0, 0, "rms_norm");
    }
}

static void rope_agrees_in_both_layouts(void **state)
{
    for (int seed = 0; seed < 20; seed++) {
        cvn_graph *g = new_graph();
        cvn_dtype dtype = floats[seed % N_FLOATS];
        int64_t batch = 1 + seed % 3, seq = 1 + seed % 5, heads = 1 + seed % 4;
        int64_t pairs = 1 + seed % 7;
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(dtype, batch, seq, heads, 2 * pairs));
        cvn_value *position = cvn_parameter(g, "position", CVN_TYPE(CVN_I32, batch, seq));
        cvn_value *freq = cvn_parameter(g, "inv_freq", CVN_TYPE(CVN_F32, pairs));
        cvn_output(g, cvn_rope(g, x, position, freq, false));
        cvn_output(g, cvn_rope(g, x, position, freq, true));
        check(g, (uint64_t)seed, 0, 1000, "rope");
    }
}

/* Windows, chunks, caps and sinks, each in some of the seeds, 0 being none; with parameters of a graph with so many heads. */
static cvn_attention_spec some_spec(cvn_graph *g, int seed, int64_t heads, double scale)
{
    return (cvn_attention_spec){
        .scale = scale,
        .cap = seed % 4 == 3 ? 0.6 : 0,
        .window = seed % 5 > 2 ? 1 + seed % 3 : 0,
        .chunk = seed % 7 > 4 ? 2 + seed % 2 : 0,
        .sinks = seed % 3 == 2 ? cvn_parameter(g, "sinks", CVN_TYPE(floats[seed % N_FLOATS], heads))
                               : NULL};
}

static cvn_graph *attention_graph(cvn_dtype q_type, cvn_dtype kv_type, int64_t seq, int64_t kv,
                                  int64_t group, int64_t context, int64_t dim, bool packed,
                                  int seed)
{
    cvn_graph *g = new_graph();
    cvn_value *q = cvn_parameter(g, "q", CVN_TYPE(q_type, 2, seq, kv * group, dim));
    cvn_value *k = cvn_parameter(g, "k", CVN_TYPE(kv_type, 2, kv, context, dim));
    cvn_value *v = cvn_parameter(g, "v", CVN_TYPE(kv_type, 2, kv, context, dim));
    cvn_value *start = cvn_parameter(g, "start", CVN_TYPE(CVN_I32, 2));
    cvn_value *length = cvn_parameter(g, "length", CVN_TYPE(CVN_I32, 2));
    cvn_value *first = packed ? cvn_parameter(g, "first", CVN_TYPE(CVN_I32, 2, seq)) : NULL;
    cvn_attention_spec spec = some_spec(g, seed, kv * group, 0.37);
    spec.first = first;
    cvn_output(g, cvn_attention(g, q, k, v, start, length, &spec));
    return g;
}

static void attention_agrees(void **state)
{
    for (int seed = 0; seed < 40; seed++) {
        int64_t seq = 1 + seed % 5, kv = 1 + seed % 3, group = 1 + seed / 2 % 4;
        int64_t context = seq + seed % 7, dim = 1 + seed * 3 % 11;
        cvn_dtype q = floats[seed % N_FLOATS], k = floats[seed / 4 % N_FLOATS];
        cvn_graph *g = attention_graph(q, k, seq, kv, group, context, dim, seed % 3 == 1, seed);
        check(g, (uint64_t)seed, 0, (int)context, "attention");
    }
}

static void attention_over_8_bits_agrees(void **state)
{
    for (int seed = 0; seed < 40; seed++) {
        int64_t seq = 1 + seed % 5, kv = 1 + seed % 3, group = 1 + seed / 2 % 4;
        int64_t context = seq + seed % 7, dim = 1 + seed * 3 % 11;
        cvn_graph *g = new_graph();
        cvn_type cache = CVN_TYPE(CVN_I8, 2, kv, context, dim);
        cvn_type scales = CVN_TYPE(CVN_BF16, 2, kv, context, 1);
        cvn_type rows = CVN_TYPE(CVN_I32, 2);
        cvn_value *q =
            cvn_parameter(g, "q", CVN_TYPE(floats[seed % N_FLOATS], 2, seq, kv * group, dim));
        cvn_value *k = cvn_parameter(g, "k", cache), *v = cvn_parameter(g, "v", cache);
        cvn_value *ks = cvn_parameter(g, "ks", scales), *vs = cvn_parameter(g, "vs", scales);
        cvn_value *start = cvn_parameter(g, "start", rows);
        cvn_value *length = cvn_parameter(g, "length", rows);
        cvn_attention_spec spec = some_spec(g, seed, kv * group, 0.037);
        spec.k_scale = ks;
        spec.v_scale = vs;
        cvn_output(g, cvn_attention(g, q, k, v, start, length, &spec));
        check(g, (uint64_t)seed, 0, (int)context, "attention over 8 bits");
    }
}

/* Keys past what any query sees may hold anything at all: they were never written. */
static void attention_does_not_look_at_unwritten_memory(void **state)
{
    enum { CONTEXT = 9, DIM = 4, SEQ = 2 };
    cvn_graph *g = attention_graph(CVN_F32, CVN_F32, SEQ, 1, 2, CONTEXT, DIM, false, 0);
    void **inputs = inputs_in(g, 1, 3, 3); /* start and length 3: keys 0 … 4 are seen */
    for (int b = 0; b < 2; b++) {
        for (int i = (3 + SEQ) * DIM; i < CONTEXT * DIM; i++) {
            ((float *)inputs[1])[b * CONTEXT * DIM + i] = NAN;
            ((float *)inputs[2])[b * CONTEXT * DIM + i] = i % 2 ? NAN : INFINITY;
        }
    }
    compare_with_decomposed(g, inputs, "attention with NaN behind the context");
    random_free(inputs, g->n_parameters);
    cvn_graph_free(g);
}

static void cache_update_agrees_and_skips_what_is_outside(void **state)
{
    for (int seed = 0; seed < 20; seed++) {
        cvn_graph *g = new_graph();
        cvn_dtype dtype = seed % 5 == 4 ? CVN_I8 : floats[seed % N_FLOATS];
        int64_t batch = 1 + seed % 3, kv = 1 + seed % 2, seq = 1 + seed % 4, dim = 1 + seed % 6;
        int64_t context = seq + seed % 5;
        cvn_value *cache = cvn_parameter(g, "cache", CVN_TYPE(dtype, batch, kv, context, dim));
        cvn_value *update = cvn_parameter(g, "update", CVN_TYPE(dtype, batch, seq, kv, dim));
        cvn_value *start = cvn_parameter(g, "start", CVN_TYPE(CVN_I32, batch));
        cvn_output_into(g, cvn_cache_update(g, cache, update, start, NULL, NULL), cache);
        check(g, (uint64_t)seed, -3, (int)context + 2, "cache_update");
    }
}

static void cross_entropy_agrees_and_ignores_unknown_targets(void **state)
{
    for (int seed = 0; seed < 20; seed++) {
        cvn_graph *g = new_graph();
        int64_t vocab = 1 + seed * 5 % 23;
        cvn_value *out[2];
        cvn_value *logits =
            cvn_parameter(g, "logits", CVN_TYPE(floats[seed % N_FLOATS], 2, 3, vocab));
        cvn_value *targets = cvn_parameter(g, "targets", CVN_TYPE(CVN_I32, 2, 3));
        cvn_softmax_cross_entropy(g, logits, targets, out);
        cvn_output(g, out[0]);
        cvn_output(g, out[1]);
        check(g, (uint64_t)seed, -2, (int)vocab + 1, "softmax_cross_entropy");
    }
}

static void cross_entropy_agrees_on_infinities(void **state)
{
    static const double rows[][3] = {{-INFINITY, -INFINITY, -INFINITY},
                                     {-INFINITY, 2, 1},
                                     {INFINITY, 0, 0},
                                     {NAN, 0, 1},
                                     {1e30, -1e30, 3e38}};
    cvn_graph *g = new_graph();
    cvn_value *out[2];
    cvn_value *logits = cvn_parameter(g, "logits", CVN_TYPE(CVN_F32, 5, 3));
    cvn_softmax_cross_entropy(g, logits, cvn_parameter(g, "t", CVN_TYPE(CVN_I32, 5)), out);
    cvn_output(g, out[0]);
    cvn_output(g, out[1]);
    for (int target = -1; target <= 3; target++) {
        void **inputs = inputs_in(g, 1, target, target);
        for (int i = 0; i < 15; i++)
            ((float *)inputs[0])[i] = (float)rows[i / 3][i % 3];
        compare_with_decomposed(g, inputs, "softmax_cross_entropy of infinities");
        random_free(inputs, g->n_parameters);
    }
    cvn_graph_free(g);
}

static void gradient_of_rms_norm_agrees(void **state)
{
    for (int seed = 0; seed < 20; seed++) {
        cvn_graph *g = new_graph();
        cvn_dtype dtype = floats[seed % N_FLOATS];
        int64_t d = seed == 7 ? 300 : 1 + seed * 7 % 33;
        cvn_value *out[2];
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(dtype, 2, 3, d));
        cvn_dtype other = dtype == CVN_F64 ? dtype : floats[seed / 4 % (N_FLOATS - 1)];
        cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(other, d));
        cvn_value *dy = cvn_parameter(g, "dy", CVN_TYPE(floats[seed / 2 % N_FLOATS], 2, 3, d));
        cvn_rms_norm_backward(g, x, w, dy, 1e-5, out);
        cvn_output(g, out[0]);
        cvn_output(g, out[1]);
        check(g, (uint64_t)seed, 0, 0, "rms_norm_backward");
    }
}

/* Attention's graph with its gradient instead; dy is the last parameter. */
static cvn_graph *attention_backward_graph(cvn_dtype q_type, cvn_dtype kv_type, int64_t seq,
                                           int64_t kv, int64_t group, int64_t context, int64_t dim,
                                           bool packed, int seed)
{
    cvn_graph *g = new_graph();
    cvn_value *out[4];
    cvn_value *q = cvn_parameter(g, "q", CVN_TYPE(q_type, 2, seq, kv * group, dim));
    cvn_value *k = cvn_parameter(g, "k", CVN_TYPE(kv_type, 2, kv, context, dim));
    cvn_value *v = cvn_parameter(g, "v", CVN_TYPE(kv_type, 2, kv, context, dim));
    cvn_value *start = cvn_parameter(g, "start", CVN_TYPE(CVN_I32, 2));
    cvn_value *length = cvn_parameter(g, "length", CVN_TYPE(CVN_I32, 2));
    cvn_value *dy = cvn_parameter(g, "dy", CVN_TYPE(q_type, 2, seq, kv * group, dim));
    cvn_value *first = packed ? cvn_parameter(g, "first", CVN_TYPE(CVN_I32, 2, seq)) : NULL;
    cvn_attention_spec spec = some_spec(g, seed, kv * group, 0.37);
    spec.first = first;
    cvn_attention_backward(g, q, k, v, start, length, dy, &spec, out);
    for (int i = 0; i < (spec.sinks ? 4 : 3); i++)
        cvn_output(g, out[i]);
    return g;
}

static void gradient_of_attention_agrees(void **state)
{
    for (int seed = 0; seed < 24; seed++) {
        int64_t seq = 1 + seed % 5, kv = 1 + seed % 3, group = 1 + seed / 2 % 4;
        int64_t context = seq + (seed == 5 ? 20 : seed % 7),
                dim = seed == 9 ? 70 : 1 + seed * 3 % 11;
        cvn_dtype q = floats[seed % N_FLOATS], k = floats[seed / 4 % N_FLOATS];
        cvn_graph *g =
            attention_backward_graph(q, k, seq, kv, group, context, dim, seed % 3 == 1, seed);
        check(g, (uint64_t)seed, -(int)seq, (int)context, "attention_backward");
    }
}

static void gradient_of_attention_does_not_look_at_unwritten_memory(void **state)
{
    enum { CONTEXT = 9, DIM = 4, SEQ = 2 };
    cvn_graph *g = attention_backward_graph(CVN_F32, CVN_F32, SEQ, 1, 2, CONTEXT, DIM, false, 0);
    void **inputs = inputs_in(g, 1, 3, 3); /* start and length 3: keys 0 … 4 are seen */
    for (int b = 0; b < 2; b++) {
        for (int i = (3 + SEQ) * DIM; i < CONTEXT * DIM; i++) {
            ((float *)inputs[1])[b * CONTEXT * DIM + i] = NAN;
            ((float *)inputs[2])[b * CONTEXT * DIM + i] = i % 2 ? NAN : INFINITY;
        }
    }
    void **got = run(g, inputs, "attention_backward");
    for (int i = 0; i < 2 * CONTEXT * DIM; i++)
        assert_true(isfinite(((float *)got[1])[i]) && isfinite(((float *)got[2])[i]));
    random_free(got, g->n_outputs);
    compare_with_decomposed(g, inputs, "attention_backward with NaN behind the context");
    random_free(inputs, g->n_parameters);
    cvn_graph_free(g);
}

static void gradient_of_cross_entropy_agrees(void **state)
{
    for (int seed = 0; seed < 20; seed++) {
        cvn_graph *g = new_graph();
        int64_t vocab = 1 + seed * 5 % 23;
        cvn_type rows = CVN_TYPE(CVN_F32, 2, 3);
        cvn_value *logits =
            cvn_parameter(g, "logits", CVN_TYPE(floats[seed % N_FLOATS], 2, 3, vocab));
        cvn_value *targets = cvn_parameter(g, "targets", CVN_TYPE(CVN_I32, 2, 3));
        cvn_value *lse = cvn_parameter(g, "lse", rows), *dloss = cvn_parameter(g, "dloss", rows);
        cvn_value *dlse = cvn_parameter(g, "dlse", rows);
        cvn_output(g, cvn_softmax_cross_entropy_backward(g, logits, targets, lse, dloss, dlse));
        check(g, (uint64_t)seed, -2, (int)vocab + 1, "softmax_cross_entropy_backward");
    }
}

static void argmax_agrees_with_ties_nan_and_infinities(void **state)
{
    static const cvn_dtype dtypes[] = {CVN_F32, CVN_BF16, CVN_I32, CVN_U32, CVN_I8, CVN_F16};
    for (int seed = 0; seed < 60; seed++) {
        cvn_graph *g = new_graph();
        cvn_type type = CVN_TYPE(dtypes[seed % 6], 1 + seed % 4, 1 + seed % 7, 1 + seed % 3);
        cvn_output(g, cvn_argmax(g, cvn_parameter(g, "x", type), seed % 3));
        void **inputs = random_inputs(g, (uint64_t)seed, true);
        uint64_t random = (uint64_t)seed;
        for (int64_t i = 0; random_is_float(type.dtype) && i < cvn_type_elements(&type); i++) {
            static const double few[] = {NAN, -INFINITY, -INFINITY, 1, 1, -0.0, 0};
            element_set(type.dtype, inputs[0], i, few[splitmix(&random) % 7]);
        }
        compare_with_decomposed(g, inputs, "argmax");
        random_free(inputs, 1);
        cvn_graph_free(g);
    }
}

static void random_bits_agree_bit_for_bit(void **state)
{
    cvn_graph *g = new_graph();
    cvn_type type = CVN_TYPE(CVN_U32, 5, 7);
    cvn_value *k0 = cvn_parameter(g, "k0", type), *k1 = cvn_parameter(g, "k1", type);
    cvn_value *c0 = cvn_parameter(g, "c0", type), *c1 = cvn_parameter(g, "c1", type);
    cvn_output(g, cvn_random_bits(g, k0, k1, c0, c1));
    void **inputs = random_inputs(g, 1, true);
    uint64_t random = 7;
    for (int p = 0; p < 4; p++)
        for (int i = 0; i < 35; i++)
            ((uint32_t *)inputs[p])[i] = (uint32_t)splitmix(&random);
    compare_with_decomposed(g, inputs, "random_bits");
    random_free(inputs, 4);
    cvn_graph_free(g);
}

static void likeliest_logits_agree(void **state)
{
    for (int seed = 0; seed < 24; seed++) {
        cvn_graph *g = new_graph();
        int64_t n = 1 + seed * 5 % 37;
        cvn_type row = CVN_TYPE(CVN_F32, 4);
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 4, n));
        cvn_value *k = cvn_parameter(g, "k", CVN_TYPE(CVN_I32, 4));
        cvn_value *p = cvn_parameter(g, "p", row), *min_p = cvn_parameter(g, "min_p", row);
        cvn_output(g, cvn_keep_likeliest(g, x, k, p, min_p));
        check(g, (uint64_t)seed, 0, 20, "keep_likeliest");
    }
}

static void drawn_tokens_agree(void **state)
{
    for (int seed = 0; seed < 24; seed++) {
        cvn_graph *g = new_graph();
        int64_t n = 1 + seed * 5 % 37;
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 4, n));
        cvn_value *greedy = cvn_parameter(g, "greedy", CVN_TYPE(CVN_BOOL, 4));
        cvn_value *key = cvn_parameter(g, "key", CVN_TYPE(CVN_U32, 4, 2));
        cvn_value *position = cvn_parameter(g, "position", CVN_TYPE(CVN_I32, 4));
        cvn_output(g, cvn_categorical(g, x, greedy, key, position));
        check(g, (uint64_t)seed, -3, 1000, "categorical");
    }
}

static void quantized_weights_agree(void **state)
{
    for (int seed = 0; seed < 24; seed++) {
        cvn_graph *g = new_graph();
        bool four = seed % 2;
        cvn_dtype dtype = four ? CVN_I4 : CVN_I8, out = seed % 3 ? CVN_F32 : CVN_BF16;
        int64_t n = 1 + seed * 5 % 37, k = four ? 8 * (1 + seed % 5) : 1 + seed * 3 % 23;
        int64_t groups = four ? k / 8 : 1;
        cvn_linear_spec spec = {.contract = 1, .n_weights = 1 + seed % 3};
        for (int i = 0; i < spec.n_weights; i++) {
            char name[2][8];
            snprintf(name[0], 8, "q%d", i);
            snprintf(name[1], 8, "s%d", i);
            spec.q[i] = cvn_parameter(g, name[0], panel_type(dtype, n, k));
            spec.scale[i] = cvn_parameter(
                g, name[1], panel_scale_type(seed % 5 ? CVN_F32 : CVN_BF16, n, groups));
            spec.type[i] = CVN_TYPE(out, 2, 3, n);
        }
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(floats[seed % 3], 2, 3, k));
        cvn_value *y[3] = {NULL};
        cvn_linear(g, x, &spec, y);
        for (int i = 0; i < spec.n_weights; i++)
            cvn_output(g, y[i]);
        cvn_output(g, panel_dequantize(g, spec.q[0], spec.scale[0], CVN_TYPE(out, n, k), 1));
        cvn_value *q = cvn_parameter(g, "q", CVN_TYPE(dtype, n, 2, k));
        cvn_output(g,
                   cvn_dequantize(g, q, cvn_parameter(g, "s", CVN_TYPE(CVN_BF16, n, groups)), out));
        check(g, (uint64_t)seed, -8, 8, "linear and dequantize");
    }
}

/* All bits: what is written into a cache may not depend on who wrote it. */
static void quantized_rows_agree(void **state)
{
    for (int seed = 0; seed < 60; seed++) {
        cvn_graph *g = new_graph();
        cvn_value *x =
            cvn_parameter(g, "x", CVN_TYPE(floats[seed % 3], 3, 2, 1 + seed % 7 * (seed % 5)));
        cvn_value *out[2];
        cvn_quantize_rows(g, x, out);
        cvn_output(g, out[0]);
        cvn_output(g, out[1]);
        check(g, (uint64_t)seed, -8, 8, "quantize_rows");

        g = new_graph();
        int64_t n = 1 + seed * 5 % 37, k = 1 + seed * 3 % 41;
        x = cvn_parameter(g, "x", CVN_TYPE(CVN_I8, 3, 2, k));
        cvn_value *step = cvn_parameter(g, "step", CVN_TYPE(CVN_BF16, 3, 2, 1));
        bool panels = seed % 2;
        cvn_value *q =
            cvn_parameter(g, "q", panels ? panel_type(CVN_I8, n, k) : CVN_TYPE(CVN_I8, n, k));
        cvn_value *scale = cvn_parameter(
            g, "scale", panels ? panel_scale_type(CVN_F32, n, 1) : CVN_TYPE(CVN_F32, n, 1));
        const cvn_type y = CVN_TYPE(floats[seed % 3], 3, 2, n);
        cvn_output(g, panels ? panel_linear_int8(g, (cvn_value *[]){x, step, q, scale}, y)
                             : cvn_linear_int8(g, x, step, q, scale, y));
        check(g, (uint64_t)seed, -8, 8, "linear_int8");
    }
}

/* Sections of two rows at different places, grouped heads, and a score at the end. */
static void a_whole_llama_agrees(void **state)
{
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        Model *config = model_make(
            "'hidden_size': 12, 'num_hidden_layers': 2, 'num_attention_heads': 6, "
            "'num_key_value_heads': 3, 'head_dim': 4, 'intermediate_size': 10, 'vocab_size': 17");
        model_set_interleaved(config, interleaved);
        const ModelStep step = {
            .batch = 2, .seq = 3, .context = 8, .compute = CVN_F32, .output = STEP_SCORE};
        cvn_err err = {0};
        cvn_graph *g = model_step(config, &step, &err);
        if (!g)
            fail_msg("%s", err.message);
        void **inputs = inputs_in(g, 5, 1, 3);
        for (int p = 0; p < g->n_parameters; p++)
            for (int64_t i = 0; g->parameter[p]->type.dtype == CVN_F32 &&
                                i < cvn_type_elements(&g->parameter[p]->type);
                 i++)
                ((float *)inputs[p])[i] /= 4;
        compare(g, inputs, 10, interleaved ? "interleaved llama" : "llama");
        random_free(inputs, g->n_parameters);
        cvn_graph_free(g);
    }
}

static bool keep_rms_norm(const Op *op, void *context)
{
    return op->kind == *(const OpKind *)context;
}

static void what_is_kept_stays_whole(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2, 6));
    cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(CVN_F32, 6));
    cvn_output(g, cvn_argmax(g, cvn_rms_norm(g, x, w, 1e-5, CVN_F32), 1));
    OpKind kept = OP_RMS_NORM;
    bool changed = false;
    assert_int_equal(graph_decompose(g, keep_rms_norm, &kept, &changed, NULL), 0);
    assert_true(changed);
    assert_int_equal(count_composites(g), 1);
    assert_int_equal(graph_decompose(g, keep_rms_norm, &kept, &changed, NULL), 0);
    assert_false(changed);
    cvn_graph_free(g);
}

static void names_and_marked_specs_are_taken_over(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2, 6));
    cvn_value *y = cvn_rms_norm(g, x, cvn_parameter(g, "w", CVN_TYPE(CVN_F32, 6)), 0, CVN_F32);
    cvn_spec spec = {.rank = 2};
    spec.dim[1].n = 1;
    spec.dim[1].axis[0] = "model";
    cvn_mark_sharding(g, y, &spec);
    y->name = "normed";
    cvn_output(g, y);
    assert_int_equal(graph_decompose(g, NULL, NULL, NULL, NULL), 0);
    const cvn_value *out = g->output[0].value;
    assert_string_equal(out->name, "normed");
    assert_non_null(out->spec);
    assert_string_equal(out->spec->dim[1].axis[0], "model");
    assert_int_equal(out->def->kind, OP_MULTIPLY);
    cvn_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_composite_and_nothing_else_has_one),
        cmocka_unit_test(rms_norm_agrees),
        cmocka_unit_test(rope_agrees_in_both_layouts),
        cmocka_unit_test(attention_agrees),
        cmocka_unit_test(attention_over_8_bits_agrees),
        cmocka_unit_test(attention_does_not_look_at_unwritten_memory),
        cmocka_unit_test(cache_update_agrees_and_skips_what_is_outside),
        cmocka_unit_test(cross_entropy_agrees_and_ignores_unknown_targets),
        cmocka_unit_test(cross_entropy_agrees_on_infinities),
        cmocka_unit_test(gradient_of_rms_norm_agrees),
        cmocka_unit_test(gradient_of_attention_agrees),
        cmocka_unit_test(gradient_of_attention_does_not_look_at_unwritten_memory),
        cmocka_unit_test(gradient_of_cross_entropy_agrees),
        cmocka_unit_test(argmax_agrees_with_ties_nan_and_infinities),
        cmocka_unit_test(random_bits_agree_bit_for_bit),
        cmocka_unit_test(likeliest_logits_agree),
        cmocka_unit_test(drawn_tokens_agree),
        cmocka_unit_test(quantized_weights_agree),
        cmocka_unit_test(quantized_rows_agree),
        cmocka_unit_test(a_whole_llama_agrees),
        cmocka_unit_test(what_is_kept_stays_whole),
        cmocka_unit_test(names_and_marked_specs_are_taken_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
