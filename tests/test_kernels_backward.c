/* The gradients of composites: every dtype and instruction set against the interpreter, at odd sizes. */
#include "attention_check.h"

/* `near`: how far a gradient may be off, of numbers around 1. */
static void check_extra(cvn_dtype q, cvn_dtype kv, const int64_t dim[6], const int32_t *starts,
                        const int32_t *lengths, FirstKeys how, const Extra *extra, double near)
{
    Check c = check_attention_backward_begin(q, kv, dim, starts, lengths, how, extra);
    c.relative = near;
    c.absolute = near;
    check_kernels(&c, 1);
    check_end(&c);
}

static void check_attention(cvn_dtype q, cvn_dtype kv, const int64_t dim[6], const int32_t *starts,
                            const int32_t *lengths, FirstKeys how, double near)
{
    check_extra(q, kv, dim, starts, lengths, how, NULL, near);
}

static const int64_t attention_dims[][6] = {
    {1, 1, 1, 1, 1, 1},     {1, 5, 1, 1, 5, 1},    {2, 17, 1, 3, 33, 20},   {2, 31, 2, 2, 150, 33},
    {1, 40, 4, 1, 150, 64}, {2, 6, 50, 1, 20, 16}, {1, 133, 1, 1, 140, 48}, {1, 37, 3, 2, 97, 80},
};
enum { ATTENTION_DIMS = sizeof attention_dims / sizeof *attention_dims };

static void attention_of_all_shapes(void **state)
{
    for (int i = 0; i < ATTENTION_DIMS; i++) {
        const int64_t *dim = attention_dims[i];
        int32_t last = (int32_t)(dim[4] - dim[1]);
        for (int t = 0; t < 4; t++)
            check_attention(t < 2 ? CVN_F32 : CVN_BF16, t % 2 ? CVN_BF16 : CVN_F32, dim,
                            (int32_t[]){last, last / 2}, (int32_t[]){(int32_t)dim[1], 3},
                            FIRST_NONE, t == 0 ? 2e-5 : 2e-2);
    }
}

static void attention_of_queries_with_a_first_key(void **state)
{
    static const int64_t dims[][6] = {{2, 17, 1, 3, 33, 20},
                                      {2, 40, 2, 2, 250, 33},
                                      {1, 133, 1, 1, 140, 48},
                                      {1, 300, 3, 1, 300, 16}};
    for (int i = 0; i < 4; i++)
        for (int how = FIRST_NONE + 1; how < FIRST_COUNT; how++)
            for (int t = 0; t < 2; t++) {
                int32_t last = (int32_t)(dims[i][4] - dims[i][1]), all = (int32_t)dims[i][1];
                cvn_dtype dtype = t ? CVN_BF16 : CVN_F32;
                check_attention(dtype, dtype, dims[i], (int32_t[]){last, last / 2 - 3},
                                (int32_t[]){all, 13}, (FirstKeys)how, t ? 2e-2 : 2e-5);
            }
}

static void attention_with_windows_caps_and_sinks(void **state)
{
    static const int64_t dims[][6] = {{2, 17, 1, 3, 33, 20},
                                      {2, 40, 2, 2, 251, 33},
                                      {1, 133, 1, 1, 141, 48},
                                      {3, 300, 1, 1, 300, 8}};
    static const Extra extras[] = {
        {.window = 1},
        {.window = 50, .sinks = true},
        {.window = 5000, .cap = 1.5},
        {.chunk = 64, .sinks = true},
        {.chunk = 30, .cap = 0.7},
        {.chunk = 90, .window = 70, .cap = 2, .sinks = true},
        {.sinks = true},
    };
    for (int i = 0; i < 4; i++)
        for (size_t e = 0; e < sizeof extras / sizeof *extras; e++)
            for (int t = 0; t < 2; t++) {
                int32_t last = (int32_t)(dims[i][4] - dims[i][1]), all = (int32_t)dims[i][1];
                cvn_dtype dtype = t ? CVN_BF16 : CVN_F32;
                FirstKeys how = ((size_t)i + e) % 3 ? FIRST_NONE : FIRST_DOCUMENTS;
                check_extra(dtype, dtype, dims[i], (int32_t[]){last, last / 2 - 3, last / 3},
                            (int32_t[]){all, 13, 0}, how, &extras[e], t ? 2e-2 : 2e-5);
            }
}

