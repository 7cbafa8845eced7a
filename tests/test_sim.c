/* Planning without devices: what is said of memory is what the shapes say. */
#include "model/presets.h"
#include "model_make.h"
#include "sim/plan.h"
#include "unit.h"

#include <math.h>

static SimAsk ask_of(const char *preset, const char *mesh, const char *layout, SimTask task)
{
    SimAsk ask = {.mesh = mesh,
                  .layout = layout,
                  .task = task,
                  .batch = 8,
                  .seq = 32,
                  .context = 64,
                  .compute = CVN_BF16,
                  .device = backends[0]};
    ask.model = model_preset(preset);
    ask.train.clip = 1;
    ask.train.optimizer = optimizer_defaults(OPTIMIZER_ADAMW, model_size(ask.model).params);
    return ask;
}

static void plan(const SimAsk *ask, SimAnswer *answer)
{
    cvn_err err = {0};
    must(sim_plan(ask, answer, &err), &err);
}

static void one_device_holds_everything(void **state)
{
    SimAsk ask = ask_of("stories15m", "", "2d", SIM_TRAIN);
    SimAnswer a;
    plan(&ask, &a);
    double params = (double)model_size(ask.model).params;
    assert_true(a.memory.weights == 4 * params);
    assert_true(a.memory.optimizer == 8 * params);
    assert_true(a.gradients == 4 * params);
    assert_int_equal(a.n_collectives, 0);
    assert_true(a.memory.temporaries > 0 && a.flops >= 0.99 * a.model_flops);
    sim_answer_free(&a);
}

/* Every tensor is as large as its shards together, where they divide it. */
static void shards_add_up_to_the_whole(void **state)
{
    static const char *const layouts[] = {"dp", "tp", "fsdp", "2d", "fsdp+tp"};
    for (int i = 0; i < 5; i++) {
        SimAsk ask = ask_of("stories15m", "data=2,model=2", layouts[i], SIM_TRAIN);
        SimAnswer a;
        plan(&ask, &a);
        double weights = 0;
        for (int t = 0; t < a.n_tensors; t++) {
            const SimTensor *x = &a.tensor[t];
            double whole = (double)cvn_type_bytes(&x->type) * (double)x->count, shards = 1;
            for (int d = 0; d < x->type.rank; d++)
                shards *= x->shards[d];
            assert_true(x->device_bytes >= whole / shards * (1 - 1e-12));
            weights += x->role == SIM_WEIGHT ? whole : 0;
        }
        assert_true(weights == 4.0 * (double)model_size(ask.model).params);
        assert_int_equal(a.n_involuntary, 0);
        assert_true(a.n_collectives > 0);
        sim_answer_free(&a);
    }
}

static void a_larger_mesh_takes_less_memory_per_device(void **state)
{
    static const char *const meshes[] = {"", "data=2", "data=4", "data=8"};
    double last = INFINITY;
    for (int i = 0; i < 4; i++) {
        SimAsk ask = ask_of("stories15m", meshes[i], "fsdp", SIM_TRAIN);
        SimAnswer a;
        plan(&ask, &a);
        assert_true(a.memory.total < last);
        last = a.memory.total;
        sim_answer_free(&a);
    }
}

static void decoding_counts_the_cache(void **state)
{
    SimAsk ask = ask_of("stories15m", "", "tp", SIM_DECODE);
    SimAnswer a;
    plan(&ask, &a);
    /* as an engine allocates it: a context of 64 is a page */
    assert_true(a.memory.kv_cache ==
                (double)kv_cache_bytes(ask.model, ask.batch, ask.context, CVN_BF16));
    sim_answer_free(&a);
    /* or no more pages than it may have */
    ask.kv_memory = (uint64_t)(3 * kv_cache_bytes(ask.model, 1, 64, CVN_BF16) + 1);
    assert_true(ask.batch > 3);
    plan(&ask, &a);
    assert_true(a.memory.kv_cache == (double)kv_cache_bytes(ask.model, 3, 64, CVN_BF16));
    sim_answer_free(&a);
}

