/* A KV cache in 8 bits, and prompts in 8 bits: what a model makes of them, in batches, in dialogs, on meshes, and what
   the cache weighs. */
#include "caravan/session.h"
#include "serve/engine.h"
#include "unit.h"

#include <math.h>

enum { N_TOKENS = 60, N_NEW = 24, N_TEXTS = 5 };

static cvn_model *open_tiny(const char *variant, cvn_dtype dtype)
{
    char path[512];
    cvn_err err = {0};
    cvn_model *model = NULL;
    cvn_model_options options = {.dtype = dtype, .no_tokenizer = true};
    snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, variant);
    must(cvn_model_open(path, &options, &model, &err), &err);
    return model;
}

static cvn_model *open_quantized(const char *variant, const char *quantize)
{
    char path[512];
    cvn_err err = {0};
    cvn_model *model = NULL;
    cvn_model_options options = {.dtype = CVN_BF16, .no_tokenizer = true, .quantize = quantize};
    snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, variant);
    must(cvn_model_open(path, &options, &model, &err), &err);
    return model;
}

static cvn_engine *new_engine(const cvn_model *model, cvn_engine_options options)
{
    cvn_err err = {0};
    cvn_engine *engine = NULL;
    options.threads = options.threads ? options.threads : 2;
    options.context = options.context ? options.context : 64;
    options.n_buckets = 1;
    options.bucket[0] = 16;
    must(cvn_engine_new(model, &options, &engine, &err), &err);
    return engine;
}

static void make_tokens(int32_t *token, int n, int64_t vocab, int salt)
{
    for (int i = 0; i < n; i++)
        token[i] = (int32_t)((i * i * 7 + i * 3 + salt * 31) % vocab);
}

/* Log-probabilities of a text. */
static void score(const cvn_model *model, cvn_engine_options options, float *logprob)
{
    cvn_err err = {0};
    int32_t token[N_TOKENS], argmax[N_TOKENS];
    options.scoring = true;
    cvn_engine *e = new_engine(model, options);
    make_tokens(token, N_TOKENS, cvn_model_vocab(model), 1);
    must(cvn_engine_score(e, token, N_TOKENS, logprob, argmax, &err), &err);
    cvn_engine_free(e, NULL);
}

typedef struct Texts {
    int32_t token[N_TEXTS][N_NEW];
    int n[N_TEXTS];
} Texts;

static bool collect(void *context, int request, int32_t token)
{
    Texts *t = context;
    t->token[request][t->n[request]++] = token;
    return true;
}

static void generate(cvn_engine *e, const cvn_request *request, int n, Texts *t)
{
    cvn_err err = {0};
    cvn_result result[N_TEXTS];
    memset(t, 0, sizeof *t);
    must(cvn_engine_generate(e, request, n, collect, t, NULL, result, &err), &err);
}

static void make_requests(cvn_request *request, int32_t prompt[][N_TOKENS], int64_t vocab)
{
    for (int r = 0; r < N_TEXTS; r++) {
        make_tokens(prompt[r], N_TOKENS, vocab, r);
        request[r] = (cvn_request){.prompt = prompt[r],
                                   .n_prompt = 1 + r * 7,
                                   .max_tokens = N_NEW,
                                   .ignore_eos = true,
                                   .sampling = {.top_p = 1}};
    }
}

/* 8 bits change a little, and no more. */
static void scores_are_near_those_of_floats(void **state)
{
    static const char *const variants[] = {"mha", "gqa", "mqa", "llama3_rope"};
    static const cvn_dtype dtypes[] = {CVN_F32, CVN_BF16};
    for (int v = 0; v < 4; v++)
        for (int d = 0; d < 2; d++) {
            float whole[N_TOKENS], eight[N_TOKENS];
            double mean = 0;
            cvn_model *model = open_tiny(variants[v], dtypes[d]);
            score(model, (cvn_engine_options){.slots = 1}, whole);
            score(model, (cvn_engine_options){.slots = 1, .kv_cache = "int8"}, eight);
            for (int i = 0; i < N_TOKENS; i++)
                mean += fabs((double)whole[i] - (double)eight[i]) / N_TOKENS;
            if (!(mean > 0 && mean < 0.06))
                fail_msg("%s: log-probabilities are %g off", variants[v], mean);
            cvn_model_free(model);
        }
}

