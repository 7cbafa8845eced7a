/* The graph of the model, by the interpreter, against transformers for every architectural variant. */
#include "graph/interp/interp.h"
#include "io/adapter.h"
#include "llama_fixture.h"
#include "model/forward.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

typedef struct Call {
    const LlamaFixture *f;
    ModelStep step;
    void **cache; /* [2 * layers], replaced by the run's outputs; NULL: zeros */
    const int32_t *tokens;
    int32_t start, length;
} Call;

/* Runs one row through a graph; outputs after the caches go to result[]. */
static void run_step(const Call *call, void **result, int n_results)
{
    cvn_err err = {0};
    cvn_graph *g = model_step(call->f->model, &call->step, &err);
    if (!g)
        fail_msg("%s", err.message);
    const void **input = calloc((size_t)g->n_parameters, sizeof *input);
    void **output = calloc((size_t)g->n_outputs, sizeof *output);
    int n = call->f->params.n, n_caches = 2 * (int)model_layers(call->f->model);
    for (int i = 0; i < n; i++)
        input[i] = call->f->weight[i];
    for (int i = 0; i < n_caches; i++)
        input[n + i] = call->cache[i];
    input[n + n_caches] = call->tokens;
    input[n + n_caches + 1] = &call->start;
    input[n + n_caches + 2] = &call->length;
    if (interp_run_one(g, input, output, &err))
        fail_msg("%s", err.message);
    for (int i = 0; i < n_caches; i++) {
        free(call->cache[i]);
        call->cache[i] = output[i];
    }
    assert_int_equal(g->n_outputs, n_caches + n_results);
    for (int i = 0; i < n_results; i++)
        result[i] = output[n_caches + i];
    free(input);
    free(output);
    cvn_graph_free(g);
}

/* Zeros, each as large as the graph has it: layers may differ in heads. */
static void **new_caches(const LlamaFixture *f, const ModelStep *step)
{
    cvn_err err = {0};
    cvn_graph *g = model_step(f->model, step, &err);
    if (!g)
        fail_msg("%s", err.message);
    size_t n = 2 * (size_t)model_layers(f->model);
    void **cache = calloc(n, sizeof *cache);
    for (size_t i = 0; i < n; i++) {
        const cvn_type *type = &g->parameter[(size_t)f->params.n + i]->type;
        cache[i] = calloc((size_t)cvn_type_elements(type), 4);
    }
    cvn_graph_free(g);
    return cache;
}

static void free_caches(const LlamaFixture *f, void **cache)
{
    for (int64_t i = 0; i < 2 * model_layers(f->model); i++)
        free(cache[i]);
    free(cache);
}

static double largest_difference(const float *a, const float *b, int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    return worst;
}

static int64_t likeliest(const float *logits, int64_t vocab)
{
    int64_t best = 0;
    for (int64_t v = 1; v < vocab; v++)
        best = logits[v] > logits[best] ? v : best;
    return best;
}

/* Feeds the tokens in sections of `seq` and compares all logits. */
static void compare(const LlamaFixture *f, int64_t seq, cvn_dtype dtype, double tolerance,
                    const char *what)
{
    int64_t vocab = model_vocab(f->model);
    Call call = {.f = f,
                 .step = {.batch = 1,
                          .seq = seq,
                          .context = (f->n_tokens + seq - 1) / seq * seq,
                          .compute = dtype,
                          .output = STEP_LOGITS}};
    call.cache = new_caches(f, &call.step);
    int32_t section[64];
    for (int64_t done = 0; done < f->n_tokens; done += seq) {
        int64_t part = f->n_tokens - done < seq ? f->n_tokens - done : seq;
        memset(section, 0, sizeof section);
        memcpy(section, f->tokens + done, (size_t)part * sizeof *section);
        call.tokens = section;
        call.start = (int32_t)done;
        call.length = (int32_t)part;
        void *logits;
        run_step(&call, &logits, 1);
        double d = largest_difference(logits, f->logits + done * vocab, part * vocab);
        if (!(d <= tolerance))
            fail_msg("%s in sections of %d: logits differ by %g at token %d", what, (int)seq, d,
                     (int)done);
        for (int64_t i = 0; i < part && dtype == CVN_F32; i++) {
            const float *theirs = f->logits + (done + i) * vocab,
                        *own = (float *)logits + i * vocab;
            if (theirs[likeliest(theirs, vocab)] - theirs[likeliest(own, vocab)] > 1e-4f)
                fail_msg("%s: another token is the likeliest after %d", what, (int)(done + i));
        }
        free(logits);
    }
    free_caches(f, call.cache);
}

