/* The partitioner: graphs in shards compute what whole graphs do. */
#include "graph/decompose.h"
#include "parsed.h"
#include "random_graph.h"
#include "shard/passes.h"
#include "shard_run.h"
#include "unit.h"

#include <time.h>

/* "all_reduce all_gather": the collectives of a graph in order. */
static void collectives_of(const cvn_graph *g, StrBuf *out)
{
    strbuf_puts(out, "");
    for (const Op *op = g->first; op; op = op->next)
        if (op_info[op->kind].class_ == CLASS_COLLECTIVE && op->kind != OP_PARTITION_ID)
            strbuf_printf(out, "%s%s", out->length ? " " : "", op_info[op->kind].name);
}

/* A product's strategies: which collectives come, and that the numbers are right. */
static void products_take_the_cheapest_collectives(void **state)
{
    static const struct {
        const char *mesh, *x, *w, *y, *want;
    } row[] = {
        /* the three strategies: scatter, replicated input, all-reduce */
        {"m=4", "_,m", "_,m", "m,_", "reduce_scatter"},
        {"m=4", "_,_", "m,_", "_,m", ""},
        {"m=4", "_,m", "_,m", "_,_", "all_reduce"},
        {"m=3", "_,m", "_,m", "_,_", "all_reduce"},
        {"d=2,m=2", "d,m", "_,m", "d,_", "all_reduce"},
        {"d=2,m=2", "d,m", "d,m", "d,m", "all_gather reduce_scatter"},
        {"d=8", "d,_", "_,_", "d,_", ""},
        {"d=2,m=3", "d,_", "m,_", "d,m", ""},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "graph @g { %%x: f32[8,6]<%s> = parameter {name=\"x\"}\n"
                 "%%w: f32[10,6]<%s> = parameter {name=\"w\"}\n"
                 "%%y: f32[8,10]<%s> = dot_general %%x, %%w {lhs_contract=[1], rhs_contract=[1]}\n"
                 "return %%y }",
                 row[i].x, row[i].w, row[i].y);
        cvn_graph *g = graph_of(text), *local;
        Mesh mesh = mesh_of(row[i].mesh);
        PartitionReport report;
        cvn_err err = {0};
        StrBuf got = {0};
        void **inputs = random_inputs(g, i, false), *whole[1], *parts[1];
        must(shard_make(g, &mesh, &local, &report, &err), &err);
        must(interp_run_one(g, (const void *const *)inputs, whole, &err), &err);
        must(shard_run(local, &mesh, &report, (const void *const *)inputs, parts, &err), &err);
        collectives_of(local, &got);
        if (strcmp(got.text, row[i].want) != 0) {
            shard_print("local", local);
            fail_msg("row %zu: %s, not %s", i, got.text, row[i].want);
        }
        assert_true(shard_difference(&g->output[0].value->type, whole[0], parts[0]) < 1e-5);
        free(whole[0]);
        free(parts[0]);
        random_free(inputs, g->n_parameters);
        strbuf_free(&got);
        partition_report_free(&report);
        cvn_graph_free(local);
        cvn_graph_free(g);
    }
}

static const char *const meshes[] = {
    "data=1,model=1",    "data=2",         "data=3",         "data=2,model=2",         "data=4",
    "data=3,model=2",    "data=2,model=3", "data=4,model=2", "data=2,model=2:2,0,3,1", "model=8",
    "data=2,x=2,model=2"};
enum { MESHES = sizeof meshes / sizeof *meshes };

/* Marks a value at random: some dimensions by some axes or parts of them. */
static void mark(cvn_graph *g, cvn_value *v, const Mesh *mesh, uint64_t *state)
{
    cvn_spec spec = {.rank = v->type.rank, .priority = (int)(splitmix(state) % 2)};
    for (int axis = 0; axis < mesh->n_axes && v->type.rank; axis++) {
        char text[64];
        int size = mesh->axis[axis].size;
        int d = (int)(splitmix(state) % (uint64_t)v->type.rank);
        if (size == 1 || splitmix(state) % 3 == 0 || spec.dim[d].n == CVN_MAX_SPEC_AXES)
            continue;
        snprintf(text, sizeof text, "%s", mesh->axis[axis].name);
        if (size % 2 == 0 && size > 2 && splitmix(state) % 4 == 0)
            snprintf(text, sizeof text, "%s.%d.2", mesh->axis[axis].name,
                     splitmix(state) % 2 ? 1 : size / 2);
        spec.dim[d].axis[spec.dim[d].n++] = arena_string(&g->arena, text);
    }
    cvn_mark_sharding(g, v, &spec);
}

