/* Every rule of differentiation against central differences in f64, and what is chosen where there is
   no derivative. */
#include "grad_check.h"

#include "graph/record.h"

#define F64(...) CVN_TYPE(CVN_F64, __VA_ARGS__)
#define F32(...) CVN_TYPE(CVN_F32, __VA_ARGS__)
#define I32(...) CVN_TYPE(CVN_I32, __VA_ARGS__)

static void every_kind_has_a_rule_or_a_reason(void **state)
{
    for (int kind = 0; kind < OP_COUNT; kind++)
        if ((op_record[kind].gradient != NULL) + (op_record[kind].flat != NULL) +
                (op_record[kind].refused != NULL) !=
            1)
            fail_msg("%s must have a rule or a reason for having none", op_info[kind].name);
}

static void unary_rules(void **state)
{
    static const struct {
        OpKind kind;
        double low, high;
    } cases[] = {
        {OP_NEGATE, -2, 2},   {OP_ABS, -2, -0.1},
        {OP_ABS, 0.1, 2},     {OP_EXPONENTIAL, -2, 2},
        {OP_LOG, 0.1, 3},     {OP_EXPONENTIAL_MINUS_ONE, -2, 2},
        {OP_SQRT, 0.1, 3},    {OP_LOG_PLUS_ONE, -0.8, 2},
        {OP_RSQRT, 0.1, 3},   {OP_TANH, -2, 2},
        {OP_LOGISTIC, -4, 4}, {OP_SINE, -4, 4},
        {OP_COSINE, -4, 4},   {OP_OPTIMIZATION_BARRIER, -1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Trial t = trial_new(op_info[cases[i].kind].name, (int)i);
        cvn_value *x = trial_real(&t, F64(3, 1, 5), cases[i].low, cases[i].high);
        grad_check_one(&t, graph_add(t.g, cases[i].kind, NULL, 1, &x, NULL));
    }
}

static void binary_rules(void **state)
{
    static const OpKind kinds[] = {OP_ADD,     OP_SUBTRACT, OP_MULTIPLY, OP_DIVIDE,
                                   OP_MAXIMUM, OP_MINIMUM,  OP_POWER,    OP_REMAINDER};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        Trial t = trial_new(op_info[kinds[i]].name, (int)i);
        bool positive = kinds[i] == OP_POWER;
        cvn_value *a = trial_real(&t, F64(3, 7), positive ? 0.2 : -3, 3);
        cvn_value *b = trial_real(&t, F64(3, 7), kinds[i] == OP_DIVIDE ? 0.3 : -1, 1.7);
        grad_check_one(&t, graph_add(t.g, kinds[i], NULL, 2, (cvn_value *[]){a, b}, NULL));
    }
}

static void an_operand_used_twice_gets_both_gradients(void **state)
{
    Trial t = trial_new("x * x + x", 1);
    cvn_value *x = trial_real(&t, F64(5), -2, 2);
    grad_check_one(&t, cvn_add(t.g, cvn_multiply(t.g, x, x), x));
}

static void power_of_whole_exponents(void **state)
{
    for (int e = -2; e <= 3; e++) {
        Trial t = trial_new("power of negative numbers", e + 9);
        cvn_value *x = trial_real(&t, F64(6), -2, -0.3);
        grad_check_one(&t, cvn_power(t.g, x, cvn_splat(t.g, F64(6), e)));
    }
}

static void select_and_clamp_rules(void **state)
{
    for (int scalar = 0; scalar < 2; scalar++) {
        Trial t = trial_new("select", scalar);
        cvn_type mask = scalar ? cvn_scalar(CVN_BOOL) : CVN_TYPE(CVN_BOOL, 3, 5);
        cvn_value *pred = trial_whole(&t, mask, 0, 1);
        cvn_value *a = trial_real(&t, F64(3, 5), -1, 1), *b = trial_real(&t, F64(3, 5), -1, 1);
        grad_check_one(&t, cvn_select(t.g, pred, a, b));

        t = trial_new("clamp", scalar);
        cvn_type bound = scalar ? cvn_scalar(CVN_F64) : F64(5, 7);
        cvn_value *low = trial_real(&t, bound, -1, scalar ? 0 : 1);
        cvn_value *x = trial_real(&t, F64(5, 7), -2, 2);
        cvn_value *high = trial_real(&t, bound, scalar ? 0 : -1, 1);
        grad_check_one(&t, cvn_clamp(t.g, low, x, high));
    }
}

