/* Plans, run: random graphs against operations run one by one, and each rule of donation by itself. */
#include "base/helper.h"
#include "cpu/device.h"
#include "cpu/registry.h"
#include "plan_support.h"
#include "plan_verify.h"
#include "unit.h"

#include <pthread.h>

#include <stdbool.h>
#include <time.h>

/* Inputs copied into one block each, so that donated ones can be compared by address. */
static void **copies_of(const cvn_graph *g, void *const *inputs)
{
    void **copy = calloc((size_t)g->n_parameters + 1, sizeof *copy);
    for (int i = 0; i < g->n_parameters; i++) {
        size_t bytes = cvn_type_bytes(&g->parameter[i]->type);
        copy[i] = malloc(bytes + 1);
        memcpy(copy[i], inputs[i], bytes);
    }
    return copy;
}

static void check_outputs(uint64_t seed, const char *backend, const Plan *plan, void **got,
                          void **want, void *const *parameters, void *const *inputs)
{
    for (int i = 0; i < plan->n_outputs; i++) {
        const PlanOutput *output = &plan->output[i];
        if (memcmp(got[i], want[i], cvn_type_bytes(&output->type)) != 0)
            fail_msg("seed %d, %s, %d threads: output %d, %s, differs from element %d on",
                     (int)seed, backend, plan->n_threads, i, cvn_dtype_name(output->type.dtype),
                     (int)random_difference(&output->type, got[i], want[i]));
        if (output->into >= 0 && got[i] != parameters[output->into])
            fail_msg("seed %d, %s: output %d is not in its parameter", (int)seed, backend, i);
    }
    for (int i = 0; i < plan->n_parameters; i++)
        if (!plan->parameter[i].donated &&
            memcmp(parameters[i], inputs[i], plan->parameter[i].bytes) != 0)
            fail_msg("seed %d, %s: parameter %d was written", (int)seed, backend, i);
}

static void run_and_compare(uint64_t seed, const cvn_graph *g, Device *device)
{
    const KernelSet *backend = device->backend;
    CompileOptions options = {.backend = backend, .n_threads = device_threads(device)};
    Plan *plan;
    cvn_err err = {0};
    if (compile_verified(g, &options, &plan, &err))
        fail_msg("seed %d, %s: %s", (int)seed, backend->name, err.message);
    void **inputs = random_inputs(g, seed, false);
    void **want = calloc((size_t)plan->n_outputs + 1, sizeof *want);
    void **got = calloc((size_t)plan->n_outputs + 1, sizeof *got);
    run_alone(plan->graph, backend, inputs, want);
    for (int repeat = 0; repeat < 2; repeat++) {
        void **parameters = copies_of(g, inputs);
        assert_int_equal(device_reserve(device, plan->arena_bytes, NULL), CVN_OK);
        memset(device->arena, 0xA5, device->arena_bytes);
        int threads = device_threads(device); /* a plan for so many runs on any fewer too */
        device_pace(device, plan)->threads = 1 + (int)(seed / 4 + (uint64_t)repeat) % threads;
        if (executor_run(device, plan, parameters, got, &err))
            fail_msg("seed %d, %s: %s", (int)seed, backend->name, err.message);
        check_outputs(seed, backend->name, plan, got, want, parameters, inputs);
        random_free(parameters, g->n_parameters);
    }
    random_free(want, plan->n_outputs);
    free(got);
    random_free(inputs, g->n_parameters);
    plan_free(plan);
}

static void compare_random_graphs(const KernelSet *backend, int n_seeds)
{
    Device *device[5] = {0};
    for (int t = 1; t <= 4; t++)
        assert_non_null(device[t] = device_new(t, backend, NULL));
    for (int seed = 0; seed < n_seeds; seed++) {
        cvn_graph *g = hard_graph((uint64_t)seed);
        cvn_err err = {0};
        if (!g || cvn_graph_check(g, &err))
            fail_msg("seed %d: %s", seed, err.message);
        run_and_compare((uint64_t)seed, g, device[1 + seed % 4]);
        cvn_graph_free(g);
    }
    for (int t = 1; t <= 4; t++)
        device_free(device[t]);
}

static void random_graphs_run_as_their_operations_do_one_by_one(void **state)
{
    compare_random_graphs(&interpreter_backend, 200);
}

static void so_they_do_where_every_result_may_go_over_every_operand(void **state)
{
    EagerBackend eager;
    compare_random_graphs(eager_backend(&eager), 250);
}

