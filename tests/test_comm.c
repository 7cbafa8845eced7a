/* Collectives between devices of one process: against the interpreter, and what happens when a device fails. */
#include "comm/account.h"
#include "mesh_support.h"
#include "unit.h"

static void check_mesh(int n_devices, int n_threads, int repeats)
{
    cvn_err err = {0};
    char why[512];
    Comm *comm = comm_new(n_devices, NULL, &err);
    assert_non_null(comm);
    DeviceGroup *group = group_new(comm, n_threads, NULL, &err);
    if (!group)
        fail_msg("%s", err.message);
    if (mesh_check_all(group, repeats, why, sizeof why))
        fail_msg("%d threads: %s", n_threads, why);
    group_free(group);
    comm_free(comm);
}

static void every_collective_gives_the_bits_of_the_interpreter(void **state)
{
    static const int devices[] = {1, 2, 3, 4, 6, 8};
    for (int i = 0; i < 6; i++)
        check_mesh(devices[i], 1, devices[i] < 4 ? 4 : 2);
}

static void threads_of_a_device_change_no_bit(void **state)
{
    check_mesh(1, 3, 1);
    check_mesh(2, 2, 1);
    check_mesh(3, 3, 1);
}

static cvn_graph *sum_over(int n_devices, int64_t elements)
{
    int64_t groups[64];
    cvn_graph *g = cvn_graph_new("sum", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, elements));
    for (int i = 0; i < n_devices; i++)
        groups[i] = i;
    cvn_output(g, cvn_all_reduce(g, x, CVN_SUM, 1, n_devices, groups));
    return g;
}

static Plan *compile(const cvn_graph *g)
{
    CompileOptions options = {.backend = cpu_kernels(), .n_threads = 1};
    Plan *plan = NULL;
    assert_int_equal(compile_graph(g, &options, &plan, NULL), CVN_OK);
    return plan;
}

static void a_device_that_cannot_begin_ends_all_and_the_next_run_is_whole(void **state)
{
    cvn_err err = {0};
    Comm *comm = comm_new(3, NULL, &err);
    DeviceGroup *group = group_new(comm, 1, NULL, &err);
    cvn_graph *g = sum_over(3, 1000);
    Plan *plan = compile(g);
    float x[1000];
    for (int i = 0; i < 1000; i++)
        x[i] = (float)i;
    void *outputs[3];
    for (int round = 0; round < 3; round++) {
        void *parameters[3] = {x, x, NULL};
        err = (cvn_err){0};
        assert_int_equal(group_run(group, plan, parameters, outputs, &err), CVN_EINVAL);
        assert_non_null(strstr(err.message, "was not given"));
        parameters[2] = x;
        assert_int_equal(group_run(group, plan, parameters, outputs, &err), CVN_OK);
        for (int d = 0; d < 3; d++)
            assert_true(((float *)outputs[d])[999] == 3 * 999.0f);
    }
    plan_free(plan);
    cvn_graph_free(g);
    group_free(group);
    comm_free(comm);
}

static void a_plan_for_another_mesh_is_refused(void **state)
{
    cvn_err err = {0};
    Comm *comm = comm_new(2, NULL, &err);
    DeviceGroup *group = group_new(comm, 1, NULL, &err);
    cvn_graph *g = sum_over(3, 8);
    Plan *plan = compile(g);
    float x[8] = {0};
    void *parameters[2] = {x, x};
    assert_int_equal(group_run(group, plan, parameters, NULL, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "runs on"));
    plan_free(plan);
    cvn_graph_free(g);
    group_free(group);
    comm_free(comm);
}

static void bytes_are_counted_as_theory_says(void **state)
{
    cvn_err err = {0};
    Comm *comm = comm_new(4, NULL, &err);
    DeviceGroup *group = group_new(comm, 1, NULL, &err);
    cvn_graph *g = sum_over(4, 4096);
    Plan *plan = compile(g);
    static float x[4096];
    void *parameters[4] = {x, x, x, x};
    assert_int_equal(group_run(group, plan, parameters, NULL, &err), CVN_OK);
    CommTable table;
    comm_table(comm, &table);
    assert_int_equal(table.n, 1);
    assert_int_equal(table.row[0].count, 1);
    assert_int_equal(table.row[0].bytes, 2 * 4096 * 4 * 3 / 4); /* 2 S (n - 1) / n per device */
    plan_free(plan);
    cvn_graph_free(g);
    group_free(group);
    comm_free(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_collective_gives_the_bits_of_the_interpreter),
        cmocka_unit_test(threads_of_a_device_change_no_bit),
        cmocka_unit_test(a_device_that_cannot_begin_ends_all_and_the_next_run_is_whole),
        cmocka_unit_test(a_plan_for_another_mesh_is_refused),
        cmocka_unit_test(bytes_are_counted_as_theory_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