/* How far the outputs move when composites are decomposed, so that they round in other places, and
   the inputs are changed in their last bits: what rounding alone does to this graph. */
static void find_noise(const cvn_graph *g, void **inputs, void **whole, double *noise)
{
    cvn_err err = {0};
    cvn_graph *other = graph_clone(g, &err);
    void **changed = calloc((size_t)g->n_parameters + 1, sizeof *changed);
    void **out = calloc((size_t)g->n_outputs + 1, sizeof *out);
    if (!other || !changed || !out || graph_decompose(other, NULL, NULL, NULL, &err))
        fail_msg("%s", err.message);
    for (int i = 0; i < g->n_parameters; i++) {
        const cvn_type *type = &g->parameter[i]->type;
        double step = type->dtype == CVN_BF16 || type->dtype == CVN_F16 ? 0.01 : 3e-7;
        changed[i] = calloc(cvn_type_bytes(type) + 1, 1);
        for (int64_t j = 0; j < cvn_type_elements(type); j++) {
            double x = element_get(type->dtype, inputs[i], j);
            double by = random_is_float(type->dtype) ? 1 + (j % 3 ? step : -step) : 1;
            element_set(type->dtype, changed[i], j, x * by);
        }
    }
    must(interp_run_one(other, (const void *const *)changed, out, &err), &err);
    for (int i = 0; i < g->n_outputs; i++) {
        const cvn_type *type = &g->output[i].value->type;
        bool coarse = type->dtype == CVN_BF16 || type->dtype == CVN_F16;
        noise[i] = (coarse ? 0.02 : 1e-5) + 30 * shard_difference(type, whole[i], out[i]);
    }
    random_free(changed, g->n_parameters);
    random_free(out, g->n_outputs);
    cvn_graph_free(other);
}

/* Every dimension is split by another of 8 axes in each tensor: there are as many choices as ways to
   pair dimensions with axes, and as many states of a reshard. */
static void time_does_not_explode_with_the_number_of_axes(void **state)
{
    cvn_graph *g = graph_of("graph @g {\n"
                            "  %x: f32[4,4,4,4,4,4,4,4]<a,b,c,d,e,f,g,h> = parameter {name=\"x\"}\n"
                            "  %y: f32[4,4,4,4,4,4,4,4]<b,c,d,e,f,g,h,a> = parameter {name=\"y\"}\n"
                            "  %z: f32[4,4,4,4,4,4,4,4] = add %x, %y\n"
                            "  %w: f32[4,4,4,4,4,4,4,4]<c,d,e,f,g,h,a,b> = tanh %z\n"
                            "  return %w\n}"),
              *local;
    Mesh mesh = mesh_of("a=2,b=2,c=2,d=2,e=2,f=2,g=2,h=2");
    PartitionReport report;
    cvn_err err = {0};
    clock_t start = clock();
    must(shard_make(g, &mesh, &local, &report, &err), &err);
    assert_true(clock() - start < CLOCKS_PER_SEC); /* 0.02 s of the processor */
    void **inputs = random_inputs(g, 1, false), *whole[1], *parts[1];
    must(interp_run_one(g, (const void *const *)inputs, whole, &err), &err);
    must(shard_run(local, &mesh, &report, (const void *const *)inputs, parts, &err), &err);
    assert_true(shard_difference(&g->output[0].value->type, whole[0], parts[0]) == 0);
    assert_true(report.bytes[OP_COLLECTIVE_PERMUTE] ==
                2 * 4 * 256); /* of a shard: once for x or y, once for w */
    free(whole[0]);
    free(parts[0]);
    random_free(inputs, g->n_parameters);
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
}

/* How often each kind of collective was made in all. */
static int64_t made[OP_COUNT];