/* Rows of padding only, rows that begin before the first key, more length than there are positions. */
static void attention_with_nothing_to_see(void **state)
{
    for (int t = 0; t < 2; t++) {
        cvn_dtype dtype = t ? CVN_BF16 : CVN_F32;
        double near = t ? 2e-2 : 2e-5;
        check_attention(dtype, dtype, (int64_t[]){2, 9, 2, 1, 20, 8}, (int32_t[]){0, 4},
                        (int32_t[]){0, -3}, FIRST_NONE, near);
        check_attention(dtype, dtype, (int64_t[]){2, 9, 2, 3, 20, 8}, (int32_t[]){-4, -9},
                        (int32_t[]){9, 7}, FIRST_NONE, near);
        check_attention(dtype, dtype, (int64_t[]){2, 30, 1, 1, 20, 8}, (int32_t[]){0, -12},
                        (int32_t[]){30, 100}, FIRST_NONE, near);
        check_attention(dtype, dtype, (int64_t[]){0, 1, 2, 1, 20, 8}, NULL, NULL, FIRST_NONE, near);
    }
}

static void rms_norm_of_all_dtypes(void **state)
{
    static const int64_t sizes[] = {1, 3, 17, 64, 513, 1031};
    for (int t = 0; t < 27; t++)
        for (int i = 0; i < 6; i++) {
            cvn_dtype x = check_floats[t % 3], w = check_floats[t / 3 % 3],
                      dy = check_floats[t / 9];
            int64_t rows = i == 3 ? 67 : 3;
            Check c = check_begin();
            cvn_value *a = check_parameter(&c, CVN_TYPE(x, 2, rows, sizes[i]));
            cvn_value *b = check_parameter(&c, CVN_TYPE(w, sizes[i]));
            cvn_value *d = check_parameter(&c, CVN_TYPE(dy, 2, rows, sizes[i])), *out[2];
            cvn_rms_norm_backward(c.g, a, b, d, 1e-5, out);
            check_inputs(&c, out[0]);
            c.relative = check_ulp(x) > check_ulp(w) ? check_ulp(x) : check_ulp(w);
            c.absolute = 2e-5;
            check_kernels(&c, 1);
            check_end(&c);
        }
}

static void cross_entropy_of_all_dtypes(void **state)
{
    static const int64_t sizes[] = {1, 2, 17, 513, 1031};
    for (int t = 0; t < 3; t++)
        for (int i = 0; i < 5; i++) {
            int64_t n = sizes[i];
            Check c = check_begin();
            cvn_value *logits = check_parameter(&c, CVN_TYPE(check_floats[t], 2, 5, n));
            cvn_value *target = check_parameter(&c, CVN_TYPE(CVN_I32, 2, 5));
            cvn_value *v[3];
            for (int k = 0; k < 3; k++)
                v[k] = check_parameter(&c, CVN_TYPE(CVN_F32, 2, 5));
            check_inputs(&c,
                         cvn_softmax_cross_entropy_backward(c.g, logits, target, v[0], v[1], v[2]));
            check_fill(&logits->type, c.in[0].data, -9, 9);
            check_fill(&target->type, c.in[1].data, -1, (double)n + 1);
            ((float *)c.in[2].data)[3] = -INFINITY;
            for (int64_t e = 4 * n; e < 5 * n; e += 2)
                element_set(check_floats[t], c.in[0].data, e, -INFINITY);
            c.relative = check_ulp(check_floats[t]);
            c.absolute = 1e-6;
            check_kernels(&c, 1);
            check_end(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_of_all_shapes),
        cmocka_unit_test(attention_of_queries_with_a_first_key),
        cmocka_unit_test(attention_with_windows_caps_and_sinks),
        cmocka_unit_test(attention_with_nothing_to_see),
        cmocka_unit_test(rms_norm_of_all_dtypes),
        cmocka_unit_test(cross_entropy_of_all_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
