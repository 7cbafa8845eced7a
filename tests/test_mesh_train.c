/*
 * A training step on devices of one process, with the kernels that really run: the loss, and every weight after a
 * step against its gradient, are those of one device, for each layout on meshes of 1 to 8 devices. Also that the
 * same mesh gives the same bits again.
 */
#include "mesh_support.h"
#include "model/layouts.h"
#include "shard/partition.h"
#include "tiny_llama.h"
#include "unit.h"

/* Two steps of the local graph on n devices; the outputs [n_outputs], whole, each to be freed. */
static void run_steps(const cvn_graph *local, const Mesh *mesh, const PartitionReport *r,
                      void **inputs, void **whole)
{
    cvn_err err = {0};
    Plan *plan = NULL;
    int n = mesh->n_devices, np = r->n_parameters, no = r->n_outputs;
    Comm *comm = comm_new(n, NULL, &err);
    DeviceGroup *group = group_new(comm, 1 + (n == 2), NULL, &err);
    CompileOptions options = {.backend = cpu_kernels(),
                              .n_threads = device_threads(group->device[0])};
    void **in = calloc((size_t)(n * np), sizeof *in), **out = calloc((size_t)(n * no), sizeof *out);
    const void **part = calloc((size_t)n, sizeof *part);
    must(compile_graph(local, &options, &plan, &err), &err);
    for (int d = 0; d < n; d++)
        for (int i = 0; i < np; i++) {
            const PartitionTensor *t = &r->parameter[i];
            in[d * np + i] = calloc(cvn_type_bytes(&t->local) + 1, 1);
            shard_scatter(mesh, &t->sharding, &t->global, inputs[i], d, in[d * np + i]);
        }
    for (int step = 0; step < 2; step++)
        must(group_run(group, plan, in, out, &err), &err);
    for (int i = 0; i < no; i++) {
        const PartitionTensor *t = &r->output[i];
        whole[i] = calloc(cvn_type_bytes(&t->global) + 1, 1);
        for (int d = 0; d < n; d++)
            part[d] = out[d * no + i];
        shard_gather(mesh, &t->sharding, &t->global, part, whole[i]);
    }
    random_free(in, n * np);
    free(out);
    free(part);
    plan_free(plan);
    group_free(group);
    comm_free(comm);
}

static cvn_graph *cut(const Model *config, const Mesh *mesh, const char *layout,
                      PartitionReport *report)
{
    cvn_err err = {0};
    ShardResult result;
    cvn_graph *g = llama_train_graph(config, 6, 4, CVN_F32), *local = NULL;
    if (model_mark(g, config, mesh, layout, &err) || shard_propagate(g, mesh, &result, &err) ||
        shard_partition(g, mesh, &result, &local, report, &err))
        fail_msg("%s: %s", layout, err.message);
    shard_result_free(&result);
    cvn_graph_free(g);
    return local;
}

static void compare(bool grouped, const char *layout, const char *mesh_text, bool again)
{
    Model *config = tiny_llama_config(&tiny_llamas[grouped ? TINY_GQA : TINY_MHA]);
    PartitionReport alone, report;
    Mesh one, mesh;
    cvn_err err = {0};
    must(mesh_parse(&one, "", NULL, &err), &err);
    must(mesh_parse(&mesh, mesh_text, NULL, &err), &err);
    cvn_graph *g = cut(config, &one, "dp", &alone), *local = cut(config, &mesh, layout, &report);
    void **inputs = tiny_llama_inputs(g, config);
    int n = alone.n_outputs;
    void **want = calloc((size_t)n, sizeof *want), **got = calloc((size_t)n, sizeof *got);
    run_steps(g, &one, &alone, inputs, want);
    run_steps(local, &mesh, &report, inputs, got);
    for (int i = 0; i < n; i++) {
        const cvn_type *type = &report.output[i].global;
        double worst = 0, scale = 0;
        for (int64_t k = 0; k < cvn_type_elements(type); k++) {
            double a = element_get(type->dtype, want[i], k),
                   b = element_get(type->dtype, got[i], k);
            worst = fmax(worst, isfinite(a - b) ? fabs(a - b) : INFINITY);
            scale = fmax(scale, fabs(a));
        }
        if (!(worst <= 1e-5 * scale))
            fail_msg("%s on %s: output %d is off by %g of %g", layout, mesh_text, i, worst, scale);
    }
    if (again) {
        void **more = calloc((size_t)n, sizeof *more);
        run_steps(local, &mesh, &report, inputs, more);
        for (int i = 0; i < n; i++)
            assert_memory_equal(more[i], got[i], cvn_type_bytes(&report.output[i].global));
        random_free(more, n);
    }
    random_free(inputs, alone.n_parameters);
    random_free(want, n);
    random_free(got, n);
    partition_report_free(&alone);
    partition_report_free(&report);
    cvn_graph_free(g);
    cvn_graph_free(local);
}

static void a_step_on_a_mesh_is_the_step_on_one_device(void **state)
{
    static const char *const layouts[] = {"dp", "tp", "tp-scatter", "fsdp", "2d", "fsdp+tp"};
    static const char *const meshes[] = {"data=1",         "data=2",         "model=3",
                                         "data=2,model=2", "data=3,model=2", "data=2,model=4"};
    for (int l = 0; l < 6; l++)
        for (int m = 0; m < 6; m++)
            compare((l + m) % 2, layouts[l], meshes[m], m == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_on_a_mesh_is_the_step_on_one_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
