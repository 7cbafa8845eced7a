/* keep_likeliest: kernels against the interpreter at odd sizes, and against a sort where rows are long. */
#include "kernel_check.h"

enum { ROWS = 6 };

/* Settings of ROWS rows; each field in turn off, mild and sharp. */
static const int32_t top_ks[ROWS] = {0, 3, 40, 0, 7, 1000000};
static const float top_ps[ROWS] = {0.9f, 1, 0.5f, 0.999f, 0, 2};
static const float min_ps[ROWS] = {0, 0, 0.01f, 0, 0.5f, 0.2f};

typedef enum Shape { FLAT, PEAKY, EQUAL, STEPS, MASKED, WIDE, SHAPES } Shape;

static float logit(Shape shape, int64_t i)
{
    float u = (float)check_uniform();
    switch (shape) {
    case FLAT:
        return u * 0.1f;
    case PEAKY:
        return -12 * sqrtf(u) + (i % 997 == 5 ? 9.0f + u : 0);
    case EQUAL:
        return 1.5f;
    case STEPS: /* many equals */
        return floorf(u * 9);
    case MASKED:
        return i % 3 ? -INFINITY : 8 * u;
    default:
        return i % 5 ? -3e38f * u : 6 * u;
    }
}

/* Rows with the settings from `first` on. */
static Check begin(int first, int rows, int64_t n, Shape shape)
{
    Check c = check_begin();
    cvn_value *x = check_parameter(&c, CVN_TYPE(CVN_F32, rows, n));
    cvn_value *k = check_parameter(&c, CVN_TYPE(CVN_I32, rows));
    cvn_value *p = check_parameter(&c, CVN_TYPE(CVN_F32, rows));
    cvn_value *m = check_parameter(&c, CVN_TYPE(CVN_F32, rows));
    check_inputs(&c, cvn_keep_likeliest(c.g, x, k, p, m));
    for (int64_t i = 0; i < rows * n; i++)
        ((float *)c.in[0].data)[i] = logit(shape, i % n);
    memcpy(c.in[1].data, top_ks + first, (size_t)rows * sizeof *top_ks);
    memcpy(c.in[2].data, top_ps + first, (size_t)rows * sizeof *top_ps);
    memcpy(c.in[3].data, min_ps + first, (size_t)rows * sizeof *min_ps);
    return c;
}

static void agrees_with_the_interpreter(void **state)
{
    static const int64_t sizes[] = {1, 3, 17, 31, 33, 127, 601};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int shape = 0; shape < SHAPES; shape++) {
            Check c = begin(0, ROWS, sizes[s], (Shape)shape);
            check_kernels(&c, 1);
            check_end(&c);
        }
}

/* One row, or two for three threads: all threads share each. Longer than a block of what each of them sums. */
static void threads_that_share_a_row_agree_with_the_interpreter(void **state)
{
    static const int64_t sizes[] = {33, 601, 1700};
    for (int s = 0; s < 3; s++)
        for (int shape = 0; shape < SHAPES; shape++)
            for (int first = 0; first + 1 < ROWS; first += 1 + s) {
                Check c = begin(first, 1 + (first + shape) % 2, sizes[s], (Shape)shape);
                check_kernels(&c, 1);
                check_end(&c);
            }
}

/* A row alone, on 1 to 3 threads, keeps bit for bit what it keeps among others. */
static void long_rows_keep_the_same_alone(void **state)
{
    enum { VOCAB = 32003 };
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++)
        for (int shape = 0; shape < SHAPES && cpu_kernels_of((CpuIsa)isa); shape++) {
            Check c = begin(0, ROWS, VOCAB, (Shape)shape);
            float *all = malloc(ROWS * VOCAB * sizeof(float)), *one = malloc(VOCAB * sizeof(float));
            const void *in[4];
            for (int i = 0; i < 4; i++)
                in[i] = c.in[i].data;
            check_run(&c, kernel_find(cpu_kernels_of((CpuIsa)isa), c.op), check_pool(1), in,
                      (void *[]){all});
            for (int r = 0; r < ROWS; r++) {
                Check alone = begin(r, 1, VOCAB, (Shape)shape);
                memcpy(alone.in[0].data, (const float *)in[0] + r * VOCAB, VOCAB * sizeof(float));
                for (int i = 0; i < 4; i++)
                    in[i] = alone.in[i].data;
                for (int t = 1; t <= CHECK_THREADS; t++) {
                    check_run(&alone, kernel_find(cpu_kernels_of((CpuIsa)isa), alone.op),
                              check_pool(t), in, (void *[]){one});
                    assert_memory_equal(one, all + r * VOCAB, VOCAB * sizeof(float));
                }
                in[0] = c.in[0].data;
                check_end(&alone);
            }
            free(all);
            free(one);
            check_end(&c);
        }
}

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The least logit that is kept, from the sorted row. */
static float least_sorted(const float *sorted, int64_t n, int64_t k, double p, double min_p)
{
    double total = 0, before = 0;
    float least = sorted[0];
    k = k <= 0 || k > n ? n : k;
    for (int64_t i = 0; i < k; i++)
        total += exp((double)sorted[i] - (double)sorted[0]);
    for (int64_t i = 0; i < k; i++) {
        double weight = exp((double)sorted[i] - (double)sorted[0]);
        if (i > 0 && ((p < 1 && !(before < p * total)) || weight < min_p))
            break;
        least = sorted[i];
        before += weight;
    }
    return least;
}

/* Boundaries are those of sums in f64, unless two logits differ by less than exponentials of f32 are exact. */
static void long_rows_keep_what_a_sort_keeps(void **state)
{
    enum { VOCAB = 32003 };
    for (int shape = 0; shape < SHAPES; shape++) {
        Check c = begin(0, ROWS, VOCAB, (Shape)shape);
        const void *in[4];
        for (int i = 0; i < 4; i++)
            in[i] = c.in[i].data;
        float *out[3], *sorted = malloc(VOCAB * sizeof(float));
        for (int t = 0; t < 3; t++) {
            out[t] = malloc(ROWS * VOCAB * sizeof(float));
            check_run(&c, kernel_find(cpu_kernels(), c.op), check_pool(1 + t), in,
                      (void *[]){out[t]});
            assert_memory_equal(out[0], out[t], ROWS * VOCAB * sizeof(float));
        }
        for (int r = 0; r < ROWS; r++) {
            const float *x = (const float *)c.in[0].data + r * VOCAB, *y = out[0] + r * VOCAB;
            memcpy(sorted, x, VOCAB * sizeof(float));
            qsort(sorted, VOCAB, sizeof(float), descending);
            float want =
                least_sorted(sorted, VOCAB, top_ks[r], (double)top_ps[r], (double)min_ps[r]);
            int64_t differ = 0;
            for (int64_t i = 0; i < VOCAB; i++) {
                bool kept = x[i] >= want;
                differ += kept != (y[i] > -INFINITY || (kept && x[i] == -INFINITY));
                assert_true(y[i] == x[i] || y[i] == -INFINITY);
            }
            if (differ > 1)
                fail_msg("shape %d, row %d: %lld logits differ", shape, r, (long long)differ);
        }
        for (int t = 0; t < 3; t++)
            free(out[t]);
        free(sorted);
        check_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_interpreter),
        cmocka_unit_test(threads_that_share_a_row_agree_with_the_interpreter),
        cmocka_unit_test(long_rows_keep_what_a_sort_keeps),
        cmocka_unit_test(long_rows_keep_the_same_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
