/* dot_general: every instruction set, dtype and layout that graphs of Llama make, at odd sizes. */
#include "kernel_check.h"

/* Partial sums of k products of numbers in [-1, 1] are about sqrt(k) / 3 and each is rounded once,
   so that the error is about k * 1e-8. */
static void set_tolerance(Check *c, cvn_dtype out, int64_t k)
{
    c->absolute = 1e-7 * (4 + (double)k);
    c->relative = out == CVN_BF16 ? 0x1p-8 : out == CVN_F16 ? 0x1p-11 : 1e-6;
    if (out != CVN_F32)
        c->absolute *= 4;
}

static void check_einsum(const char *equation, cvn_type lhs, cvn_type rhs, cvn_dtype out, int64_t k)
{
    Check c = check_begin();
    cvn_value *a = check_parameter(&c, lhs), *b = check_parameter(&c, rhs);
    check_inputs(&c, cvn_einsum_as(c.g, equation, a, b, out));
    assert_int_equal(c.op->kind, OP_DOT_GENERAL);
    set_tolerance(&c, out, k);
    check_kernels(&c, 1);
    check_end(&c);
}

static const cvn_dtype dtypes[] = {CVN_F32, CVN_BF16, CVN_F16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static void weights_of_all_odd_shapes(void **state)
{
    static const int64_t ms[] = {1, 2, 3, 4, 5, 7, 8, 9, 17, 31, 33, 50};
    static const int64_t sizes[] = {1, 3, 17, 31, 33, 64, 127};
    for (int d = 0; d < DTYPES; d++)
        for (size_t m = 0; m < sizeof ms / sizeof *ms; m++)
            for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
                int64_t k = sizes[(m + n) % 7];
                check_einsum("mk,nk->mn", CVN_TYPE(dtypes[d], ms[m], k),
                             CVN_TYPE(dtypes[d], sizes[n], k), CVN_F32, k);
            }
}

static void results_rounded_to_16_bits(void **state)
{
    for (int d = 0; d < DTYPES; d++)
        for (int64_t m = 1; m < 50; m += 16)
            check_einsum("mk,nk->mn", CVN_TYPE(dtypes[d], m, 129), CVN_TYPE(dtypes[d], 37, 129),
                         dtypes[d], 129);
}

static void blocks_larger_than_the_blocking(void **state)
{
    for (int d = 0; d < 2; d++) {
        check_einsum("mk,nk->mn", CVN_TYPE(dtypes[d], 35, 811), CVN_TYPE(dtypes[d], 601, 811),
                     CVN_F32, 811);
        check_einsum("mk,nk->mn", CVN_TYPE(dtypes[d], 523, 33), CVN_TYPE(dtypes[d], 67, 33),
                     CVN_F32, 33);
        check_einsum("mk,nk->mn", CVN_TYPE(dtypes[d], 3, 1553), CVN_TYPE(dtypes[d], 35, 1553),
                     CVN_F32, 1553);
    }
}

static void weights_with_head_dimensions(void **state)
{
    for (int d = 0; d < DTYPES; d++)
        for (int64_t s = 1; s < 50; s += 45) {
            check_einsum("bsd,nhd->bsnh", CVN_TYPE(dtypes[d], 2, s, 60),
                         CVN_TYPE(dtypes[d], 3, 20, 60), CVN_F32, 60);
            check_einsum("bsnh,dnh->bsd", CVN_TYPE(dtypes[d], 2, s, 3, 20),
                         CVN_TYPE(dtypes[d], 60, 3, 20), CVN_F32, 60);
        }
}

static void operands_stored_transposed(void **state)
{
    for (int d = 0; d < DTYPES; d++)
        for (int64_t m = 1; m < 60; m += 29) {
            check_einsum("mk,kn->mn", CVN_TYPE(dtypes[d], m, 41), CVN_TYPE(dtypes[d], 41, 53),
                         CVN_F32, 41);
            check_einsum("km,kn->mn", CVN_TYPE(dtypes[d], 41, m), CVN_TYPE(dtypes[d], 41, 53),
                         CVN_F32, 41);
            check_einsum("km,nk->mn", CVN_TYPE(dtypes[d], 41, m), CVN_TYPE(dtypes[d], 53, 41),
                         CVN_F32, 41);
            check_einsum("bsnh,bsd->dnh", CVN_TYPE(dtypes[d], 3, 13, 2, 10),
                         CVN_TYPE(dtypes[d], 3, 13, m), CVN_F32, 39);
        }
}

/* What the backward pass makes: sums over tokens, weights read along their other axis, rows and sums of two
   dimensions that lie in runs; over more columns and k than are packed at a time. */