static void check_random(uint64_t seed)
{
    const RandomOptions options = {.n_ops = 3 + (int)(seed % 30),
                                   .n_parameters = 3,
                                   .most_elements = 300,
                                   .composites = true,
                                   .into = true};
    uint64_t state = seed * 77 + 5;
    cvn_graph *g = random_graph(seed, &options), *local = NULL;
    Mesh mesh = mesh_of(meshes[seed % MESHES]);
    PartitionReport report;
    cvn_err err = {0};
    for (Op *op = g->first; op; op = op->next)
        if (op->kind == OP_PARAMETER ? splitmix(&state) % 4 != 0 : splitmix(&state) % 6 == 0)
            mark(g, op->result[0], &mesh, &state);
    void **inputs = random_inputs(g, seed, false);
    void **whole = calloc((size_t)g->n_outputs + 1, sizeof *whole);
    void **parts = calloc((size_t)g->n_outputs + 1, sizeof *parts);
    if (shard_make(g, &mesh, &local, &report, &err) ||
        interp_run_one(g, (const void *const *)inputs, whole, &err) ||
        shard_run(local, &mesh, &report, (const void *const *)inputs, parts, &err)) {
        shard_print("whole", g);
        fail_msg("seed %llu, mesh %s: %s", (unsigned long long)seed, meshes[seed % MESHES],
                 err.message);
    }
    double *noise = calloc((size_t)g->n_outputs + 1, sizeof *noise);
    find_noise(g, inputs, whole, noise);
    for (int k = 0; k < OP_COUNT; k++)
        made[k] += report.count[k];
    for (int i = 0; i < g->n_outputs; i++) {
        double difference = shard_difference(&g->output[i].value->type, whole[i], parts[i]);
        if (difference <= noise[i] || isinf(noise[i]))
            continue;
        shard_print("whole", g);
        shard_print("local", local);
        fail_msg("seed %llu, mesh %s: output %d differs by %g, more than %g",
                 (unsigned long long)seed, meshes[seed % MESHES], i, difference, noise[i]);
    }
    free(noise);
    random_free(whole, g->n_outputs);
    random_free(parts, g->n_outputs);
    random_free(inputs, g->n_parameters);
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
}

static void random_graphs_compute_the_same_in_shards(void **state)
{
    const char *seed = getenv("CVN_SEED"), *count = getenv("CVN_SEEDS");
    uint64_t first = seed ? strtoull(seed, NULL, 10) : 1;
    uint64_t n = seed ? 1 : count ? strtoull(count, NULL, 10) : 1000;
    for (uint64_t s = first; s < first + n; s++)
        check_random(s);
    for (int k = 0; k < OP_COUNT && n >= 1000; k++)
        if (op_info[k].class_ == CLASS_COLLECTIVE && k != OP_PARTITION_ID && made[k] < 4)
            fail_msg("%s was made %lld times", op_info[k].name, (long long)made[k]);
}

/* The pass puts the per-device graph in the place of the whole one. */
static void the_pass_makes_the_graph_of_a_device(void **state)
{
    cvn_graph *g =
        graph_of("graph @g { %x: f32[8,64]<_,model> = parameter {name=\"x\"}\n"
                 "%w: f32[16,64]<_,model> = parameter {name=\"w\"}\n"
                 "%y: f32[8,16] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n"
                 "return %y }");
    const GraphPass *pass = &pass_partition;
    cvn_err err = {0};
    bool changed = false;
    StrBuf out = {0};
    assert_string_equal(pass->name, "partition");
    assert_int_equal(pass->run(g, NULL, &changed, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "--mesh"));
    g->mesh = "model=2";
    assert_int_equal(passes_run(g, &pass, 1, NULL, &err), CVN_OK);
    graph_print(&out, g);
    assert_string_equal(
        out.text, "graph @g {\n"
                  "  %x: f32[8,32] = parameter {name=\"x\"}\n"
                  "  %w: f32[16,32] = parameter {name=\"w\"}\n"
                  "  %y: f32[8,16] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n"
                  "  %3: f32[8,16] = all_reduce %y {kind=sum, group_size=2, groups=[0,1]}\n"
                  "  return %3\n}\n");
    g->mesh = "model=2";
    err = (cvn_err){0};
    assert_int_equal(pass->run(g, NULL, &changed, &err), CVN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "all_reduce"));
    strbuf_free(&out);
    cvn_graph_free(g);
}