static void shape_rules(void **state)
{
    Trial t = trial_new("broadcast_in_dim", 1);
    cvn_value *x = trial_real(&t, F64(3, 1, 2), -1, 1);
    grad_check_one(&t, cvn_broadcast_in_dim(t.g, x, F64(2, 5, 3, 4), (const int[]){2, 3, 0}));
    t = trial_new("broadcast_in_dim of size 1 to size 1", 2);
    x = trial_real(&t, F64(1, 3), -1, 1);
    grad_check_one(&t, cvn_broadcast_in_dim(t.g, x, F64(3, 2, 1), (const int[]){2, 0}));
    t = trial_new("broadcast_in_dim of a scalar", 3);
    x = trial_real(&t, cvn_scalar(CVN_F64), -1, 1);
    grad_check_one(&t, cvn_broadcast_in_dim(t.g, x, F64(3, 2), NULL));
    t = trial_new("reshape", 4);
    x = trial_real(&t, F64(3, 4), -1, 1);
    grad_check_one(&t, cvn_reshape(t.g, x, 3, (const int64_t[]){2, 1, 6}));
    t = trial_new("transpose", 5);
    x = trial_real(&t, F64(2, 3, 4, 5), -1, 1);
    grad_check_one(&t, cvn_transpose(t.g, x, (const int[]){2, 0, 3, 1}));
    t = trial_new("reverse", 6);
    x = trial_real(&t, F64(2, 3, 4), -1, 1);
    grad_check_one(&t, cvn_reverse(t.g, x, 2, (const int[]){2, 0}));
    t = trial_new("concatenate", 7);
    cvn_value *a = trial_real(&t, F64(2, 3, 2), -1, 1), *b = trial_real(&t, F64(2, 1, 2), -1, 1);
    grad_check_one(&t, cvn_concatenate(t.g, 4, (cvn_value *[]){a, b, a, b}, 1));
}

static void slice_and_pad_rules(void **state)
{
    for (int seed = 0; seed < 40; seed++) {
        Trial t = trial_new("slice", seed);
        cvn_value *x = trial_real(&t, F64(7, 5), -1, 1);
        int64_t start[2], limit[2], stride[2];
        for (int i = 0; i < 2; i++) {
            start[i] = draw(&t.random, 4);
            limit[i] = start[i] + draw(&t.random, (int)(x->type.dim[i] - start[i]) + 1);
            stride[i] = 1 + draw(&t.random, 3);
        }
        grad_check_one(&t, cvn_slice(t.g, x, start, limit, stride));

        t = trial_new("pad", seed);
        x = trial_real(&t, F64(seed % 5, 3), -1, 1);
        cvn_value *value = trial_real(&t, cvn_scalar(CVN_F64), -1, 1);
        int64_t low[2], high[2], interior[2];
        for (int i = 0; i < 2; i++) {
            interior[i] = draw(&t.random, 3);
            low[i] = draw(&t.random, 5) - 1;
            high[i] = draw(&t.random, 5) - (low[i] > 0);
        }
        grad_check_one(&t, cvn_pad(t.g, x, value, low, high, interior));
    }
}

static void dynamic_slice_rules(void **state)
{
    for (int seed = 0; seed < 10; seed++) {
        Trial t = trial_new("dynamic_slice", seed);
        cvn_value *x = trial_real(&t, F64(5, 4), -1, 1);
        cvn_value *at[2];
        for (int i = 0; i < 2; i++)
            at[i] = trial_whole(&t, cvn_scalar(CVN_I32), -2, 6);
        grad_check_one(&t, cvn_dynamic_slice(t.g, x, at, (const int64_t[]){2, 3}));

        t = trial_new("dynamic_update_slice", seed);
        x = trial_real(&t, F64(5, 4), -1, 1);
        cvn_value *update = trial_real(&t, F64(2, 3), -1, 1);
        for (int i = 0; i < 2; i++)
            at[i] = trial_whole(&t, cvn_scalar(CVN_I32), -2, 6);
        grad_check_one(&t, cvn_dynamic_update_slice(t.g, x, update, at));
    }
}

/* All forms of dimension numbers, indices in and out of bounds, several of them equal. */
static void gather_and_scatter_rules(void **state)
{
    int n = 0;
    for (int seed = 0; n < 60; seed++) {
        RandomGraph r = {.options.most_elements = 200, .state = (uint64_t)seed * 77 + 1};
        cvn_type x = random_type(&r, CVN_F64), indices, result;
        cvn_gather_dims dims;
        int64_t sizes[CVN_MAX_RANK];
        if (x.rank == 0 || !random_gather_dims(&r, &x, &dims, sizes, &indices, &result))
            continue;
        n++;
        if (seed % 4 == 3)
            indices.dtype = CVN_U32;
        int low = indices.dtype == CVN_U32 ? 0 : -3;
        Trial t = trial_new("gather", seed);
        cvn_value *v = trial_real(&t, x, -1, 1), *at = trial_whole(&t, indices, low, 6);
        grad_check_one(&t, cvn_gather(t.g, v, at, &dims, sizes));

        t = trial_new("scatter that adds", seed);
        v = trial_real(&t, x, -1, 1);
        at = trial_whole(&t, indices, low, 6);
        cvn_value *updates = trial_real(&t, result, -1, 1);
        grad_check_one(&t, cvn_scatter_add(t.g, v, at, updates, &dims));

        t = trial_new("scatter that assigns", seed);
        v = trial_real(&t, x, -1, 1);
        at = trial_whole(&t, indices, low, 6);
        updates = trial_real(&t, result, -1, 1);
        grad_check_one(&t, cvn_scatter_assign(t.g, v, at, updates, &dims));
    }
}

