/* Products with weights of 8 and 4 bits and in blocks on AMX tiles have the bits that AVX-512 gives. */
#include "amx_check.h"
#include "block_panels.h"

#if defined(CVN_HAVE_AMX)

#include "cpu/kernels/linear.h"

enum { OF_INT8, OF_INT4, OF_BLOCKS, KINDS };

#define KERNEL(of)                                                                                 \
    {                                                                                              \
        .name = #of, .kind = OP_LINEAR, .isa = &linear_##of, .scratch_isa = linear_scratch,        \
        .run = linear_run                                                                          \
    }
static const Kernel kernels[KINDS][2] = {
    {KERNEL(i8_amx), KERNEL(i8_avx512_vnni)},
    {KERNEL(i4_amx), KERNEL(i4_avx512_vnni)},
    {KERNEL(blocks_amx), KERNEL(blocks_avx512_vnni)},
};

/* group: of 4-bit weights, or 0 */
static void check_shape(int64_t m, int64_t k, int64_t n, int64_t group)
{
    cvn_dtype dtype = group ? CVN_I4 : CVN_I8, scale = group == 64 ? CVN_BF16 : CVN_F32;
    const Kernel *kernel = kernels[group ? OF_INT4 : OF_INT8];
    int most = group ? 8 : 128;
    Check c = check_begin();
    cvn_linear_spec spec = {.contract = 1, .n_weights = 1, .type = {CVN_TYPE(CVN_F32, m, n)}};
    cvn_value *x = check_parameter(&c, CVN_TYPE(CVN_BF16, m, k)), *out[3];
    spec.q[0] = check_parameter(&c, panel_type(dtype, n, k));
    spec.scale[0] = check_parameter(&c, panel_scale_type(scale, n, group ? k / group : 1));
    cvn_linear(c.g, x, &spec, out);
    check_inputs(&c, out[0]);
    check_fill(&spec.q[0]->type, c.in[1].data, -most, most);
    const void *in[] = {c.in[0].data, c.in[1].data, c.in[2].data};
    size_t bytes = cvn_type_bytes(&c.op->result[0]->type);
    void *got[2] = {malloc(bytes), malloc(bytes)}, *want[] = {malloc(bytes)};
    assert_true(got[0] && got[1] && want[0]);
    for (int i = 0; i < 2; i++)
        check_run(&c, &kernel[i], check_pool(2), in, &got[i]);
    assert_memory_equal(got[0], got[1], bytes);
    interp_op(c.op, in, want);
    c.absolute = 3.2e-5 * most * sqrt((double)k);
    c.relative = 1e-5;
    check_kernel(&c, &kernel[0], want);
    for (int i = 0; i < 2; i++)
        free(got[i]);
    free(want[0]);
    check_end(&c);
}

static void tiles_give_the_bits_of_vnni(void **state)
{
    needs_amx();
    static const int64_t ms[] = {16, 17, 31, 32, 33, 50, 64}, ks[] = {64, 128, 576, 640, 100};
    for (int m = 0; m < 7; m++)
        for (int k = 0; k < 5; k++)
            check_shape(ms[m], ks[k], m % 2 ? 37 : 32, 0);
}

static void tiles_of_4_bits_give_the_bits_of_vnni(void **state)
{
    needs_amx();
    static const int64_t ms[] = {1, 3, 15, 16, 17, 31, 33, 47, 127, 251};
    static const int64_t groups[] = {32, 64, 128, 256, 512}, spans[] = {1, 3, 17, 31};
    for (int m = 0; m < 10; m++)
        for (int g = 0; g < 5; g++) {
            int64_t count = spans[(m + g) % 4];
            count = count * groups[g] > 2048 ? 3 : count;
            check_shape(ms[m], count * groups[g], m % 3 ? 37 : 16, groups[g]);
        }
}

static void check_blocks(BlockKind kind, bool int8, int64_t m, int64_t k, int64_t n)
{
    Check c = blocks_begin(kind, int8, m, k, n);
    fill_panels(kind, k, &c.op->operand[1]->type, c.in[1].data);
    const void *in[] = {c.in[0].data, c.in[1].data};
    size_t bytes = cvn_type_bytes(&c.op->result[0]->type);
    void *got[2] = {malloc(bytes), malloc(bytes)};
    assert_true(got[0] && got[1]);
    for (int i = 0; i < 2; i++)
        check_run(&c, &kernels[OF_BLOCKS][i], check_pool(2), in, &got[i]);
    if (memcmp(got[0], got[1], bytes) != 0)
        fail_msg("%s: %d rows, %d columns", block_names[kind], (int)m, (int)k);
    free(got[0]);
    free(got[1]);
    check_end(&c);
}

static void tiles_of_blocks_give_the_bits_of_vnni(void **state)
{
    needs_amx();
    static const int64_t ms[] = {1, 5, 16, 17, 33, 64, 70}, ks[] = {768, 256, 1280, 96, 64};
    for (int kind = 1; kind < BLOCK_KINDS; kind++)
        for (int i = 0; i < 14 && !block_info[kind].form.fraction; i++) { /* floats have no tiles */
            const int64_t least = block_info[kind].elements, k = ks[i % 5];
            check_blocks((BlockKind)kind, i % 2, ms[i % 7], num_round_up(k, least),
                         i % 3 ? 37 : 70);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_give_the_bits_of_vnni),
                                       cmocka_unit_test(tiles_of_4_bits_give_the_bits_of_vnni),
                                       cmocka_unit_test(tiles_of_blocks_give_the_bits_of_vnni)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return amx_is_unknown();
}

#endif