static void a_batch_gives_what_each_gives_alone(void **state)
{
    cvn_model *model = open_tiny("gqa", CVN_BF16);
    static int32_t prompt[N_TEXTS][N_TOKENS];
    cvn_request request[N_TEXTS];
    make_requests(request, prompt, cvn_model_vocab(model));
    cvn_engine *batch = new_engine(model, (cvn_engine_options){.slots = 3, .kv_cache = "int8"});
    cvn_engine *alone =
        new_engine(model, (cvn_engine_options){.slots = 1, .kv_cache = "int8", .threads = 1});
    static Texts all, one;
    generate(batch, request, N_TEXTS, &all);
    for (int r = 0; r < N_TEXTS; r++) {
        generate(alone, &request[r], 1, &one);
        assert_int_equal(one.n[0], N_NEW);
        assert_memory_equal(one.token[0], all.token[r], sizeof one.token[0]);
    }
    cvn_engine_free(batch, NULL);
    cvn_engine_free(alone, NULL);
    cvn_model_free(model);
}

/* A turn that shares the beginning of what is cached, and rolls the rest back. */
static void a_dialog_that_is_rolled_back_is_as_if_new(void **state)
{
    cvn_err err = {0};
    cvn_model *model = open_tiny("gqa", CVN_F32);
    cvn_engine_options options = {.slots = 2, .kv_cache = "int8"};
    cvn_engine *kept = new_engine(model, options), *fresh = new_engine(model, options);
    cvn_session *s = NULL;
    int32_t token[N_TOKENS];
    make_tokens(token, N_TOKENS, cvn_model_vocab(model), 3);
    assert_int_equal(cvn_session_new(kept, &s, &err), 0);
    for (int turn = 0; turn < 3; turn++) {
        static Texts mine, other;
        cvn_session_result result;
        token[20 + turn] = (token[20 + turn] + 1) % (int32_t)cvn_model_vocab(model);
        cvn_request request = {.prompt = token,
                               .n_prompt = 30,
                               .max_tokens = N_NEW,
                               .ignore_eos = true,
                               .sampling = {.top_p = 1}};
        memset(&mine, 0, sizeof mine);
        must(cvn_session_generate(s, &request, collect, &mine, NULL, &result, &err), &err);
        generate(fresh, &request, 1, &other);
        assert_int_equal(mine.n[0], N_NEW);
        assert_memory_equal(mine.token[0], other.token[0], sizeof mine.token[0]);
    }
    cvn_session_free(s);
    cvn_engine_free(kept, NULL);
    cvn_engine_free(fresh, NULL);
    cvn_model_free(model);
}

static void meshes_divide_it(void **state)
{
    static const char *const meshes[] = {"model=2", "data=2,model=2"};
    cvn_model *whole = open_tiny("gqa", CVN_F32), *parts = open_tiny("gqa", CVN_F32);
    float want[N_TOKENS], got[N_TOKENS];
    score(whole, (cvn_engine_options){.slots = 2, .kv_cache = "int8"}, want);
    for (int m = 0; m < 2; m++) {
        score(parts,
              (cvn_engine_options){
                  .slots = 2, .threads = 1, .kv_cache = "int8", .mesh = meshes[m], .layout = "2d"},
              got);
        for (int i = 0; i < N_TOKENS; i++)
            if (!(fabsf(got[i] - want[i]) <
                  0.02f)) /* sums in another order, on either side of a step */
                fail_msg("%s: token %d is %g, not %g", meshes[m], i, (double)got[i],
                         (double)want[i]);
    }
    cvn_model_free(whole);
    cvn_model_free(parts);
}

