/*
 * Weights that the compiler packs (compile/pack.h): whole Llamas, on one device and in shards, compiled with every layout
 * left to the compiler, run by the kernels and held to the interpreter on whole shapes; and what is packed, what is not.
 */
#include "compile/cache.h"
#include "compile/fused.h"
#include "compile/pack.h"
#include "cpu/device.h"
#include "cpu/registry.h"
#include "graph/interp/interp.h"
#include "graph/linear.h"
#include "graph/simplify.h"
#include "model/layouts.h"
#include "model/presets.h"
#include "model_make.h"
#include "parsed.h"
#include "plan_verify.h"
#include "random_graph.h"
#include "shard_run.h"
#include "tiny_llama.h"
#include "unit.h"

typedef enum Task { PREFILL, LAST, DECODE, SCORE, TASKS } Task;
static const char *const task_names[] = {"prefill", "last", "decode", "score"};

/* Models of tiny_llama.h, whose shards are no whole panels, and one whose are, and which are moved as such. */
enum { WHOLE = TINY_LLAMAS, MODELS, WHOLE_PANELS = 128 };

static cvn_graph *task_graph(const Model *config, Task task, int64_t batch, cvn_dtype dtype)
{
    cvn_err err = {0};
    static const StepOutput output[] = {STEP_LOGITS, STEP_LAST, STEP_LOGITS, STEP_SCORE};
    ModelStep step = {.batch = batch,
                      .seq = task == DECODE                            ? 1
                             : model_shape(config).ffn == WHOLE_PANELS ? 16
                                                                       : 4,
                      .context = 32,
                      .compute = dtype,
                      .output = output[task]};
    cvn_graph *g = model_step(config, &step, &err);
    if (!g)
        fail_msg("%s", err.message);
    return g;
}

static Model *config_of(int t, bool biases)
{
    Model *config = tiny_llama_config(&tiny_llamas[t == WHOLE ? TINY_GQA : t]);
    if (t == WHOLE) {
        config = model_with(config,
                            "'hidden_size': 64, 'vocab_size': 64, 'num_attention_heads': 4, "
                            "'num_key_value_heads': 4, 'head_dim': 16, 'intermediate_size': %d",
                            (int)WHOLE_PANELS);
    }
    config =
        model_with(config, "'max_position_embeddings': 32, 'attention_bias': %s, 'mlp_bias': %s",
                   biases ? "true" : "false", biases ? "true" : "false");
    return config;
}

/* Where everything may be packed: [n_parameters]. */
static signed char *layout_of(const cvn_graph *g, signed char how)
{
    signed char *layout = malloc((size_t)g->n_parameters + 1);
    assert_non_null(layout);
    memset(layout, how, (size_t)g->n_parameters);
    return layout;
}

/* A matrix [rows, k] that lies densely, in panels. */
static void pack_all(cvn_dtype dtype, int64_t rows, int64_t k, const char *plain, char *out)
{
    size_t stride = cvn_dtype_bytes(dtype, k);
    cvn_type type = panel_type(dtype, rows, k);
    for (int64_t p = 0, n = rows; p < type.dim[0]; p++, n -= PANEL_ROWS)
        panel_pack(dtype, k, plain + (size_t)(p * PANEL_ROWS) * stride, stride,
                   n < PANEL_ROWS ? n : PANEL_ROWS, out + (size_t)(p * type.dim[1]) * PANEL_BYTES);
}

/* A parameter as the plan wants it, of one that lies plainly, which is freed. */
static void *as_planned(const PlanParameter *p, void *plain)
{
    char *out = aligned_alloc(64, (p->bytes + 127) / 64 * 64);
    assert_non_null(out);
    if (p->rows)
        pack_all(p->type.dtype, p->n, p->k, plain, out);
    else
        memcpy(out, plain, p->bytes);
    free(plain);
    return out;
}

static Plan *plan_of(const cvn_graph *local, const signed char *layout, bool op_by_op)
{
    CompileOptions options = {
        .backend = cpu_kernels(), .n_threads = 2, .layout = layout, .op_by_op = op_by_op};
    cvn_err err = {0};
    Plan *plan = NULL;
    must(compile_verified(local, &options, &plan, &err), &err);
    return plan;
}

