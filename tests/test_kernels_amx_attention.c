/* Attention on AMX tiles. */
#include "amx_attention.h"
#include "base/float16.h"
#include "cpu/kernels/kernels.h"

#if defined(CVN_HAVE_AMX)

static void check(const int64_t dim[6], const int32_t *starts, const int32_t *lengths,
                  FirstKeys how)
{
    Check c = check_attention_begin(CVN_BF16, CVN_BF16, dim, starts, lengths, how, NULL);
    assert_true(attention_kernels_amx->match(c.op));
    c.relative = 0x1.01p-7;
    c.absolute = 1e-2;
    check_one_kernel(&c, attention_kernels_amx, NULL);
    check_end(&c);
}

static bool takes_long(int s, int g, int d)
{
    return s == 3 && (d % 3 || g == 3);
}

static void odd_shapes(void **state)
{
    needs_amx();
    amx_attention_odd_shapes(check, takes_long);
}

static void blocks_larger_than_the_blocking(void **state)
{
    needs_amx();
    check((int64_t[]){1, 523, 1, 1, 601, 16}, (int32_t[]){77}, (int32_t[]){523}, FIRST_NONE);
    check((int64_t[]){1, 131, 3, 1, 131, 64}, (int32_t[]){0}, (int32_t[]){131}, FIRST_NONE);
    check((int64_t[]){1, 9, 300, 1, 300, 8}, (int32_t[]){290}, (int32_t[]){9}, FIRST_NONE);
}

static void queries_with_a_first_key(void **state)
{
    needs_amx();
    static const int64_t dims[][6] = {{2, 17, 1, 3, 33, 20},
                                      {2, 31, 2, 2, 450, 32},
                                      {1, 300, 1, 1, 300, 64},
                                      {2, 133, 3, 1, 140, 48},
                                      {1, 257, 4, 1, 600, 16}};
    amx_attention_first_keys(check, dims, sizeof dims / sizeof *dims, 0);
}

static void padding_and_rows_before_the_first_key(void **state)
{
    needs_amx();
    check((int64_t[]){2, 17, 2, 1, 20, 8}, (int32_t[]){0, 4}, (int32_t[]){0, 0}, FIRST_NONE);
    check((int64_t[]){2, 17, 2, 3, 20, 8}, (int32_t[]){-4, -19}, (int32_t[]){17, 7}, FIRST_NONE);
    check((int64_t[]){2, 40, 1, 1, 20, 8}, (int32_t[]){0, 11}, (int32_t[]){40, 100}, FIRST_NONE);
    check((int64_t[]){0, 40, 2, 1, 20, 8}, NULL, NULL, FIRST_NONE);
}

/* The same with keys and values of 8 bits; what no query sees has scales that are NaN. */
static void check_8_bits(const int64_t dim[6], const int32_t *starts, const int32_t *lengths,
                         FirstKeys how)
{
    assert_int_equal(how, FIRST_NONE);
    int64_t b = dim[0], s = dim[1], g = dim[2], h = dim[3], n = dim[4], d = dim[5];
    Check c = check_begin();
    cvn_value *q = check_parameter(&c, CVN_TYPE(CVN_BF16, b, s, g * h, d));
    cvn_type cache = CVN_TYPE(CVN_I8, b, h, n, d), scales = CVN_TYPE(CVN_BF16, b, h, n, 1);
    cvn_value *k = check_parameter(&c, cache), *v = check_parameter(&c, cache);
    cvn_value *start = check_parameter(&c, CVN_TYPE(CVN_I32, b));
    cvn_value *length = check_parameter(&c, CVN_TYPE(CVN_I32, b));
    cvn_value *k_scale = check_parameter(&c, scales), *v_scale = check_parameter(&c, scales);
    const cvn_attention_spec spec = {
        .scale = 1 / sqrt((double)d), .k_scale = k_scale, .v_scale = v_scale};
    check_inputs(&c, cvn_attention(c.g, q, k, v, start, length, &spec));
    memcpy(c.in[3].data, starts, (size_t)b * sizeof *starts);
    memcpy(c.in[4].data, lengths, (size_t)b * sizeof *lengths);
    check_fill(&q->type, c.in[0].data, -2, 2);
    for (int i = 1; i < 3; i++)
        check_fill(&cache, c.in[i].data, -127, 128);
    for (int i = 5; i < 7; i++) {
        check_fill(&scales, c.in[i].data, 0, 1.0 / 64);
        for (int64_t r = 0; r < b * h * n; r++) {
            int64_t row = r / (h * n), real = lengths[row] < s ? lengths[row] : s;
            if (r % n >= starts[row] + real)
                element_set(CVN_BF16, c.in[i].data, r, NAN);
            else if (r % 7 == 3)
                element_set(CVN_BF16, c.in[i].data, r, 0);
        }
    }
    assert_true(attention_kernels_amx->match(c.op));
    c.relative = 0x1.01p-7;
    c.absolute = 1e-2;
    check_one_kernel(&c, attention_kernels_amx, NULL);
    check_end(&c);
}

