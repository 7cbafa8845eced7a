/*
 * Factor rules against the interpreter: splitting along a pass-through factor gives slices of the
 * whole result, splitting along a reduction gives partial results that combine to it. The material
 * is every operation of random graphs, on random data.
 */
#include "graph/factors.h"
#include "graph/interp/interp.h"
#include "graph/record.h"
#include "random_graph.h"
#include "unit.h"

/* How many tensors are named in [text, end). */
static int tensors_in(const char *text, const char *end)
{
    int n = 1;
    for (; text < end; text++)
        n += *text == ',';
    return n;
}

static void a_notation_names_all_tensors_of_its_operation(void **state)
{
    for (int k = 0; k < OP_COUNT; k++) {
        const OpInfo *info = &op_info[k];
        const char *text = op_record[k].notation, *arrow;
        if (!text) {
            assert_non_null(op_record[k].factors);
            continue;
        }
        for (; (arrow = strstr(text, "->"));
             text += strcspn(text, "|") + (strchr(text, '|') != NULL)) {
            int operands = tensors_in(text, arrow);
            if (operands < info->least || operands > info->most)
                fail_msg("%s has no %d operands: %s", info->name, operands, text);
            if (tensors_in(arrow, arrow + strcspn(arrow, ";|")) != info->results)
                fail_msg("%s has %d results: %s", info->name, info->results, text);
        }
    }
}

static const cvn_value *tensor_of(const Op *op, int t)
{
    return t < op->n_operands ? op->operand[t] : op->result[t - op->n_operands];
}

/* Dimensions have factors whose sizes multiply to theirs; WHOLE and SHIFT dimensions may differ. */
static void check_sizes(const Op *op, const Rule *rule, uint64_t seed)
{
    for (int t = 0; t < rule->n_tensors; t++)
        for (int d = 0; d < tensor_of(op, t)->type.rank; d++) {
            int64_t size = 1;
            bool shift = false;
            for (int i = 0; i < rule->dim[t][d].n; i++) {
                size *= rule->factor[rule->dim[t][d].factor[i]].size;
                shift |= rule->factor[rule->dim[t][d].factor[i]].kind == FACTOR_SHIFT;
            }
            if (rule->dim[t][d].n && !shift && size != tensor_of(op, t)->type.dim[d])
                fail_msg("seed %llu: dimension %d of tensor %d of %s has factors of %lld",
                         (unsigned long long)seed, d, t, op_info[op->kind].name, (long long)size);
        }
}

/* Elements below a factor in a dimension: the product of the factors behind it. 0: not there. */
static int64_t stride_in(const Rule *rule, int t, int d, int f)
{
    const DimFactors *dim = &rule->dim[t][d];
    int64_t stride = 1;
    for (int i = dim->n - 1; i >= 0; i--) {
        if (dim->factor[i] == f)
            return stride;
        stride *= rule->factor[dim->factor[i]].size;
    }
    return 0;
}

static bool has_factor(const Rule *rule, const Op *op, int t, int f)
{
    for (int d = 0; d < tensor_of(op, t)->type.rank; d++)
        if (stride_in(rule, t, d, f))
            return true;
    return false;
}

/* One of n shards of a tensor along a factor. */
typedef struct Cut {
    const Rule *rule;
    int t, f;
    int64_t n, i; /* shards, and which */
} Cut;

static cvn_type cut_type(const Cut *c, cvn_type type)
{
    for (int d = 0; d < type.rank; d++)
        if (stride_in(c->rule, c->t, d, c->f))
            type.dim[d] /= c->n;
    return type;
}