static DeviceGroup *group_of(int n)
{
    static DeviceGroup *known[9];
    assert_true(n < 9);
    cvn_err err = {0};
    if (!known[n] && !(known[n] = group_new(comm_new(n, NULL, &err), 2, NULL, &err)))
        fail_msg("%s", err.message);
    return known[n];
}

/* Runs the plan of a local graph on the inputs of the whole; outputs [n_outputs], whole, each to be freed. */
static void run_plan(const Plan *plan, const Mesh *mesh, const PartitionReport *r,
                     const void *const *in, void **out)
{
    int n = mesh->n_devices, np = plan->n_parameters, no = plan->n_outputs;
    void **parameter = calloc((size_t)(n * np) + 1, sizeof *parameter);
    void **got = calloc((size_t)(n * no) + 1, sizeof *got);
    cvn_err err = {0};
    for (int d = 0; d < n; d++)
        for (int i = 0; i < np; i++) {
            const PartitionTensor *t = &r->parameter[i];
            void *shard = calloc(cvn_type_bytes(&t->local) + 1, 1);
            assert_true(cvn_type_equal(&t->local, &plan->parameter[i].plain));
            shard_scatter(mesh, &t->sharding, &t->global, in[i], d, shard);
            parameter[d * np + i] = as_planned(&plan->parameter[i], shard);
        }
    must(group_run(group_of(n), plan, parameter, got, &err), &err);
    for (int i = 0; i < no; i++) {
        const PartitionTensor *t = &r->output[i];
        const void *part[9];
        for (int d = 0; d < n; d++)
            part[d] = got[d * no + i];
        out[i] = calloc(cvn_type_bytes(&t->global) + 1, 1);
        shard_gather(mesh, &t->sharding, &t->global, part, out[i]);
    }
    random_free(parameter, n * np);
    free(got);
}

/* The outputs of a task on one device, by the interpreter, computed once for each. */
static void **whole_outputs(int t, bool biases, Task task, cvn_dtype dtype, const cvn_graph *g,
                            void *const *in)
{
    static void **known[MODELS][2][TASKS][2];
    void ***whole = &known[t][biases][task][dtype == CVN_F32];
    cvn_err err = {0};
    if (!*whole) {
        *whole = calloc((size_t)g->n_outputs, sizeof **whole);
        must(interp_run_one(g, (const void *const *)in, *whole, &err), &err);
    }
    return *whole;
}

static int packed_parameters(const Plan *plan)
{
    int n = 0;
    for (int i = 0; i < plan->n_parameters; i++)
        n += plan->parameter[i].rows > 0;
    return n;
}

static int count(const Plan *plan, OpKind kind)
{
    int n = 0;
    for (int i = 0; i < plan->n_steps; i++)
        n += plan->step[i].op->kind == kind;
    return n;
}

/* Steps in which panels travel. */
static int panels_moved;

static int moved_panels(const Plan *plan)
{
    int n = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        const Op *op = plan->step[i].op;
        bool moves = op->kind == OP_ALL_GATHER || op->kind == OP_ALL_TO_ALL;
        n += moves && op_in(op, 0)->rank == 4 && op_in(op, 0)->dim[2] == PANEL_ROWS &&
             op->operand[0]->def->kind == OP_PARAMETER;
    }
    return n;
}

typedef struct Case {
    int model;
    bool biases, op_by_op;
    Task task;
    cvn_dtype dtype;
    const char *layout, *mesh;
} Case;

