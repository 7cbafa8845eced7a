/*
 * categorical: kernels against the interpreter at odd sizes; and on rows as long as a vocabulary the same token as the
 * decomposition draws, bit by bit of its noise, on every instruction set and any number of threads.
 */
#include "kernel_check.h"

#include "cpu/kernels/vec_random.h"
#include "graph/decompose.h"
#include "plan_support.h"

enum { ROWS = 5, VOCAB = 32003 };

typedef enum Shape { FLAT, PEAKY, FILTERED, EQUAL, HOSTILE, HUGE_ONES, NOTHING, SHAPES } Shape;

static float logit(Shape shape, int64_t i)
{
    static const float hostile[] = {NAN, -INFINITY, 3e38f, -3e38f, 1, -0.0f, 12};
    float u = (float)check_uniform();
    switch (shape) {
    case FLAT:
        return u * 0.1f;
    case PEAKY:
        return -20 * sqrtf(u) + (i % 997 == 5 ? 9.0f + u : 0);
    case FILTERED:
        return i % 331 ? -INFINITY : 4 * u;
    case EQUAL:
        return 1.5f;
    case HOSTILE:
        return hostile[(int)(u * 7)];
    case HUGE_ONES: /* noise is rounded away: many ties */
        return 1e9f + 64 * floorf(u * 3);
    default:
        return i % 2 ? NAN : -INFINITY;
    }
}

static Check begin(int64_t n, Shape shape)
{
    static const int32_t positions[ROWS] = {0, 7, 100000, -1, 3};
    Check c = check_begin();
    cvn_value *x = check_parameter(&c, CVN_TYPE(CVN_F32, ROWS, n));
    cvn_value *greedy = check_parameter(&c, CVN_TYPE(CVN_BOOL, ROWS));
    cvn_value *key = check_parameter(&c, CVN_TYPE(CVN_U32, ROWS, 2));
    cvn_value *position = check_parameter(&c, CVN_TYPE(CVN_I32, ROWS));
    check_inputs(&c, cvn_categorical(c.g, x, greedy, key, position));
    for (int64_t i = 0; i < ROWS * n; i++)
        ((float *)c.in[0].data)[i] = logit(shape, i % n);
    for (int r = 0; r < ROWS; r++)
        ((bool *)c.in[1].data)[r] = r == 2;
    check_fill(&key->type, c.in[2].data, 0, 4294967295.0);
    memcpy(c.in[3].data, positions, sizeof positions);
    return c;
}

static void agrees_with_the_interpreter(void **state)
{
    static const int64_t sizes[] = {1, 3, 17, 31, 33, 127, 601};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int shape = 0; shape < SHAPES; shape++) {
            Check c = begin(sizes[s], (Shape)shape);
            check_kernels(&c, 1);
            check_end(&c);
        }
}

static void draws_what_the_decomposition_draws(void **state)
{
    cvn_err err = {0};
    for (int shape = 0; shape < SHAPES; shape++) {
        Check c = begin(VOCAB, (Shape)shape);
        cvn_output(c.g, c.op->result[0]);
        cvn_graph *plain = graph_clone(c.g, &err);
        assert_non_null(plain);
        assert_int_equal(graph_decompose(plain, NULL, NULL, NULL, &err), 0);
        for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
            const KernelSet *backend = cpu_kernels_of((CpuIsa)isa);
            if (!backend)
                continue;
            void *in[4], *want[1];
            for (int i = 0; i < 4; i++)
                in[i] = c.in[i].data;
            run_alone(plain, backend, in, want);
            for (int t = 1; t <= CHECK_THREADS; t++) {
                int32_t got[ROWS];
                check_run(&c, kernel_find(backend, c.op), check_pool(t), (const void *const *)in,
                          (void *[]){got});
                assert_memory_equal(got, want[0], sizeof got);
            }
            free(want[0]);
        }
        cvn_graph_free(plain);
        check_end(&c);
    }
}

/* The noise as the decomposition computes it, of all 2^23 bits that count, against what kernels take for its bounds. */
static void no_noise_is_above_its_bound(void **state)
{
    enum { ALL = 1 << 23 };
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("noise", &err);
    cvn_value *u = cvn_convert(g, cvn_iota(g, CVN_TYPE(CVN_U32, ALL), 0), CVN_F32);
    u = cvn_multiply(g, cvn_add(g, u, cvn_splat(g, u->type, 0.5)), cvn_splat(g, u->type, 0x1p-23));
    cvn_output(g, cvn_negate(g, cvn_log(g, cvn_negate(g, cvn_log(g, u)))));
    assert_int_equal(cvn_graph_check(g, &err), 0);
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        void *out[1];
        if (!cpu_kernels_of((CpuIsa)isa))
            continue;
        run_alone(g, cpu_kernels_of((CpuIsa)isa), NULL, out);
        const float *noise = out[0];
        for (uint32_t i = 0; i < ALL; i += VN) {
            vu bits = {0};
            for (uint32_t l = 0; l < VN; l++)
                bits[l] = (i + l) << 9;
            vf bound = gumbel_bound(bits);
            for (uint32_t l = 0; l < VN; l++)
                if (!(noise[i + l] <= bound[l] && bound[l] <= GUMBEL_MOST))
                    fail_msg("%s: the noise of %u is %.9g, its bound %.9g",
                             cpu_isa_name((CpuIsa)isa), i + l, (double)noise[i + l],
                             (double)bound[l]);
        }
        free(out[0]);
    }
    cvn_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_interpreter),
        cmocka_unit_test(draws_what_the_decomposition_draws),
        cmocka_unit_test(no_noise_is_above_its_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
