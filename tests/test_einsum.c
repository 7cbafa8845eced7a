/* einsum: which operations it makes, what it refuses, and that it computes what its letters say. */
#include "graph/interp/interp.h"
#include "splitmix.h"
#include "unit.h"

static cvn_graph *new_graph(void)
{
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("einsum", &err);
    assert_non_null(g);
    return g;
}

/* A size for each letter; neighbours differ. */
static int64_t letter_size(char letter)
{
    return 2 + (letter - 'a') % 7;
}

static cvn_type term_type(const char *letters, int n, cvn_dtype dtype)
{
    int64_t dim[CVN_MAX_RANK] = {0};
    for (int i = 0; i < n; i++)
        dim[i] = letter_size(letters[i]);
    return cvn_type_make(dtype, n, dim);
}

/* Parameters "a" and "b" of the shapes that the equation's letters say, and their einsum. */
static cvn_value *build(cvn_graph *g, const char *equation, cvn_dtype dtype)
{
    const char *comma = strchr(equation, ','), *arrow = strstr(equation, "->");
    cvn_type lhs = term_type(equation, (int)(comma - equation), dtype);
    cvn_type rhs = term_type(comma + 1, (int)(arrow - comma - 1), dtype);
    cvn_value *a = cvn_parameter(g, "a", lhs), *b = cvn_parameter(g, "b", rhs);
    return cvn_einsum(g, equation, a, b);
}

static int count(const cvn_graph *g, OpKind kind)
{
    int n = 0;
    for (const Op *op = g->first; op; op = op->next)
        n += op->kind == kind;
    return n;
}

static void products_of_llama_need_no_transpose(void **state)
{
    static const char *const equations[] = {
        "bsd,dnh->bsnh", "bsd,nhd->bsnh", "bsnh,dnh->bsd",   "bsd,vd->bsv",     "bsd,fd->bsf",
        "bd,fd->bf",     "vd,bsd->bsv",   "bngd,bncd->bngc", "bngc,bncd->bngd", "bsv,bsd->vd",
    };
    for (size_t i = 0; i < sizeof equations / sizeof *equations; i++) {
        cvn_graph *g = new_graph();
        cvn_value *v = build(g, equations[i], CVN_F32);
        assert_int_equal(cvn_graph_check(g, NULL), CVN_OK);
        assert_int_equal(count(g, OP_TRANSPOSE), 0);
        assert_int_equal(count(g, OP_DOT_GENERAL), 1);
        const char *out = strstr(equations[i], "->") + 2;
        cvn_type expected = term_type(out, (int)strlen(out), CVN_F32);
        assert_true(cvn_type_equal(&v->type, &expected));
        cvn_graph_free(g);
    }
}

static void a_transpose_is_made_where_groups_interleave(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *v = build(g, "bsd,dnh->bnsh", CVN_F32);
    cvn_type expected = term_type("bnsh", 4, CVN_F32);
    assert_true(cvn_type_equal(&v->type, &expected));
    assert_int_equal(count(g, OP_TRANSPOSE), 1);
    cvn_graph_free(g);
}

static void lonely_letters_are_summed_before_the_product(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *v = build(g, "abc,cd->a", CVN_F32);
    cvn_type expected = term_type("a", 1, CVN_F32);
    assert_true(cvn_type_equal(&v->type, &expected));
    assert_int_equal(count(g, OP_REDUCE), 2);
    cvn_graph_free(g);
}

static void the_result_takes_the_dtype_asked_for(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *a = cvn_parameter(g, "a", CVN_TYPE(CVN_BF16, 2, 3));
    cvn_value *b = cvn_parameter(g, "b", CVN_TYPE(CVN_BF16, 4, 3));
    assert_int_equal(cvn_einsum(g, "bd,fd->bf", a, b)->type.dtype, CVN_BF16);
    assert_int_equal(cvn_einsum_as(g, "bd,fd->fb", a, b, CVN_F32)->type.dtype, CVN_F32);
    assert_int_equal(cvn_graph_check(g, NULL), CVN_OK);
    cvn_graph_free(g);
}

/* The row-major position of the element that the letters' values say. */
static int64_t position(const char *letters, int n, const int64_t *at)
{
    int64_t place = 0;
    for (int i = 0; i < n; i++)
        place = place * letter_size(letters[i]) + at[letters[i] - 'a'];
    return place;
}