static void operands_of_the_backward_pass(void **state)
{
    for (int d = 0; d < DTYPES; d++) {
        cvn_dtype dtype = dtypes[d];
        check_einsum("tf,te->fe", CVN_TYPE(dtype, 301, 601), CVN_TYPE(dtype, 301, 67), CVN_F32,
                     301);
        check_einsum("tf,fe->te", CVN_TYPE(dtype, 37, 805), CVN_TYPE(dtype, 805, 563), CVN_F32,
                     805);
        check_einsum("bhsd,bse->hde", CVN_TYPE(dtype, 2, 3, 41, 20), CVN_TYPE(dtype, 2, 41, 35),
                     CVN_F32, 82);
        check_einsum("bhsd,hde->bse", CVN_TYPE(dtype, 2, 3, 41, 20), CVN_TYPE(dtype, 3, 20, 35),
                     CVN_F32, 60);
        check_einsum("bse,bhsd->ehd", CVN_TYPE(dtype, 2, 41, 35), CVN_TYPE(dtype, 2, 3, 41, 20),
                     CVN_F32, 82);
    }
}

static void batches(void **state)
{
    for (int d = 0; d < DTYPES; d++) {
        check_einsum("bqnh,bknh->bnqk", CVN_TYPE(dtypes[d], 2, 5, 3, 20),
                     CVN_TYPE(dtypes[d], 2, 7, 3, 20), CVN_F32, 20);
        check_einsum("bnqk,bknh->bnqh", CVN_TYPE(dtypes[d], 2, 3, 40, 37),
                     CVN_TYPE(dtypes[d], 2, 37, 3, 20), CVN_F32, 37);
        check_einsum("bmk,bnk->bmn", CVN_TYPE(dtypes[d], 2, 45, 19), CVN_TYPE(dtypes[d], 2, 18, 19),
                     dtypes[d], 19);
    }
}

static void empty_operands(void **state)
{
    for (int d = 0; d < DTYPES; d++) {
        check_einsum("mk,nk->mn", CVN_TYPE(dtypes[d], 0, 5), CVN_TYPE(dtypes[d], 3, 5), CVN_F32, 5);
        check_einsum("mk,nk->mn", CVN_TYPE(dtypes[d], 40, 5), CVN_TYPE(dtypes[d], 0, 5), CVN_F32,
                     5);
        check_einsum("mk,nk->mn", CVN_TYPE(dtypes[d], 2, 0), CVN_TYPE(dtypes[d], 3, 0), CVN_F32, 0);
        check_einsum("mk,nk->mn", CVN_TYPE(dtypes[d], 40, 0), CVN_TYPE(dtypes[d], 3, 0), CVN_BF16,
                     0);
    }
}

/* The promise of gemm.h: a row has the same bits whatever the other rows are and however many, up
   to 32 of them; and the same among all larger numbers of rows. */
static void rows_do_not_depend_on_the_batch(void **state)
{
    enum { N = 37, K = 200, MOST = 70 };
    Pool *pool = check_pool(2);
    for (int d = 0; d < 2; d++) {
        cvn_type all = CVN_TYPE(dtypes[d], MOST, K), weight = CVN_TYPE(dtypes[d], N, K);
        Guarded x = guarded_new(cvn_type_bytes(&all)), w = guarded_new(cvn_type_bytes(&weight));
        check_fill(&all, x.data, -1, 1);
        check_fill(&weight, w.data, -1, 1);
        float few[MOST][N], many[MOST][N];
        static const int64_t ms[] = {32, 1, 2, 5, 8, 11, 70, 33, 48};
        for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
            Check c = check_begin();
            cvn_value *a = check_parameter(&c, CVN_TYPE(dtypes[d], ms[i], K));
            cvn_value *b = check_parameter(&c, weight);
            c.op = cvn_einsum_as(c.g, "mk,nk->mn", a, b, CVN_F32)->def;
            const KernelSet *backend = cpu_kernels();
            float got[MOST][N];
            for (int k = 0; k < backend->n_kernels; k++) {
                if (!kernel_matches(backend->kernel[k], c.op))
                    continue;
                check_run(&c, backend->kernel[k], pool, (const void *[]){x.data, w.data},
                          (void *[]){got});
                break;
            }
            float(*same)[N] = ms[i] <= 32 ? few : many;
            if (ms[i] == 32 || ms[i] == 70)
                memcpy(same, got, sizeof got);
            assert_memory_equal(got, same, (size_t)ms[i] * N * sizeof(float));
            cvn_graph_free(c.g);
        }
        guarded_free(&x);
        guarded_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_of_all_odd_shapes),
        cmocka_unit_test(results_rounded_to_16_bits),
        cmocka_unit_test(blocks_larger_than_the_blocking),
        cmocka_unit_test(weights_with_head_dimensions),
        cmocka_unit_test(operands_stored_transposed),
        cmocka_unit_test(operands_of_the_backward_pass),
        cmocka_unit_test(batches),
        cmocka_unit_test(empty_operands),
        cmocka_unit_test(rows_do_not_depend_on_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