static void sort_rules(void **state)
{
    for (int seed = 0; seed < 12; seed++) {
        Trial t = trial_new("sort", seed);
        cvn_value *x = trial_real(&t, F64(3, 5, 2), -1, 1), *out[2];
        grad_check_one(&t, cvn_sort(t.g, x, seed % 3, seed % 2));
        t = trial_new("sort with a payload", seed);
        x = trial_real(&t, F64(3, 5, 2), -1, 1);
        cvn_value *payload = trial_real(&t, F64(3, 5, 2), -1, 1);
        cvn_sort_pair(t.g, x, payload, seed % 3, seed % 2, out);
        grad_check(&t, seed % 4 ? 2 : 1, seed % 4 == 1 ? &out[0] : seed % 4 == 0 ? &out[1] : out);
    }
}

static void reduction_rules(void **state)
{
    static const int dims[][3] = {{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}};
    for (int seed = 0; seed < 32; seed++) {
        Trial t = trial_new("reduce", seed);
        cvn_value *x = trial_real(&t, F64(3, 2, 5), 0.5, 2);
        grad_check_one(
            &t, cvn_reduce_dims(t.g, (cvn_reduce)(seed % 4), x, seed / 4 % 4, dims[seed / 8]));
        t = trial_new("cumsum", seed);
        x = trial_real(&t, F64(3, 2, 5), -1, 1);
        grad_check_one(&t, cvn_cumsum(t.g, x, seed % 3));
        t = trial_new("cumprod", seed);
        x = trial_real(&t, F64(3, seed % 8, 5), -1.5, 1.5);
        grad_check_one(&t, cvn_cumprod(t.g, x, seed % 3));
    }
}

/* A product is smooth at zeros, whatever their number. */
static void product_of_zeros(void **state)
{
    Trial t = trial_new("product with zeros", 1);
    cvn_value *x = trial_real(&t, F64(4, 5), -2, 2);
    for (int row = 0; row < 4; row++)
        for (int i = 0; i < row; i++)
            ((double *)t.data[0][0])[row * 5 + i * 2] = 0;
    grad_check_one(&t, cvn_reduce_dims(t.g, CVN_PRODUCT, x, 1, (const int[]){1}));
    t = trial_new("running products with zeros", 2);
    x = trial_real(&t, F64(4, 5), -2, 2);
    for (int row = 0; row < 4; row++)
        for (int i = 0; i < row; i++)
            ((double *)t.data[0][0])[row * 5 + i * 2] = 0;
    grad_check_one(&t, cvn_cumprod(t.g, x, 1));
}

static void dot_general_rules(void **state)
{
    static const char *const equations[] = {"ab,bc->ac",         "bsd,dnh->bsnh",  "bsnh,enh->bse",
                                            "bqkgd,bkcd->bkqgc", "a,b->ab",        "a,a->",
                                            "abc,cab->",         "abc,cda->db",    "abc,bca->abc",
                                            "ba,cb->bca",        "abcd,dbec->eba", ",->"};
    for (size_t i = 0; i < sizeof equations / sizeof *equations; i++) {
        static const int64_t size[26] = {2, 3, 4, 5, 2, 3, 2, 3, 1, 2, 2, 1, 1,
                                         4, 1, 1, 3, 1, 3, 1, 1, 1, 1, 1, 1, 1};
        Trial t = trial_new(equations[i], (int)i);
        cvn_value *v[2];
        const char *c = equations[i];
        for (int side = 0; side < 2; side++) {
            cvn_type type = cvn_scalar(CVN_F64);
            for (; *c >= 'a' && *c <= 'z'; c++)
                type.dim[type.rank++] = size[*c - 'a'];
            c++;
            v[side] = trial_real(&t, type, -1, 1);
        }
        grad_check_one(&t, cvn_einsum(t.g, equations[i], v[0], v[1]));
    }
}

/* Rows of one slot and of several, that share a row or have their own; a group that is none. */
static void grouped_dot_rule(void **state)
{
    for (int own = 0; own < 2; own++)
        for (int contract = 1; contract < 3; contract++) {
            Trial t = trial_new("grouped_dot", 2 * own + contract);
            const int32_t groups[] = {2, 0, 1, 2, 3, 0, 0, -1};
            cvn_type rows = own ? F64(2, 2, 2, 4) : F64(2, 2, 4);
            cvn_value *x = trial_real(&t, rows, -1, 1);
            cvn_value *w = trial_real(&t, contract == 2 ? F64(3, 5, 4) : F64(3, 4, 5), -1, 1);
            cvn_value *group = cvn_constant(t.g, I32(2, 2, 2), groups);
            grad_check_one(&t, cvn_grouped_dot(t.g, x, w, group, contract, CVN_F64));
        }
}