static void pictures_name_every_kind_of_weight(void **state)
{
    SimAsk ask = ask_of("stories15m", "data=2,model=3", "2d", SIM_TRAIN);
    SimAnswer a;
    plan(&ask, &a);
    StrBuf svg = {0};
    sim_svg(&svg, &ask, &a, "a <small> model");
    assert_int_equal(strncmp(svg.text, "<svg ", 5), 0);
    assert_string_equal(svg.text + svg.length - 7, "</svg>\n");
    static const char *const kinds[] = {">embed: ",
                                        ">q: ",
                                        ">k: ",
                                        ">v: ",
                                        ">o: ",
                                        ">gate: ",
                                        ">down: ",
                                        "a &lt;small&gt; model",
                                        ">model: 3 across<"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_non_null(strstr(svg.text, kinds[i]));
    strbuf_free(&svg);
    sim_answer_free(&a);
}

/* As many squares as devices, until a square stands for several, and says so. */
static void pictures_draw_every_device(void **state)
{
    static const char *const square = "width=\"16.0\" height=\"16.0\"";
    SimAsk ask = ask_of("stories15m", "data=32,model=3", "2d", SIM_DECODE);
    SimAnswer a;
    StrBuf svg = {0};
    int squares = 0;
    ask.batch = 4096;
    plan(&ask, &a);
    sim_svg(&svg, &ask, &a, "");
    for (const char *p = svg.text; (p = strstr(p, square)); p++)
        squares++;
    assert_int_equal(squares, 96);
    assert_non_null(strstr(svg.text, "KV cache"));
    sim_answer_free(&a);
    strbuf_clear(&svg);
    ask.mesh = "data=2048,model=2";
    plan(&ask, &a);
    sim_svg(&svg, &ask, &a, "");
    assert_non_null(strstr(svg.text, "a square: 32 devices"));
    strbuf_free(&svg);
    sim_answer_free(&a);
}

/* Parameters of one layer. */
static double layer_params(const Model *c)
{
    const ModelShape s = model_shape(c);
    double attention = (double)(2 * s.width * (s.heads + s.kv_heads) * s.head_dim);
    return attention + 3.0 * (double)(s.width * s.ffn);
}

/* What a step of training keeps at most where no gradient waits unreduced and no weight stays gathered: what
   enters each layer, gradients, the weights in bf16; then one layer at work, or the logits; and two layers'
   weights, or gradients on their way. */
static double bound(const SimAsk *ask, double data, double model)
{
    const Model *c = ask->model;
    const ModelShape s = model_shape(c);
    double tokens = (double)(ask->batch * ask->seq) / data, devices = data * model;
    double wide = tokens * (double)s.width, ffn = tokens * (double)s.ffn / model;
    double layer = 4 * (6 * ffn + 4 * wide);
    double logits = 4 * 3 * tokens * (double)s.vocab / model;
    return 4 * wide / model * (double)(s.layers + 1) +
           (4 + 2) * (double)model_size(c).params / devices + (layer > logits ? layer : logits) +
           2 * 2 * layer_params(c) / model;
}

/* The published runs: 7B on (16, 1), 13B on (32, 1), 70B on (32, 4). */
static void published_runs_keep_what_a_formula_says(void **state)
{
    static const struct {
        const char *preset, *mesh;
        double data, model;
        int64_t batch;
    } runs[] = {{"llama2-7b", "data=16,model=1", 16, 1, 256},
                {"llama2-13b", "data=32,model=1", 32, 1, 256},
                {"llama2-70b", "data=32,model=4", 32, 4, 512}};
    for (int i = 0; i < 3; i++) {
        SimAsk ask = ask_of(runs[i].preset, runs[i].mesh, "2d", SIM_TRAIN);
        SimAnswer a;
        ask.seq = 1024;
        ask.batch = runs[i].batch;
        ask.train.remat = REMAT_BLOCK;
        plan(&ask, &a);
        double most = bound(&ask, runs[i].data, runs[i].model);
        print_message("%s on %s: %.1f GiB of temporaries, at most %.1f\n", runs[i].preset,
                      runs[i].mesh, a.memory.temporaries / 0x1p30, most / 0x1p30);
        assert_true(a.memory.temporaries <= most);
        assert_true(a.memory.temporaries > most / 3); /* else the bound says nothing */
        assert_true(a.peak.bytes <= a.memory.temporaries &&
                    a.peak.bytes > 0.9 * a.memory.temporaries);
        sim_answer_free(&a);
    }
}

/* FSDP: a device has 1/N of weights and optimizer state, but for norms, and at most a layer of weights beside it. */
static void fsdp_holds_a_share_and_a_layer(void **state)
{
    for (int n = 2; n <= 16; n *= 2) {
        char mesh[32];
        snprintf(mesh, sizeof mesh, "data=%d", n);
        SimAsk ask = ask_of("llama2-7b", mesh, "fsdp", SIM_TRAIN);
        SimAnswer a;
        /* Layers are all alike. */
        ask.model = model_with(ask.model, "'num_hidden_layers': 6, 'vocab_size': 1024");
        ask.batch = 64; /* many tokens, so that gathering weights is the way */
        ask.seq = 1024;
        ask.train.remat = REMAT_BLOCK;
        plan(&ask, &a);
        const Model *c = ask.model;
        double params = (double)model_size(c).params;
        double norms = (double)((2 * model_layers(c) + 1) * model_width(c));
        double held = a.memory.weights + a.memory.optimizer;
        assert_true(held >= 12 * params / n && held <= 12 * (params / n + norms));
        double layer =
            2 * (layer_params(c) + (double)(model_vocab(c) * model_width(c))); /* or the head */
        print_message("fsdp on %d: %.0f MiB held, %.0f MiB gathered at most, a layer is %.0f\n", n,
                      held / 0x1p20, a.peak.gathered / 0x1p20, layer / 0x1p20);
        assert_true(a.peak.gathered > 0 && a.peak.gathered <= layer);
        sim_answer_free(&a);
    }
}

static int64_t collectives_of(const SimAnswer *a, OpKind kind)
{
    int64_t n = 0;
    for (int i = 0; i < a->n_collectives; i++)
        n += a->collective[i].kind == kind ? a->collective[i].count : 0;
    return n;
}

/* Of `tp` on 70B: the published two all-reduces a layer. The two gathers, of the embedding and of the logits, are
   less with a vocabulary that is split: one sum of rows that each device looks up or does not, and two exchanges of the
   largest logit and its place. */
static void tensor_parallel_is_planned_as_published(void **state)
{
    for (int task = SIM_PREFILL; task <= SIM_DECODE; task++) {
        SimAsk ask = ask_of("llama2-70b", "model=8", "tp", (SimTask)task);
        SimAnswer a;
        ask.batch = 1; /* of which a prefill of 128 tokens is one run */
        ask.seq = 128;
        ask.context = 4096;
        ask.device = NULL;
        plan(&ask, &a);
        assert_int_equal(collectives_of(&a, OP_ALL_REDUCE), 2 * 80 + 3);
        assert_int_equal(collectives_of(&a, OP_ALL_GATHER), 0);
        assert_int_equal(a.n_collectives, 1);
        sim_answer_free(&a);
    }
}

/* What names the inputs is the answer's own, and there when the graph is not. */
static void inputs_have_their_names(void **state)
{
    static const char *const names[] = {"tokens", "targets"};
    SimAsk ask = ask_of("tiny", "data=2", "dp", SIM_TRAIN);
    SimAnswer a;
    ask.device = NULL;
    plan(&ask, &a);
    for (int i = 0; i < 2; i++) {
        int found = 0;
        for (int t = 0; t < a.n_tensors; t++)
            found += a.tensor[t].role == SIM_INPUT && strcmp(a.tensor[t].kind, names[i]) == 0;
        if (found != 1)
            fail_msg("%d inputs are called %s", found, names[i]);
    }
    sim_answer_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_device_holds_everything),
        cmocka_unit_test(shards_add_up_to_the_whole),
        cmocka_unit_test(a_larger_mesh_takes_less_memory_per_device),
        cmocka_unit_test(decoding_counts_the_cache),
        cmocka_unit_test(published_runs_keep_what_a_formula_says),
        cmocka_unit_test(tensor_parallel_is_planned_as_published),
        cmocka_unit_test(fsdp_holds_a_share_and_a_layer),
        cmocka_unit_test(inputs_have_their_names),
        cmocka_unit_test(pictures_name_every_kind_of_weight),
        cmocka_unit_test(pictures_draw_every_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