static void so_they_do_with_the_kernels_of_this_machine(void **state)
{
    KernelSet sharing = *cpu_kernels_of(CPU_ISA_PORTABLE);
    sharing.tiny = 0; /* these graphs are small: else no step would be shared */
    compare_random_graphs(&sharing, 120);
    sharing = *cpu_kernels();
    sharing.tiny = 0;
    if (cpu_kernels() != cpu_kernels_of(CPU_ISA_PORTABLE))
        compare_random_graphs(&sharing, 120);
    sharing.tiny = 256; /* some are, some are not */
    compare_random_graphs(&sharing, 120);
}

/* ---- donation, case by case ---- */

enum { N = 100 };

typedef struct Case {
    cvn_graph *g;
    cvn_value *p, *q; /* parameters f32[N]: p[i] = i, q[i] = 1000 + i */
    Plan *plan;
    Device *device;
    float p_data[N], q_data[N];
    void *output[4];
} Case;

static void begin(Case *c)
{
    memset(c, 0, sizeof *c);
    c->g = cvn_graph_new("case", NULL);
    assert_non_null(c->g);
    c->p = cvn_parameter(c->g, "p", CVN_TYPE(CVN_F32, N));
    c->q = cvn_parameter(c->g, "q", CVN_TYPE(CVN_F32, N));
}

static void run_case(Case *c, const KernelSet *backend)
{
    c->device = device_new(2, backend, NULL);
    assert_non_null(c->device);
    CompileOptions options = {.backend = c->device->backend, .n_threads = 2};
    cvn_err err = {0};
    must(compile_verified(c->g, &options, &c->plan, &err), &err);
    for (int i = 0; i < N; i++) {
        c->p_data[i] = (float)i;
        c->q_data[i] = 1000 + (float)i;
    }
    void *const parameters[] = {c->p_data, c->q_data};
    assert_int_equal(executor_run(c->device, c->plan, parameters, c->output, NULL), CVN_OK);
}

static void end(Case *c)
{
    plan_free(c->plan);
    device_free(c->device);
    cvn_graph_free(c->g);
}

/* Output `i` lies at `where` (NULL: anywhere but in the parameters) and holds scale * k + shift. */
static void expect(const Case *c, int i, const void *where, float scale, float shift)
{
    const float *data = c->output[i];
    if (where)
        assert_ptr_equal(data, where);
    else
        assert_true(data != c->p_data && data != c->q_data);
    for (int k = 0; k < N; k++)
        if (data[k] != scale * (float)k + shift)
            fail_msg("output %d, element %d is %f", i, k, (double)data[k]);
}

static void a_donated_parameter_is_updated_in_place_without_a_copy(void **state)
{
    Case c;
    begin(&c);
    cvn_value *sum = cvn_add(c.g, c.p, c.q);
    cvn_output_into(c.g, cvn_add(c.g, sum, sum), c.p);
    run_case(&c, NULL);
    expect(&c, 0, c.p_data, 4, 2000);
    assert_int_equal(c.plan->report.n_copies, 0);
    assert_int_equal(c.plan->arena_bytes, 0);
    end(&c);
}

static void a_donated_parameter_read_afterwards_is_still_the_old_one(void **state)
{
    Case c;
    begin(&c);
    cvn_value *sum = cvn_add(c.g, c.p, c.q);
    cvn_output_into(c.g, sum, c.p);
    cvn_output(c.g, cvn_multiply(c.g, c.p, sum)); /* k * (2k + 1000) with the old p */
    run_case(&c, NULL);
    expect(&c, 0, c.p_data, 2, 1000);
    const float *product = c.output[1];
    for (int k = 0; k < N; k++)
        assert_true(product[k] == (float)k * (2 * (float)k + 1000));
    assert_int_equal(c.plan->report.n_copies, 1);
    end(&c);
}

static void two_parameters_swap(void **state)
{
    Case c;
    begin(&c);
    cvn_output_into(c.g, c.q, c.p);
    cvn_output_into(c.g, c.p, c.q);
    run_case(&c, NULL);
    expect(&c, 0, c.p_data, 1, 1000);
    expect(&c, 1, c.q_data, 1, 0);
    end(&c);
}

static void a_parameter_that_is_also_an_output_is_copied_before_it_is_overwritten(void **state)
{
    Case c;
    begin(&c);
    cvn_output(c.g, c.p);
    cvn_output_into(c.g, cvn_add(c.g, c.p, c.q), c.p);
    cvn_output(c.g, c.q);
    cvn_output_into(c.g, c.q, c.q);
    run_case(&c, NULL);
    expect(&c, 0, NULL, 1, 0);
    expect(&c, 1, c.p_data, 2, 1000);
    expect(&c, 2, NULL, 1, 1000);
    expect(&c, 3, c.q_data, 1, 1000);
    end(&c);
}

