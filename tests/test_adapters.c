/* Adapters beside a model as it runs: what they compute is what merging them computes, on meshes and over quantized weights
   too; and embeddings, which take them as texts do. */
#include "adapter_make.h"
#include "base/json_file.h"
#include "caravan/session.h"
#include "io/model.h"
#include "scratch.h"
#include "serve/engine.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum { TOKENS = 40, NEW = 8 };

typedef struct Run {
    const char *mesh, *layout, *pooling;
    const char *const *folder;
    int n;
    bool reuse;
} Run;

static cvn_model *open_model(const char *path, const char *quantize, cvn_dtype dtype)
{
    cvn_err err = {0};
    cvn_model *model = NULL;
    char full[300];
    const cvn_model_options options = {.dtype = dtype, .quantize = quantize, .no_tokenizer = true};
    snprintf(full, sizeof full, "%s%s", path[0] == '/' ? "" : CVN_TEST_DATA "/llama/", path);
    must(cvn_model_open(full, &options, &model, &err), &err);
    return model;
}

static int try_engine(const cvn_model *model, const Run *run, cvn_engine **e, cvn_err *err)
{
    const cvn_engine_options options = {.slots = 2,
                                        .context = 128,
                                        .threads = 1,
                                        .scoring = true,
                                        .n_buckets = 2,
                                        .bucket = {16, 32},
                                        .mesh = run->mesh,
                                        .layout = run->layout,
                                        .pooling = run->pooling,
                                        .reuse = run->reuse,
                                        .adapter = run->folder,
                                        .n_adapters = run->n};
    return cvn_engine_new(model, &options, e, err);
}

static cvn_engine *new_engine(const cvn_model *model, const Run *run)
{
    cvn_err err = {0};
    cvn_engine *e = NULL;
    must(try_engine(model, run, &e, &err), &err);
    return e;
}

static void some_tokens(int32_t token[TOKENS])
{
    for (int i = 0; i < TOKENS; i++)
        token[i] = (i * 37 + 11) % 259;
}

static bool collect(void *context, int request, int32_t token)
{
    (*(int32_t **)context)[0] = token;
    *(int32_t **)context += 1;
    (void)request;
    return true;
}

/* What the first adapter gives, or the model: log-probabilities and a text. */
static void answers(const cvn_model *model, const Run *run, float logprob[TOKENS],
                    int32_t text[NEW])
{
    cvn_err err = {0};
    int32_t token[TOKENS], likeliest[TOKENS], *at = text;
    cvn_result result;
    some_tokens(token);
    const cvn_request request = {
        .prompt = token, .n_prompt = 21, .max_tokens = NEW, .ignore_eos = true};
    cvn_engine *e = new_engine(model, run);
    must(cvn_engine_score(e, token, TOKENS, logprob, likeliest, &err), &err);
    must(cvn_engine_generate(e, &request, 1, collect, &at, NULL, &result, &err), &err);
    assert_int_equal(at - text, NEW);
    cvn_engine_free(e, NULL);
}

