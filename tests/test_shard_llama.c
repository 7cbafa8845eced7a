/*
 * Whole Llamas in shards: prefill, decode, score and training, in every layout, on meshes of 1 to 8
 * devices, with sizes that do not divide; and what the partitioner makes of published models.
 */
#include "model/layouts.h"
#include "model/presets.h"
#include "model_make.h"
#include "parsed.h"
#include "part.h"
#include "random_graph.h"
#include "shard_run.h"
#include "tiny_llama.h"
#include "unit.h"

#include <sys/resource.h>
#include <time.h>

/* ---- tiny models ---- */

typedef enum Task { PREFILL, LAST, DECODE, GREEDY, SCORE, TRAIN, TASKS } Task;
static const char *const task_names[] = {"prefill", "last", "decode", "greedy", "score", "train"};

static cvn_graph *task_graph(const Model *config, Task task, int64_t batch)
{
    cvn_err err = {0};
    ModelStep step = {.batch = batch, .seq = 4, .context = 16, .compute = CVN_F32};
    static const StepOutput output[] = {STEP_LOGITS, STEP_LAST, STEP_SAMPLE, STEP_SAMPLE,
                                        STEP_SCORE};
    if (task == TRAIN)
        return llama_train_graph(config, batch, 4, CVN_F32);
    step.output = output[task];
    step.seq = task == DECODE || task == GREEDY ? 1 : 4;
    step.sample = task == GREEDY ? SAMPLE_GREEDY : SAMPLE_GENERAL;
    cvn_graph *g = model_step(config, &step, &err);
    if (!g)
        fail_msg("%s", err.message);
    return g;
}

/* The outputs of a task on one device, computed once for each model and batch. */
static void **whole_outputs(const TinyLlama *t, Task task, int64_t batch, const cvn_graph *g,
                            void *const *in)
{
    enum { MOST_BATCH = 16 };
    static void **known[TINY_LLAMAS][TASKS][MOST_BATCH];
    assert_true(batch < MOST_BATCH);
    void ***whole = &known[t - tiny_llamas][task][batch];
    cvn_err err = {0};
    if (!*whole) {
        *whole = calloc((size_t)g->n_outputs, sizeof **whole);
        if (interp_run_one(g, (const void *const *)in, *whole, &err))
            fail_msg("%s %s: %s", t->name, task_names[task], err.message);
    }
    return *whole;
}

static void check_llama(const TinyLlama *t, Task task, const char *layout, const char *mesh_text,
                        int64_t batch)
{
    Model *config = tiny_llama_config(t);
    cvn_graph *g = task_graph(config, task, batch), *local;
    Mesh mesh = mesh_of(mesh_text);
    PartitionReport report;
    cvn_err err = {0};
    void **in = tiny_llama_inputs(g, config);
    void **whole = whole_outputs(t, task, batch, g, in);
    void **parts = calloc((size_t)g->n_outputs, sizeof *parts);
    if (model_mark(g, config, &mesh, layout, &err) || shard_make(g, &mesh, &local, &report, &err) ||
        shard_run(local, &mesh, &report, (const void *const *)in, parts, &err))
        fail_msg("%s %s %s on %s: %s", t->name, task_names[task], layout, mesh_text, err.message);
    for (int i = 0; i < g->n_outputs; i++) {
        const cvn_value *v = g->output[i].value;
        double difference = shard_difference(&v->type, whole[i], parts[i]);
        double most = random_is_float(v->type.dtype) ? 1e-5 : 0;
        if (difference > most)
            fail_msg("%s %s %s on %s: output %d differs by %g", t->name, task_names[task], layout,
                     mesh_text, i, difference);
    }
    if (report.n_involuntary)
        fail_msg("%s %s %s on %s: %lld involuntary gathers", t->name, task_names[task], layout,
                 mesh_text, (long long)report.n_involuntary);
    random_free(parts, g->n_outputs);
    random_free(in, g->n_parameters);
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
}