/* Index in the whole tensor of element e of the shard. */
static int64_t whole_index(const Cut *c, const cvn_type *whole, const cvn_type *shard, int64_t e)
{
    int64_t index = 0, scale = 1;
    for (int d = whole->rank - 1; d >= 0; d--) {
        int64_t x = e % shard->dim[d], stride = stride_in(c->rule, c->t, d, c->f);
        e /= shard->dim[d];
        if (stride) {
            int64_t chunk = c->rule->factor[c->f].size / c->n;
            int64_t major = x / (stride * chunk), digit = x / stride % chunk, minor = x % stride;
            x = (major * chunk * c->n + c->i * chunk + digit) * stride + minor;
        }
        index += x * scale;
        scale *= whole->dim[d];
    }
    return index;
}

/* The shard's elements, newly allocated. */
static void *cut_data(const Cut *c, const cvn_type *whole, const void *data)
{
    cvn_type shard = cut_type(c, *whole);
    void *part = calloc(cvn_type_bytes(&shard) + 1, 1);
    assert_non_null(part);
    for (int64_t e = 0, n = cvn_type_elements(&shard); e < n; e++)
        element_set(shard.dtype, part, e,
                    element_get(whole->dtype, data, whole_index(c, whole, &shard, e)));
    return part;
}

/* Runs op on operands of other types; results [n_results] are newly allocated. */
static void run_op(const Op *op, const cvn_type *operand, const cvn_type *result,
                   const void *const *inputs, void **outputs, uint64_t seed)
{
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("shard", &err);
    assert_non_null(g);
    cvn_value **v = arena_array(&g->arena, (size_t)op->n_operands + 1, sizeof *v);
    for (int i = 0; i < op->n_operands; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        v[i] = cvn_parameter(g, name, operand[i]);
    }
    OpAttr attr = factor_local_attr(op, &operand[0], &g->arena);
    cvn_value *first = graph_add(g, op->kind, &attr, op->n_operands, v, result);
    for (int i = 0; i < op->n_results && !g->err.code; i++) {
        assert_true(cvn_type_equal(&first->def->result[i]->type, &result[i]));
        cvn_output(g, first->def->result[i]);
    }
    if (cvn_graph_check(g, &err) || interp_run_one(g, inputs, outputs, &err))
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
    cvn_graph_free(g);
}

enum { MOST_OPERANDS = 16, MOST_RESULTS = 3 };

/* A random instance of an operation: data of its operands, and its results on the whole. */
typedef struct Instance {
    const Op *op;
    Rule rule;
    uint64_t seed;
    cvn_type operand[MOST_OPERANDS], result[MOST_RESULTS];
    void *in[MOST_OPERANDS], *out[MOST_RESULTS];
} Instance;

static double combine(cvn_reduce how, double a, double b)
{
    switch (how) {
    case CVN_SUM:
        return a + b;
    case CVN_PRODUCT:
        return a * b;
    case CVN_MAX:
        return a > b ? a : b;
    case CVN_MIN:
        return a < b ? a : b;
    case CVN_ALL:
        return a != 0 && b != 0;
    default:
        return a != 0 || b != 0;
    }
}

static double tolerance(cvn_dtype dtype)
{
    return dtype == CVN_BF16 ? 0.02 : dtype == CVN_F16 ? 0.004 : 1e-5;
}

