/*
 * The engine end to end: graph, plan, executor, KV cache, continuous batching. Models are the tiny ones of
 * tests/data/llama and a random one; goldens of a trained model are looked for in the shared data.
 */
#include "base/rng.h"
#include "io/save.h"
#include "llama_fixture.h"
#include "model/presets.h"
#include "model_make.h"
#include "serve/list.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MAX_TOKENS = 600, MAX_REQUESTS = 16 };

/* What a run gave. */
typedef struct Texts {
    int32_t token[MAX_REQUESTS][MAX_TOKENS];
    int n[MAX_REQUESTS];
    cvn_result result[MAX_REQUESTS];
    int stop_after; /* 0: never */
} Texts;

static bool collect(void *context, int request, int32_t token)
{
    Texts *t = context;
    assert_true(t->n[request] < MAX_TOKENS);
    t->token[request][t->n[request]++] = token;
    return !t->stop_after || t->n[request] < t->stop_after;
}

static cvn_model *open_model(const char *path, cvn_dtype dtype)
{
    cvn_err err = {0};
    cvn_model *model = NULL;
    cvn_model_options options = {.dtype = dtype, .no_tokenizer = true};
    if (cvn_model_open(path, &options, &model, &err))
        fail_msg("%s", err.message);
    return model;
}

static cvn_model *open_tiny(const char *variant)
{
    char path[512];
    snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, variant);
    return open_model(path, CVN_F32);
}

static cvn_engine *new_engine(const cvn_model *model, cvn_engine_options options)
{
    cvn_err err = {0};
    cvn_engine *engine = NULL;
    if (options.threads == 0)
        options.threads = 2;
    if (cvn_engine_new(model, &options, &engine, &err))
        fail_msg("%s", err.message);
    return engine;
}

static void generate(cvn_engine *e, const cvn_request *request, int n, Texts *texts)
{
    cvn_err err = {0};
    int stop_after = texts->stop_after;
    memset(texts, 0, sizeof *texts);
    texts->stop_after = stop_after;
    if (cvn_engine_generate(e, request, n, collect, texts, NULL, texts->result, &err))
        fail_msg("%s", err.message);
}

/* Prompts of different lengths that are the same every time. */
static void make_requests(cvn_request *request, int n, int32_t prompt[][64], int64_t vocab,
                          int64_t max_tokens)
{
    for (int r = 0; r < n; r++) {
        int length = 1 + (r * 17 + 5) % 40;
        for (int i = 0; i < length; i++)
            prompt[r][i] = (int32_t)((r * 31 + i * 7 + 3) % vocab);
        request[r] = (cvn_request){.prompt = prompt[r],
                                   .n_prompt = length,
                                   .max_tokens = max_tokens + r % 5,
                                   .ignore_eos = true,
                                   .sampling = {.top_p = 1, .seed = (uint64_t)r + 100}};
    }
}

static void assert_same_text(const Texts *a, int i, const Texts *b, int j, const char *what)
{
    if (a->n[i] != b->n[j])
        fail_msg("%s: request %d has %d tokens, not %d", what, i, a->n[i], b->n[j]);
    for (int k = 0; k < a->n[i]; k++)
        if (a->token[i][k] != b->token[j][k])
            fail_msg("%s: request %d differs at token %d", what, i, k);
}

static void a_batch_gives_what_each_gives_alone(void **state)
{
    (void)state;
    cvn_model *model = open_tiny("gqa");
    enum { N = 9 };
    static int32_t prompt[N][64];
    cvn_request request[N];
    make_requests(request, N, prompt, cvn_model_vocab(model), 30);
    for (int r = 0; r < N; r++) /* greedy, plain and filtered rows side by side */
        if (r % 3)
            request[r].sampling = (cvn_sampling){.temperature = 0.8f,
                                                 .top_p = r % 3 == 2 ? 0.9f : 1,
                                                 .top_k = r % 3 == 2 ? 40 : 0,
                                                 .seed = (uint64_t)r};
    cvn_engine_options options = {.sampling = true, .slots = 1};
    cvn_engine *alone = new_engine(model, options);
    options.slots = 3;
    cvn_engine *batch = new_engine(model, options);
    static Texts one, all;
    generate(batch, request, N, &all);
    for (int r = 0; r < N; r++) {
        generate(alone, &request[r], 1, &one);
        assert_int_equal(one.n[0], 30 + r % 5);
        assert_int_equal(one.result[0].finish, CVN_FINISH_LENGTH);
        assert_same_text(&all, r, &one, 0, "batch");
    }
    cvn_engine_free(alone, NULL);
    cvn_engine_free(batch, NULL);
    cvn_model_free(model);
}

