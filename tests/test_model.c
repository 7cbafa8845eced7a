/* Opening models by the public interface: text in and out, dtypes, and what is refused. */
#include "caravan/caravan.h"
#include "unit.h"

static const char *shared_model(char *path, size_t size)
{
    snprintf(path, size, "%s/checkpoints/stories260K-hf", CVN_SHARED_DATA);
    FILE *file = fopen(CVN_SHARED_DATA "/MANIFEST.md", "r");
    if (!file) {
        print_message("skipped: no shared data at %s\n", path);
        skip();
    }
    fclose(file);
    return path;
}

static void text_goes_in_and_comes_back(void **state)
{
    char path[512];
    cvn_err err = {0};
    cvn_model *model;
    cvn_model_options options = {.dtype = CVN_DTYPE_COUNT};
    must(cvn_model_open(shared_model(path, sizeof path), &options, &model, &err), &err);
    assert_true(cvn_model_has_tokenizer(model));
    assert_int_equal(cvn_model_dtype(model), CVN_F32);
    assert_int_equal(cvn_model_context(model), 512);
    assert_int_equal(cvn_model_vocab(model), 512);
    assert_string_equal(cvn_model_warnings(model), "");
    static const int32_t expected[] = {1, 403, 407, 261, 378};
    int32_t *ids;
    int64_t n;
    assert_int_equal(
        cvn_model_encode(model, "Once upon a time", 16, CVN_ENCODE_BOS, &ids, &n, &err), 0);
    assert_int_equal(n, 5);
    assert_memory_equal(ids, expected, sizeof expected);
    char *text;
    size_t length;
    assert_int_equal(cvn_model_decode(model, ids, n, &text, &length, &err), 0);
    assert_string_equal(text, "Once upon a time");
    assert_int_equal(length, 16);
    free(text);
    ids[2] = 512;
    assert_int_not_equal(cvn_model_decode(model, ids, n, &text, &length, &err), 0);
    assert_null(text);
    free(ids);
    cvn_model_free(model);
}

static void a_model_without_a_tokenizer_takes_ids_only(void **state)
{
    cvn_err err = {0};
    cvn_model *model;
    cvn_model_options options = {.dtype = CVN_DTYPE_COUNT};
    must(cvn_model_open(CVN_TEST_DATA "/llama/mha", &options, &model, &err), &err);
    assert_false(cvn_model_has_tokenizer(model));
    assert_int_equal(cvn_model_dtype(model), CVN_BF16);
    int32_t *ids;
    int64_t n;
    assert_int_equal(cvn_model_encode(model, "a", 1, CVN_ENCODE_BOS, &ids, &n, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "no tokenizer"));
    cvn_model_free(model);
}

static void what_cannot_be_opened_is_refused(void **state)
{
    cvn_model *model;
    cvn_err err = {0};
    cvn_model_options options = {.dtype = CVN_F16};
    assert_int_equal(cvn_model_open(CVN_TEST_DATA "/llama/mha", &options, &model, &err),
                     CVN_EUNSUPPORTED);
    assert_null(model);
    err = (cvn_err){0};
    options.dtype = CVN_F32;
    assert_int_not_equal(cvn_model_open("no-such-model", &options, &model, &err), CVN_OK);
    assert_non_null(strstr(err.message, "no-such-model"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_goes_in_and_comes_back),
        cmocka_unit_test(a_model_without_a_tokenizer_takes_ids_only),
        cmocka_unit_test(what_cannot_be_opened_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
