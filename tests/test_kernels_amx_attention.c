/* Attention on AMX tiles, run in emulation: the kernel's own source on tiles that are bytes in memory
   (tests/emulated). */
#include "attention_check.h"
#include "base/float16.h"

#if defined(CVN_HAVE_AMX)

extern const Kernel emulated_attention[];

static int needs_avx512(void **state)
{
    (void)state;
    if (!cpu_backend_of(CPU_ISA_AVX512_BF16)) {
        print_message(
            "what is around the tiles needs AVX-512 with bf16, which this machine lacks\n");
        skip();
    }
    return 0;
}

/* dim: b rows of s positions, g heads for each of h KV heads, context n, head_dim d. */
static void check(const int64_t dim[6], const int32_t *starts, const int32_t *lengths,
                  FirstKeys how)
{
    Check c = check_attention_begin(CVN_BF16, CVN_BF16, dim, starts, lengths, how);
    assert_true(emulated_attention->match(c.op));
    c.relative = 0x1.01p-7;
    c.absolute = 1e-2;
    check_one_kernel(&c, emulated_attention, NULL);
    check_end(&c);
}

static void odd_shapes(void **state)
{
    needs_avx512(state);
    static const int64_t seqs[] = {17, 31, 33, 127, 5}, groups[] = {1, 3, 4, 8};
    static const int64_t dims[] = {16, 32, 64, 80, 128, 1, 33};
    for (int s = 0; s < 5; s++)
        for (int g = 0; g < 4; g++)
            for (int d = 0; d < 7; d++) {
                int64_t more = (s * 37 + d * 11) % 160;
                int64_t dim[] = {2, seqs[s], groups[g], 1 + (g + d) % 2, seqs[s] + more, dims[d]};
                if (seqs[s] * groups[g] < 16 || (seqs[s] == 127 && d % 3))
                    continue;
                check(dim, (int32_t[]){(int32_t)more, (int32_t)more / 2},
                      (int32_t[]){(int32_t)seqs[s], 3}, FIRST_NONE);
            }
}

static void blocks_larger_than_the_blocking(void **state)
{
    needs_avx512(state);
    check((int64_t[]){1, 523, 1, 1, 601, 16}, (int32_t[]){77}, (int32_t[]){523}, FIRST_NONE);
    check((int64_t[]){1, 131, 3, 1, 131, 64}, (int32_t[]){0}, (int32_t[]){131}, FIRST_NONE);
    check((int64_t[]){1, 5, 300, 1, 300, 8}, (int32_t[]){290}, (int32_t[]){5}, FIRST_NONE);
}

static void queries_with_a_first_key(void **state)
{
    needs_avx512(state);
    static const int64_t dims[][6] = {{2, 17, 1, 3, 33, 20},
                                      {2, 31, 2, 2, 450, 32},
                                      {1, 300, 1, 1, 300, 64},
                                      {2, 133, 3, 1, 140, 48},
                                      {1, 257, 4, 1, 600, 16}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int how = FIRST_NONE + 1; how < FIRST_COUNT; how++) {
            int32_t last = (int32_t)(dims[i][4] - dims[i][1]);
            check(dims[i], (int32_t[]){last, last / 2}, (int32_t[]){(int32_t)dims[i][1], 13},
                  (FirstKeys)how);
        }
}

static void padding_and_rows_before_the_first_key(void **state)
{
    needs_avx512(state);
    check((int64_t[]){2, 17, 2, 1, 20, 8}, (int32_t[]){0, 4}, (int32_t[]){0, 0}, FIRST_NONE);
    check((int64_t[]){2, 17, 2, 3, 20, 8}, (int32_t[]){-4, -19}, (int32_t[]){17, 7}, FIRST_NONE);
    check((int64_t[]){2, 40, 1, 1, 20, 8}, (int32_t[]){0, 11}, (int32_t[]){40, 100}, FIRST_NONE);
    check((int64_t[]){0, 40, 2, 1, 20, 8}, NULL, NULL, FIRST_NONE);
}

/* Scores that rise from key to key by much more than what is let pass: o and the sums are corrected often. */
static void peaks_that_rise(void **state)
{
    needs_avx512(state);
    int64_t dim[] = {1, 40, 1, 1, 400, 32};
    Check c = check_attention_begin(CVN_BF16, CVN_BF16, dim, (int32_t[]){360}, (int32_t[]){40},
                                    FIRST_NONE);
    for (int64_t i = 0; i < 40; i++)
        for (int64_t e = 0; e < 32; e++)
            element_set(CVN_BF16, c.in[0].data, i * 32 + e, i % 2 ? 1 : -1);
    for (int64_t i = 0; i < 400; i++)
        for (int64_t e = 0; e < 32; e++)
            element_set(CVN_BF16, c.in[1].data, i * 32 + e, 0.1 * (double)i);
    c.relative = 0x1.01p-7;
    c.absolute = 1e-2;
    check_one_kernel(&c, emulated_attention, NULL);
    check_end(&c);
}

/* A position has the same bits whatever is in the tiles with it: in longer prompts, and beside other rows. */
static void a_query_does_not_depend_on_others(void **state)
{
    needs_avx512(state);
    enum { LONG = 150, SHORT = 37, HEADS = 3, DIM = 48, CONTEXT = 700 };
    static uint16_t out[2][LONG * HEADS * DIM];
    for (int how = FIRST_NONE; how < FIRST_COUNT; how++) {
        for (int i = 0; i < 2; i++) {
            int64_t seq = i ? SHORT : LONG, skip = i ? 60 : 0; /* positions 60 … 96 alone */
            int64_t dim[] = {1, seq, HEADS, 1, CONTEXT, DIM};
            Check c =
                check_attention_begin(CVN_BF16, CVN_BF16, dim, (int32_t[]){500 + (int32_t)skip},
                                      (int32_t[]){(int32_t)seq}, (FirstKeys)how);
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
            check_run(&c, emulated_attention, check_pool(1 + i), in, (void *[]){out[i]});
            check_end(&c);
        }
        assert_memory_equal(out[1], out[0] + 60 * HEADS * DIM, SHORT * HEADS * DIM * 2);
    }
}

/* One position and other dtypes are left to the next level. */
static void few_positions_are_left_to_others(void **state)
{
    (void)state;
    static const int64_t dims[][6] = {
        {1, 1, 32, 1, 64, 64}, {1, 4, 32, 1, 64, 64}, {1, 5, 1, 1, 64, 64}};
    for (int i = 0; i < 3; i++) {
        Check c = check_attention_begin(CVN_BF16, CVN_BF16, dims[i], (int32_t[]){3}, (int32_t[]){1},
                                        FIRST_NONE);
        assert_false(emulated_attention->match(c.op));
        check_end(&c);
    }
    Check c = check_attention_begin(CVN_BF16, CVN_F32, (int64_t[]){1, 64, 1, 1, 64, 64},
                                    (int32_t[]){0}, (int32_t[]){64}, FIRST_NONE);
    assert_false(emulated_attention->match(c.op));
    check_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_shapes),
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
    print_message("this compiler does not know AMX: skipped\n");
    return 0;
}

#endif