/* Compiles a case and compares; `layout` NULL: the compiler's choice. Returns how many weights are packed. */
static int check_case(const Case *c, const signed char *given)
{
    enum { BATCH = 8 };
    Model *config = config_of(c->model, c->biases);
    cvn_graph *g = task_graph(config, c->task, BATCH, c->dtype), *local;
    Mesh mesh = mesh_of(c->mesh);
    PartitionReport report;
    cvn_err err = {0};
    void **in = tiny_llama_inputs(g, config);
    void **whole = whole_outputs(c->model, c->biases, c->task, c->dtype, g, in);
    void **parts = calloc((size_t)g->n_outputs, sizeof *parts);
    must(model_mark(g, config, &mesh, c->layout, &err), &err);
    must(shard_make(g, &mesh, &local, &report, &err), &err);
    signed char *layout = layout_of(local, PACK_FREE);
    Plan *plan = plan_of(local, given ? given : layout, c->op_by_op);
    run_plan(plan, &mesh, &report, (const void *const *)in, parts);
    for (int i = 0; i < g->n_outputs; i++) {
        const cvn_type *type = &g->output[i].value->type;
        double difference = shard_difference(type, whole[i], parts[i]);
        double most = !random_is_float(type->dtype) ? 0 : c->dtype == CVN_F32 ? 1e-5 : 0.03;
        if (c->dtype == CVN_BF16 && most == 0)
            continue; /* what is likeliest may differ by rounding */
        if (!(difference <= most))
            fail_msg("%s%s %s %s %s on %s: output %d differs by %g",
                     c->model == WHOLE ? "whole panels" : tiny_llamas[c->model].name,
                     c->biases ? " with biases" : "", task_names[c->task], cvn_dtype_name(c->dtype),
                     c->layout, c->mesh, i, difference);
    }
    int packed = packed_parameters(plan);
    panels_moved += moved_panels(plan);
    plan_free(plan);
    free(layout);
    random_free(parts, g->n_outputs);
    random_free(in, g->n_parameters);
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
    return packed;
}

static const char *const meshes[] = {"",        "data=2",         "model=2",
                                     "model=4", "data=2,model=2", "data=4"};
enum { MESHES = sizeof meshes / sizeof *meshes };

static void packed_llamas_compute_what_plain_ones_do(void **state)
{
    static const char *const layouts[] = {"tp", "tp-scatter", "2d", "fsdp", "fsdp+tp"};
    int packed = 0;
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (size_t m = 0; m < MESHES; m++)
            for (int task = 0; task < TASKS; task++) {
                Case c = {.model = (int)(l + m) % MODELS,
                          .biases = (m + (size_t)task) % 2,
                          .task = (Task)task,
                          .dtype = CVN_F32,
                          .layout = layouts[l],
                          .mesh = meshes[m]};
                packed += check_case(&c, NULL);
                c.dtype = CVN_BF16;
                if (m % 2 == l % 2)
                    packed += check_case(&c, NULL);
                c.dtype = CVN_F32;
                c.op_by_op = true;
                if (m % 3 == l % 3)
                    packed += check_case(&c, NULL);
            }
    print_message("%d packed, %d moved\n", packed, panels_moved);
    assert_true(packed > 1000);
}

/* One device: every matrix is packed, every one is part of one of four products a layer, with its norm, its biases and its
   residual, and nothing is brought back into rows. */
static void all_products_of_a_step_are_fused(void **state)
{
    for (int i = 0; i < MODELS * 2; i++) {
        Model *config = config_of(i % MODELS, i >= MODELS);
        for (int task = 0; task < TASKS; task++) {
            cvn_graph *g = task_graph(config, (Task)task, 2, i % 2 ? CVN_F32 : CVN_BF16);
            signed char *layout = layout_of(g, PACK_FREE);
            Plan *plan = plan_of(g, layout, false);
            int layers = (int)model_layers(config);
            assert_int_equal(packed_parameters(plan), 7 * layers + 1);
            assert_int_equal(count(plan, OP_LINEAR), 4 * layers + 1);
            assert_int_equal(count(plan, OP_DOT_GENERAL), 0);
            assert_int_equal(count(plan, OP_RMS_NORM), 0);
            assert_int_equal(count(plan, OP_TRANSPOSE), 0);
            int programs = 0;
            for (int k = 0; k < plan->n_steps; k++)
                programs += plan->step[k].op->kind == OP_LINEAR &&
                            kernel_fused(plan->step[k].op)->program[0];
            /* residuals, SwiGLU, and perhaps biases of q, k and v */
            assert_true(programs == 3 * layers || programs == 4 * layers);
            for (int p = 0; p < plan->n_parameters; p++) {
                const PlanParameter *w = &plan->parameter[p];
                bool embedding = strcmp(w->name, "embed") == 0;
                assert_true(cvn_type_equal(&w->plain, &g->parameter[p]->type));
                assert_true(embedding ? (w->rows == 1) == model_shape(config).tied
                                      : w->rows || w->plain.rank == 1 || w->plain.rank == 2 ||
                                            w->donated);
            }
            plan_free(plan);
            free(layout);
            cvn_graph_free(g);
        }
    }
}

/* The share of the panels that a thread reads: of q, k and v counted through all three, of gate and up as if each were
   alone. */