/* Four devices, in groups of all, of two, and of one. */
static void collective_rules(void **state)
{
    static const int64_t groups[][4] = {{0, 1, 2, 3}, {2, 0, 3, 1}, {3, 1, 0, 2}};
    static const int sizes[] = {4, 2, 1};
    for (int i = 0; i < 9; i++) {
        int size = sizes[i / 3], n = 4 / size, axis = i % 2;
        const int64_t *ids = groups[i % 3];
        for (int what = 0; what < 9; what++) {
            Trial t = trial_new("a collective", 10 * i + what);
            t.n_devices = 4;
            cvn_value *x = trial_real(&t, F64(4, 8), -1, 1), *y;
            switch (what) {
            case 0:
            case 1:
            case 2:
                y = cvn_all_reduce(t.g, x,
                                   what == 0   ? CVN_SUM
                                   : what == 1 ? CVN_MAX
                                               : CVN_MIN,
                                   n, size, ids);
                break;
            case 3:
            case 4:
            case 5:
                y = cvn_reduce_scatter(t.g, x,
                                       what == 3   ? CVN_SUM
                                       : what == 4 ? CVN_MAX
                                                   : CVN_MIN,
                                       axis, n, size, ids);
                break;
            case 6:
                y = cvn_all_gather(t.g, x, axis, n, size, ids);
                break;
            case 7:
                y = cvn_all_to_all(t.g, x, axis, i % 3 == 0 ? axis : 1 - axis, n, size, ids);
                break;
            default:
                y = cvn_collective_permute(t.g, x, 3, (const int64_t[]){0, 2, 2, 1, 3, 3});
            }
            grad_check_one(&t, cvn_multiply(t.g, y, y));
        }
    }
}

static void convert_rules(void **state)
{
    Trial t = trial_new("convert to f32 and back", 1);
    t.step = 1e-2; /* linear: only rounding matters */
    cvn_value *x = trial_real(&t, F64(3, 5), -1, 1);
    grad_check_one(&t, cvn_convert(t.g, cvn_convert(t.g, x, CVN_F32), CVN_F64));
}

static void rms_norm_rule(void **state)
{
    for (int seed = 0; seed < 6; seed++) {
        Trial t = trial_new("rms_norm", seed);
        int64_t d = 1 + 3 * seed;
        cvn_value *x = trial_real(&t, F64(2, 3, d), -1, 1), *w = trial_real(&t, F64(d), -1, 1);
        grad_check_one(&t, cvn_rms_norm(t.g, x, w, 1e-3, CVN_F64));
    }
}

static void rope_rule(void **state)
{
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        Trial t = trial_new("rope", interleaved);
        cvn_value *x = trial_real(&t, F64(2, 3, 3, 10), -1, 1);
        cvn_value *positions = trial_whole(&t, I32(2, 3), 0, 2000);
        float freq[5] = {1, 0.3f, 0.1f, 0.03f, 0.01f};
        cvn_value *inv_freq = cvn_constant(t.g, CVN_TYPE(CVN_F32, 5), freq);
        grad_check_one(&t, cvn_rope(t.g, x, positions, inv_freq, interleaved));
    }
}

/* Grouped heads, padding, rows at different places; windows, chunks, caps and sinks. */
static void attention_rule(void **state)
{
    for (int seed = 0; seed < 20; seed++) {
        Trial t = trial_new("attention", seed);
        int64_t seq = 1 + seed % 5, kv = 1 + seed % 3, group = 1 + seed % 2, dim = 1 + seed % 8;
        int64_t context = seq + (seed < 8 ? 3 : 4); /* with a window every query must see a key */
        cvn_value *q = trial_real(&t, F64(2, seq, kv * group, dim), -1, 1);
        cvn_value *k = trial_real(&t, F64(2, kv, context, dim), -1, 1);
        cvn_value *v = trial_real(&t, F64(2, kv, context, dim), -1, 1);
        cvn_value *start = trial_whole(&t, I32(2), 0, 4), *length = trial_whole(&t, I32(2), 0, 5);
        cvn_value *first = trial_whole(&t, I32(2, seq), -3, 0); /* up to the query itself */
        cvn_value *key = cvn_add(t.g, first, cvn_iota(t.g, I32(2, seq), 1));
        cvn_attention_spec spec = {.scale = 0.7, .first = seed % 2 ? key : NULL};
        if (seed >= 8) {
            spec.window = seed % 3 ? 1 + seed % 4 : 0;
            spec.chunk = seed % 3 == 2 ? 3 : 0;
            spec.cap = seed % 4 ? 0.8 : 0;
            spec.sinks = seed % 2 ? trial_real(&t, F64(kv * group), -1, 1) : NULL;
        }
        grad_check_one(&t, cvn_attention(t.g, q, k, v, start, length, &spec));
    }
}