/* result[letters] += lhs[letters] * rhs[letters] for all values of all letters of the equation. */
static void sum_over_letters(const char *equation, const int32_t *lhs, const int32_t *rhs,
                             int32_t *result)
{
    const char *comma = strchr(equation, ','), *arrow = strstr(equation, "->");
    char letter[26];
    int n = 0;
    int64_t at[26] = {0}, points = 1;
    for (const char *c = equation; c < arrow; c++) {
        if (*c == ',' || memchr(letter, *c, (size_t)n))
            continue;
        points *= letter_size(*c);
        letter[n++] = *c;
    }
    for (int64_t p = 0; p < points; p++) {
        int64_t rest = p;
        for (int i = 0; i < n; i++) {
            at[letter[i] - 'a'] = rest % letter_size(letter[i]);
            rest /= letter_size(letter[i]);
        }
        result[position(arrow + 2, (int)strlen(arrow + 2), at)] +=
            lhs[position(equation, (int)(comma - equation), at)] *
            rhs[position(comma + 1, (int)(arrow - comma - 1), at)];
    }
}

static void it_computes_what_the_letters_say(void **state)
{
    static const char *const equations[] = {
        "bsd,dnh->bsnh", "bsnh,dnh->bsd", "bsd,dnh->bnsh", "vd,bsd->bsv", "ab,bc->ac",
        "ab,cb->ca",     "ab,ab->",       "ab,ab->ba",     "a,b->ba",     ",ab->ba",
        "abc,cd->a",     "ab,cd->",       "abc,cbd->dbca", "ab,->b",      "abcd,bd->cb",
        "gab,gbc->gac",  "ab,b->",        "acb,cdb->dcab",
    };
    for (size_t e = 0; e < sizeof equations / sizeof *equations; e++) {
        cvn_err err = {0};
        cvn_graph *g = new_graph();
        cvn_value *v = build(g, equations[e], CVN_I32);
        cvn_output(g, v);
        assert_int_equal(cvn_graph_check(g, &err), CVN_OK);
        uint64_t random = e;
        int32_t *input[2];
        for (int p = 0; p < 2; p++) {
            int64_t n = cvn_type_elements(&g->parameter[p]->type);
            input[p] = calloc((size_t)n, sizeof **input);
            assert_non_null(input[p]);
            for (int64_t i = 0; i < n; i++)
                input[p][i] = draw(&random, 19) - 9;
        }
        size_t bytes = cvn_type_bytes(&v->type);
        int32_t *expected = calloc(1, bytes);
        assert_non_null(expected);
        sum_over_letters(equations[e], input[0], input[1], expected);
        void *got = NULL;
        const void *inputs[2] = {input[0], input[1]};
        assert_int_equal(interp_run_one(g, inputs, &got, &err), CVN_OK);
        if (memcmp(got, expected, bytes) != 0)
            fail_msg("\"%s\" computes something else", equations[e]);
        free(got);
        free(expected);
        free(input[0]);
        free(input[1]);
        cvn_graph_free(g);
    }
}

static void mistakes_are_named(void **state)
{
    static const struct {
        const char *equation, *message;
    } wrong[] = {
        {"ab,bc", "malformed"},
        {"ab,bc->ac ", "malformed"},
        {"ab->ab", "malformed"},
        {"", "malformed"},
        {"a-,bc->a", "malformed"},
        {"aa,ab->b", "'a' appears twice in the left operand"},
        {"ab,bb->a", "'b' appears twice in the right operand"},
        {"ab,bc->aca", "'a' appears twice in the result"},
        {"ab,bc->ax", "'x' of the result is in no operand"},
        {"abc,bc->ac", "the left operand is f32[2,3], but has 3 letters"},
        {"ab,b->ac", "the right operand is f32[3,4], but has 1 letters"},
        {"ab,ca->cb", "'a' is 2 in the left operand f32[2,3] and 4 in the right operand f32[3,4]"},
        {"abcdefghi,ab->a", "more than 8 letters"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cvn_graph *g = new_graph();
        cvn_value *a = cvn_parameter(g, "a", CVN_TYPE(CVN_F32, 2, 3));
        cvn_value *b = cvn_parameter(g, "b", CVN_TYPE(CVN_F32, 3, 4));
        assert_ptr_equal(cvn_einsum(g, wrong[i].equation, a, b), g->poison);
        cvn_err err = {0};
        assert_int_not_equal(cvn_graph_check(g, &err), CVN_OK);
        if (!strstr(err.message, wrong[i].message))
            fail_msg("\"%s\" gave: %s", wrong[i].equation, err.message);
        cvn_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_llama_need_no_transpose),
        cmocka_unit_test(a_transpose_is_made_where_groups_interleave),
        cmocka_unit_test(lonely_letters_are_summed_before_the_product),
        cmocka_unit_test(the_result_takes_the_dtype_asked_for),
        cmocka_unit_test(it_computes_what_the_letters_say),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