static void the_plan_says_which_panels_threads_share(void **state)
{
    Model *config = config_of(TINY_GQA, false); /* q 32 rows, k and v 8, gate and up 48 */
    cvn_graph *g = task_graph(config, DECODE, 1, CVN_BF16);
    signed char *layout = layout_of(g, PACK_FREE);
    Plan *plan = plan_of(g, layout, false);
    static const struct {
        const char *name;
        int rows, n, k, joined, before;
    } want[] = {{"layers.1.q", 2, 32, 32, 4, 0},    {"layers.1.k", 2, 8, 32, 4, 2},
                {"layers.1.v", 2, 8, 32, 4, 3},     {"layers.1.o", 1, 32, 32, 2, 0},
                {"layers.1.gate", 1, 48, 32, 3, 0}, {"layers.1.up", 1, 48, 32, 3, 0},
                {"lm_head", 1, 64, 32, 4, 0},       {"embed", 0, 0, 0, 0, 0}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const PlanParameter *p = NULL;
        for (int j = 0; j < plan->n_parameters; j++)
            if (strcmp(plan->parameter[j].name, want[i].name) == 0)
                p = &plan->parameter[j];
        assert_non_null(p);
        assert_int_equal(p->rows, want[i].rows);
        assert_int_equal(p->n, want[i].n);
        assert_int_equal(p->k, want[i].k);
        assert_int_equal(p->panels_joined, want[i].joined);
        assert_int_equal(p->panels_before, want[i].before);
    }
    plan_free(plan);
    free(layout);
    cvn_graph_free(g);
}

/* What one program chose holds for others: packed where nothing would have been, or nowhere. */
static void a_given_layout_is_kept(void **state)
{
    static const char *const where[][2] = {
        {"tp", ""}, {"fsdp", "data=2"}, {"2d", "data=2,model=2"}, {"tp", "model=4"}};
    for (size_t i = 0; i < 4; i++)
        for (int task = 0; task < TASKS; task++) {
            Case c = {.model = (int)i % MODELS,
                      .task = (Task)task,
                      .dtype = CVN_F32,
                      .layout = where[i][0],
                      .mesh = where[i][1]};
            Model *config = config_of(c.model, false);
            cvn_graph *g = task_graph(config, c.task, 8, CVN_F32);
            signed char *layout = layout_of(g, PACK_PLAIN);
            assert_int_equal(check_case(&c, layout), 0);
            int all = 0;
            for (int p = 0; p < g->n_parameters; p++) {
                const cvn_type *type = &g->parameter[p]->type;
                const char *name = g->parameter[p]->def->attr.name;
                bool rows = strstr(name, ".q") || strstr(name, ".k") || strstr(name, ".v");
                if (type->dtype == CVN_F32 && type->rank >= 2 && strncmp(name, "cache", 5) != 0)
                    layout[p] = rows ? 2 : 1;
                all += layout[p] > 0;
            }
            assert_int_equal(check_case(&c, layout), all);
            free(layout);
            cvn_graph_free(g);
        }
}