static void cache_update_rule(void **state)
{
    for (int seed = 0; seed < 8; seed++) {
        Trial t = trial_new("cache_update", seed);
        cvn_value *cache = trial_real(&t, F64(2, 3, 5, 2), -1, 1);
        cvn_value *update = trial_real(&t, F64(2, 3, 3, 2), -1, 1);
        cvn_value *start = trial_whole(&t, I32(2), -4, 6);
        grad_check_one(&t, cvn_cache_update(t.g, cache, update, start, NULL, NULL));
    }
}

/* Its results are f32, even of f64: the differences are coarse, so the steps are large. */
static void softmax_cross_entropy_rule(void **state)
{
    for (int seed = 0; seed < 6; seed++) {
        Trial t = trial_new("softmax_cross_entropy", seed);
        t.step = 1e-2;
        t.tolerance = 3e-4;
        cvn_value *logits = trial_real(&t, F64(2, 3, 7), -3, 3), *out[2];
        cvn_value *targets = trial_whole(&t, I32(2, 3), -1, 7);
        cvn_softmax_cross_entropy(t.g, logits, targets, out);
        grad_check(&t, seed % 3 ? 1 : 2, seed % 3 == 1 ? &out[1] : out);
    }
}

/* What is kept passes its gradient on; what is not is -inf, which exp makes 0 with a slope of 0. */
static void keep_likeliest_rule(void **state)
{
    for (int seed = 0; seed < 6; seed++) {
        Trial t = trial_new("keep_likeliest", seed);
        t.step = 1e-3;
        t.tolerance = 3e-3;
        cvn_value *logits = trial_real(&t, F32(2, 7), -3, 3);
        cvn_value *k = cvn_splat(t.g, I32(2), seed % 5),
                  *p = cvn_splat(t.g, F32(2), 0.6 + 0.1 * seed);
        cvn_value *y = cvn_keep_likeliest(t.g, logits, k, p, cvn_splat(t.g, F32(2), 0.01));
        grad_check_one(&t, cvn_exponential(t.g, y));
    }
}

/* Runs after the rules. */
static void every_rule_was_checked(void **state)
{
    for (int kind = 0; kind < OP_COUNT; kind++)
        if (op_record[kind].gradient && !grad_seen[kind])
            fail_msg("the rule of %s was not checked", op_info[kind].name);
}

/* Gradients of sum(y) at given numbers; y is built of the parameters by `make`. */
static void gradients_at(cvn_value *(*make)(cvn_graph *g, cvn_value **x), int n_x, int64_t n,
                         const double *const *data, double **gradient)
{
    cvn_graph *g = cvn_graph_new("at", NULL);
    cvn_value *x[4], *dx[4];
    cvn_err err = {0};
    for (int i = 0; i < n_x; i++)
        x[i] = cvn_parameter(g, (char[]){(char)('a' + i), '\0'}, F64(n));
    cvn_value *y = make(g, x);
    int dims[] = {0};
    cvn_value *loss = y->type.rank ? cvn_reduce_dims(g, CVN_SUM, y, 1, dims) : y;
    must(graph_gradient(g, loss, n_x, x, dx, &err), &err);
    for (int i = 0; i < n_x; i++)
        cvn_output(g, dx[i]);
    void *outputs[4];
    must(interp_run_one(g, (const void *const *)data, outputs, &err), &err);
    for (int i = 0; i < n_x; i++)
        gradient[i] = outputs[i];
    cvn_graph_free(g);
}

static void expect(const double *got, const double *expected, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (got[i] != expected[i])
            fail_msg("%s: gradient %d is %g, not %g", what, i, got[i], expected[i]);
}

static cvn_value *make_maximum(cvn_graph *g, cvn_value **x)
{
    return cvn_maximum(g, x[0], x[1]);
}

static cvn_value *make_largest(cvn_graph *g, cvn_value **x)
{
    return cvn_reduce_dims(g, CVN_MAX, x[0], 1, (const int[]){0});
}

static cvn_value *make_clamp(cvn_graph *g, cvn_value **x)
{
    return cvn_clamp(g, x[0], x[1], x[2]);
}

static cvn_value *make_flat(cvn_graph *g, cvn_value **x)
{
    cvn_value *jumps = cvn_multiply(g, cvn_sign(g, x[0]), cvn_floor(g, x[0]));
    cvn_value *whole = cvn_convert(g, cvn_convert(g, x[0], CVN_I32), CVN_F64);
    cvn_value *finite = cvn_convert(g, cvn_is_finite(g, x[0]), CVN_F64);
    return cvn_add(g, cvn_add(g, jumps, whole), finite);
}

static cvn_value *make_power(cvn_graph *g, cvn_value **x)
{
    return cvn_power(g, x[0], x[1]);
}

static cvn_value *make_abs(cvn_graph *g, cvn_value **x)
{
    return cvn_abs(g, x[0]);
}