/* Splits along factor f into n and compares; see the head of this file. */
static void check_split(const Instance *x, int f, int64_t n)
{
    const Op *op = x->op;
    const Factor *factor = &x->rule.factor[f];
    bool sums[MOST_RESULTS]; /* the result is partial */
    for (int r = 0; r < op->n_results; r++)
        sums[r] = factor->kind == FACTOR_REDUCE && !has_factor(&x->rule, op, op->n_operands + r, f);
    double *partial[MOST_RESULTS] = {NULL};
    for (int64_t i = 0; i < n; i++) {
        cvn_type operand[MOST_OPERANDS], result[MOST_RESULTS];
        void *in[MOST_OPERANDS], *out[MOST_RESULTS];
        for (int t = 0; t < op->n_operands; t++) {
            Cut c = {&x->rule, t, f, n, i};
            operand[t] = cut_type(&c, x->operand[t]);
            in[t] = cut_data(&c, &x->operand[t], x->in[t]);
        }
        if (factor->local == LOCAL_ONCE && i > 0)
            memset(in[0], 0, cvn_type_bytes(&operand[0]));
        for (int r = 0; r < op->n_results; r++) {
            Cut c = {&x->rule, op->n_operands + r, f, n, i};
            result[r] = cut_type(&c, x->result[r]);
        }
        run_op(op, operand, result, (const void *const *)in, out, x->seed);
        for (int r = 0; r < op->n_results; r++) {
            Cut c = {&x->rule, op->n_operands + r, f, n, i};
            int64_t elements = cvn_type_elements(&result[r]);
            if (!partial[r])
                partial[r] = calloc((size_t)elements + 1, sizeof(double));
            for (int64_t e = 0; e < elements; e++) {
                double got = element_get(result[r].dtype, out[r], e);
                if (sums[r]) {
                    partial[r][e] = i ? combine(factor->how, partial[r][e], got) : got;
                    continue;
                }
                double want = element_get(result[r].dtype, x->out[r],
                                          whole_index(&c, &x->result[r], &result[r], e));
                if (!(want == got || (isnan(want) && isnan(got)) ||
                      fabs(want - got) <= 1e-5 * fabs(want)))
                    fail_msg("seed %llu: %s split by factor %d into %lld: %g, not %g",
                             (unsigned long long)x->seed, op_info[op->kind].name, f, (long long)n,
                             got, want);
            }
            free(out[r]);
        }
        for (int t = 0; t < op->n_operands; t++)
            free(in[t]);
    }
    for (int r = 0; r < op->n_results; r++) {
        for (int64_t e = 0; sums[r] && e < cvn_type_elements(&x->result[r]); e++) {
            double want = element_get(x->result[r].dtype, x->out[r], e), got = partial[r][e];
            double scale = fabs(want) + 8;
            double most = x->result[r].dtype == CVN_I8 ? 128 : 2e9;
            if (!random_is_float(x->result[r].dtype) && fabs(got) >= most)
                continue; /* integers wrap around; the doubles here do not */
            if (!(want == got || (isnan(want) && isnan(got)) ||
                  fabs(want - got) <= tolerance(x->result[r].dtype) * scale))
                fail_msg("seed %llu: %s: partial results over factor %d combine to %g, not %g",
                         (unsigned long long)x->seed, op_info[op->kind].name, f, got, want);
        }
        free(partial[r]);
    }
}

/* How often each kind of operation was split along a PASS and along a REDUCE factor. */
static int64_t splits[OP_COUNT][2];

static void check_op(const Op *op, uint64_t seed, Arena *arena)
{
    if (op->n_operands == 0 || op->n_operands > MOST_OPERANDS || op->n_results > MOST_RESULTS)
        return;
    Instance x = {.op = op, .rule = factor_rule(op, arena), .seed = seed};
    uint64_t state = seed;
    check_sizes(op, &x.rule, seed);
    for (int t = 0; t < op->n_operands; t++) {
        x.operand[t] = op->operand[t]->type;
        x.in[t] = calloc(cvn_type_bytes(&x.operand[t]) + 1, 1);
        random_fill(&state, &x.operand[t], x.in[t], false);
    }
    for (int r = 0; r < op->n_results; r++)
        x.result[r] = op->result[r]->type;
    run_op(op, x.operand, x.result, (const void *const *)x.in, x.out, seed);
    for (int f = 0; f < x.rule.n_factors; f++) {
        const Factor *factor = &x.rule.factor[f];
        if (factor->kind > FACTOR_REDUCE ||
            (factor->local != LOCAL_PLAIN && factor->local != LOCAL_ONCE))
            continue;
        for (int64_t n = 2; n <= factor->size && n <= 4; n++)
            if (factor->size % n == 0) {
                check_split(&x, f, n);
                splits[op->kind][factor->kind]++;
            }
    }
    for (int t = 0; t < op->n_operands; t++)
        free(x.in[t]);
    for (int r = 0; r < op->n_results; r++)
        free(x.out[r]);
}

