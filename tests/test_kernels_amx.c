/* The products on AMX tiles, in blocks of their own size and in smaller ones, of which small products have many. */
#include "amx_check.h"

#if defined(CVN_HAVE_AMX)

#include "amx_trap.h"
#include "base/float16.h"
#include "cpu/kernels/gemm.h"

/* Smaller blocks than its own, so that small products have many of them. */
static bool small_blocks;

/* Sums are handed on, to what writes them as they are. */
static bool hands_on;

static void write_sums(const KernelArgs *args, const TileProgram *program, const EpilogueTile *t)
{
    (void)program;
    assert_true(t->n % GEMM_PANEL == 0);
    for (int64_t i = 0; i < t->rows; i++)
        memcpy((float *)args->out[0] + t->at + i * t->ld, t->sum + i * t->row,
               (size_t)t->n * sizeof *t->sum);
}

static GemmIsa isa_of_tests(void)
{
    GemmIsa isa = gemm_bf16_amx;
    if (small_blocks) {
        isa.mc = 64;
        isa.nc = 128;
        isa.kc = 64;
    }
    return isa;
}

static size_t scratch(const Op *op, int n_threads)
{
    GemmIsa isa = isa_of_tests();
    Gemm gemm = gemm_from_op(op);
    return gemm_scratch(&isa, &gemm, n_threads);
}

static void run(const KernelArgs *args)
{
    GemmIsa isa = isa_of_tests();
    Gemm gemm = gemm_from_op(args->op);
    gemm.epilogue = hands_on;
    isa.epilogue = write_sums;
    gemm_run(&isa, &gemm, args);
}

static const Kernel tiles = {
    .name = "dot_general.amx.bf16", .kind = OP_DOT_GENERAL, .scratch = scratch, .run = run};

static void check_einsum(const char *equation, cvn_type lhs, cvn_type rhs, cvn_dtype out, int64_t k)
{
    Check c = check_begin();
    cvn_value *a = check_parameter(&c, lhs), *b = check_parameter(&c, rhs);
    check_inputs(&c, cvn_einsum_as(c.g, equation, a, b, out));
    c.absolute = 1e-7 * (4 + (double)k) * (out == CVN_F32 ? 1 : 4);
    c.relative = out == CVN_F32 ? 1e-6 : 0x1.01p-7;
    const void *in[] = {c.in[0].data, c.in[1].data};
    void *want[] = {malloc(cvn_type_bytes(&c.op->result[0]->type) + 1)};
    assert_non_null(want[0]);
    interp_op(c.op, in, want);
    check_kernel(&c, &tiles, want);
    free(want[0]);
    check_end(&c);
}

static void odd_shapes(void **state)
{
    needs_amx();
    static const int64_t sizes[] = {1, 3, 17, 31, 33, 64, 127};
    for (size_t m = 0; m < 7; m++)
        for (size_t n = 0; n < 7; n++)
            check_einsum("mk,nk->mn", CVN_TYPE(CVN_BF16, sizes[m], sizes[(m + n) % 7]),
                         CVN_TYPE(CVN_BF16, sizes[n], sizes[(m + n) % 7]),
                         n % 2 ? CVN_F32 : CVN_BF16, sizes[(m + n) % 7]);
}

static void blocks_larger_than_the_blocking(void **state)
{
    needs_amx();
    check_einsum("mk,nk->mn", CVN_TYPE(CVN_BF16, 35, 1061), CVN_TYPE(CVN_BF16, 301, 1061), CVN_F32,
                 1061);
    check_einsum("mk,nk->mn", CVN_TYPE(CVN_BF16, 523, 33), CVN_TYPE(CVN_BF16, 67, 33), CVN_F32, 33);
}

/* Either side the longer one, k along and across, edges everywhere; and k so long that it is cut. */
static void many_blocks(void **state)
{
    needs_amx();
    small_blocks = true;
    static const int64_t sizes[][3] = {
        {523, 301, 203}, {301, 523, 203}, {160, 400, 64}, {97, 640, 65}, {640, 97, 130}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        check_einsum("mk,nk->mn", CVN_TYPE(CVN_BF16, m, k), CVN_TYPE(CVN_BF16, n, k),
                     i % 2 ? CVN_F32 : CVN_BF16, k);
        check_einsum("km,kn->mn", CVN_TYPE(CVN_BF16, k, m), CVN_TYPE(CVN_BF16, k, n), CVN_F32, k);
        check_einsum("mk,kn->mn", CVN_TYPE(CVN_BF16, m, k), CVN_TYPE(CVN_BF16, k, n), CVN_BF16, k);
    }
    check_einsum("mk,nk->mn", CVN_TYPE(CVN_BF16, 70, 8323), CVN_TYPE(CVN_BF16, 133, 8323), CVN_F32,
                 8323);
    check_einsum("mk,kn->mn", CVN_TYPE(CVN_BF16, 133, 8323), CVN_TYPE(CVN_BF16, 8323, 35), CVN_F32,
                 8323);
    small_blocks = false;
}