static void equal_elements_share(void **state)
{
    double *d[4];
    const double *ab[] = {(double[]){1, 2, 3, -0.0}, (double[]){1, 5, 2, 0}};
    gradients_at(make_maximum, 2, 4, ab, d);
    expect(d[0], (double[]){0.5, 0, 1, 0.5}, 4, "maximum");
    expect(d[1], (double[]){0.5, 1, 0, 0.5}, 4, "maximum");
    free(d[0]);
    free(d[1]);
    const double *x[] = {(double[]){3, 1, 3, 3, 3}};
    gradients_at(make_largest, 1, 5, x, d);
    expect(d[0], (double[]){0.25, 0, 0.25, 0.25, 0.25}, 5, "the largest");
    free(d[0]);
}

static void clamp_gives_each_element_to_one_operand(void **state)
{
    double *d[4];
    const double *v[] = {(double[]){0, 0, 0, 0, 0, 2, 2}, (double[]){0, 1, -1, 3, 0.5, 3, 1},
                         (double[]){1, 1, 1, 1, 1, 1, 1}};
    gradients_at(make_clamp, 3, 7, v, d);
    expect(d[0], (double[]){0, 0, 1, 0, 0, 0, 0}, 7, "clamp's low");
    expect(d[1], (double[]){1, 1, 0, 0, 1, 0, 0}, 7, "clamp's x");
    expect(d[2], (double[]){0, 0, 0, 1, 0, 1, 1}, 7, "clamp's high");
    for (int i = 0; i < 3; i++)
        free(d[i]);
}

static void flat_operations_give_zero(void **state)
{
    double *d[4];
    const double *x[] = {(double[]){-1.5, 0.3, 2.5}};
    gradients_at(make_flat, 1, 3, x, d);
    expect(d[0], (double[]){0, 0, 0}, 3, "what is flat");
    free(d[0]);
    const double *zero[] = {(double[]){0, -2, 2}};
    gradients_at(make_abs, 1, 3, zero, d);
    expect(d[0], (double[]){0, -1, 1}, 3, "abs");
    free(d[0]);
    const double *ab[] = {(double[]){0, 0, 0}, (double[]){0, 1, 2}};
    gradients_at(make_power, 2, 3, ab, d);
    expect(d[0], (double[]){0, 1, 0}, 3, "power's base");
    expect(d[1], (double[]){0, 0, 0}, 3, "power's exponent");
    free(d[0]);
    free(d[1]);
}

/* Sums of gather's gradient are kept in f32: of 300 times 1 in bf16, 256 + 1 would stay 256. */
static void gradients_have_their_values_types(void **state)
{
    cvn_graph *g = cvn_graph_new("types", NULL);
    cvn_err err = {0};
    cvn_value *master = cvn_parameter(g, "table", CVN_TYPE(CVN_F32, 2, 1));
    cvn_value *table = cvn_convert(g, master, CVN_BF16);
    cvn_value *rows = cvn_take_rows(g, table, cvn_splat(g, I32(300), 1));
    cvn_value *y = cvn_convert(g, rows, CVN_F32);
    cvn_value *loss = cvn_reduce_dims(g, CVN_SUM, y, 2, (const int[]){0, 1}), *d[2];
    must(graph_gradient(g, loss, 2, (cvn_value *[]){master, table}, d, &err), &err);
    assert_int_equal(d[0]->type.dtype, CVN_F32);
    assert_int_equal(d[1]->type.dtype, CVN_BF16);
    cvn_output(g, d[0]);
    void *out;
    const void *in[] = {(float[]){1, 1}};
    assert_int_equal(interp_run_one(g, in, &out, &err), 0);
    assert_true(((float *)out)[0] == 0 && ((float *)out)[1] == 300);
    free(out);
    cvn_graph_free(g);
}

/* A weight of one element on its way into a product in bf16, made of v[0], and v[1] where there is another one. */
typedef cvn_value *WeightMaker(cvn_graph *g, cvn_value *const *v);

static cvn_value *half(cvn_graph *g, cvn_value *x)
{
    return cvn_convert(g, x, CVN_BF16);
}

static cvn_value *weight_converted(cvn_graph *g, cvn_value *const *v)
{
    return half(g, v[0]);
}

static cvn_value *weight_scaled(cvn_graph *g, cvn_value *const *v)
{
    return half(g, cvn_multiply(g, v[0], cvn_splat(g, CVN_TYPE(CVN_F32, 1, 1), 1)));
}

static cvn_value *weight_scaled_by_a_parameter(cvn_graph *g, cvn_value *const *v)
{
    cvn_value *scale = cvn_broadcast_in_dim(g, v[2], CVN_TYPE(CVN_F32, 1, 1), NULL);
    return half(g, cvn_multiply(g, v[0], scale));
}

static cvn_value *weight_scaled_behind(cvn_graph *g, cvn_value *const *v)
{
    return cvn_multiply(g, half(g, v[0]), cvn_splat(g, CVN_TYPE(CVN_BF16, 1, 1), 1));
}

static cvn_value *weight_reshaped(cvn_graph *g, cvn_value *const *v)
{
    cvn_value *flat = cvn_reshape(g, v[0], 1, (const int64_t[]){1});
    return half(g, cvn_reshape(g, flat, 2, (const int64_t[]){1, 1}));
}