static void one_value_goes_into_two_parameters_and_out_twice(void **state)
{
    Case c;
    begin(&c);
    cvn_value *sum = cvn_add(c.g, c.p, c.q);
    cvn_output_into(c.g, sum, c.p);
    cvn_output_into(c.g, sum, c.q);
    cvn_output(c.g, sum);
    cvn_output(c.g, sum);
    run_case(&c, NULL);
    expect(&c, 0, c.p_data, 2, 1000);
    expect(&c, 1, c.q_data, 2, 1000);
    assert_ptr_equal(c.output[2], c.output[3]);
    expect(&c, 2, c.output[3], 2, 1000);
    assert_int_equal(c.plan->report.n_copies, 1);
    end(&c);
}

static void a_view_is_computed_into_a_parameter(void **state)
{
    Case c;
    begin(&c);
    cvn_value *square = cvn_reshape(c.g, c.p, 2, (int64_t[]){10, 10});
    cvn_value *twice = cvn_add(c.g, square, square);
    cvn_output_into(c.g, cvn_reshape(c.g, twice, 1, (int64_t[]){N}), c.p);
    cvn_output(c.g, cvn_reshape(c.g, c.q, 2, (int64_t[]){20, 5}));
    run_case(&c, NULL);
    expect(&c, 0, c.p_data, 2, 0);
    expect(&c, 1, NULL, 1, 1000);
    assert_int_equal(c.plan->report.n_copies, 1); /* of q, which is the caller's own */
    end(&c);
}

static void constants_and_large_splats_are_outputs(void **state)
{
    Case c;
    begin(&c);
    enum { LARGE = 1 << 20 };
    cvn_output_into(c.g, cvn_splat(c.g, CVN_TYPE(CVN_F32, N), 7), c.p);
    cvn_output(c.g, cvn_splat(c.g, CVN_TYPE(CVN_F32, N), 9));
    cvn_output(c.g, cvn_splat(c.g, CVN_TYPE(CVN_F32, LARGE), 11));
    run_case(&c, NULL);
    expect(&c, 0, c.p_data, 0, 7);
    expect(&c, 1, NULL, 0, 9);
    const float *large = c.output[2];
    for (int i = 0; i < LARGE; i++)
        assert_true(large[i] == 11);
    assert_true(c.plan->constant_bytes < LARGE);
    end(&c);
}

/* ---- what is refused ---- */

static void parameters_that_cannot_be_are_refused(void **state)
{
    Case c;
    begin(&c);
    cvn_output_into(c.g, cvn_add(c.g, c.p, c.q), c.p);
    run_case(&c, NULL);
    static const struct {
        size_t p, q;      /* offsets in bytes into one buffer */
        const char *says; /* part of the message; NULL: it is right */
    } rows[] = {
        {0, 400, NULL},      {400, 0, NULL},    {0, 396, "overlap"},
        {396, 0, "overlap"}, {0, 0, "overlap"}, {2, 800, "aligned"},
    };
    static char buffer[2048];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        void *const parameters[] = {buffer + rows[i].p, buffer + rows[i].q};
        cvn_err err = {0};
        int rc = executor_run(c.device, c.plan, parameters, NULL, &err);
        assert_int_equal(rc, rows[i].says ? CVN_EINVAL : CVN_OK);
        if (rows[i].says)
            assert_non_null(strstr(err.message, rows[i].says));
    }
    void *const missing[] = {buffer, NULL};
    cvn_err err = {0};
    assert_int_equal(executor_run(c.device, c.plan, missing, NULL, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "'q'"));
    end(&c);
}

static void an_interrupted_device_runs_nothing(void **state)
{
    Case c;
    begin(&c);
    cvn_output_into(c.g, cvn_add(c.g, c.p, c.q), c.p);
    run_case(&c, NULL);
    volatile int flag = 1;
    c.device->interrupt = &flag;
    void *const parameters[] = {c.p_data, c.q_data};
    cvn_err err = {0};
    assert_int_equal(executor_run(c.device, c.plan, parameters, NULL, &err), CVN_EINTERRUPTED);
    expect(&c, 0, c.p_data, 2, 1000);
    flag = 0;
    assert_int_equal(executor_run(c.device, c.plan, parameters, NULL, NULL), CVN_OK);
    end(&c);
}

/* Writes q when the run has long begun. */
static void write_q(void *context)
{
    Case *c = context;
    nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
    for (int i = 0; i < N; i++)
        c->q_data[i] = (float)i;
}