/* A weight is gathered once for uses side by side, and again far later. */
static void gathered_weights_are_not_kept_for_long(void **state)
{
    StrBuf text = {0};
    cvn_err err = {0};
    strbuf_puts(&text,
                "graph @g { %x: f32[512,64]<data,_> = parameter {name=\"x\"}\n"
                "%w: f32[64,64]<_,data> = parameter {name=\"w\"}\n"
                "%y0: f32[512,64] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n"
                "%z0: f32[512,64] = dot_general %y0, %w {lhs_contract=[1], "
                "rhs_contract=[1]}\n");
    for (int i = 1; i < 200; i++)
        strbuf_printf(&text, "%%z%d: f32[512,64] = tanh %%z%d\n", i, i - 1);
    strbuf_puts(&text, "%y: f32[512,64]<data,_> = dot_general %z199, %w {lhs_contract=[1], "
                       "rhs_contract=[1]}\nreturn %y }");
    cvn_graph *g = graph_of(text.text), *local;
    Mesh mesh = mesh_of("data=4");
    PartitionReport report;
    must(shard_make(g, &mesh, &local, &report, &err), &err);
    assert_int_equal(report.count[OP_ALL_GATHER], 2);
    assert_int_equal(report.n_collectives, 2);
    assert_string_equal(report.collective[0].of, "w");
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
    strbuf_free(&text);
}

/* Two products over a split dimension, added: one reduction. */
static void partial_sums_are_added_before_they_are_reduced(void **state)
{
    cvn_graph *g = graph_of(
                  "graph @g { %x: f32[8,6]<_,m> = parameter {name=\"x\"}\n"
                  "%w: f32[10,6]<_,m> = parameter {name=\"w\"}\n"
                  "%u: f32[10,6]<_,m> = parameter {name=\"u\"}\n"
                  "%a: f32[8,10] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n"
                  "%b: f32[8,10] = dot_general %x, %u {lhs_contract=[1], rhs_contract=[1]}\n"
                  "%c: f32[8,10] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n"
                  "%d: f32[8,10] = add %a, %b\n %y: f32[8,10] = add %d, %c\n return %y }"),
              *local;
    Mesh mesh = mesh_of("m=3");
    PartitionReport report;
    cvn_err err = {0};
    void **inputs = random_inputs(g, 5, false), *whole[1], *parts[1];
    must(shard_make(g, &mesh, &local, &report, &err), &err);
    must(interp_run_one(g, (const void *const *)inputs, whole, &err), &err);
    must(shard_run(local, &mesh, &report, (const void *const *)inputs, parts, &err), &err);
    assert_int_equal(report.count[OP_ALL_REDUCE], 1);
    assert_int_equal(report.n_collectives, 1);
    assert_true(shard_difference(&g->output[0].value->type, whole[0], parts[0]) < 1e-5);
    free(whole[0]);
    free(parts[0]);
    random_free(inputs, g->n_parameters);
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
}

/* What the comparison is worth: with one collective's groups wrong, shards no longer compute what
   the whole does. */
static void a_wrong_group_is_caught(void **state)
{
    cvn_graph *g =
        graph_of("graph @g { %x: f32[8,6]<data,model> = parameter {name=\"x\"}\n"
                 "%w: f32[10,6]<_,model> = parameter {name=\"w\"}\n"
                 "%y: f32[8,10] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n"
                 "return %y }");
    Mesh mesh = mesh_of("data=2,model=2");
    cvn_err err = {0};
    static const int64_t wrong[] = {0, 2, 1, 3};
    for (int planted = 0; planted < 2; planted++) {
        PartitionReport report;
        cvn_graph *local;
        void **inputs = random_inputs(g, 5, false), *whole[1], *parts[1];
        must(shard_make(g, &mesh, &local, &report, &err), &err);
        for (Op *op = local->first; op; op = op->next)
            if (op->kind == OP_ALL_REDUCE && planted)
                op->attr.groups.v = wrong;
        must(interp_run_one(g, (const void *const *)inputs, whole, &err), &err);
        must(shard_run(local, &mesh, &report, (const void *const *)inputs, parts, &err), &err);
        double difference = shard_difference(&g->output[0].value->type, whole[0], parts[0]);
        assert_true(planted ? difference > 0.01 : difference < 1e-5);
        free(whole[0]);
        free(parts[0]);
        random_free(inputs, g->n_parameters);
        partition_report_free(&report);
        cvn_graph_free(local);
    }
    cvn_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_take_the_cheapest_collectives),
        cmocka_unit_test(time_does_not_explode_with_the_number_of_axes),
        cmocka_unit_test(the_pass_makes_the_graph_of_a_device),
        cmocka_unit_test(gathered_weights_are_not_kept_for_long),
        cmocka_unit_test(a_wrong_group_is_caught),
        cmocka_unit_test(partial_sums_are_added_before_they_are_reduced),
        cmocka_unit_test(random_graphs_compute_the_same_in_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