static cvn_value *weight_turned_behind(cvn_graph *g, cvn_value *const *v)
{
    cvn_value *turned = cvn_transpose(g, half(g, v[0]), (const int[]){1, 0});
    return cvn_reshape(g, turned, 2, (const int64_t[]){1, 1});
}

static cvn_value *weight_merged(cvn_graph *g, cvn_value *const *v)
{
    return half(g, cvn_add(g, v[3], cvn_einsum(g, "ij,jk->ik", v[0], v[1])));
}

static cvn_value *weight_beside_another(cvn_graph *g, cvn_value *const *v)
{
    return cvn_concatenate(g, 2, (cvn_value *[]){half(g, v[0]), half(g, v[1])}, 1);
}

static cvn_value *weight_cut_out(cvn_graph *g, cvn_value *const *v)
{
    cvn_value *both = half(g, cvn_concatenate(g, 2, (cvn_value *[]){v[1], v[0]}, 1));
    return cvn_slice_axis(g, both, 1, 1, 2);
}

/* The gradient is that by what the product read: 257, as scale is in bf16, rounds to 256. */
static cvn_value *weight_by_a_rounded_scale(cvn_graph *g, cvn_value *const *v)
{
    cvn_value *scale = half(g, cvn_divide(g, cvn_multiply(g, v[3], cvn_splat(g, v[3]->type, 257)),
                                          cvn_splat(g, v[3]->type, 256)));
    return cvn_multiply(g, half(g, v[0]), scale);
}

/* [tokens,1] times a weight that is 1: the gradient of the sum is the number of tokens, which bf16 does not have. */
static void gradients_of_what_is_made_of_weights_are_not_rounded(void **state)
{
    enum { TOKENS = 301 };
    static WeightMaker *const make[] = {weight_converted,
                                        weight_scaled,
                                        weight_scaled_by_a_parameter,
                                        weight_scaled_behind,
                                        weight_reshaped,
                                        weight_turned_behind,
                                        weight_merged,
                                        weight_beside_another,
                                        weight_cut_out,
                                        weight_by_a_rounded_scale};
    for (size_t i = 0; i < 2 * sizeof make / sizeof *make; i++) {
        cvn_graph *g = cvn_graph_new("weight", NULL);
        cvn_type one = CVN_TYPE(CVN_F32, 1, 1);
        cvn_value *v[] = {cvn_parameter(g, "w", one), cvn_parameter(g, "other", one),
                          cvn_parameter(g, "scale", cvn_scalar(CVN_F32)),
                          cvn_parameter(g, "frozen", one)};
        cvn_value *x = cvn_splat(g, CVN_TYPE(CVN_BF16, TOKENS, 1), 1), *d[2];
        cvn_value *w = make[i / 2](g, v), *y = cvn_einsum_as(g, "se,ef->sf", x, w, CVN_F32);
        if (i % 2) /* by two ways */
            y = cvn_add(g, y, cvn_einsum_as(g, "se,ef->sf", x, w, CVN_F32));
        cvn_value *loss = cvn_reduce_dims(g, CVN_SUM, y, 2, (const int[]){0, 1});
        cvn_err err = {0};
        must(graph_gradient(g, loss, 2, v, d, &err), &err);
        cvn_output(g, d[0]);
        void *out;
        const void *in[] = {(float[]){1}, (float[]){1}, (float[]){1}, (float[]){1}};
        assert_int_equal(interp_run_one(g, in, &out, &err), 0);
        if (((float *)out)[0] != TOKENS * (i % 2 ? 2.0f : 1.0f))
            fail_msg("way %d: %g", (int)i, (double)((float *)out)[0]);
        free(out);
        cvn_graph_free(g);
    }
}

/* %h = tanh of a product with %x, which nobody asked a gradient for: the sums of its gradient are rounded to bf16. */
static void gradients_of_activations_are_rounded_as_they_are(void **state)
{
    cvn_graph *g = cvn_graph_new("activation", NULL);
    cvn_err err = {0};
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 3, 4)), *d[2];
    cvn_value *w[] = {cvn_parameter(g, "w0", CVN_TYPE(CVN_F32, 4, 5)),
                      cvn_parameter(g, "w1", CVN_TYPE(CVN_F32, 5, 6))};
    cvn_value *h = half(g, cvn_tanh(g, cvn_einsum(g, "se,ef->sf", x, w[0])));
    cvn_value *y = cvn_einsum_as(g, "se,ef->sf", h, half(g, w[1]), CVN_F32);
    cvn_value *loss = cvn_reduce_dims(g, CVN_SUM, y, 2, (const int[]){0, 1});
    must(graph_gradient(g, loss, 2, w, d, &err), &err);
    int rounded = 0, exact = 0; /* products in bf16, behind the loss */
    for (const Op *op = loss->def->next; op; op = op->next)
        if (op->kind == OP_DOT_GENERAL && op->operand[0]->type.dtype == CVN_BF16)
            ++*(op->result[0]->type.dtype == CVN_BF16 ? &rounded : &exact);
    assert_int_equal(rounded, 1);
    assert_int_equal(exact, 1);
    cvn_graph_free(g);
}

