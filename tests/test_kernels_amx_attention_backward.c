/* The gradient of attention on AMX tiles. */
#include "amx_attention.h"
#include "compile/lower.h"
#include "cpu/kernels/kernels.h"

#if defined(CVN_HAVE_AMX)

static void check(const int64_t dim[6], const int32_t *starts, const int32_t *lengths,
                  FirstKeys how)
{
    Check c = check_attention_backward_begin(CVN_BF16, CVN_BF16, dim, starts, lengths, how, NULL);
    assert_true(attention_backward_kernels_amx->match(c.op));
    c.relative = c.absolute = 2e-2; /* as for the kernels of AVX-512 on bf16 */
    /* The interpreter takes the cube of the length: longer ones are held to the kernel in f32. */
    bool is_long = dim[1] * dim[2] * dim[3] * dim[4] * dim[4] * dim[5] > 60000000;
    check_one_kernel(&c, attention_backward_kernels_amx,
                     is_long ? kernel_find(cpu_kernels_of(CPU_ISA_AVX512), c.op) : NULL);
    check_end(&c);
}

static bool takes_long(int s, int g, int d)
{
    return (s + g + d) % 2 || (s == 3 && (g % 2 || d > 4));
}

static void odd_shapes(void **state)
{
    needs_amx();
    amx_attention_odd_shapes(check, takes_long);
}

static void blocks_larger_than_the_blocking(void **state)
{
    needs_amx();
    check((int64_t[]){1, 323, 1, 1, 323, 16}, (int32_t[]){0}, (int32_t[]){323}, FIRST_NONE);
    check((int64_t[]){1, 131, 3, 1, 256, 64}, (int32_t[]){125}, (int32_t[]){131}, FIRST_NONE);
    check((int64_t[]){1, 9, 70, 1, 100, 8}, (int32_t[]){91}, (int32_t[]){9}, FIRST_NONE);
    check((int64_t[]){1, 67, 2, 1, 2100, 64}, (int32_t[]){2033}, (int32_t[]){67}, FIRST_NONE);
}

static void queries_with_a_first_key(void **state)
{
    needs_amx();
    static const int64_t dims[][6] = {{2, 17, 1, 3, 33, 20},
                                      {2, 40, 2, 1, 200, 33},
                                      {1, 133, 1, 1, 192, 32},
                                      {1, 300, 3, 1, 300, 16}};
    amx_attention_first_keys(check, dims, sizeof dims / sizeof *dims, 3);
}

static void padding_and_rows_before_the_first_key(void **state)
{
    needs_amx();
    check((int64_t[]){2, 17, 2, 1, 20, 8}, (int32_t[]){0, 4}, (int32_t[]){0, -3}, FIRST_NONE);
    check((int64_t[]){2, 17, 2, 3, 20, 8}, (int32_t[]){-4, -19}, (int32_t[]){17, 7}, FIRST_NONE);
    check((int64_t[]){2, 40, 1, 1, 64, 32}, (int32_t[]){0, -12}, (int32_t[]){40, 100}, FIRST_NONE);
    check((int64_t[]){0, 40, 2, 1, 20, 8}, NULL, NULL, FIRST_NONE);
}

/* Scores that rise from key to key by much more than what is let pass, so that blocks differ in their peaks. */
static void peaks_that_rise(void **state)
{
    needs_amx();
    int64_t dim[] = {1, 80, 1, 1, 200, 32};
    Check c = check_attention_backward_begin(CVN_BF16, CVN_BF16, dim, (int32_t[]){120},
                                             (int32_t[]){80}, FIRST_NONE, NULL);
    amx_attention_rise(&c, dim, 0.25, 0.0625);
    c.relative = c.absolute =
        5e-2; /* keys are as large as 20 here, and so is what the weights' rounding gives */
    check_one_kernel(&c, attention_backward_kernels_amx, NULL);
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
    return amx_is_unknown();
}

#endif
