/* The whole model's loss and gradients, by the interpreter, against transformers and torch. */
#include "base/file.h"
#include "compile/pipeline.h"
#include "cpu/device.h"
#include "grad/grad.h"
#include "grad/remat.h"
#include "graph/interp/interp.h"
#include "graph/simplify.h"
#include "io/model.h"
#include "io/safetensors.h"
#include "llama_fixture.h"
#include "model/forward.h"
#include "model_make.h"
#include "part.h"
#include "plan_verify.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const double z_coefficient = 1e-2; /* as in tests/oracles/grad_llama.py */

typedef struct Run {
    const Model *config;
    const ParamList *params;
    void *const *weight; /* [params->n] of f32 */
    int64_t batch, seq;
    cvn_dtype compute;
    const int32_t *tokens, *targets; /* [batch, seq] */
    double z;                        /* coefficient of the z-loss */
    RouterTerms routers;             /* in place of the loss, where some are asked for */
    RematPolicy remat;
    int threads;         /* of the kernels that compute it; 0: the interpreter does */
    double loss, mean_z; /* out */
    float **gradient;    /* out: [params->n], heap */
} Run;

/* Parameters: weights, tokens, targets. Outputs: mean loss, mean z, gradients of the weights. */
static cvn_graph *loss_graph(const Run *r)
{
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("loss", &err);
    assert_non_null(g);
    size_t n = (size_t)r->params->n;
    cvn_value **weight = calloc(n, sizeof *weight), **gradient = calloc(n, sizeof *gradient);
    for (int i = 0; i < r->params->n; i++) {
        const Param *p = &r->params->param[i];
        weight[i] = cvn_parameter(g, p->name, cvn_type_make(CVN_F32, p->rank, p->dims));
    }
    cvn_type grid = CVN_TYPE(CVN_I32, r->batch, r->seq);
    ModelBatch batch = {.tokens = cvn_parameter(g, "tokens", grid),
                        .targets = cvn_parameter(g, "targets", grid),
                        .routers = r->routers};
    ModelLoss loss;
    if (model_loss(g, r->config, r->compute, weight, &batch, &loss, &err))
        fail_msg("%s", err.message);
    cvn_value *z = cvn_divide(g, loss.z, loss.count);
    cvn_value *c = cvn_splat(g, cvn_scalar(CVN_F32), r->z);
    cvn_value *whole = cvn_add(g, loss.mean, cvn_multiply(g, z, c));
    if (r->routers.balance || r->routers.z || r->routers.load)
        loss.mean = whole = loss.load ? loss.load : loss.balance ? loss.balance : loss.router_z;
    Op *last = g->last;
    if (graph_gradient(g, whole, r->params->n, weight, gradient, &err) ||
        graph_remat(g, r->remat, loss.n_blocks, loss.block, last->next, &err))
        fail_msg("%s", err.message);
    cvn_output(g, loss.mean);
    cvn_output(g, z);
    for (int i = 0; i < r->params->n; i++)
        cvn_output(g, gradient[i]);
    if (graph_simplify(g, NULL, &err) || graph_verify(g, &err))
        fail_msg("%s", err.message);
    free(weight);
    free(gradient);
    return g;
}

/* As interp_run_one, by the kernels of this machine. */
static void run_kernels(const cvn_graph *g, int threads, const void **input, void **output)
{
    cvn_err err = {0};
    Plan *plan;
    Device *device = device_new(threads, NULL, &err);
    assert_non_null(device);
    CompileOptions options = {.backend = device->backend, .n_threads = threads};
    if (compile_verified(g, &options, &plan, &err))
        fail_msg("%s", err.message);
    for (int i = 0; i < plan->n_steps; i++) /* nothing on the way is left to the interpreter */
        if (plan->step[i].flops > 1000)
            assert_false(plan->step[i].fallback);
    void **place = calloc((size_t)g->n_outputs, sizeof *place);
    if (executor_run(device, plan, (void *const *)(uintptr_t)input, place, &err))
        fail_msg("%s", err.message);
    for (int i = 0; i < g->n_outputs; i++) {
        size_t bytes = cvn_type_bytes(&g->output[i].value->type);
        output[i] = malloc(bytes);
        memcpy(output[i], place[i], bytes);
    }
    free(place);
    plan_free(plan);
    device_free(device);
}

