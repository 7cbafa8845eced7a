/*
 * The engine on meshes of devices in this process: the same log-probabilities and the same texts as on one device,
 * for every layout. Models are the tiny ones of tests/data/llama.
 */
#include "serve/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_TOKENS = 40, N_NEW = 12, N_TEXTS = 3 };

static cvn_model *open_tiny(const char *variant, bool sharded)
{
    char path[512];
    cvn_err err = {0};
    cvn_model *model = NULL;
    cvn_model_options options = {.dtype = CVN_F32, .no_tokenizer = true, .no_weights = sharded};
    snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, variant);
    if (cvn_model_open(path, &options, &model, &err))
        fail_msg("%s", err.message);
    return model;
}

/* What an engine computes: log-probabilities of a text, and texts that several prompts go on with. */
typedef struct Answers {
    float logprob[N_TOKENS];
    int32_t argmax[N_TOKENS];
    int32_t text[N_TEXTS][N_NEW];
    int n[N_TEXTS];
} Answers;

static bool collect(void *context, int request, int32_t token)
{
    Answers *a = context;
    a->text[request][a->n[request]++] = token;
    return true;
}

static int ask(const char *variant, const char *mesh, const char *layout, Answers *a, cvn_err *err)
{
    cvn_model *model = open_tiny(variant, mesh != NULL);
    cvn_engine *engine = NULL;
    cvn_engine_options options = {.rows = 2,
                                  .threads = 1,
                                  .scoring = true,
                                  .context = 64,
                                  .eos_interval = 2,
                                  .n_buckets = 1,
                                  .bucket = {16},
                                  .mesh = mesh,
                                  .layout = layout};
    int64_t vocab = cvn_model_vocab(model);
    int32_t token[N_TOKENS];
    cvn_request request[N_TEXTS] = {0};
    cvn_result result[N_TEXTS];
    for (int i = 0; i < N_TOKENS; i++)
        token[i] = (int32_t)((i * 37 + 11) % vocab);
    for (int i = 0; i < N_TEXTS; i++)
        request[i] = (cvn_request){.prompt = token + i,
                                   .n_prompt = 5 + 13 * i,
                                   .max_tokens = N_NEW,
                                   .ignore_eos = true,
                                   .sampling = {.top_p = 1}};
    *a = (Answers){0};
    int rc = cvn_engine_new(model, &options, &engine, err);
    if (!rc)
        rc = cvn_engine_score(engine, token, N_TOKENS, a->logprob, a->argmax, err);
    if (!rc)
        rc = cvn_engine_generate(engine, request, N_TEXTS, collect, a, NULL, result, err);
    cvn_engine_free(engine, NULL);
    cvn_model_free(model);
    return rc;
}

static void compare(const char *variant, const char *mesh, const char *layout)
{
    Answers whole, parts;
    cvn_err err = {0};
    if (ask(variant, NULL, NULL, &whole, &err) || ask(variant, mesh, layout, &parts, &err))
        fail_msg("%s on %s by %s: %s", variant, mesh, layout, err.message);
    for (int i = 1; i < N_TOKENS; i++) {
        double a = (double)whole.logprob[i], b = (double)parts.logprob[i];
        if (!(fabs(a - b) <= 1e-5 * (1 + fabs(a))))
            fail_msg("%s on %s by %s: token %d scores %.7f, not %.7f", variant, mesh, layout, i, b,
                     a);
    }
    for (int t = 0; t < N_TEXTS; t++)
        if (parts.n[t] != N_NEW || memcmp(whole.text[t], parts.text[t], sizeof whole.text[t]) != 0)
            fail_msg("%s on %s by %s: text %d differs", variant, mesh, layout, t);
}

static void meshes_give_what_one_device_gives(void **state)
{
    (void)state;
    static const char *const layouts[] = {"dp", "tp", "tp-scatter", "fsdp", "2d", "fsdp+tp"};
    static const char *const meshes[] = {"data=2,model=2", "model=2", "data=2",
                                         "data=3",         "model=3", "data=2,model=4",
                                         "data=3,model=2"};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
            compare(m % 2 ? "mha" : "gqa", meshes[m], layouts[l]);
    compare("gqa", "data=1", "2d");
    compare("gqa", "model=4", "2d");
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    Answers a;
    cvn_err err = {0};
    assert_int_equal(ask("gqa", "data=x", "2d", &a, &err), CVN_EINVAL);
    err = (cvn_err){0};
    assert_int_equal(ask("gqa", "data=2", "3d", &a, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "is no layout"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(meshes_give_what_one_device_gives),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