/* Each layout and mesh with one of the models; CVN_LAYOUT=2d: one layout, with all of them. */
static void tiny_llamas_compute_the_same_in_shards(void **state)
{
    static const char *const meshes[] = {"",
                                         "data=2",
                                         "model=3",
                                         "data=2,model=2",
                                         "model=4",
                                         "data=3,model=2",
                                         "data=6",
                                         "data=2,model=3",
                                         "data=4,model=2",
                                         "model=8",
                                         "data=8",
                                         "dcn=2,data=2,model=2"};
    const char *only = getenv("CVN_LAYOUT");
    for (size_t l = 0; layout_name(l); l++)
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
            for (int t = 0; t < TINY_LLAMAS; t++)
                for (int task = 0; task < TASKS; task++)
                    if (only ? strcmp(only, layout_name(l)) == 0
                             : (size_t)t == (l + m) % TINY_LLAMAS &&
                                   in_part(l + m + (size_t)task, 1))
                        check_llama(&tiny_llamas[t], (Task)task, layout_name(l), meshes[m],
                                    m % 2 ? 8 : 9);
    check_llama(&tiny_llamas[TINY_TIED], DECODE, "2d", "data=6", 4); /* fewer rows than devices */
    check_llama(&tiny_llamas[TINY_GQA], PREFILL, "2d", "data=4,model=2", 1);
    for (int t = 0; t < TINY_LLAMAS; t++)
        for (int task = 0; task < TASKS && !only; task++) {
            check_llama(&tiny_llamas[t], (Task)task, "fsdp+tp", "data=2,model=2", 4);
            check_llama(&tiny_llamas[t], (Task)task, "fsdp+tp", "data=2,model=3", 4);
            check_llama(&tiny_llamas[t], (Task)task, "fsdp+tp-scatter", "data=6", 4);
            check_llama(&tiny_llamas[t], (Task)task, "dp+tp", "data=2,model=4", 8);
        }
}

/* ---- published models, without weights ---- */

static Model *preset(const char *name)
{
    Model *config = model_preset(name);
    return config;
}

static double total_bytes(const PartitionReport *r)
{
    double bytes = 0;
    for (int k = 0; k < OP_COUNT; k++)
        bytes += r->bytes[k];
    return bytes;
}

static void respec(cvn_graph *g, cvn_value *v, int d, const char *axis)
{
    cvn_spec spec = {.rank = v->type.rank};
    if (axis)
        spec.dim[d] = (__typeof__(spec.dim[0])){1, {axis}};
    cvn_mark_sharding(g, v, &spec);
}

/* As published: the embedding is split by columns and its result gathered, and so are the logits; in
   between, one all-reduce behind each attention and one behind each feed-forward. */
static void tensor_parallel_has_the_published_collectives(void **state)
{
    Model *config = preset("llama2-70b");
    ModelStep step = {
        .batch = 8, .seq = 128, .context = 4096, .compute = CVN_BF16, .output = STEP_LOGITS};
    cvn_err err = {0};
    Mesh mesh = mesh_of("model=8");
    PartitionReport report;
    cvn_graph *g = model_step(config, &step, &err), *local;
    if (!g || model_mark(g, config, &mesh, "tp", &err))
        fail_msg("%s", err.message);
    for (Op *op = g->first; op; op = op->next)
        if (op->kind == OP_GATHER) {
            respec(g, op->operand[0], 1, "model");
            respec(g, op->result[0], 0, NULL);
        }
    respec(g, g->output[g->n_outputs - 1].value, 0, NULL);
    must(shard_make(g, &mesh, &local, &report, &err), &err);
    assert_int_equal(report.count[OP_ALL_REDUCE], 2 * 80);
    assert_int_equal(report.count[OP_ALL_GATHER], 2);
    assert_int_equal(report.n_collectives, 2 * 80 + 2);
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
}

/* Splitting activations between blocks turns each all-reduce into a scatter and a gather, which two
   products share: the same bytes, and no all-reduce but the few numbers of none. */
static void scattered_activations_need_no_all_reduce(void **state)
{
    Model *config = preset("llama2-70b");
    ModelStep step = {
        .batch = 8, .seq = 128, .context = 4096, .compute = CVN_BF16, .output = STEP_LOGITS};
    cvn_err err = {0};
    Mesh mesh = mesh_of("model=8");
    PartitionReport report;
    cvn_graph *g = model_step(config, &step, &err), *local = NULL;
    if (!g || model_mark(g, config, &mesh, "tp-scatter", &err) ||
        shard_make(g, &mesh, &local, &report, &err))
        fail_msg("%s", err.message);
    assert_int_equal(report.count[OP_ALL_REDUCE], 0);
    assert_int_equal(report.count[OP_REDUCE_SCATTER], 2 * 80 + 1);
    assert_int_equal(report.count[OP_ALL_GATHER], 2 * 80 + 1);
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
}

static double train_bytes(const Model *config, int64_t batch, const char *mesh_text,
                          const char *layout)
{
    cvn_err err = {0};
    Mesh mesh = mesh_of(mesh_text);
    PartitionReport report;
    cvn_graph *g = llama_train_graph(config, batch, 1024, CVN_BF16), *local = NULL;
    must(model_mark(g, config, &mesh, layout, &err), &err);
    must(shard_make(g, &mesh, &local, &report, &err), &err);
    double bytes = total_bytes(&report);
    assert_int_equal(report.n_involuntary, 0);
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
    return bytes;
}

/* Published runs: 7B on (16, 1), 13B on (32, 1), 70B on (32, 4); with one model device they are the
   same layout. */