static void run_loss(Run *r)
{
    cvn_err err = {0};
    cvn_graph *g = loss_graph(r);
    const void **input = calloc((size_t)g->n_parameters, sizeof *input);
    void **output = calloc((size_t)g->n_outputs, sizeof *output);
    for (int i = 0; i < r->params->n; i++)
        input[i] = r->weight[i];
    input[r->params->n] = r->tokens;
    input[r->params->n + 1] = r->targets;
    if (r->threads)
        run_kernels(g, r->threads, input, output);
    else if (interp_run_one(g, input, output, &err))
        fail_msg("%s", err.message);
    r->loss = (double)*(float *)output[0];
    r->mean_z = (double)*(float *)output[1];
    free(output[0]);
    free(output[1]);
    r->gradient = calloc((size_t)r->params->n, sizeof *r->gradient);
    for (int i = 0; i < r->params->n; i++)
        r->gradient[i] = output[2 + i];
    free(input);
    free(output);
    cvn_graph_free(g);
}

static void free_gradients(Run *r)
{
    for (int i = 0; i < r->params->n; i++)
        free(r->gradient[i]);
    free(r->gradient);
}

static double norm_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static json_t *load_json(const char *path)
{
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    if (!json)
        fail_msg("%s: %s", path, error.text);
    return json;
}

static void near(double got, double expected, double tolerance, const char *what, const char *which)
{
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("%s of %s is %.9g, not %.9g", which, what, got, expected);
}

/* What rounding of a gradient is measured by: its norm, but of a single number, a sum over all of a layer whose terms nearly
   cancel, 1 at least. */
static double size_of(const Param *p, double norm)
{
    return p->n == 1 ? fmax(norm, 1) : norm;
}

static void compare_gradient(const Param *p, const float *got, const json_t *expected,
                             double tolerance)
{
    const json_t *tensor = json_object_get(expected, p->file_name[NAMING_HF]);
    assert_non_null(tensor);
    double norm = number(tensor, "norm");
    tolerance *= size_of(p, norm);
    near(norm_of(got, p->n), norm, tolerance, p->name, "gradient norm");
    size_t i;
    json_t *sample;
    json_array_foreach(json_object_get(tensor, "sample"), i, sample)
    {
        json_int_t at = json_integer_value(json_array_get(sample, 0));
        double value = json_number_value(json_array_get(sample, 1));
        near((double)got[at], value, tolerance, p->name, "a gradient");
    }
}

/* The sequences that the script makes of a fixture's tokens. */
static int32_t *targets_of(const LlamaFixture *f, int64_t seq)
{
    int32_t *targets = calloc((size_t)f->n_tokens, sizeof *targets);
    for (int64_t i = 0; i < f->n_tokens; i++)
        targets[i] = i % 7 == 0 || i % seq == seq - 1 ? -100 : f->tokens[i + 1];
    return targets;
}