/* Half of bf16, and the scales. */
static void it_weighs_what_is_said(void **state)
{
    cvn_model *model = open_tiny("gqa", CVN_BF16);
    const Model *c = model->io.desc;
    const ModelShape s = model_shape(c);
    cvn_engine *e = new_engine(model, (cvn_engine_options){.slots = 3, .kv_cache = "int8"});
    int64_t bytes = kv_cache_bytes(c, 3, 64, CVN_I8); /* a page each */
    assert_int_equal(bytes, 2 * s.layers * s.kv_heads * 3 * 64 * (s.head_dim + 2));
    cvn_engine_stats stats = cvn_engine_get_stats(e);
    assert_int_equal(stats.cache_bytes, bytes);
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

/* Prompts in 8 bits change a little too. */
static void prompts_in_8_bits_score_nearly_alike(void **state)
{
    static const char *const variants[] = {"mha", "gqa", "tied", "biases"};
    for (int v = 0; v < 4; v++) {
        float whole[N_TOKENS], eight[N_TOKENS];
        double mean = 0;
        cvn_model *model = open_quantized(variants[v], "int8");
        score(model, (cvn_engine_options){.slots = 1}, whole);
        score(model, (cvn_engine_options){.slots = 1, .activations = "int8"}, eight);
        for (int i = 0; i < N_TOKENS; i++)
            mean += fabs((double)whole[i] - (double)eight[i]) / N_TOKENS;
        if (!(mean > 0 && mean < 0.06))
            fail_msg("%s: log-probabilities are %g off", variants[v], mean);
        cvn_model_free(model);
    }
}

static void prompts_in_8_bits_are_the_same_in_a_batch(void **state)
{
    cvn_model *model = open_quantized("gqa", "int8");
    static int32_t prompt[N_TEXTS][N_TOKENS];
    cvn_request request[N_TEXTS];
    cvn_engine_options options = {.slots = 3, .kv_cache = "int8", .activations = "int8"};
    make_requests(request, prompt, cvn_model_vocab(model));
    cvn_engine *batch = new_engine(model, options);
    options.slots = options.threads = 1;
    cvn_engine *alone = new_engine(model, options);
    static Texts all, one;
    generate(batch, request, N_TEXTS, &all);
    for (int r = 0; r < N_TEXTS; r++) {
        generate(alone, &request[r], 1, &one);
        assert_memory_equal(one.token[0], all.token[r], sizeof one.token[0]);
    }
    cvn_engine_free(batch, NULL);
    cvn_engine_free(alone, NULL);
    cvn_model_free(model);
}

static void other_names_are_refused(void **state)
{
    cvn_err err = {0};
    cvn_engine *engine = NULL;
    cvn_model *model = open_tiny("mha", CVN_F32);
    cvn_engine_options options = {.slots = 1, .kv_cache = "int4"};
    assert_int_equal(cvn_engine_new(model, &options, &engine, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "int4"));
    err = (cvn_err){0};
    options = (cvn_engine_options){.slots = 1, .activations = "int8"}; /* of weights in f32 */
    assert_int_equal(cvn_engine_new(model, &options, &engine, &err), CVN_EUNSUPPORTED);
    err = (cvn_err){0};
    options.activations = "fp8";
    assert_int_equal(cvn_engine_new(model, &options, &engine, &err), CVN_EINVAL);
    cvn_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_near_those_of_floats),
        cmocka_unit_test(a_batch_gives_what_each_gives_alone),
        cmocka_unit_test(a_dialog_that_is_rolled_back_is_as_if_new),
        cmocka_unit_test(meshes_divide_it),
        cmocka_unit_test(it_weighs_what_is_said),
        cmocka_unit_test(prompts_in_8_bits_score_nearly_alike),
        cmocka_unit_test(prompts_in_8_bits_are_the_same_in_a_batch),
        cmocka_unit_test(other_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