static void what_cannot_be_packed_is_said(void **state)
{
    static const struct {
        const char *graph;
        signed char layout;
    } cases[] = {{"graph @g { %w: f32[32] = parameter {name=\"w\"} return %w }", 1},
                 {"graph @g { %w: i32[32,4] = parameter {name=\"w\"} return %w }", 1},
                 {"graph @g { %w: f32[32,4] = parameter {name=\"w\"} return %w }", 2},
                 {"graph @g { %w: f32[32,4] = parameter {name=\"w\"} %0: f32[32,4] = negate %w "
                  "return %0 into %w }",
                  1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_err err = {0};
        cvn_graph *g = graph_of(cases[i].graph);
        CompileOptions options = {
            .backend = cpu_kernels(), .n_threads = 1, .layout = &cases[i].layout};
        Plan *plan;
        assert_int_equal(compile_graph(g, &options, &plan, &err), CVN_EINVAL);
        assert_non_null(strstr(err.message, "'w'"));
        cvn_graph_free(g);
    }
}

/* Which parameters are packed depends on what reads them. */
static void only_weights_of_products_are_packed(void **state)
{
#define X "%x: f32[3,4] = parameter {name=\"x\"} "
#define I "%i: i32[2] = parameter {name=\"i\"} "
#define W "%w: f32[32,4] = parameter {name=\"w\"} "
#define PRODUCT "%0: f32[3,32] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]} "
#define LOOK                                                                                       \
    "%1: f32[2,4] = gather %w, %i {window=[1], collapsed=[0], index_map=[0], index_vector_dim=1, " \
    "sizes=[1,4]} "
    static const struct {
        const char *graph;
        int rows;
    } cases[] = {
        {"graph @g { " W X PRODUCT "return %0 }", 1},
        {"graph @g { " W X I PRODUCT LOOK "return %0, %1 }", 1},
        {"graph @g { " W I LOOK "return %1 }", 0},
        {"graph @g { " W X PRODUCT "return %0, %w }", 0},
        {"graph @g { " W X PRODUCT "%1: f32[32,4] = negate %w return %0, %1 }", 0},
        {"graph @g { " W X PRODUCT "%1: f32[32,4] = negate %w return %0, %1 into %w }", 0},
        {"graph @g { " W "%0: f32[32,32] = dot_general %w, %w {lhs_contract=[1], "
         "rhs_contract=[1]} return %0 }",
         0},
        {"graph @g { " W X "%0: f32[32,3] = dot_general %w, %x {lhs_contract=[1], "
         "rhs_contract=[1]} return %0 }",
         0},
        {"graph @g { " W X PRODUCT "%1: f32[64,4] = all_gather %w {axis=0, group_size=2, "
         "groups=[0,1]} %2: f32[3,64] = dot_general %x, %1 {lhs_contract=[1], rhs_contract=[1]} "
         "return %0, %2 }",
         1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_graph *g = graph_of(cases[i].graph);
        signed char layout[] = {PACK_FREE, PACK_FREE, PACK_FREE};
        Plan *plan = plan_of(g, layout, false);
        if (plan->parameter[0].rows != cases[i].rows)
            fail_msg("%s", cases[i].graph);
        plan_free(plan);
        cvn_graph_free(g);
    }
}

/* ---- programs of one model ---- */

/* Chooses for a step of a model on a mesh; layout [n_weights] as given, NULL: all as the compiler likes. */
static signed char *choice_of(const Model *config, const ModelStep *step, const char *where,
                              const char *how, const signed char *given, size_t *n_weights)
{
    cvn_err err = {0};
    Mesh mesh = mesh_of(where);
    PartitionReport report;
    bool changed;
    cvn_graph *g = model_step(config, step, &err), *local;
    if (!g || model_mark(g, config, &mesh, how, &err) ||
        shard_make(g, &mesh, &local, &report, &err))
        fail_msg("%s", err.message);
    signed char *layout = layout_of(local, PACK_FREE);
    for (*n_weights = 0; strncmp(g->parameter[*n_weights]->def->attr.name, "cache", 5) != 0;)
        ++*n_weights;
    if (given)
        memcpy(layout, given, *n_weights);
    must(graph_simplify(local, NULL, &err), &err);
    must(graph_pack(local, layout, &changed, &err), &err);
    must(graph_verify(local, &err), &err);
    partition_report_free(&report);
    cvn_graph_free(local);
    cvn_graph_free(g);
    return layout;
}

/* Decoding, prompts of few and of many tokens and scores agree, where shards are whole panels; one that moves weights takes what they
   chose. */
static void check_programs(const Model *config, const char *mesh, const char *how)
{
    static const ModelStep steps[] = {{.batch = 8, .seq = 1, .output = STEP_SAMPLE},
                                      {.batch = 1, .seq = 16, .output = STEP_SAMPLE},
                                      {.batch = 1, .seq = 512, .output = STEP_SAMPLE},
                                      {.batch = 1, .seq = 128, .output = STEP_SCORE}};
    signed char *first = NULL;
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        ModelStep step = steps[s];
        size_t n, packed = 0;
        step.context = 512;
        step.compute = CVN_BF16;
        bool moves =
            strcmp(how, "2d") == 0 && step.seq == 512; /* weights, and not by whole panels */
        const signed char *given = moves ? first : NULL;
        signed char *chosen = choice_of(config, &step, mesh, how, given, &n);
        for (size_t i = 0; i < n; i++)
            packed += chosen[i] > 0;
        if (packed != (size_t)(7 * model_layers(config) + 1))
            fail_msg("step %zu in layout %s on %s packs %zu weights", s, how, mesh, packed);
        if (first && memcmp(first, chosen, n) != 0)
            fail_msg("step %zu in layout %s on %s packs other weights", s, how, mesh);
        if (first)
            free(chosen);
        else
            first = chosen;
    }
    free(first);
}

static void programs_of_a_model_pack_the_same_weights(void **state)
{
    static const char *const presets[] = {"stories110m", "llama2-7b", "llama3.2-1b", "llama2-70b"};
    for (size_t p = 0; p < sizeof presets / sizeof *presets; p++)
        for (size_t l = 0; layout_name(l); l++)
            for (size_t m = 0; m < MESHES; m++) {
                Model *config = model_preset(presets[p]);
                config = model_with(config, "'num_hidden_layers': 2");
                check_programs(config, meshes[m], layout_name(l));
            }
}

/* ---- the cache, and packing itself ---- */

static void plans_are_kept_by_their_layout(void **state)
{
    cvn_graph *g = graph_of("graph @g { " W X PRODUCT "return %0 }");
    CompileOptions options = {.backend = cpu_kernels(), .n_threads = 1};
    static const signed char layout[3][2] = {{PACK_FREE, 0}, {PACK_PLAIN, 0}, {1, 0}};
    Cache cache;
    assert_int_equal(cache_init(&cache, &options, NULL), CVN_OK);
    const Plan *plan[4], *again;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cache_get(&cache, g, i < 3 ? layout[i] : NULL, &plan[i], NULL), 0);
        assert_int_equal(cache_get(&cache, g, i < 3 ? layout[i] : NULL, &again, NULL), 0);
        assert_ptr_equal(plan[i], again);
        assert_int_equal(plan[i]->parameter[0].rows, i % 2 == 0);
    }
    assert_int_equal(cache.compilations, 4);
    assert_int_equal(cache.hits, 4);
    cache_free(&cache);
    cvn_graph_free(g);
}