static void check_variant(const char *variant, cvn_dtype compute, bool interleave, int threads,
                          double tolerance)
{
    char path[512];
    snprintf(path, sizeof path, "%s/grad/%s.json", CVN_TEST_DATA, variant);
    json_t *expected = load_json(path);
    LlamaFixture f;
    fixture_open(&f, variant, CVN_F32);
    if (interleave)
        fixture_interleave(&f);
    int64_t batch = json_integer_value(json_object_get(expected, "batch"));
    Run r = {.config = f.model,
             .params = &f.params,
             .weight = f.weight,
             .batch = batch,
             .seq = f.n_tokens / batch,
             .compute = compute,
             .threads = threads,
             .tokens = f.tokens,
             .z = z_coefficient};
    int32_t *targets = targets_of(&f, r.seq);
    r.targets = targets;
    run_loss(&r);
    near(r.loss, number(expected, "loss"), tolerance * 10, variant, "loss");
    near(r.mean_z, number(expected, "z"), tolerance * 100, variant, "z");
    for (int i = 0; i < f.params.n && !interleave; i++)
        compare_gradient(&f.params.param[i], r.gradient[i], json_object_get(expected, "gradients"),
                         tolerance);
    free_gradients(&r);
    free(targets);
    fixture_close(&f);
    json_decref(expected);
}

/* What the script makes: of Llama, and of families with a window of 8 in sequences of 20, with caps, norms and bases of their own. */
static const char *const variants[] = {
    "gqa",          "tied",          "biases",         "llama3_rope",
    "dynamic_rope", "yarn_rope_all", "mistral_window", "ministral",
    "olmo3",        "cohere2",       "gemma2",         "gemma3",
    "gemma4",       "phi3",          "phi4_mini",      "glm4"};
enum { VARIANTS = sizeof variants / sizeof *variants };

static void gradients_equal_torch(void **state)
{
    (void)state;
    for (int i = 0; i < VARIANTS; i++)
        check_variant(variants[i], CVN_F32, false, 0, 1e-5);
}

static void interleaved_rope_gives_the_same_loss(void **state)
{
    (void)state;
    check_variant("gqa", CVN_F32, true, 0, 1e-5);
}

static void gradients_by_kernels_equal_torch(void **state)
{
    (void)state;
    for (int i = 0; i < VARIANTS; i++)
        check_variant(variants[i], CVN_F32, false, 1 + i % 3, 1e-5);
    check_variant("gqa", CVN_BF16, false, 2, 3e-2);
}

/* Products of bf16 from f32 weights: gradients are f32 and near. */
static void bf16_is_near(void **state)
{
    (void)state;
    check_variant("tied", CVN_BF16, false, 0, 3e-2);
}

/* Most bytes of results that are alive at once, in the order of the graph. */
static int64_t peak_bytes(const cvn_graph *g)
{
    Arena arena;
    assert_int_equal(arena_init(&arena, NULL), 0);
    uint32_t *uses = graph_uses(g, &arena);
    int64_t now = 0, peak = 0;
    for (const Op *op = g->first; op; op = op->next) {
        for (int i = 0; i < op->n_results && op->kind != OP_PARAMETER; i++)
            now += (int64_t)cvn_type_bytes(&op->result[i]->type);
        peak = now > peak ? now : peak;
        for (int i = 0; i < op->n_operands; i++)
            if (--uses[op->operand[i]->id] == 0 && op->operand[i]->def->kind != OP_PARAMETER)
                now -= (int64_t)cvn_type_bytes(&op->operand[i]->type);
    }
    arena_free(&arena);
    return peak;
}

static int64_t peak_of_policy(RematPolicy policy, int n_layers)
{
    Model *config = model_make(
        "'hidden_size': 16, 'num_hidden_layers': %d, 'num_attention_heads': 2, "
        "'num_key_value_heads': 2, 'head_dim': 8, 'intermediate_size': 40, 'vocab_size': 10",
        (int)n_layers);
    Arena arena;
    ParamList params;
    assert_int_equal(arena_init(&arena, NULL), 0);
    params_list(&params, config, &arena);
    Run r = {.config = config,
             .params = &params,
             .batch = 4,
             .seq = 64,
             .compute = CVN_F32,
             .remat = policy};
    cvn_graph *g = loss_graph(&r);
    int64_t peak = peak_bytes(g);
    cvn_graph_free(g);
    arena_free(&arena);
    return peak;
}