/* A GGUF file whose matrices are in blocks of ten kinds (tests/oracles/gguf_blocks.py). */
static void logits_of_blocks_equal_transformers_with_what_they_hold(void **state)
{
    (void)state;
    cvn_err err = {0};
    IoModel model;
    WholeWeights weights;
    if (io_open_model(&model, CVN_TEST_DATA "/gguf/mixed.gguf", &err))
        fail_msg("%s", err.message);
    whole_load(&weights, &model, CVN_F32);
    assert_int_equal(model_dtype(model.desc), CVN_BF16);
    LlamaFixture f;
    fixture_of(&f, &model, &weights, CVN_TEST_DATA "/gguf", "mixed.safetensors");
    compare(&f, 40, CVN_F32, 5e-5, "mixed.gguf");
    fixture_close(&f);
    whole_free(&weights);
    io_close_model(&model);
}

/* Text models inside of models that see (tests/oracles/towers.py). */
static void logits_of_text_models_equal_those_of_the_whole(void **state)
{
    (void)state;
    static const char *const variants[] = {"gemma3",   "gemma3_memory",  "gemma4", "llama4",
                                           "mistral3", "ministral3_fp8", "llava",  "qwen3_vl"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        cvn_err err = {0};
        char folder[512];
        IoModel model;
        WholeWeights weights;
        LlamaFixture f;
        snprintf(folder, sizeof folder, "%s/towers/%s", CVN_TEST_DATA, variants[i]);
        if (io_open_as(&model, folder, IO_TEXT_ONLY, &err))
            fail_msg("%s", err.message);
        whole_load(&weights, &model, CVN_F32);
        fixture_of(&f, &model, &weights, folder, "expected.safetensors");
        compare(&f, 40, CVN_F32, 5e-5, variants[i]);
        compare(&f, 8, CVN_F32, 5e-5, variants[i]);
        fixture_close(&f);
        whole_free(&weights);
        io_close_model(&model);
    }
}

/* Of modules that have several matrices (tests/oracles/lora.py). */
static void logits_with_adapters_of_joined_modules_equal_those_of_peft(void **state)
{
    (void)state;
    static const char *const variants[] = {"phi3", "glm4", "granite4"};
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        cvn_err err = {0};
        char base[512], folder[512];
        IoModel model;
        WholeWeights weights;
        LlamaFixture f;
        snprintf(base, sizeof base, "%s/llama/%s", CVN_TEST_DATA, variants[i]);
        snprintf(folder, sizeof folder, "%s/lora/%s", CVN_TEST_DATA, variants[i]);
        if (io_open_model(&model, base, &err) || io_adapt(&model, folder, &err))
            fail_msg("%s: %s", variants[i], err.message);
        whole_load(&weights, &model, CVN_F32);
        fixture_of(&f, &model, &weights, folder, "expected.safetensors");
        compare(&f, 40, CVN_F32, 5e-5, variants[i]);
        fixture_close(&f);
        whole_free(&weights);
        io_close_model(&model);
    }
}

static void logits_equal_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < LLAMA_VARIANTS; i++) {
        LlamaFixture f;
        fixture_open(&f, llama_variants[i], CVN_F32);
        compare(&f, 40, CVN_F32, 5e-5, llama_variants[i]);
        compare(&f, 8, CVN_F32, 5e-5, llama_variants[i]);
        fixture_close(&f);
    }
}