/* Panels, brought back into rows by the function that says what they mean, are the rows that were packed. */
static void panels_hold_what_was_packed(void **state)
{
    static const int64_t sizes[][2] = {{1, 1}, {16, 2}, {15, 33}, {17, 16}, {40, 7}, {64, 64}};
    for (int i = 0; i < 12; i++) {
        cvn_dtype dtype = i % 2 ? CVN_BF16 : CVN_F32;
        int64_t n = sizes[i / 2][0], k = sizes[i / 2][1];
        cvn_type plain = CVN_TYPE(dtype, n, k), panels = panel_type(dtype, n, k);
        size_t bytes = cvn_type_bytes(&plain), packed = cvn_type_bytes(&panels);
        char *rows = malloc(bytes), *out = malloc(packed), *back;
        uint64_t seed = 9;
        for (size_t b = 0; b < bytes; b++)
            rows[b] = (char)(splitmix(&seed) % 64 + 1); /* no NaN */
        memset(out, 0xff, packed);
        pack_all(dtype, n, k, rows, out);
        cvn_graph *g = cvn_graph_new("g", NULL);
        cvn_output(g, panel_dequantize(g, cvn_parameter(g, "w", panels), NULL, plain, 1));
        assert_int_equal(cvn_graph_check(g, NULL), 0);
        assert_int_equal(interp_run_one(g, (const void *[]){out}, (void **)&back, NULL), 0);
        assert_memory_equal(rows, back, bytes);
        double sum[2] = {0, 0}; /* what is past the edges is 0 */
        for (int64_t j = 0; j < cvn_type_elements(&panels); j++)
            sum[0] += fabs(element_get(dtype, out, j));
        for (int64_t j = 0; j < n * k; j++)
            sum[1] += fabs(element_get(dtype, rows, j));
        assert_true(fabs(sum[0] - sum[1]) <= 1e-12 * sum[1]);
        free(rows);
        free(out);
        free(back);
        cvn_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(panels_hold_what_was_packed),
        cmocka_unit_test(only_weights_of_products_are_packed),
        cmocka_unit_test(what_cannot_be_packed_is_said),
        cmocka_unit_test(plans_are_kept_by_their_layout),
        cmocka_unit_test(all_products_of_a_step_are_fused),
        cmocka_unit_test(the_plan_says_which_panels_threads_share),
        cmocka_unit_test(packed_llamas_compute_what_plain_ones_do),
        cmocka_unit_test(a_given_layout_is_kept),
        cmocka_unit_test(programs_of_a_model_pack_the_same_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
