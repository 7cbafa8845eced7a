/* The gradient of attention on AMX tiles, run in emulation: the kernel's own source on tiles that are bytes in memory
   (tests/emulated). */
#include "attention_check.h"
#include "compile/lower.h"

#if defined(CVN_HAVE_AMX)

extern const Kernel emulated_attention_backward[];

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
    Check c = check_attention_backward_begin(CVN_BF16, dim, starts, lengths, how);
    assert_true(emulated_attention_backward->match(c.op));
    c.relative = c.absolute = 2e-2; /* as for the kernels of AVX-512 on bf16 */
    /* The interpreter takes the cube of the length: longer ones are held to the kernel of AVX-512. */
    bool is_long = dim[1] * dim[2] * dim[3] * dim[4] * dim[4] * dim[5] > 60000000;
    check_one_kernel(&c, emulated_attention_backward,
                     is_long ? kernel_find(cpu_backend_of(CPU_ISA_AVX512_BF16), c.op) : NULL);
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
                if (seqs[s] * groups[g] < 16 || (s + g + d) % 2 ||
                    (seqs[s] == 127 && (g % 2 || d > 4)))
                    continue;
                check(dim, (int32_t[]){(int32_t)more, (int32_t)more / 2},
                      (int32_t[]){(int32_t)seqs[s], 3}, FIRST_NONE);
            }
}

static void blocks_larger_than_the_blocking(void **state)
{
    needs_avx512(state);
    check((int64_t[]){1, 323, 1, 1, 323, 16}, (int32_t[]){0}, (int32_t[]){323}, FIRST_NONE);
    check((int64_t[]){1, 131, 3, 1, 256, 64}, (int32_t[]){125}, (int32_t[]){131}, FIRST_NONE);
    check((int64_t[]){1, 5, 70, 1, 100, 8}, (int32_t[]){95}, (int32_t[]){5}, FIRST_NONE);
}

static void queries_with_a_first_key(void **state)
{
    needs_avx512(state);
    static const int64_t dims[][6] = {{2, 17, 1, 3, 33, 20},
                                      {2, 40, 2, 1, 200, 33},
                                      {1, 133, 1, 1, 192, 32},
                                      {1, 300, 3, 1, 300, 16}};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int how = FIRST_NONE + 1; how < FIRST_COUNT; how++) {
            int32_t last = (int32_t)(dims[i][4] - dims[i][1]);
            check(dims[i], (int32_t[]){last, last / 2 - 3}, (int32_t[]){(int32_t)dims[i][1], 13},
                  (FirstKeys)how);
        }
}

static void padding_and_rows_before_the_first_key(void **state)
{
    needs_avx512(state);
    check((int64_t[]){2, 17, 2, 1, 20, 8}, (int32_t[]){0, 4}, (int32_t[]){0, -3}, FIRST_NONE);
    check((int64_t[]){2, 17, 2, 3, 20, 8}, (int32_t[]){-4, -19}, (int32_t[]){17, 7}, FIRST_NONE);
    check((int64_t[]){2, 40, 1, 1, 64, 32}, (int32_t[]){0, -12}, (int32_t[]){40, 100}, FIRST_NONE);
    check((int64_t[]){0, 40, 2, 1, 20, 8}, NULL, NULL, FIRST_NONE);
}

/* Scores that rise from key to key by much more than what is let pass, so that blocks differ in their peaks. */
static void peaks_that_rise(void **state)
{
    needs_avx512(state);
    int64_t dim[] = {1, 80, 1, 1, 200, 32};
    Check c = check_attention_backward_begin(CVN_BF16, dim, (int32_t[]){120}, (int32_t[]){80},
                                             FIRST_NONE);
    for (int64_t i = 0; i < 80; i++)
        for (int64_t e = 0; e < 32; e++)
            element_set(CVN_BF16, c.in[0].data, i * 32 + e, i % 2 ? 0.25 : -0.25);
    for (int64_t i = 0; i < 200; i++)
        for (int64_t e = 0; e < 32; e++)
            element_set(CVN_BF16, c.in[1].data, i * 32 + e, 0.0625 * (double)i);
    c.relative = c.absolute =
        5e-2; /* keys are as large as 20 here, and so is what the weights' rounding gives */
    check_one_kernel(&c, emulated_attention_backward, NULL);
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