static void seeds_differ_and_repeat(void **state)
{
    (void)state;
    cvn_model *model = open_tiny("mha");
    static int32_t prompt[3][64];
    cvn_request request[3];
    make_requests(request, 3, prompt, cvn_model_vocab(model), 20);
    for (int r = 0; r < 3; r++) {
        request[r] = request[0];
        request[r].sampling =
            (cvn_sampling){.temperature = 1.5f, .top_p = 1, .seed = r == 1 ? 9 : 8};
    }
    cvn_engine *e = new_engine(model, (cvn_engine_options){.sampling = true, .slots = 2});
    static Texts t;
    generate(e, request, 3, &t);
    assert_same_text(&t, 0, &t, 2, "same seed");
    assert_memory_not_equal(t.token[0], t.token[1], 20 * sizeof(int32_t));
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

/* A random model with a long context, in a temporary folder. */
static void random_folder(char *folder, size_t size)
{
    cvn_err err = {0};
    snprintf(folder, size, "%s/caravan-test-engine-%d", P_tmpdir, (int)getpid());
    /* A wide range, so that tokens differ. */
    const Model *config = model_with(model_preset("stories260k"),
                                     "'max_position_embeddings': 2048, 'initializer_range': 0.3");
    SaveOptions options = {.dtype = CVN_F32, .force = true};
    if (save_folder(folder, config, &options, init_fill, &(uint64_t){11}, &err))
        fail_msg("%s", err.message);
}

static void remove_folder(const char *folder)
{
    static const char *const files[] = {"config.json", "generation_config.json",
                                        "model.safetensors"};
    char path[600];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void a_long_prompt_compiles_nothing_and_runs_as_planned(void **state)
{
    (void)state;
    char folder[512];
    random_folder(folder, sizeof folder);
    cvn_model *model = open_model(folder, CVN_F32);
    cvn_engine *e = new_engine(model, cvn_engine_defaults());
    int32_t prompt[1500];
    for (int i = 0; i < 1500; i++)
        prompt[i] = (i * i * 7 + i) % 512;
    cvn_request request = {.prompt = prompt,
                           .n_prompt = 1500,
                           .max_tokens = 256,
                           .ignore_eos = true,
                           .sampling = {.top_p = 1}};
    cvn_engine_stats before = cvn_engine_get_stats(e);
    const void *k0 = buffer_address(&e->rt, runtime_buffer(&e->rt, ROLE_CACHE, 0), 0);
    static Texts whole, other;
    generate(e, &request, 1, &whole);
    cvn_engine_stats after = cvn_engine_get_stats(e);
    assert_int_equal(whole.n[0], 256);
    assert_int_equal(after.compilations, before.compilations);
    /* 1500 = 512 + 512 + 476; the first token comes with the last chunk. */
    assert_int_equal(after.prefills - before.prefills, 3);
    assert_int_equal(after.decodes - before.decodes, 255);
    /* The cache was updated in place. */
    assert_ptr_equal(program_output(&e->lists->step[0][0], ROLE_CACHE, 0), k0);
    assert_ptr_equal(buffer_address(&e->rt, runtime_buffer(&e->rt, ROLE_CACHE, 0), 0), k0);

    /* The same in small chunks, and token by token. */
    static const int64_t buckets[] = {100, 1};
    for (int i = 0; i < 2; i++) {
        cvn_engine_options options = cvn_engine_defaults();
        options.n_buckets = 1;
        options.bucket[0] = buckets[i];
        cvn_engine *chunks = new_engine(model, options);
        generate(chunks, &request, 1, &other);
        assert_same_text(&other, 0, &whole, 0, "chunks");
        assert_int_equal(cvn_engine_get_stats(chunks).prefills,
                         (1500 + buckets[i] - 1) / buckets[i]);
        cvn_engine_free(chunks, NULL);
    }
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
    remove_folder(folder);
}

static void scores_do_not_depend_on_sections(void **state)
{
    (void)state;
    cvn_model *model = open_tiny("llama3_rope");
    static float a[200], b[200];
    static int32_t token[200], best_a[200], best_b[200];
    for (int i = 0; i < 200; i++)
        token[i] = (i * 13 + i / 7) % 259;
    cvn_engine_options options = {.slots = 1, .scoring = true, .no_generation = true};
    cvn_engine *e = new_engine(model, options);
    options.n_buckets = 1;
    options.bucket[0] = 7;
    cvn_engine *f = new_engine(model, options);
    assert_int_equal(cvn_engine_score(e, token, 200, a, best_a, NULL), CVN_OK);
    assert_int_equal(cvn_engine_score(f, token, 200, b, best_b, NULL), CVN_OK);
    for (int i = 0; i < 200; i++) {
        if (!(fabsf(a[i] - b[i]) < 2e-5f))
            fail_msg("token %d: %g and %g", i, (double)a[i], (double)b[i]);
        assert_int_equal(best_a[i], best_b[i]);
    }
    cvn_engine_free(e, NULL);
    cvn_engine_free(f, NULL);
    cvn_model_free(model);
}

static void scoring_is_interrupted(void **state)
{
    (void)state;
    cvn_model *model = open_tiny("biases");
    const int32_t token[] = {1, 2, 3};
    float logprob[3];
    int32_t argmax[3];
    volatile int flag = 1;
    cvn_engine *e =
        new_engine(model, (cvn_engine_options){.slots = 1, .scoring = true, .no_generation = true});
    cvn_engine_watch(e, &flag);
    assert_int_equal(cvn_engine_score(e, token, 3, logprob, argmax, NULL), CVN_EINTERRUPTED);
    flag = 0;
    assert_int_equal(cvn_engine_score(e, token, 3, logprob, argmax, NULL), CVN_OK);
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

static void end_tokens_end_a_text_and_waste_little(void **state)
{
    (void)state;
    cvn_model *model = open_tiny("biases");
    static int32_t prompt[8][64];
    cvn_request request[8];
    make_requests(request, 8, prompt, cvn_model_vocab(model), 60);
    cvn_engine_options options = {.slots = 3, .sampling = true};
    for (int r = 0; r < 8; r++)
        request[r].sampling = (cvn_sampling){.temperature = 1, .top_p = 1, .seed = (uint64_t)r};
    static Texts full, once;
    cvn_engine *e = new_engine(model, options);
    generate(e, request, 8, &full);
    /* Two tokens that occur: the model's own end tokens for the rest of this test. */
    const SpecialIds ends = {2, {full.token[0][13], full.token[3][37]}};
    model_set_vocab(model->io.desc, model_vocab(model->io.desc), model_begins(model->io.desc),
                    &ends);
    for (int r = 0; r < 8; r++)
        request[r].ignore_eos = false;
    generate(e, request, 8, &once);
    for (int r = 0; r < 8; r++) {
        assert_memory_equal(once.token[r], full.token[r], (size_t)once.n[r] * sizeof(int32_t));
        if (once.result[r].finish != CVN_FINISH_EOS)
            assert_int_equal(once.n[r], full.n[r]);
    }
    assert_int_equal(once.result[0].finish, CVN_FINISH_EOS);
    assert_true(once.n[0] <= 14);
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

static void the_context_is_filled_to_the_last_position(void **state)
{
    (void)state;
    cvn_model *model = open_tiny("tied");
    cvn_engine *e = new_engine(model, (cvn_engine_options){.slots = 1, .context = 50});
    static int32_t prompt[1][64];
    cvn_request request;
    make_requests(&request, 1, prompt, cvn_model_vocab(model), 200);
    static Texts t;
    generate(e, &request, 1, &t);
    assert_int_equal(t.result[0].finish, CVN_FINISH_CONTEXT);
    /* The last token is drawn when the cache holds 50, and is not fed. */
    assert_int_equal(t.n[0], 50 - request.n_prompt + 1);
    t.stop_after = 3;
    generate(e, &request, 1, &t);
    assert_int_equal(t.result[0].finish, CVN_FINISH_STOPPED);
    assert_int_equal(t.n[0], 3);
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

static void assert_refused(int code, const cvn_err *err, const char *says)
{
    assert_int_not_equal(code, CVN_OK);
    if (!strstr(err->message, says))
        fail_msg("'%s' does not say '%s'", err->message, says);
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    cvn_model *model = open_tiny("mqa");
    cvn_engine *e = new_engine(model, (cvn_engine_options){.slots = 2, .context = 64});
    int32_t prompt[80] = {0};
    cvn_result result;
    cvn_request request = {.prompt = prompt,
                           .n_prompt = 80,
                           .max_tokens = 5,
                           .ignore_eos = true,
                           .sampling = {.top_p = 1}};
    cvn_err err = {0};
    assert_refused(cvn_engine_generate(e, &request, 1, NULL, NULL, NULL, &result, &err), &err,
                   "80 tokens do not fit in a context of 64");
    request.n_prompt = 4;
    prompt[2] = 259;
    err = (cvn_err){0};
    assert_refused(cvn_engine_generate(e, &request, 1, NULL, NULL, NULL, &result, &err), &err,
                   "token 259 at position 2");
    prompt[2] = 0;
    request.sampling.temperature = 1;
    err = (cvn_err){0};
    assert_refused(cvn_engine_generate(e, &request, 1, NULL, NULL, NULL, &result, &err), &err,
                   "options.sampling");
    request.sampling.temperature = NAN;
    err = (cvn_err){0};
    assert_refused(cvn_engine_generate(e, &request, 1, NULL, NULL, NULL, &result, &err), &err,
                   "temperature");
    float logprob[4];
    int32_t argmax[4];
    err = (cvn_err){0};
    assert_refused(cvn_engine_score(e, prompt, 4, logprob, argmax, &err), &err, "options.scoring");
    volatile int interrupt = 1;
    request.sampling.temperature = 0;
    err = (cvn_err){0};
    assert_int_equal(cvn_engine_generate(e, &request, 1, NULL, NULL, &interrupt, &result, &err),
                     CVN_EINTERRUPTED);
    /* The engine still works. */
    assert_int_equal(cvn_engine_generate(e, &request, 1, NULL, NULL, NULL, &result, NULL), CVN_OK);
    assert_int_equal(result.n_tokens, 5);
    cvn_engine_free(e, NULL);
    err = (cvn_err){0};
    cvn_engine_options options = {.slots = 1, .memory_limit = 1000};
    assert_refused(cvn_engine_new(model, &options, &e, &err), &err, "the limit is");
    options = (cvn_engine_options){.slots = 1, .context = 100000};
    err = (cvn_err){0};
    assert_refused(cvn_engine_new(model, &options, &e, &err), &err, "the model has only 256");
    cvn_model_free(model);
}

/* Whatever refuses, the code says so; nobody need listen to the sentence. */
static void options_may_be_left_out_and_errors_unread(void **state)
{
    (void)state;
    const char *folder = CVN_TEST_DATA "/llama/mqa";
    cvn_model *model;
    cvn_engine *e;
    assert_int_equal(cvn_model_open(CVN_TEST_DATA "/none", &(cvn_model_options){0}, &model, NULL),
                     CVN_EIO);
    assert_int_equal(cvn_model_open(folder, &(cvn_model_options){.dtype = CVN_I8}, &model, NULL),
                     CVN_EUNSUPPORTED);
    assert_int_equal(cvn_model_open(folder,
                                    &(cvn_model_options){.dtype = CVN_F32, .quantize = "int5"},
                                    &model, NULL),
                     CVN_EINVAL);
    assert_null(model);
    assert_int_equal(cvn_model_open(folder, NULL, &model, NULL), CVN_OK); /* in the file's dtype */
    assert_int_equal(cvn_model_dtype(model), CVN_BF16);
    assert_int_equal(cvn_engine_new(model, NULL, &e, NULL), CVN_OK);
    /* No sampling said: the likeliest tokens. */
    cvn_request request = {
        .prompt = (int32_t[]){1}, .n_prompt = 1, .max_tokens = 3, .ignore_eos = true};
    cvn_result result;
    assert_int_equal(cvn_engine_generate(e, &request, 1, NULL, NULL, NULL, &result, NULL), CVN_OK);
    assert_int_equal(result.n_tokens, 3);
    request.sampling.temperature = 1;
    assert_int_equal(cvn_engine_generate(e, &request, 1, NULL, NULL, NULL, &result, NULL),
                     CVN_EINVAL);
    cvn_engine_free(e, NULL);
    assert_int_equal(cvn_engine_new(model, &(cvn_engine_options){.slots = -1}, &e, NULL),
                     CVN_EINVAL);
    assert_null(e);
    cvn_model_free(model);
}

/* ln p(token[i] | tokens before) from logits [n, vocab], for i >= 1. */
static double log_probability(const float *logits, int64_t vocab, const int32_t *token, int64_t i)
{
    const float *row = logits + (i - 1) * vocab;
    double sum = 0;
    for (int64_t v = 0; v < vocab; v++)
        sum += exp((double)row[v]);
    return (double)row[token[i]] - log(sum);
}

static void scores_equal_transformers(void **state)
{
    (void)state;
    for (int i = 0; i < LLAMA_VARIANTS; i++) {
        LlamaFixture f;
        fixture_open(&f, llama_variants[i], CVN_F32);
        for (int b = 0; b < 2; b++) {
            char path[512];
            snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, llama_variants[i]);
            cvn_model *model = open_model(path, b ? CVN_BF16 : CVN_F32);
            cvn_engine *e = new_engine(model, (cvn_engine_options){.slots = 1,
                                                                   .context = f.n_tokens,
                                                                   .scoring = true,
                                                                   .no_generation = true});
            float logprob[64];
            int32_t argmax[64];
            double worst = 0;
            assert_true(f.n_tokens <= 64);
            assert_int_equal(cvn_engine_score(e, f.tokens, f.n_tokens, logprob, argmax, NULL),
                             CVN_OK);
            for (int64_t k = 1; k < f.n_tokens; k++) {
                double expected = log_probability(f.logits, model_vocab(f.model), f.tokens, k);
                worst = fmax(worst, fabs(expected - (double)logprob[k]));
            }
            /* Random weights are rougher than trained ones: bf16 moves their logits further. */
            if (!(worst <= (b ? 0.15 : 1e-4)))
                fail_msg("%s in %s: log-probabilities differ by %g", llama_variants[i],
                         b ? "bf16" : "f32", worst);
            cvn_engine_free(e, NULL);
            cvn_model_free(model);
        }
        fixture_close(&f);
    }
}

static json_t *golden(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/goldens/%s", CVN_SHARED_DATA, name);
    json_t *json = json_load_file(path, 0, NULL);
    if (!json) {
        print_message("skipped: no shared data at %s\n", path);
        skip();
    }
    return json;
}

static int64_t ids_of(const json_t *array, int32_t *ids)
{
    size_t i;
    json_t *item;
    json_array_foreach(array, i, item) ids[i] = (int32_t)json_integer_value(item);
    return (int64_t)json_array_size(array);
}

static void the_trained_model_says_what_it_said_elsewhere(void **state)
{
    (void)state;
    json_t *json = golden("stories260K.json");
    static const char *const checkpoints[] = {"stories260K-hf", "stories260K-meta",
                                              "stories260K/stories260K.gguf",
                                              "stories260K/stories260K.bin"};
    for (int m = 0; m < 4; m++) {
        char path[512];
        snprintf(path, sizeof path, "%s/checkpoints/%s", CVN_SHARED_DATA, checkpoints[m]);
        cvn_model *model = open_model(path, CVN_F32);
        cvn_engine *e = new_engine(model, (cvn_engine_options){.slots = 1, .scoring = true});
        size_t i;
        json_t *c;
        json_array_foreach(json_object_get(json, "cases"), i, c)
        {
            int32_t prompt[64], expected[64], argmax[64];
            int64_t n = ids_of(json_object_get(c, "prompt_ids"), prompt);
            int64_t n_expected = ids_of(json_object_get(c, "greedy_ids"), expected);
            cvn_request request = {.prompt = prompt,
                                   .n_prompt = n,
                                   .max_tokens = n_expected,
                                   .ignore_eos = true,
                                   .sampling = {.top_p = 1}};
            static Texts t;
            generate(e, &request, 1, &t);
            assert_int_equal(t.n[0], n_expected);
            assert_memory_equal(t.token[0], expected, (size_t)n_expected * sizeof *expected);
            float logprob[64];
            if (n < 2)
                continue;
            assert_int_equal(cvn_engine_score(e, prompt, n, logprob, argmax, NULL), CVN_OK);
            double sum = 0;
            for (int64_t k = 1; k < n; k++)
                sum -= (double)logprob[k];
            double want = json_real_value(json_object_get(c, "prompt_nll_sum_f64"));
            if (!(fabs(sum - want) <= 1e-4 * (double)n))
                fail_msg("%s: NLL %g, not %g", checkpoints[m], sum, want);
            assert_int_equal(argmax[n - 1],
                             json_integer_value(json_object_get(c, "last_logits_argmax")));
        }
        cvn_engine_free(e, NULL);
        cvn_model_free(model);
    }
    json_decref(json);
}

/* Logits of paged-infer-tiny: bf16 weights, 40 tokens, f32 golden logits [40, 112]. */
static void a_bf16_checkpoint_scores_as_elsewhere(void **state)
{
    (void)state;
    static const int32_t token[40] = {94, 87, 60, 29, 75, 85, 18, 15, 47, 102, 105, 36, 63, 49,
                                      54, 76, 47, 36, 34, 19, 22, 81, 55, 102, 57,  62, 59, 51,
                                      68, 62, 68, 74, 89, 13, 45, 77, 37, 41,  72,  33};
    char path[512];
    snprintf(path, sizeof path, "%s/checkpoints/paged-infer-tiny/tiny_llama_golden.bin",
             CVN_SHARED_DATA);
    FILE *file = fopen(path, "rb");
    if (!file) {
        print_message("skipped: no shared data at %s\n", path);
        skip();
    }
    static float logits[40][112];
    assert_int_equal(fread(logits, sizeof logits, 1, file), 1);
    fclose(file);
    snprintf(path, sizeof path, "%s/checkpoints/paged-infer-tiny", CVN_SHARED_DATA);
    for (int b = 0; b < 2; b++) {
        double worst = 0;
        cvn_model *model = open_model(path, b ? CVN_BF16 : CVN_F32);
        cvn_engine *e = new_engine(
            model, (cvn_engine_options){.slots = 1, .scoring = true, .no_generation = true});
        float logprob[40];
        int32_t argmax[40];
        assert_int_equal(cvn_engine_score(e, token, 40, logprob, argmax, NULL), CVN_OK);
        for (int i = 1; i < 40; i++) {
            double expected = log_probability(logits[0], 112, token, i);
            worst = fmax(worst, fabs(expected - (double)logprob[i]));
        }
        if (!(worst <= (b ? 0.05 : 1e-4)))
            fail_msg("%s: log-probabilities differ by %g", b ? "bf16" : "f32", worst);
        cvn_engine_free(e, NULL);
        cvn_model_free(model);
    }
}

static void bf16_stays_near_f32_on_the_trained_model(void **state)
{
    (void)state;
    json_t *json = golden("stories260K.json");
    int32_t prompt[64];
    int64_t n = ids_of(
        json_object_get(json_array_get(json_object_get(json, "cases"), 2), "prompt_ids"), prompt);
    float logprob[2][64];
    int32_t argmax[64];
    char path[512];
    snprintf(path, sizeof path, "%s/checkpoints/stories260K-hf", CVN_SHARED_DATA);
    for (int b = 0; b < 2; b++) {
        cvn_model *model = open_model(path, b ? CVN_BF16 : CVN_F32);
        cvn_engine *e = new_engine(
            model, (cvn_engine_options){.slots = 1, .scoring = true, .no_generation = true});
        assert_int_equal(cvn_engine_score(e, prompt, n, logprob[b], argmax, NULL), CVN_OK);
        cvn_engine_free(e, NULL);
        cvn_model_free(model);
    }
    for (int64_t i = 1; i < n; i++)
        if (!(fabsf(logprob[0][i] - logprob[1][i]) <= 0.05f))
            fail_msg("token %d: %g in f32, %g in bf16", (int)i, (double)logprob[0][i],
                     (double)logprob[1][i]);
    json_decref(json);
}

/* With an argument: only the tests whose names match it, "scores_*". */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_gives_what_each_gives_alone),
        cmocka_unit_test(seeds_differ_and_repeat),
        cmocka_unit_test(a_long_prompt_compiles_nothing_and_runs_as_planned),
        cmocka_unit_test(scores_do_not_depend_on_sections),
        cmocka_unit_test(scoring_is_interrupted),
        cmocka_unit_test(end_tokens_end_a_text_and_waste_little),
        cmocka_unit_test(the_context_is_filled_to_the_last_position),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(options_may_be_left_out_and_errors_unread),
        cmocka_unit_test(scores_equal_transformers),
        cmocka_unit_test(the_trained_model_says_what_it_said_elsewhere),
        cmocka_unit_test(a_bf16_checkpoint_scores_as_elsewhere),
        cmocka_unit_test(bf16_stays_near_f32_on_the_trained_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
