/* LoRA: what --lora means, the shapes and names of adapters, and that a model with adapters computes what
 * the model with the merged weights computes. */
#include "model/lora.h"

#include "grad/grad.h"
#include "graph/graph.h"
#include "graph/interp/interp.h"
#include "io_support.h"
#include "model/forward.h"
#include "model/presets.h"
#include "model_make.h"
#include "splitmix.h"

#include <math.h>

static void the_option_is_read_strictly(void **state)
{
    enum {
        Q = 1 << PARAM_Q,
        V = 1 << PARAM_V,
        ALL =
            Q | 1 << PARAM_K | V | 1 << PARAM_O | 1 << PARAM_GATE | 1 << PARAM_UP | 1 << PARAM_DOWN
    };
    static const struct {
        const char *text;
        LoraOptions want; /* rank 0: refused */
    } table[] = {
        {"r=16", {16, 32, 0, ALL}},
        {"r=8,alpha=16,targets=q,v", {8, 16, 0, Q | V}},
        {"targets=v,q,alpha=0.5,r=1", {1, 0.5, 0, Q | V}},
        {"r=4,targets=all", {4, 32, 0, ALL}},
        {"r=4,dropout=0.25,targets=v", {4, 32, 0.25, V}},
        {"r=4,dropout=1", {0}},
        {"", {0}},
        {"16", {0}},
        {"r=", {0}},
        {"r=0", {0}},
        {"r=1.5", {0}},
        {"r=-1", {0}},
        {"r=99999", {0}},
        {"r=16,", {0}},
        {"r=16,alpha", {0}},
        {"r=16,alpha=nan", {0}},
        {"r=16,targets=", {0}},
        {"r=16,targets=q,embed", {0}},
        {"r=16,q", {0}},
        {"alpha=3", {0}},
        {"rank=3", {0}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        LoraOptions options, want = table[i].want;
        cvn_err err = {0};
        int code = lora_parse(&options, table[i].text, &err);
        if ((code == CVN_OK) != (want.rank != 0) || (code != CVN_OK) != (err.code != 0))
            fail_msg("\"%s\": %s", table[i].text, err.message);
        if (code == CVN_OK && (options.rank != want.rank || options.alpha != want.alpha ||
                               options.targets != want.targets || options.dropout != want.dropout))
            fail_msg("\"%s\" is read as r=%d,alpha=%g,targets=%x", table[i].text, (int)options.rank,
                     options.alpha, options.targets);
    }
}

/* A tiny config with grouped heads, and heads that do not fill the width. */
static Model *odd_config(void)
{
    Model *config = model_preset("tiny");
    config = model_with(config,
                        "'hidden_size': 24, 'num_hidden_layers': 2, 'num_attention_heads': 4, "
                        "'num_key_value_heads': 2, 'head_dim': 8, 'intermediate_size': 40, "
                        "'vocab_size': 50, 'max_position_embeddings': 32, 'attention_bias': true");
    return config;
}

static void adapters_have_the_names_and_shapes_of_peft(void **state)
{
    Arena arena;
    ParamList base;
    LoraParams lora;
    LoraOptions options;
    Model *config = odd_config();
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    assert_int_equal(lora_parse(&options, "r=4,targets=o,k", NULL), CVN_OK);
    params_list(&base, config, &arena);
    lora_params(&lora, &base, &options, &arena);
    static const struct {
        const char *name;
        int rank;
        int64_t dims[3], file_dims[2];
    } want[] = {
        {"base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight", 2, {4, 24}, {4, 24}},
        {"base_model.model.model.layers.0.self_attn.k_proj.lora_B.weight", 3, {2, 8, 4}, {16, 4}},
        {"base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight", 3, {4, 4, 8}, {4, 32}},
        {"base_model.model.model.layers.0.self_attn.o_proj.lora_B.weight", 2, {24, 4}, {24, 4}},
    };
    assert_int_equal(lora.list.n, 8);
    for (int i = 0; i < 4; i++) {
        const Param *p = &lora.list.param[i];
        assert_string_equal(p->file_name[NAMING_HF], want[i].name);
        assert_int_equal(p->rank, want[i].rank);
        assert_memory_equal(p->dims, want[i].dims, (size_t)p->rank * sizeof *p->dims);
        assert_memory_equal(p->file_dims, want[i].file_dims, sizeof want[i].file_dims);
        float value[4], bound = 1 / sqrtf((float)p->file_dims[1]);
        lora_fill(p, 3, 0, 4, value);
        for (int k = 0; k < 4; k++)
            assert_true(i % 2 ? value[k] == 0 : value[k] != 0 && fabsf(value[k]) < bound);
    }
    for (int i = 0; i < base.n; i++) {
        bool adapted = base.param[i].kind == PARAM_K || base.param[i].kind == PARAM_O;
        assert_int_equal(lora.a[i] >= 0, adapted);
    }
    arena_free(&arena);
}

enum { BATCH = 2, SEQ = 5 };

typedef struct Run {
    Arena arena;
    const Model *config;
    ParamList base;
    LoraOptions options;
    LoraParams lora;
    double **weight;  /* [base.n], in the arena */
    double **adapter; /* [lora.list.n] */
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
} Run;

static double *random_values(Run *run, uint64_t *random, int64_t n, double size)
{
    double *value = arena_array(&run->arena, (size_t)n, sizeof *value);
    for (int64_t i = 0; i < n; i++)
        value[i] = (double)(float)(size * ((double)(splitmix(random) >> 11) * 0x1p-52 - 1));
    return value;
}

static void make_run(Run *run)
{
    uint64_t random = 77;
    run->config = odd_config();
    assert_int_equal(arena_init(&run->arena, NULL), CVN_OK);
    assert_int_equal(lora_parse(&run->options, "r=3,alpha=7.5", NULL), CVN_OK);
    params_list(&run->base, run->config, &run->arena);
    lora_params(&run->lora, &run->base, &run->options, &run->arena);
    run->weight = arena_array(&run->arena, (size_t)run->base.n, sizeof *run->weight);
    run->adapter = arena_array(&run->arena, (size_t)run->lora.list.n, sizeof *run->adapter);
    for (int i = 0; i < run->base.n; i++)
        run->weight[i] = random_values(run, &random, run->base.param[i].n, 0.3);
    for (int i = 0; i < run->lora.list.n; i++)
        run->adapter[i] = random_values(run, &random, run->lora.list.param[i].n, 0.3);
    for (int i = 0; i < BATCH * SEQ; i++) {
        run->tokens[i] = (int32_t)(splitmix(&random) % 50);
        run->targets[i] = (int32_t)(splitmix(&random) % 50);
    }
}

/* W + alpha / rank B A of each weight, by lora_merge. */
static double **merged(Run *run)
{
    double **out = arena_array(&run->arena, (size_t)run->base.n, sizeof *out);
    for (int i = 0; i < run->base.n; i++) {
        int64_t n = run->base.param[i].n;
        int a = run->lora.a[i];
        out[i] = arena_copy(&run->arena, run->weight[i], (size_t)n * sizeof **out);
        if (a < 0)
            continue;
        float *part[2], *weight = arena_array(&run->arena, (size_t)n, sizeof *weight);
        for (int k = 0; k < 2; k++) {
            int64_t m = run->lora.list.param[a + k].n;
            part[k] = arena_array(&run->arena, (size_t)m, sizeof **part);
            for (int64_t j = 0; j < m; j++)
                part[k][j] = (float)run->adapter[a + k][j];
        }
        for (int64_t j = 0; j < n; j++)
            weight[j] = (float)run->weight[i][j];
        int64_t rank = run->options.rank;
        LoraProduct product = {part[0], part[1], rank, run->base.param[i].file_dims[1],
                               run->options.alpha / (double)rank};
        lora_merge(&product, 0, n / 3, weight);
        lora_merge(&product, n / 3, n - n / 3, weight + n / 3);
        for (int64_t j = 0; j < n; j++)
            out[i][j] = (double)weight[j];
    }
    return out;
}

/* The loss in f64 by the interpreter, and its gradient for parameter `wrt` (or -1) into *gradient. */
static double loss_of(Run *run, double *const *weight, bool adapted, int wrt, double **gradient)
{
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("loss", &err);
    int n = run->base.n, m = adapted ? run->lora.list.n : 0;
    const void *data[512];
    cvn_value *value[512], *a[256] = {NULL}, *b[256] = {NULL};
    for (int i = 0; i < n + m; i++) {
        const Param *p = i < n ? &run->base.param[i] : &run->lora.list.param[i - n];
        value[i] = cvn_parameter(g, p->name, cvn_type_make(CVN_F64, p->rank, p->dims));
        data[i] = i < n ? weight[i] : run->adapter[i - n];
    }
    for (int i = 0; i < n && adapted; i++) {
        int at = run->lora.a[i];
        a[i] = at < 0 ? NULL : value[n + at];
        b[i] = at < 0 ? NULL : value[n + at + 1];
    }
    cvn_type grid = CVN_TYPE(CVN_I32, BATCH, SEQ);
    ModelBatch batch = {.tokens = cvn_parameter(g, "tokens", grid),
                        .targets = cvn_parameter(g, "targets", grid)};
    data[n + m] = run->tokens;
    data[n + m + 1] = run->targets;
    ModelAdapters adapters = {a, b, run->options.alpha / (double)run->options.rank};
    ModelLoss loss;
    int code = model_loss_adapted(g, run->config, CVN_F32, value, adapted ? &adapters : NULL,
                                  &batch, &loss, &err);
    cvn_output(g, loss.sum);
    if (code == CVN_OK && wrt >= 0) {
        cvn_value *of;
        code = graph_gradient(g, loss.sum, 1, &value[n + wrt], &of, &err);
        if (code == CVN_OK)
            cvn_output(g, of);
    }
    void *output[2] = {NULL};
    if (code == CVN_OK)
        code = interp_run(g, 1, data, output, &err);
    must(code, &err);
    double sum = (double)*(float *)output[0];
    free(output[0]);
    if (gradient)
        *gradient = output[1];
    else
        free(output[1]);
    cvn_graph_free(g);
    return sum;
}

static void a_model_with_adapters_is_the_merged_model(void **state)
{
    Run run;
    make_run(&run);
    double plain = loss_of(&run, run.weight, false, -1, NULL);
    double adapted = loss_of(&run, run.weight, true, -1, NULL);
    double whole = loss_of(&run, merged(&run), false, -1, NULL);
    assert_true(fabs(plain - adapted) > 0.1);
    if (!(fabs(whole - adapted) < 2e-5 * fabs(whole)))
        fail_msg("adapted %.9g, merged %.9g, plain %.9g", adapted, whole, plain);
    arena_free(&run.arena);
}

/* d loss / dA and dB against the difference of losses along a random direction. */
static void gradients_of_adapters_are_the_slopes(void **state)
{
    Run run;
    make_run(&run);
    uint64_t random = 5;
    for (int i = 0; i < run.lora.list.n; i += 3) {
        int64_t n = run.lora.list.param[i].n;
        double *gradient, *u = random_values(&run, &random, n, 1), dot = 0, side[2];
        loss_of(&run, run.weight, true, i, &gradient);
        for (int64_t k = 0; k < n; k++)
            dot += gradient[k] * u[k];
        free(gradient);
        double h = 1e-2;
        for (int s = 0; s < 2; s++) {
            for (int64_t k = 0; k < n; k++)
                run.adapter[i][k] += (s ? -2 : 1) * h * u[k];
            side[s] = loss_of(&run, run.weight, true, -1, NULL);
        }
        for (int64_t k = 0; k < n; k++)
            run.adapter[i][k] += h * u[k];
        double slope = (side[0] - side[1]) / (2 * h);
        if (!(fabs(slope - dot) < 2e-2 * fmax(1, fabs(dot))))
            fail_msg("%s: slope %g, gradient %g", run.lora.list.param[i].name, slope, dot);
    }
    arena_free(&run.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_option_is_read_strictly),
        cmocka_unit_test(adapters_have_the_names_and_shapes_of_peft),
        cmocka_unit_test(a_model_with_adapters_is_the_merged_model),
        cmocka_unit_test(gradients_of_adapters_are_the_slopes),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