static void sections_and_single_tokens_give_the_same(void **state)
{
    (void)state;
    LlamaFixture f;
    fixture_open(&f, "gqa", CVN_F32);
    compare(&f, 16, CVN_F32, 5e-5, "gqa");
    compare(&f, 1, CVN_F32, 5e-5, "gqa");
    fixture_close(&f);
    /* transformers turns keys by other frequencies when they come one by one; here they are those of the context. */
    fixture_open(&f, "dynamic_rope", CVN_F32);
    compare(&f, 8, CVN_F32, 5e-5, "dynamic_rope");
    compare(&f, 1, CVN_F32, 5e-5, "dynamic_rope");
    fixture_close(&f);
}

static void interleaved_rope_is_the_same_model(void **state)
{
    (void)state;
    static const char *const variants[] = {"gqa", "biases", "llama3_rope"};
    for (int i = 0; i < 3; i++) {
        LlamaFixture f;
        fixture_open(&f, variants[i], CVN_F32);
        fixture_interleave(&f);
        compare(&f, 40, CVN_F32, 5e-5, "interleaved");
        fixture_close(&f);
    }
}

static void bf16_is_near(void **state)
{
    (void)state;
    LlamaFixture f;
    fixture_open(&f, "gqa", CVN_BF16);
    compare(&f, 40, CVN_BF16, 0.15, "bf16");
    fixture_close(&f);
}

static void score_is_the_log_softmax(void **state)
{
    (void)state;
    LlamaFixture f;
    fixture_open(&f, "tied", CVN_F32);
    int64_t n = f.n_tokens, vocab = model_vocab(f.model);
    Call call = {
        .f = &f,
        .step = {.batch = 1, .seq = n, .context = n, .compute = CVN_F32, .output = STEP_SCORE},
        .tokens = f.tokens,
        .length = (int32_t)n};
    call.cache = new_caches(&f, &call.step);
    cvn_err err = {0};
    cvn_graph *g = model_step(f.model, &call.step, &err);
    assert_non_null(g);
    int n_caches = 2 * (int)model_layers(f.model), base = f.params.n;
    const void **input = calloc((size_t)g->n_parameters, sizeof *input);
    void **output = calloc((size_t)g->n_outputs, sizeof *output);
    int32_t *targets = calloc((size_t)n, sizeof *targets);
    for (int64_t i = 0; i < n; i++)
        targets[i] = i + 1 < n ? f.tokens[i + 1] : -1;
    for (int i = 0; i < base; i++)
        input[i] = f.weight[i];
    for (int i = 0; i < n_caches; i++)
        input[base + i] = call.cache[i];
    const void *rest[] = {f.tokens, &call.start, &call.length, targets};
    memcpy(&input[base + n_caches], rest, sizeof rest);
    if (interp_run_one(g, input, output, &err))
        fail_msg("%s", err.message);
    const float *logprob = output[n_caches];
    const int32_t *argmax = output[n_caches + 1];
    for (int64_t i = 0; i < n; i++) {
        const float *row = f.logits + i * vocab;
        double sum = 0;
        int64_t best = 0;
        for (int64_t v = 0; v < vocab; v++) {
            sum += exp((double)row[v]);
            best = row[v] > row[best] ? v : best;
        }
        assert_int_equal(argmax[i], best);
        double expected = targets[i] < 0 ? 0 : (double)row[targets[i]] - log(sum);
        if (!(fabs((double)logprob[i] - expected) < 1e-4))
            fail_msg("token %d: %g, not %g", (int)i, (double)logprob[i], expected);
    }
    for (int i = 0; i < g->n_outputs; i++)
        free(output[i]);
    free(targets);
    free(input);
    free(output);
    cvn_graph_free(g);
    free_caches(&f, call.cache);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_transformers),
        cmocka_unit_test(logits_with_adapters_of_joined_modules_equal_those_of_peft),
        cmocka_unit_test(logits_of_text_models_equal_those_of_the_whole),
        cmocka_unit_test(logits_of_blocks_equal_transformers_with_what_they_hold),
        cmocka_unit_test(sections_and_single_tokens_give_the_same),
        cmocka_unit_test(interleaved_rope_is_the_same_model),
        cmocka_unit_test(bf16_is_near),
        cmocka_unit_test(score_is_the_log_softmax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
