/* Products with bf16 weights on AMX tiles: what fills tiles and what does not have the same bits. */
#include "amx_check.h"

#if defined(CVN_HAVE_AMX)

#include "cpu/kernels/linear.h"

static const Kernel kernel = {.name = "linear.amx.bf16",
                              .kind = OP_LINEAR,
                              .isa = &linear_bf16_amx,
                              .scratch_isa = linear_scratch,
                              .run = linear_run};

/* Runs m rows, of which each has the same numbers for any m, into y; checks them against the interpreter. */
static void run_rows(int64_t m, int64_t k, int64_t n, float *y)
{
    Check c = check_begin();
    cvn_linear_spec spec = {.contract = 1, .n_weights = 1, .type = {CVN_TYPE(CVN_F32, m, n)}};
    cvn_value *x = check_parameter(&c, CVN_TYPE(CVN_BF16, m, k)), *out[3];
    spec.q[0] = check_parameter(&c, panel_type(CVN_BF16, n, k));
    cvn_linear(c.g, x, &spec, out);
    check_inputs(&c, out[0]);
    check_state = 5;
    check_fill(&spec.q[0]->type, c.in[1].data, -1, 1);
    check_fill(&x->type, c.in[0].data, -1, 1);
    const void *in[] = {c.in[0].data, c.in[1].data};
    void *got[] = {y}, *want[] = {malloc((size_t)(m * n) * sizeof *y)};
    assert_non_null(want[0]);
    check_run(&c, &kernel, check_pool(2), in, got);
    interp_op(c.op, in, want);
    c.absolute = 1e-6 * (double)k;
    c.relative = 1e-5;
    check_kernel(&c, &kernel, want);
    free(want[0]);
    check_end(&c);
}

static void rows_have_the_same_bits_in_tiles_and_out_of_them(void **state)
{
    needs_amx();
    enum { M = 530, N = 327 };
    static const int64_t ms[] = {1, 3, 4, 15, 16, 17, 31, 32, 33, 65, 150, 530};
    static const int64_t ks[] = {32, 512, 576, 100, 1024 + 3}, ns[] = {16, 37, 64, 327};
    float *all = malloc(sizeof *all * M * N), *some = malloc(sizeof *some * M * N);
    assert_true(all && some);
    for (int k = 0; k < 5; k++) {
        run_rows(M, ks[k], ns[k % 4], all);
        for (int m = 0; m < 12; m += k ? 3 : 1) {
            run_rows(ms[m], ks[k], ns[k % 4], some);
            assert_memory_equal(all, some, (size_t)(ms[m] * ns[k % 4]) * sizeof *all);
        }
    }
    free(all);
    free(some);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_have_the_same_bits_in_tiles_and_out_of_them)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return amx_is_unknown();
}

#endif