/* A layer more costs what enters it and the gradients of its weights, not its activations. */
static void rematerialisation_lowers_the_peak(void **state)
{
    (void)state;
    int64_t more[REMAT_POLICY_COUNT];
    for (int policy = 0; policy < REMAT_POLICY_COUNT; policy++)
        more[policy] =
            peak_of_policy((RematPolicy)policy, 9) - peak_of_policy((RematPolicy)policy, 8);
    int64_t entering = 4 * 64 * 16 * 4, weights = (4 * 16 * 16 + 3 * 16 * 40 + 2 * 16) * 4;
    if (more[REMAT_BLOCK] > entering + weights)
        fail_msg("a layer costs %d bytes", (int)more[REMAT_BLOCK]);
    assert_true(more[REMAT_BLOCK] < more[REMAT_SELECTIVE]);
    assert_true(more[REMAT_SELECTIVE] < more[REMAT_NONE]);
}

/* Of two rows of 20 tokens. */
static Run two_rows(const LlamaFixture *f, const int32_t *targets, cvn_dtype compute)
{
    return (Run){.config = f->model,
                 .params = &f->params,
                 .weight = f->weight,
                 .batch = 2,
                 .seq = 20,
                 .compute = compute,
                 .tokens = f->tokens,
                 .targets = targets};
}

static void rematerialisation_changes_no_bit(void **state)
{
    (void)state;
    LlamaFixture f;
    fixture_open(&f, "biases", CVN_F32);
    int32_t *targets = targets_of(&f, 20);
    Run runs[REMAT_POLICY_COUNT];
    for (int policy = 0; policy < REMAT_POLICY_COUNT; policy++) {
        Run *r = &runs[policy];
        *r = two_rows(&f, targets, CVN_BF16);
        r->z = z_coefficient;
        r->remat = (RematPolicy)policy;
        run_loss(r);
        assert_true(r->loss == runs[0].loss);
        for (int i = 0; i < f.params.n; i++)
            assert_memory_equal(r->gradient[i], runs[0].gradient[i],
                                (size_t)f.params.param[i].n * sizeof(float));
    }
    for (int policy = 0; policy < REMAT_POLICY_COUNT; policy++)
        free_gradients(&runs[policy]);
    free(targets);
    fixture_close(&f);
}

/* Positions are of iota alone here, as where no text shares its row with another. */
static void kernels_give_the_gradients_of_every_family(void **state)
{
    (void)state;
    for (int v = 0; v < LLAMA_VARIANTS; v++) {
        LlamaFixture f;
        if (!in_part((size_t)v, 1))
            continue;
        fixture_open(&f, llama_variants[v], CVN_F32);
        int32_t *targets = targets_of(&f, 20);
        Run runs[2];
        for (int i = 0; i < 2; i++) {
            runs[i] = two_rows(&f, targets, CVN_F32);
            runs[i].z = z_coefficient;
            runs[i].remat = (RematPolicy)(v % REMAT_POLICY_COUNT);
            runs[i].threads = i;
            run_loss(&runs[i]);
        }
        near(runs[1].loss, runs[0].loss, 1e-5, llama_variants[v], "loss");
        for (int i = 0; i < f.params.n; i++) {
            double norm = norm_of(runs[0].gradient[i], f.params.param[i].n);
            norm = size_of(&f.params.param[i], norm);
            for (int64_t k = 0; k < f.params.param[i].n; k++)
                near((double)runs[1].gradient[i][k], (double)runs[0].gradient[i][k], 1e-5 * norm,
                     f.params.param[i].name, "a gradient");
        }
        free_gradients(&runs[0]);
        free_gradients(&runs[1]);
        free(targets);
        fixture_close(&f);
    }
}