static void shards_of_every_operation_make_up_the_whole(void **state)
{
    const RandomOptions options = {
        .n_ops = 30, .n_parameters = 4, .most_elements = 120, .composites = true};
    for (uint64_t seed = 1; seed <= (SANITIZED ? 100 : 400); seed++) {
        Arena arena;
        cvn_graph *g = random_graph(seed, &options);
        assert_non_null(g);
        assert_int_equal(arena_init(&arena, NULL), CVN_OK);
        for (const Op *op = g->first; op; op = op->next)
            check_op(op, seed, &arena);
        arena_free(&arena);
        cvn_graph_free(g);
    }
    for (int k = 0; k < OP_COUNT; k++) {
        OpClass class_ = op_info[k].class_;
        bool none = class_ == CLASS_LEAF || class_ == CLASS_COLLECTIVE || class_ == CLASS_REGION;
        bool reduces = k == OP_REDUCE || k == OP_DOT_GENERAL || k == OP_SCATTER;
        if (!none && splits[k][FACTOR_PASS] + splits[k][FACTOR_REDUCE] == 0)
            fail_msg("%s was never split", op_info[k].name);
        if (reduces && splits[k][FACTOR_REDUCE] == 0)
            fail_msg("%s was never split along a reduction", op_info[k].name);
    }
}

static void print_tensor(StrBuf *buf, const Rule *rule, int t, int rank)
{
    strbuf_putc(buf, '[');
    for (int d = 0; d < rank; d++) {
        const DimFactors *dim = &rule->dim[t][d];
        strbuf_puts(buf, d ? "," : "");
        for (int i = 0; i < dim->n; i++)
            strbuf_putc(buf, (char)(dim->factor[i] < 26 ? 'a' + dim->factor[i]
                                                        : 'A' + dim->factor[i] - 26));
        strbuf_puts(buf, dim->n ? "" : "1");
    }
    strbuf_putc(buf, ']');
}

/* "[a,b], [c,b] -> [a,c] reduce=b", with letters a, b, c … for the factors. */
static void rule_print(StrBuf *buf, const Rule *rule, const Op *op)
{
    static const char *const kind[] = {"pass", "reduce", "whole", "shift"};
    for (int t = 0; t < rule->n_tensors; t++) {
        bool result = t >= rule->n_operands;
        const cvn_value *v = result ? op->result[t - rule->n_operands] : op->operand[t];
        strbuf_puts(buf, t == rule->n_operands ? (t ? " -> " : "-> ") : t ? ", " : "");
        print_tensor(buf, rule, t, v->type.rank);
    }
    for (int k = FACTOR_REDUCE; k <= FACTOR_SHIFT; k++) {
        int n = 0;
        for (int f = 0; f < rule->n_factors; f++) {
            if ((int)rule->factor[f].kind != k)
                continue;
            if (n++ == 0)
                strbuf_printf(buf, " %s=", kind[k]);
            strbuf_putc(buf, (char)(f < 26 ? 'a' + f : 'A' + f - 26));
        }
    }
}

