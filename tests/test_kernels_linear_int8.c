/* Products of rows and weights of 8 bits: every instruction set at odd sizes, and AMX in emulation. */
#include "kernel_check.h"

#include "graph/panels.h"

#if defined(CVN_HAVE_AMX)
#define CVN_AMX_EMULATE
#define linear_int8_amx emulated_int8
#include "cpu/kernels/amx/linear_int8.c"

static void run_emulated(const KernelArgs *args)
{
    linear_int8_run(&emulated_int8, args);
}

static const Kernel emulated = {
    .name = "linear_int8.emulated", .kind = OP_LINEAR_INT8, .run = run_emulated};
#endif

/* All instruction sets give the same bits: their sums are exact, and scaled in one order. */
static void check_shape(int64_t m, int64_t k, int64_t n, cvn_dtype out, bool tiles)
{
    Check c = check_begin();
    cvn_value *x = check_parameter(&c, CVN_TYPE(CVN_I8, m, k));
    cvn_value *step = check_parameter(&c, CVN_TYPE(CVN_BF16, m, 1));
    cvn_value *q = check_parameter(&c, panel_type(CVN_I8, n, k));
    cvn_value *scale = check_parameter(&c, panel_scale_type(CVN_F32, n, 1));
    check_inputs(&c, cvn_linear_int8(c.g, x, step, q, scale, CVN_TYPE(out, m, n)));
    check_fill(&x->type, c.in[0].data, -127, 128);
    check_fill(&q->type, c.in[2].data, -128, 128);
    c.relative = out == CVN_BF16 ? 0x1.01p-8 : out == CVN_F16 ? 0x1.01p-10 : 3e-7;
    c.absolute = out == CVN_F16 ? 1e-3 : 0;
    if (out == CVN_F16) /* which is small */
        check_fill(&step->type, c.in[1].data, 0, 1e-3);
    check_kernels(&c, 1);
#if defined(CVN_HAVE_AMX)
    if (tiles && cpu_backend_of(CPU_ISA_AVX512_BF16)) {
        Kernel kernel = emulated;
        const void *in[] = {c.in[0].data, c.in[1].data, c.in[2].data, c.in[3].data};
        void *want = malloc(cvn_type_bytes(&c.op->result[0]->type));
        assert_non_null(want);
        kernel.scratch = linear_int8_scratch;
        interp_op(c.op, in, &want);
        check_kernel(&c, &kernel, &want);
        free(want);
    }
#endif
    (void)tiles;
    check_end(&c);
}

static void all_odd_shapes(void **state)
{
    (void)state;
    static const int64_t ms[] = {1, 2, 3, 4, 7, 8, 17, 24, 25, 31, 49},
                         sizes[] = {1, 3, 17, 31, 64, 127};
    for (int m = 0; m < 11; m++)
        for (int k = 0; k < 6; k++)
            for (int n = 0; n < 6; n++)
                check_shape(ms[m], sizes[k], sizes[n],
                            (m + n) % 3 == 0   ? CVN_BF16
                            : (m + n) % 3 == 1 ? CVN_F32
                                               : CVN_F16,
                            false);
}

/* The largest sums there are. */
static void sums_fit(void **state)
{
    (void)state;
    enum { K = 131072 };
    Check c = check_begin();
    cvn_value *x = check_parameter(&c, CVN_TYPE(CVN_I8, 2, K));
    cvn_value *step = check_parameter(&c, CVN_TYPE(CVN_BF16, 2, 1));
    cvn_value *q = check_parameter(&c, panel_type(CVN_I8, 1, K));
    cvn_value *scale = check_parameter(&c, panel_scale_type(CVN_F32, 1, 1));
    check_inputs(&c, cvn_linear_int8(c.g, x, step, q, scale, CVN_TYPE(CVN_F32, 2, 1)));
    memset(c.in[0].data, 127, K);
    memset((char *)c.in[0].data + K, -127, K);
    memset(c.in[2].data, -128, c.in[2].bytes);
    c.relative = 3e-7;
    check_kernels(&c, 1);
    check_end(&c);
}

static void tiles_in_emulation(void **state)
{
    (void)state;
    static const int64_t ms[] = {16, 17, 33, 48, 49, 100}, ks[] = {64, 128, 576, 100};
    for (int m = 0; m < 6; m++)
        for (int k = 0; k < 4; k++)
            check_shape(ms[m], ks[k], 33, k % 2 ? CVN_BF16 : CVN_F32, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_odd_shapes),
        cmocka_unit_test(sums_fit),
        cmocka_unit_test(tiles_in_emulation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