/* Of all weights at once, along the gradient, where the slope is its norm. The choice of experts stays what it is for so small a step. */
static void gradients_of_routers_are_differences(void **state)
{
    (void)state;
    static const struct {
        const char *variant;
        RouterTerms asked;
    } cases[] = {{"mixtral", {.balance = BALANCE_BATCH}},
                 {"qwen3_moe", {.balance = BALANCE_SEQUENCE}},
                 {"glm4_moe", {.balance = BALANCE_BATCH}},
                 {"glm4_moe", {.balance = BALANCE_SEQUENCE}},
                 {"gpt_oss_moe", {.z = true}},
                 {"granite_moe", {.z = true}}};
    const double step = 1e-4;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        LlamaFixture f;
        fixture_open(&f, cases[c].variant, CVN_F32);
        int32_t *targets = targets_of(&f, 20);
        Run like = two_rows(&f, targets, CVN_F32);
        like.routers = cases[c].asked;
        Run runs[3] = {like, like, like}; /* there, a step ahead, a step behind */
        double size = 0;
        run_loss(&runs[0]);
        for (int i = 0; i < f.params.n; i++)
            size += pow(norm_of(runs[0].gradient[i], f.params.param[i].n), 2);
        for (int ahead = 1; ahead < 3; ahead++) {
            const double by = (ahead == 1 ? 1 : -2) * step / sqrt(size);
            for (int i = 0; i < f.params.n; i++)
                for (int64_t k = 0; k < f.params.param[i].n; k++)
                    ((float *)f.weight[i])[k] += (float)by * runs[0].gradient[i][k];
            run_loss(&runs[ahead]);
        }
        near((runs[1].loss - runs[2].loss) / (2 * step), sqrt(size), 1e-2 * sqrt(size),
             cases[c].variant, "the slope");
        assert_true(size > 1e-4);
        for (int i = 0; i < 3; i++)
            free_gradients(&runs[i]);
        free(targets);
        fixture_close(&f);
    }
}

/* What each expert's correction has in place of a gradient: how many tokens, of those that count, chose it, so many of them in all. */
static void loads_count_the_tokens_of_experts(void **state)
{
    (void)state;
    LlamaFixture f;
    fixture_open(&f, "glm4_moe", CVN_F32);
    int32_t *targets = targets_of(&f, 20);
    for (int i = 15; i < 20;
         i++) /* padding behind the first row: 14 and 19 tokens count, up to the last target */
        targets[i] = -1;
    Run r = two_rows(&f, targets, CVN_F32);
    r.routers.load = true;
    int found = 0;
    run_loss(&r);
    for (int i = 0; i < f.params.n; i++) {
        const Param *p = &f.params.param[i];
        double sum = 0;
        for (int64_t k = 0; k < p->n && p->kind == PARAM_CORRECTION; k++) {
            const double load = (double)r.gradient[i][k];
            assert_true(load >= 0 && load == floor(load));
            sum += load;
        }
        found += p->kind == PARAM_CORRECTION;
        if (p->kind == PARAM_CORRECTION)
            assert_int_equal((int64_t)sum, (14 + 19) * 3); /* three experts each */
    }
    assert_true(found > 0);
    free_gradients(&r);
    free(targets);
    fixture_close(&f);
}

static void blocks_out_of_order_are_refused(void **state)
{
    (void)state;
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("blocks", &err);
    cvn_value *x = cvn_parameter(g, "x", cvn_scalar(CVN_F32));
    cvn_value *y = cvn_tanh(g, x), *z = cvn_tanh(g, y), *dx;
    Op *last = g->last;
    assert_int_equal(graph_gradient(g, z, 1, &x, &dx, &err), 0);
    cvn_value *wrong[] = {y, x}, *late[] = {x, dx};
    assert_int_equal(graph_remat(g, REMAT_BLOCK, 1, wrong, last->next, &err), CVN_EINVAL);
    assert_int_equal(graph_remat(g, REMAT_BLOCK, 1, late, last->next, &err), CVN_EINVAL);
    cvn_graph_free(g);
}