static void two_d_moves_fewer_bytes_than_fsdp(void **state)
{
    Model *config = preset("llama2-70b");
    config = model_with(config, "'num_hidden_layers': 4");
    double fsdp = train_bytes(config, 512, "data=128", "fsdp");
    double two_d = train_bytes(config, 512, "data=32,model=4", "2d");
    print_message("4 layers of 70B, 128 devices: fsdp %.1f GB, 2d on (32, 4) %.1f GB each\n",
                  fsdp / 1e9, two_d / 1e9);
    assert_true(two_d < fsdp);
}

/* Of one layer, FSDP moves weights and tensor parallelism activations: per device, and pass, about
   as many bytes where the rows of a device's batch are as many as the hidden size has elements. */
static void fsdp_and_tp_cross_near_batch_equal_to_hidden_size(void **state)
{
    Model *config = preset("llama2-7b");
    config = model_with(config, "'num_hidden_layers': 2, 'vocab_size': 64");
    int64_t cross = 0;
    for (int64_t tokens = 1 << 9; tokens <= 1 << 17 && !cross; tokens *= 2) {
        int64_t batch = tokens / 64;
        cvn_err err = {0};
        double bytes[2];
        for (int i = 0; i < 2; i++) {
            Mesh mesh = mesh_of(i ? "model=8" : "data=8");
            PartitionReport report;
            /* fsdp has 8 times the rows in all, so that each device has as many */
            cvn_graph *g = llama_train_graph(config, i ? batch : batch * 8, 64, CVN_BF16),
                      *local = NULL;
            must(model_mark(g, config, &mesh, i ? "tp" : "fsdp", &err), &err);
            must(shard_make(g, &mesh, &local, &report, &err), &err);
            bytes[i] = total_bytes(&report);
            partition_report_free(&report);
            cvn_graph_free(local);
            cvn_graph_free(g);
        }
        if (bytes[1] > bytes[0])
            cross = tokens;
    }
    print_message("fsdp moves fewer bytes than tp from %lld tokens a device on; hidden size %lld\n",
                  (long long)cross, (long long)model_width(config));
    assert_true(cross >= model_width(config) / 2 && cross <= model_width(config) * 4);
}

/* Of this process alone, however busy the machine is. */
static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void the_largest_model_is_cut_in_seconds(void **state)
{
    Model *config = preset("llama3.1-405b");
    cvn_err err = {0};
    Mesh mesh = mesh_of("data=64,model=8");
    PartitionReport report;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    double start = processor_seconds();
    cvn_graph *g = llama_train_graph(config, 512, 4096, CVN_BF16), *local = NULL;
    ShardResult r;
    must(model_mark(g, config, &mesh, "2d", &err), &err);
    must(shard_propagate(g, &mesh, &r, &err), &err);
    must(shard_partition(g, &mesh, &r, &local, &report, &err), &err);
    double took = processor_seconds() - start;
    getrusage(RUSAGE_SELF, &after);
    print_message("llama3.1-405b, training, (64, 8): %.1f s, %ld MiB at most\n", took,
                  after.ru_maxrss / 1024);
    assert_int_equal(report.n_involuntary, 0);
    assert_true(after.ru_maxrss < 1024 * 1024);
    assert_true(took <
                60); /* some seconds: what it takes must not grow with the square of anything */
    shard_result_free(&r);
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
}

/* No collective moves anything as wide as the vocabulary: not in the loss and its gradient, not in
   scores, and not in greedy sampling. Of the general one filters take each row whole, once. */
static void logits_are_never_gathered(void **state)
{
    Model *config = tiny_llama_config(&tiny_llamas[TINY_GQA]);
    config = model_with(config, "'vocab_size': 4096");
    for (int task = 0; task < TASKS; task++) {
        cvn_err err = {0};
        Mesh mesh = mesh_of("model=4");
        PartitionReport report;
        cvn_graph *g = task_graph(config, (Task)task, 8), *local;
        must(model_mark(g, config, &mesh, "tp", &err), &err);
        must(shard_make(g, &mesh, &local, &report, &err), &err);
        int wide = 0;
        for (int64_t i = 0; i < report.n_collectives; i++) {
            const cvn_type *type = &report.collective[i].op->result[0]->type;
            for (int d = 0; d < type->rank; d++)
                wide += type->dim[d] >= model_vocab(config) / 4;
        }
        assert_int_equal(wide, task == DECODE);
        partition_report_free(&report);
        cvn_graph_free(local);
        cvn_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_llamas_compute_the_same_in_shards),
        cmocka_unit_test(logits_are_never_gathered),
        cmocka_unit_test(tensor_parallel_has_the_published_collectives),
        cmocka_unit_test(scattered_activations_need_no_all_reduce),
        cmocka_unit_test(two_d_moves_fewer_bytes_than_fsdp),
        cmocka_unit_test(fsdp_and_tp_cross_near_batch_equal_to_hidden_size),
        cmocka_unit_test(the_largest_model_is_cut_in_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