static double furthest(const float *a, const float *b)
{
    double most = 0;
    for (int i = 1; i < TOKENS; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static void they_compute_what_the_merged_model_does(void **state)
{
    const char *folder[] = {in_scratch("merged"), in_scratch("other")};
    cvn_model *plain = open_model("gqa", NULL, CVN_F32);
    make_adapter(folder[0], plain->io.desc, "r=5,alpha=4", CVN_TEST_DATA "/llama/gqa", 3, false);
    make_adapter(folder[1], plain->io.desc, "r=3,targets=q", NULL, 4, false);
    cvn_model *merged = open_model(folder[0], NULL, CVN_F32);
    float with[TOKENS], without[TOKENS], want[TOKENS];
    int32_t text[NEW], other[NEW], wanted[NEW];
    answers(merged, &(Run){0}, want, wanted);
    answers(plain, &(Run){0}, without, other);
    assert_true(furthest(want, without) > 1);
    for (int n = 1; n <= 2; n++) {
        answers(plain, &(Run){.folder = folder, .n = n}, with, text);
        if (!(furthest(with, want) < 1e-4))
            fail_msg("%d adapters: %g from the merged model", n, furthest(with, want));
        assert_memory_equal(text, wanted, sizeof text);
    }
    cvn_model_free(merged);
    /* over weights of 8 bits, whose own error is what remains */
    cvn_model *eight = open_model("gqa", "int8", CVN_F32);
    answers(eight, &(Run){.folder = folder, .n = 2}, with, text);
    if (!(furthest(with, want) < 0.2 && furthest(with, want) > 0))
        fail_msg("over int8: %g from the merged model", furthest(with, want));
    cvn_model_free(eight);
    cvn_model_free(plain);
}

static void those_of_peft_are_read(void **state)
{
    const char *folder[] = {CVN_TEST_DATA "/lora/end"};
    float with[TOKENS], without[TOKENS];
    int32_t text[NEW];
    cvn_model *model = open_model("gqa", NULL, CVN_BF16);
    answers(model, &(Run){0}, without, text);
    answers(model, &(Run){.folder = folder, .n = 1}, with, text);
    assert_true(furthest(with, without) > 0.1);
    cvn_model_free(model);
}

static void on_meshes_they_are_those_of_one_device(void **state)
{
    static const char *const layouts[] = {"dp", "tp", "tp-scatter", "fsdp", "2d", "fsdp+tp"};
    static const char *const meshes[] = {"data=2,model=2", "model=3", "data=2"};
    const char *folder[] = {in_scratch("m"), in_scratch("n")};
    cvn_model *model = open_model("gqa", NULL, CVN_F32);
    make_adapter(folder[0], model->io.desc, "r=5,alpha=4", NULL, 3, false);
    make_adapter(folder[1], model->io.desc, "r=2,targets=o,k", NULL, 4, false);
    float one[TOKENS], many[TOKENS];
    int32_t text[NEW], same[NEW];
    answers(model, &(Run){.folder = folder, .n = 2}, one, text);
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
        for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
            const Run run = {.mesh = meshes[m], .layout = layouts[l], .folder = folder, .n = 2};
            answers(model, &run, many, same);
            if (!(furthest(one, many) < 1e-4) || memcmp(text, same, sizeof text) != 0)
                fail_msg("%s by %s: %g", meshes[m], layouts[l], furthest(one, many));
        }
    cvn_model_free(model);
}

static void what_does_not_fit_is_refused(void **state)
{
    cvn_model *model = open_model("gqa", NULL, CVN_F32), *mha = open_model("mha", NULL, CVN_F32);
    const char *fine = in_scratch("fine"), *broken = in_scratch("broken");
    make_adapter(fine, model->io.desc, "r=5,alpha=4", NULL, 3, false);
    make_adapter(broken, model->io.desc, "r=5,alpha=4", NULL, 3, true);
    const char *router = in_scratch("router");
    char path[512];
    cvn_err wrong = {0};
    make_adapter(router, model->io.desc, "r=5,alpha=4", NULL, 3, false);
    snprintf(path, sizeof path, "%s/" LORA_CONFIG_NAME, router);
    json_t *json = json_object_read(path, &wrong);
    json_object_set_new(json, "target_modules", json_pack("[s]", "router"));
    must(json_file_write(path, json, &wrong), &wrong);
    json_decref(json);
    const struct {
        const cvn_model *model;
        const char *folder, *words;
    } cases[] = {{mha, fine, "do not fit the model"},
                 {model, broken, "NaN or infinite"},
                 {model, router, "adapts 'router'; expected are matrices of attention"},
                 {model, CVN_TEST_DATA "/llama/gqa", "adapter_config.json"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_err err = {0};
        cvn_engine *e;
        assert_int_not_equal(
            try_engine(cases[i].model, &(Run){.folder = &cases[i].folder, .n = 1}, &e, &err),
            CVN_OK);
        if (!strstr(err.message, cases[i].words))
            fail_msg("\"%s\" says nothing of %s", err.message, cases[i].words);
    }
    cvn_engine *e = new_engine(model, &(Run){.folder = &fine, .n = 1});
    for (int adapter = -3; adapter < 3; adapter++) {
        const cvn_request request = {
            .prompt = (int32_t[]){1}, .n_prompt = 1, .max_tokens = 1, .adapter = adapter};
        int code = cvn_engine_submit(e, &request, NULL, NULL, NULL);
        assert_int_equal(code == CVN_OK, adapter == 0 || adapter == -1);
    }
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
    cvn_model_free(mha);
}

/* A dialog that goes on with another adapter computes all of it again. */
static void a_session_keeps_nothing_of_another_adapter(void **state)
{
    cvn_err err = {0};
    cvn_model *model = open_model("gqa", NULL, CVN_F32);
    const char *folder = in_scratch("session");
    make_adapter(folder, model->io.desc, "r=5,alpha=4", NULL, 3, false);
    cvn_engine *e = new_engine(model, &(Run){.folder = &folder, .n = 1});
    int32_t token[TOKENS], text[4][NEW], *at;
    some_tokens(token);
    cvn_session *session, *fresh;
    must(cvn_session_new(e, &session, &err), &err);
    for (int i = 0; i < 4; i++) { /* the last two: each once more, of nothing kept */
        cvn_session_result result;
        const cvn_request request = {.prompt = token,
                                     .n_prompt = 20,
                                     .max_tokens = NEW,
                                     .ignore_eos = true,
                                     .adapter = i % 2 ? -1 : 0};
        at = text[i];
        must(cvn_session_new(e, &fresh, &err), &err);
        must(cvn_session_generate(i < 2 ? session : fresh, &request, collect, &at, NULL, &result,
                                  &err),
             &err);
        assert_int_equal(result.reused, 0);
        cvn_session_free(fresh);
    }
    assert_memory_equal(text[0], text[2], sizeof text[0]);
    assert_memory_equal(text[1], text[3], sizeof text[1]);
    assert_memory_not_equal(text[0], text[1], sizeof text[0]);
    cvn_session_free(session);
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

/* What is embedded or scored takes the row that was used longest ago. */
static void embeddings_leave_what_was_read_last(void **state)
{
    cvn_err err = {0};
    cvn_model *model = open_model("gqa", NULL, CVN_F32);
    cvn_engine *e = new_engine(model, &(Run){.pooling = "mean", .reuse = true});
    int32_t token[TOKENS], text[NEW], *at;
    float embedding[256];
    some_tokens(token);
    for (int i = 0; i < 3; i++) {
        cvn_result result;
        const cvn_request request = {
            .prompt = token + (i ? 20 : 0), .n_prompt = 20, .max_tokens = 1, .ignore_eos = true};
        at = text;
        must(cvn_engine_generate(e, &request, 1, collect, &at, NULL, &result, &err), &err);
        assert_int_equal(result.reused > 0, i == 2);
        must(cvn_engine_embed(e, 0, token + 3, 9, embedding, &err), &err);
    }
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

/* By transformers: tests/oracles/embeddings.py. */
static void embeddings_are_the_states_of_the_last_layer(void **state)
{
    json_t *rows = json_load_file(CVN_TEST_DATA "/llama/embeddings.json", 0, NULL);
    static const char *const meshes[] = {NULL, "data=2,model=2"};
    assert_true(json_array_size(rows) > 0);
    for (size_t i = 0; i < 2 * 2 * json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i / 4);
        const char *variant = json_string_value(json_object_get(row, "variant"));
        const Run run = {
            .pooling = i % 2 ? "mean" : "last", .mesh = meshes[i / 2 % 2], .layout = "2d"};
        const json_t *want = json_object_get(row, run.pooling);
        int64_t n = json_integer_value(json_object_get(row, "n"));
        cvn_model *model = open_model(variant, NULL, CVN_F32);
        cvn_engine *e = new_engine(model, &run);
        cvn_err err = {0};
        char path[300];
        IoTensors list;
        Arena arena;
        FileMap map;
        must(arena_init(&arena, &err), &err);
        snprintf(path, sizeof path, CVN_TEST_DATA "/llama/%s/expected.safetensors", variant);
        io_tensors_init(&list, &arena);
        must(file_map(&map, path, &err), &err);
        must(st_read(&list, path, map.data, map.size, NULL, &err), &err);
        int32_t token[TOKENS];
        memcpy(token, io_tensors_find(&list, "tokens")->data, (size_t)n * sizeof *token);
        float got[256];
        assert_int_equal(cvn_model_width(model), json_array_size(want));
        must(cvn_engine_embed(e, -1, token, n, got, &err), &err);
        for (size_t k = 0; k < json_array_size(want); k++)
            if (!(fabs((double)got[k] - json_number_value(json_array_get(want, k))) < 1e-5))
                fail_msg("%s, %s of %d tokens: number %zu is %g, not %g", variant, run.pooling,
                         (int)n, k, (double)got[k], json_number_value(json_array_get(want, k)));
        file_unmap(&map);
        arena_free(&arena);
        cvn_engine_free(e, NULL);
        cvn_model_free(model);
    }
    json_decref(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_compute_what_the_merged_model_does),
        cmocka_unit_test(those_of_peft_are_read),
        cmocka_unit_test(on_meshes_they_are_those_of_one_device),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_session_keeps_nothing_of_another_adapter),
        cmocka_unit_test(embeddings_leave_what_was_read_last),
        cmocka_unit_test(embeddings_are_the_states_of_the_last_layer),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
