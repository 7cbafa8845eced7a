/*
 * A training step on devices of one process, with links that are not there and clocks that are not the wall's: for
 * each layout at least four fifths of what any order of steps could hide is hidden, and without the schedule the step
 * is longer by just what it then waits. Nothing here depends on the machine or its load.
 */
#include "comm/account.h"
#include "mesh_support.h"
#include "model/layouts.h"
#include "model_make.h"
#include "schedule_bound.h"
#include "shard/partition.h"
#include "tiny_llama.h"
#include "unit.h"

enum { DEVICES = 4 };

/* A step takes up to a fifth more or less than the schedule believes. */
static double seconds(const Op *op)
{
    uint64_t state = (uint64_t)op->kind * 1000003;
    for (int k = 0; k < op->n_operands; k++)
        state = state * 31 + (uint64_t)cvn_type_bytes(&op->operand[k]->type);
    return compute_seconds(op) * (0.8 + 0.4 * draw(&state, 1000) / 1000);
}

static cvn_graph *cut(const char *mesh_text, const char *layout)
{
    Model *config = tiny_llama_config(&tiny_llamas[TINY_MHA]);
    config = model_with(config, "'hidden_size': 96, 'num_hidden_layers': 6, 'num_attention_heads': "
                                "8, 'num_key_value_heads': 4, 'head_dim': 12, 'intermediate_size': "
                                "256, 'vocab_size': 160, 'max_position_embeddings': 64");
    Arena arena;
    Mesh mesh;
    ShardResult result;
    PartitionReport report;
    cvn_err err = {0};
    cvn_graph *g = llama_train_graph(config, 8, 32, CVN_F32), *local = NULL;
    if (arena_init(&arena, &err) || mesh_parse(&mesh, mesh_text, &arena, &err) ||
        model_mark(g, config, &mesh, layout, &err) || shard_propagate(g, &mesh, &result, &err) ||
        shard_partition(g, &mesh, &result, &local, &report, &err))
        fail_msg("%s: %s", layout, err.message);
    shard_result_free(&result);
    partition_report_free(&report);
    cvn_graph_free(g);
    arena_free(&arena);
    return local;
}

static Plan *compile(const cvn_graph *g, bool blocking, Link link)
{
    cvn_err err = {0};
    Plan *plan = NULL;
    CompileOptions options = {
        .backend = cpu_kernels(), .n_threads = 1, .blocking = blocking, .link = link};
    must(compile_verified(g, &options, &plan, &err), &err);
    return plan;
}

/* Small numbers, and token ids that are there. */
static void **make_inputs(const cvn_graph *g)
{
    void **inputs = calloc((size_t)(DEVICES * g->n_parameters), sizeof *inputs);
    for (int i = 0; i < DEVICES * g->n_parameters; i++) {
        const cvn_type *type = &g->parameter[i % g->n_parameters]->type;
        inputs[i] = calloc(1, cvn_type_bytes(type) + 64);
        for (int64_t k = 0; k < cvn_type_elements(type); k++) {
            double number = (double)((i * 37 + k * 11) % 64 - 32) / 640;
            element_set(type->dtype, inputs[i], k,
                        type->dtype == CVN_I32 ? (double)(k % 5) : number);
        }
    }
    return inputs;
}

typedef struct Ran {
    double seconds, waited; /* of the slowest device; of one, as a mean over all */
    char *bits;             /* what the weights are afterwards, and the loss */
    size_t bytes;
} Ran;

static Ran run(const cvn_graph *g, const Plan *plan, Link link)
{
    cvn_err err = {0};
    Comm *comm = comm_new(DEVICES, NULL, &err);
    DeviceGroup *group = group_new(comm, 1, NULL, &err);
    void **inputs = make_inputs(g), **out = calloc((size_t)(DEVICES * g->n_outputs), sizeof *out);
    comm_set_link(comm, link);
    comm_set_clock(comm, seconds);
    must(group_run(group, plan, inputs, out, &err), &err);
    CommTable table;
    comm_table(comm, &table);
    Ran ran = {.waited = comm_table_sum(&table).exposed};
    for (int d = 0; d < DEVICES; d++)
        ran.seconds = fmax(ran.seconds, comm_seconds(comm, d));
    for (int pass = 0; pass < 2; pass++) {
        size_t at = 0;
        for (int i = 0; i < DEVICES * g->n_outputs; i++) {
            size_t bytes = cvn_type_bytes(&plan->output[i % g->n_outputs].type);
            if (pass)
                memcpy(ran.bits + at, out[i], bytes);
            at += bytes;
        }
        ran.bits = pass ? ran.bits : malloc(at);
        ran.bytes = at;
    }
    random_free(inputs, DEVICES * g->n_parameters);
    free(out);
    group_free(group);
    comm_free(comm);
    return ran;
}

/* A link that is as fast as that it takes `share` of the time of computing. */
static Link link_of(const Plan *plan, double share)
{
    double bytes = 0, computing = 0;
    int n = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        const Op *op = plan->step[i].op;
        computing += op_is_exchange(op) ? 0 : compute_seconds(op);
        bytes += op_is_exchange(op) ? op_ring_bytes(op) : 0;
        n += op_is_exchange(op);
    }
    return (Link){.latency = 0.1 * share * computing / n,
                  .bandwidth = bytes / (0.9 * share * computing)};
}

static void check(const char *layout, const char *mesh, double share)
{
    cvn_graph *g = cut(mesh, layout);
    Plan *any = compile(g, true, (Link){0});
    Link link = link_of(any, share);
    Plan *off = compile(g, true, link), *on = compile(g, false, link);
    Ran blocking = run(g, off, link), overlapped = run(g, on, link);
    double bound = schedule_bound(off->graph, link, seconds);
    double before = blocking.waited, after = overlapped.waited;
    double hidden = (before - after) / (before - bound);
    print_message("%-10s on %-15s link %.1f of computing: waits %.2f ms of %.2f, at least %.2f; "
                  "hidden %.0f%%; "
                  "memory %zu KiB, %zu before\n",
                  layout, mesh, share, after * 1e3, before * 1e3, bound * 1e3, hidden * 100,
                  on->arena_bytes / 1024, off->arena_bytes / 1024);
    assert_int_equal(blocking.bytes, overlapped.bytes);
    assert_memory_equal(blocking.bits, overlapped.bits, blocking.bytes);
    assert_true(after >= bound * (1 - 1e-9));
    assert_true(hidden >= 0.8);
    /* Devices that compute alike wait alike: the step is longer by what is exposed. */
    assert_true(fabs(blocking.seconds - overlapped.seconds - (before - after)) <
                0.01 * blocking.seconds);
    free(blocking.bits);
    free(overlapped.bits);
    plan_free(any);
    plan_free(off);
    plan_free(on);
    cvn_graph_free(g);
}

static void four_fifths_of_what_can_be_hidden_is_hidden(void **state)
{
    static const struct {
        const char *layout, *mesh;
    } cases[] = {{"dp", "data=4"},         {"fsdp", "data=4"},
                 {"tp", "model=4"},        {"tp-scatter", "model=4"},
                 {"2d", "data=2,model=2"}, {"fsdp+tp", "data=2,model=2"}};
    static const double shares[] = {0.2, 0.5};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < sizeof shares / sizeof *shares; k++)
            check(cases[i].layout, cases[i].mesh, shares[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_fifths_of_what_can_be_hidden_is_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