static int32_t *token_table(const json_t *rows, int64_t *batch, int64_t *seq)
{
    *batch = (int64_t)json_array_size(rows);
    *seq = (int64_t)json_array_size(json_array_get(rows, 0));
    int32_t *out = calloc((size_t)(*batch * *seq), sizeof *out);
    for (int64_t i = 0; i < *batch * *seq; i++)
        out[i] = (int32_t)json_integer_value(
            json_array_get(json_array_get(rows, (size_t)(i / *seq)), (size_t)(i % *seq)));
    return out;
}

/* All gradients of a trained model, element by element. */
static void stories_model_has_the_stored_gradients(void **state)
{
    (void)state;
    static const char base[] = CVN_SHARED_DATA "/training/stories260K-train-golden";
    char path[2][512];
    cvn_err err = {0};
    snprintf(path[0], sizeof path[0], "%s.json", base);
    snprintf(path[1], sizeof path[1], "%s.grads.safetensors", base);
    IoModel model;
    json_t *golden = json_load_file(path[0], 0, NULL);
    if (!golden || io_open_model(&model, CVN_SHARED_DATA "/checkpoints/stories260K-meta", &err)) {
        print_message("skipped: %s is not here\n", path[0]);
        json_decref(golden);
        skip();
    }
    WholeWeights weights;
    whole_load(&weights, &model, CVN_F32);
    /* Meta's files hold the head too, though it is the embedding; it is the last parameter. */
    Arena arena;
    ParamList params;
    const Model *config = model_with(model.desc, "'tie_word_embeddings': true");
    assert_int_equal(arena_init(&arena, &err), 0);
    params_list(&params, config, &arena);
    Run r = {.config = config, .params = &params, .compute = CVN_F32};
    r.weight = weights.data;
    int32_t *x = token_table(json_object_get(golden, "x"), &r.batch, &r.seq);
    int32_t *y = token_table(json_object_get(golden, "y"), &r.batch, &r.seq);
    r.tokens = x;
    r.targets = y;
    run_loss(&r);
    near(r.loss, number(golden, "loss_f64"), 2e-6, "stories260K", "loss");

    FileMap map;
    IoTensors list;
    io_tensors_init(&list, &arena);
    assert_int_equal(file_map(&map, path[1], &err), 0);
    assert_int_equal(st_read(&list, path[1], map.data, map.size, NULL, &err), 0);
    double square = 0;
    for (int i = 0; i < params.n; i++) {
        const Param *p = &params.param[i];
        const IoTensor *t = io_tensors_find(&list, p->file_name[NAMING_META]);
        assert_non_null(t);
        assert_int_equal(t->n, p->n);
        double norm = norm_of(r.gradient[i], p->n);
        square += norm * norm;
        for (int64_t j = 0; j < p->n; j++)
            near((double)r.gradient[i][j], element_get(CVN_F32, t->data, j), 2e-5 * norm, p->name,
                 "a gradient");
    }
    near(sqrt(square), number(golden, "grad_global_norm_f64"), 1e-5, "stories260K", "norm");
    free_gradients(&r);
    free(x);
    free(y);
    whole_free(&weights);
    file_unmap(&map);
    arena_free(&arena);
    io_close_model(&model);
    json_decref(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_equal_torch),
        cmocka_unit_test(gradients_by_kernels_equal_torch),
        cmocka_unit_test(interleaved_rope_gives_the_same_loss),
        cmocka_unit_test(bf16_is_near),
        cmocka_unit_test(kernels_give_the_gradients_of_every_family),
        cmocka_unit_test(rematerialisation_changes_no_bit),
        cmocka_unit_test(rematerialisation_lowers_the_peak),
        cmocka_unit_test(gradients_of_routers_are_differences),
        cmocka_unit_test(loads_count_the_tokens_of_experts),
        cmocka_unit_test(blocks_out_of_order_are_refused),
        cmocka_unit_test(stories_model_has_the_stored_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