/* Each sum once, when it is whole, in all columns of a panel. */
static void sums_are_handed_to_the_epilogue(void **state)
{
    needs_amx();
    static const int64_t sizes[][3] = {{523, 304, 203}, {33, 16, 64}, {35, 144, 8323}};
    hands_on = true;
    for (int i = 0; i < 6; i++) {
        small_blocks = i & 1;
        const int64_t *size = sizes[i / 2];
        check_einsum("mk,nk->mn", CVN_TYPE(CVN_BF16, size[0], size[2]),
                     CVN_TYPE(CVN_BF16, size[1], size[2]), CVN_F32, size[2]);
    }
    hands_on = small_blocks = false;
}

static void operands_stored_transposed_and_in_batches(void **state)
{
    needs_amx();
    check_einsum("km,kn->mn", CVN_TYPE(CVN_BF16, 70, 1061), CVN_TYPE(CVN_BF16, 70, 33), CVN_F32,
                 70);
    check_einsum("bskh,bsd->khd", CVN_TYPE(CVN_BF16, 2, 19, 7, 100), CVN_TYPE(CVN_BF16, 2, 19, 35),
                 CVN_F32, 38);
    check_einsum("km,kn->mn", CVN_TYPE(CVN_BF16, 41, 61), CVN_TYPE(CVN_BF16, 41, 53), CVN_F32, 41);
    check_einsum("bsnh,bsd->dnh", CVN_TYPE(CVN_BF16, 3, 13, 2, 10), CVN_TYPE(CVN_BF16, 3, 13, 40),
                 CVN_F32, 39);
    check_einsum("bqnh,bknh->bnqk", CVN_TYPE(CVN_BF16, 2, 35, 3, 20),
                 CVN_TYPE(CVN_BF16, 2, 37, 3, 20), CVN_F32, 20);
}

/* A product with the sums of squares of its columns: near what they are, the same bits on any number of threads. */
static void check_squares(int64_t m, int64_t n, int64_t k)
{
    Check c = check_begin();
    cvn_value *a = check_parameter(&c, CVN_TYPE(CVN_BF16, k, m));
    cvn_value *b = check_parameter(&c, CVN_TYPE(CVN_BF16, k, n));
    check_inputs(&c, cvn_einsum_as(c.g, "km,kn->mn", a, b, CVN_F32));
    cvn_value columns = {.type = CVN_TYPE(CVN_F32, n)};
    cvn_value *result[] = {c.op->result[0], &columns};
    Op op = *c.op;
    op.n_results = 2;
    op.result = result;
    float *product = calloc((size_t)(m * n), sizeof *product);
    float *squares = calloc((size_t)n, sizeof *squares);
    assert_true(product && squares);
    void *want[] = {product, squares};
    interp_op(c.op, (const void *[]){c.in[0].data, c.in[1].data}, want);
    for (int64_t i = 0; i < m * n; i++)
        squares[i % n] += product[i] * product[i];
    c.op = &op;
    c.absolute = 1e-7 * (4 + (double)k);
    c.relative = 1e-5;
    check_kernel(&c, &tiles, want);
    free(product);
    free(squares);
    check_end(&c);
}

static void squares_of_columns(void **state)
{
    needs_amx();
    check_squares(33, 40, 64);
    check_squares(128, 33, 16);
    check_squares(900, 300, 40);
}

/* Every upper half, with lower halves at and beside the ties: denormals, infinities and NaN are among them. */
static void rounding_has_the_bits_of_the_slow_way(void **state)
{
    static const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    needs_amx();
    for (uint32_t upper = 0; upper < 0x10000; upper += 5)
        for (uint32_t first = 0; first < 2; first++) {
            float x[16 + 3];
            uint16_t got[16 + 3];
            for (uint32_t i = 0; i < 19; i++) {
                uint32_t bits = (upper + i / 6) % 0x10000 << 16 | lower[(first + i) % 6];
                memcpy(&x[i], &bits, sizeof bits);
            }
            gemm_bf16_amx.round(got, 19, x, 19, 1, 19);
            for (int i = 0; i < 19; i++)
                assert_int_equal(got[i], bf16_from_f32(x[i]));
        }
}

/* On no thread, after all that the tests before have run: else the system would save 8 KiB at every switch. */
static void tiles_are_given_back(void **state)
{
    needs_amx();
    AmxTrapCounts before = amx_trap_counts();
    check_einsum("mk,nk->mn", CVN_TYPE(CVN_BF16, 64, 64), CVN_TYPE(CVN_BF16, 64, 64), CVN_F32, 64);
    AmxTrapCounts after = amx_trap_counts();
    bool native = after.products == 0;
    assert_true(native || after.products > before.products);
    assert_true(native || after.configured > before.configured);
    assert_int_equal(after.held, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(squares_of_columns),
        cmocka_unit_test(rounding_has_the_bits_of_the_slow_way),
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(blocks_larger_than_the_blocking),
        cmocka_unit_test(many_blocks),
        cmocka_unit_test(sums_are_handed_to_the_epilogue),
        cmocka_unit_test(operands_stored_transposed_and_in_batches),
        cmocka_unit_test(tiles_are_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return amx_is_unknown();
}

#endif