static void what_cannot_be_differentiated_is_said(void **state)
{
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("product", NULL);
    cvn_value *x = cvn_parameter(g, "x", cvn_scalar(CVN_F32)), *dx;
    cvn_value *n = cvn_parameter(g, "n", cvn_scalar(CVN_I32));
    cvn_value *wide = cvn_parameter(g, "wide", CVN_TYPE(CVN_F32, 2));
    assert_int_equal(graph_gradient(g, n, 1, &x, &dx, &err), CVN_EINVAL);
    assert_int_equal(graph_gradient(g, wide, 1, &x, &dx, &err), CVN_EINVAL);
    assert_int_equal(graph_gradient(g, x, 1, &n, &dx, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "i32"));
    err = (cvn_err){0};
    cvn_value *y = cvn_all_reduce(g, x, CVN_PRODUCT, 1, 1, (const int64_t[]){0});
    assert_int_equal(graph_gradient(g, y, 1, &x, &dx, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "all_reduce"));
    cvn_graph_free(g);
}

/* The loss of a product of 8 bits, by which of its operands it is differentiated, and what says so. */
static void what_is_quantized_is_refused(void **state)
{
    enum { X, X_SCALE, Q_SCALE, WAYS };
    static const char *const refuses[WAYS] = {"quantize_rows", "linear_int8", "dequantize"};
    for (int way = 0; way < WAYS; way++)
        for (int alone = 0; alone < 2; alone++) {
            cvn_graph *g = cvn_graph_new("quantized", NULL);
            cvn_value *x = cvn_parameter(g, "x", F32(2, 4)), *dx, *rows[2];
            cvn_value *q = cvn_parameter(g, "q", CVN_TYPE(CVN_I8, 16, 4));
            cvn_value *q_scale = cvn_parameter(g, "q_scale", F32(16, 1));
            cvn_value *x_scale = cvn_parameter(g, "x_scale", CVN_TYPE(CVN_BF16, 2, 1));
            cvn_quantize_rows(g, x, rows);
            cvn_value *y = cvn_convert(g, rows[0], CVN_F32); /* without its scale */
            if (way == X_SCALE || !alone)
                y = cvn_linear_int8(g, rows[0], way == X_SCALE ? x_scale : rows[1], q, q_scale,
                                    F32(2, 16));
            if (way == Q_SCALE)
                y = cvn_dequantize(g, q, q_scale, CVN_F32);
            cvn_value *loss = cvn_reduce_dims(g, CVN_SUM, y, 2, (const int[]){0, 1});
            cvn_err err = {0};
            cvn_value *wrt[WAYS] = {x, x_scale, q_scale};
            assert_int_equal(graph_gradient(g, loss, 1, &wrt[way], &dx, &err), CVN_EINVAL);
            if (!strstr(err.message, refuses[way]))
                fail_msg("%s", err.message);
            cvn_graph_free(g);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_a_rule_or_a_reason),
        cmocka_unit_test(unary_rules),
        cmocka_unit_test(binary_rules),
        cmocka_unit_test(an_operand_used_twice_gets_both_gradients),
        cmocka_unit_test(power_of_whole_exponents),
        cmocka_unit_test(select_and_clamp_rules),
        cmocka_unit_test(shape_rules),
        cmocka_unit_test(slice_and_pad_rules),
        cmocka_unit_test(dynamic_slice_rules),
        cmocka_unit_test(gather_and_scatter_rules),
        cmocka_unit_test(sort_rules),
        cmocka_unit_test(reduction_rules),
        cmocka_unit_test(product_of_zeros),
        cmocka_unit_test(dot_general_rules),
        cmocka_unit_test(grouped_dot_rule),
        cmocka_unit_test(collective_rules),
        cmocka_unit_test(convert_rules),
        cmocka_unit_test(rms_norm_rule),
        cmocka_unit_test(rope_rule),
        cmocka_unit_test(attention_rule),
        cmocka_unit_test(cache_update_rule),
        cmocka_unit_test(softmax_cross_entropy_rule),
        cmocka_unit_test(keep_likeliest_rule),
        cmocka_unit_test(every_rule_was_checked),
        cmocka_unit_test(what_is_quantized_is_refused),
        cmocka_unit_test(equal_elements_share),
        cmocka_unit_test(clamp_gives_each_element_to_one_operand),
        cmocka_unit_test(flat_operations_give_zero),
        cmocka_unit_test(gradients_have_their_values_types),
        cmocka_unit_test(gradients_of_what_is_made_of_weights_are_not_rounded),
        cmocka_unit_test(gradients_of_activations_are_rounded_as_they_are),
        cmocka_unit_test(what_cannot_be_differentiated_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