static bool leaves_out_for_8_bits(int s, int g, int d)
{
    return (s == 3 && d % 3) || (s + g + d) % 2;
}

static void keys_and_values_of_8_bits(void **state)
{
    needs_amx();
    amx_attention_odd_shapes(check_8_bits, leaves_out_for_8_bits);
    check_8_bits((int64_t[]){1, 523, 1, 1, 601, 16}, (int32_t[]){77}, (int32_t[]){523}, FIRST_NONE);
    check_8_bits((int64_t[]){2, 17, 2, 3, 20, 8}, (int32_t[]){-4, -19}, (int32_t[]){17, 7},
                 FIRST_NONE);
}

/* Scores that rise from key to key by much more than what is let pass: o and the sums are corrected often. */
static void peaks_that_rise(void **state)
{
    needs_amx();
    int64_t dim[] = {1, 40, 1, 1, 400, 32};
    Check c = check_attention_begin(CVN_BF16, CVN_BF16, dim, (int32_t[]){360}, (int32_t[]){40},
                                    FIRST_NONE, NULL);
    amx_attention_rise(&c, dim, 1, 0.1);
    c.relative = 0x1.01p-7;
    c.absolute = 1e-2;
    check_one_kernel(&c, attention_kernels_amx, NULL);
    check_end(&c);
}

/* A position has the same bits whatever is in the tiles with it: in longer prompts, and beside other rows. */
static void a_query_does_not_depend_on_others(void **state)
{
    needs_amx();
    enum { LONG = 150, SHORT = 37, HEADS = 3, DIM = 48, CONTEXT = 700 };
    static uint16_t out[2][LONG * HEADS * DIM];
    for (int how = FIRST_NONE; how < FIRST_COUNT; how++) {
        for (int i = 0; i < 2; i++) {
            int64_t seq = i ? SHORT : LONG, skip = i ? 60 : 0; /* positions 60 … 96 alone */
            int64_t dim[] = {1, seq, HEADS, 1, CONTEXT, DIM};
            Check c =
                check_attention_begin(CVN_BF16, CVN_BF16, dim, (int32_t[]){500 + (int32_t)skip},
                                      (int32_t[]){(int32_t)seq}, (FirstKeys)how, NULL);
            uint64_t random = 7;
            uint16_t *tensor[3] = {c.in[0].data, c.in[1].data, c.in[2].data};
            for (int t = 0; t < 3; t++)
                for (int64_t e = 0; e < (t ? CONTEXT : LONG * HEADS) * DIM; e++) {
                    uint16_t x = bf16_from_f32((float)(splitmix(&random) % 2001) / 500 - 2);
                    int64_t at = t ? e : e - skip * HEADS * DIM;
                    if (at >= 0 && at < (t ? CONTEXT : seq * HEADS) * DIM)
                        tensor[t][at] = x;
                }
            for (int64_t s = 0; s < seq && how != FIRST_NONE; s++)
                ((int32_t *)c.in[5].data)[s] = (int32_t)((s + skip) * how * 3);
            const void *in[6];
            for (int o = 0; o < c.op->n_operands; o++)
                in[o] = c.in[o].data;
            check_run(&c, attention_kernels_amx, check_pool(1 + i), in, (void *[]){out[i]});
            check_end(&c);
        }
        assert_memory_equal(out[1], out[0] + 60 * HEADS * DIM, SHORT * HEADS * DIM * 2);
    }
}

/* One position and other dtypes are left to the next level. */
static void few_positions_are_left_to_others(void **state)
{
    needs_amx(); /* it is compiled for AVX-512 as a whole */
    static const int64_t dims[][6] = {{1, 1, 32, 1, 64, 64}, {1, 4, 32, 1, 64, 64}};
    for (int i = 0; i < 2; i++) {
        Check c = check_attention_begin(CVN_BF16, CVN_BF16, dims[i], (int32_t[]){3}, (int32_t[]){1},
                                        FIRST_NONE, NULL);
        assert_false(attention_kernels_amx->match(c.op));
        check_end(&c);
    }
    Check c = check_attention_begin(CVN_BF16, CVN_F32, (int64_t[]){1, 64, 1, 1, 64, 64},
                                    (int32_t[]){0}, (int32_t[]){64}, FIRST_NONE, NULL);
    assert_false(attention_kernels_amx->match(c.op));
    check_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(keys_and_values_of_8_bits),
        cmocka_unit_test(blocks_larger_than_the_blocking),
        cmocka_unit_test(queries_with_a_first_key),
        cmocka_unit_test(padding_and_rows_before_the_first_key),
        cmocka_unit_test(peaks_that_rise),
        cmocka_unit_test(a_query_does_not_depend_on_others),
        cmocka_unit_test(few_positions_are_left_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return amx_is_unknown();
}

#endif