/* Rules as text, where the brute force above does not reach or the choice is worth seeing. */
static void rules_read_as_documented(void **state)
{
    cvn_graph *g = cvn_graph_new("rules", NULL);
    Arena arena;
    StrBuf out = {0};
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 4, 6, 8));
    cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(CVN_F32, 10, 8));
    cvn_value *table = cvn_parameter(g, "table", CVN_TYPE(CVN_F32, 32, 8));
    cvn_value *ids = cvn_parameter(g, "ids", CVN_TYPE(CVN_I32, 4, 6));
    cvn_value *q = cvn_parameter(g, "q", CVN_TYPE(CVN_F32, 2, 3, 8, 4));
    cvn_value *k = cvn_parameter(g, "k", CVN_TYPE(CVN_F32, 2, 2, 16, 4));
    cvn_value *keys = cvn_parameter(g, "keys", CVN_TYPE(CVN_F32, 6, 2, 16, 4)); /* pages */
    cvn_value *pages = cvn_parameter(g, "pages", CVN_TYPE(CVN_I32, 3, 2));
    cvn_value *update = cvn_parameter(g, "update", CVN_TYPE(CVN_F32, 2, 3, 2, 4));
    cvn_value *rows = cvn_parameter(g, "rows", CVN_TYPE(CVN_I32, 2));
    cvn_value *first = cvn_parameter(g, "first", CVN_TYPE(CVN_I32, 2, 3));
    cvn_value *loss[2];
    cvn_softmax_cross_entropy(g, x, ids, loss);
    const struct {
        cvn_value *v;
        const char *rule;
    } row[] = {
        {cvn_einsum(g, "bsd,fd->bsf", x, w), "[a,b,d], [c,d] -> [a,b,c] reduce=d"},
        {cvn_take_rows(g, table, ids), "[c,d], [a,b] -> [a,b,d] reduce=c"},
        {cvn_reshape(g, x, 2, (int64_t[]){24, 8}), "[a,b,c] -> [ab,c]"},
        {cvn_reshape(g, x, 3, (int64_t[]){8, 3, 8}), "[a,bc,d] -> [ab,c,d]"},
        {cvn_reshape(g, x, 3, (int64_t[]){6, 4, 8}), "[ab,c,f] -> [ad,e,f] whole=bcde"},
        {cvn_attention(g, q, k, k, rows, rows, &(cvn_attention_spec){.scale = 1}),
         "[a,b,cd,e], [a,c,f,e], [a,c,f,e], [a], [a] -> [a,b,cd,e] whole=ef"},
        {cvn_attention(g, q, k, k, rows, rows, &(cvn_attention_spec){.scale = 1, .first = first}),
         "[a,b,cd,e], [a,c,f,e], [a,c,f,e], [a], [a], [a,b] -> [a,b,cd,e] whole=ef"},
        {cvn_attention(g, q, keys, keys, rows, rows,
                       &(cvn_attention_spec){.scale = 1, .slot = rows, .table = pages}),
         "[a,b,cd,e], [a,c,f,e], [a,c,f,e], [a], [a], [a], [a,g] -> [a,b,cd,e] whole=efg"},
        {cvn_cache_update(g, keys, update, rows, rows, pages),
         "[a,b,c,e], [a,d,b,e], [a], [a], [a,f] -> [a,b,c,e] whole=cdf"},
        {cvn_slice_axis(g, x, 2, 0, 4), "[a,b,c] -> [a,b,c] shift=c"},
        {cvn_rms_norm(g, x, cvn_slice_axis(g, cvn_reshape(g, w, 1, (int64_t[]){80}), 0, 0, 8), 1e-5,
                      CVN_F32),
         "[a,b,c], [c] -> [a,b,c]"},
        {loss[0], "[a,b,c], [a,b] -> [a,b], [a,b] reduce=c"},
        {cvn_broadcast_in_dim(g, ids, CVN_TYPE(CVN_I32, 4, 5, 6), (int[]){0, 2}),
         "[a,c] -> [a,b,c]"},
    };
    assert_int_equal(cvn_graph_check(g, NULL), CVN_OK);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Rule rule = factor_rule(row[i].v->def, &arena);
        strbuf_clear(&out);
        rule_print(&out, &rule, row[i].v->def);
        assert_string_equal(out.text, row[i].rule);
    }
    strbuf_free(&out);
    arena_free(&arena);
    cvn_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_notation_names_all_tensors_of_its_operation),
        cmocka_unit_test(shards_of_every_operation_make_up_the_whole),
        cmocka_unit_test(rules_read_as_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