static void a_parameter_may_come_while_its_plan_runs(void **state)
{
    (void)state;
    KernelSet sharing = *cpu_kernels();
    sharing.tiny = 0; /* so that both threads read it */
    Case c;
    begin(&c);
    cvn_value *sums = cvn_cumsum(c.g, c.p, 0), *back = cvn_reverse(c.g, c.q, 1, (int[]){0});
    cvn_output(c.g, cvn_add(c.g, sums, back));
    run_case(&c, &sharing);
    c.device->pending.by = helper_new(NULL);
    c.device->pending.index = 1;
    for (int round = 0; round < 10; round++) {
        memset(c.q_data, 0, sizeof c.q_data);
        helper_start(c.device->pending.by, write_q, &c);
        void *const parameters[] = {c.p_data, c.q_data};
        assert_int_equal(executor_run(c.device, c.plan, parameters, c.output, NULL), CVN_OK);
        for (int k = 0; k < N; k++)
            assert_true(((float *)c.output[0])[k] == (float)(k * (k + 1) / 2 + N - 1 - k));
        helper_wait(c.device->pending.by);
    }
    helper_free(c.device->pending.by);
    end(&c);
}

/* Sets the flag when the run has long begun. */
static void *set_flag(void *flag)
{
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    flag_set(flag, 1);
    return NULL;
}

/* The flag is not set before the run, and the run would take more than a second: it ends inside. */
static void a_run_is_ended_inside_and_the_device_goes_on(void **state)
{
    enum { SIDE = 768, PRODUCTS = 200 };
    for (int threads = 1; threads <= 2; threads++) {
        cvn_err err = {0};
        cvn_graph *g = cvn_graph_new("long", &err);
        cvn_type type = CVN_TYPE(CVN_F32, SIDE, SIDE);
        cvn_value *w = cvn_parameter(g, "w", type), *x = cvn_parameter(g, "x", type);
        for (int i = 0; i < PRODUCTS; i++)
            x = cvn_tanh(g, cvn_einsum(g, "ab,cb->ac", x, w));
        cvn_output(g, x);
        Plan *plan;
        CompileOptions options = {.backend = cpu_kernels(), .n_threads = threads};
        must(compile_graph(g, &options, &plan, &err), &err);
        Device *device = device_new(threads, cpu_kernels(), &err);
        float *data = calloc(2 * SIDE * SIDE, sizeof *data);
        void *const parameters[] = {data, data + SIDE * SIDE};
        void *out[1];
        for (int i = 0; i < 2 * SIDE * SIDE; i++)
            data[i] = (float)(i % 7) * 0.01F;
        volatile int flag = 0;
        pthread_t thread;
        device->interrupt = &flag;
        assert_int_equal(pthread_create(&thread, NULL, set_flag, (void *)(uintptr_t)&flag), 0);
        assert_int_equal(executor_run(device, plan, parameters, out, &err), CVN_EINTERRUPTED);
        pthread_join(thread, NULL);
        assert_false(device_pace(device, plan)->warm); /* its time counts for nothing */
        flag = 0;
        assert_int_equal(executor_run(device, plan, parameters, out, NULL), CVN_OK);
        float first = *(float *)out[0];
        assert_int_equal(executor_run(device, plan, parameters, out, NULL), CVN_OK);
        assert_true(first == *(float *)out[0] && first > 0);
        free(data);
        device_free(device);
        plan_free(plan);
        cvn_graph_free(g);
    }
}

static void a_plan_for_other_threads_is_refused(void **state)
{
    Case c;
    begin(&c);
    cvn_output(c.g, cvn_add(c.g, c.p, c.q));
    run_case(&c, NULL);
    Device *other = device_new(3, NULL, NULL);
    assert_non_null(other);
    void *const parameters[] = {c.p_data, c.q_data};
    cvn_err err = {0};
    assert_int_equal(executor_run(other, c.plan, parameters, NULL, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "2 threads"));
    device_free(other);
    end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_donated_parameter_is_updated_in_place_without_a_copy),
        cmocka_unit_test(a_donated_parameter_read_afterwards_is_still_the_old_one),
        cmocka_unit_test(two_parameters_swap),
        cmocka_unit_test(a_parameter_that_is_also_an_output_is_copied_before_it_is_overwritten),
        cmocka_unit_test(one_value_goes_into_two_parameters_and_out_twice),
        cmocka_unit_test(a_view_is_computed_into_a_parameter),
        cmocka_unit_test(constants_and_large_splats_are_outputs),
        cmocka_unit_test(parameters_that_cannot_be_are_refused),
        cmocka_unit_test(an_interrupted_device_runs_nothing),
        cmocka_unit_test(a_run_is_ended_inside_and_the_device_goes_on),
        cmocka_unit_test(a_parameter_may_come_while_its_plan_runs),
        cmocka_unit_test(a_plan_for_other_threads_is_refused),
        cmocka_unit_test(random_graphs_run_as_their_operations_do_one_by_one),
        cmocka_unit_test(so_they_do_where_every_result_may_go_over_every_operand),
        cmocka_unit_test(so_they_do_with_the_kernels_of_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
