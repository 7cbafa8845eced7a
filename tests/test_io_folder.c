/* Hugging Face folders of safetensors: single, indexed, and every way an index can lie. */
#include "io/folder.h"
#include "io_support.h"

static const char *two = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                         "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}";
static const char *only_c = "{\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";

static void put_safetensors(const char *name, const char *header, size_t n)
{
    Bytes bytes = safetensors_of(header, n);
    assert_int_equal(file_write(in_scratch(name), bytes.data, bytes.n, NULL), CVN_OK);
    free(bytes.data);
}

static void put_text(const char *name, const char *text)
{
    assert_int_equal(file_write(in_scratch(name), text, strlen(text), NULL), CVN_OK);
}

static int clean(void **state)
{
    remove_folder(scratch);
    return file_make_folder(scratch, NULL);
}

/* Opens the scratch folder; message is part of the error, or NULL when it must open. */
static void expect(const char *message)
{
    Arena arena;
    Folder folder;
    cvn_err err = {0};
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    int code = folder_open(&folder, scratch, &arena, &err);
    assert_int_equal(code, err.code);
    if (message ? code == CVN_OK || !strstr(err.message, message) : code != CVN_OK)
        fail_msg("wanted '%s', got '%s'", message ? message : "success", err.message);
    folder_close(&folder);
    arena_free(&arena);
}

static void one_file_of_any_name_is_the_model(void **state)
{
    put_safetensors("tiny.safetensors", two, 3);
    put_text("README.md", "x");
    expect(NULL);
    put_safetensors("other.safetensors", only_c, 1);
    expect("has 2 *.safetensors files");
    put_safetensors("model.safetensors", only_c, 1);
    expect(NULL);
}

static void no_weights_is_an_error_that_says_so(void **state)
{
    expect("has no *.safetensors file");
    put_text("pytorch_model.bin", "x");
    expect("must be saved as safetensors");
}

static void shards_are_one_list(void **state)
{
    put_safetensors("model-00001-of-00002.safetensors", two, 3);
    put_safetensors("model-00002-of-00002.safetensors", only_c, 1);
    put_text(
        "model.safetensors.index.json",
        "{\"metadata\":{\"total_size\":4},\"weight_map\":{"
        "\"a\":\"model-00001-of-00002.safetensors\",\"c\":\"model-00002-of-00002.safetensors\","
        "\"b\":\"model-00001-of-00002.safetensors\"}}");
    Arena arena;
    Folder folder;
    assert_int_equal(arena_init(&arena, NULL), CVN_OK);
    assert_int_equal(folder_open(&folder, scratch, &arena, NULL), CVN_OK);
    assert_int_equal(folder.n_maps, 2);
    assert_int_equal(folder.tensors.n, 3);
    const IoTensor *c = io_tensors_find(&folder.tensors, "c");
    assert_non_null(strstr(c->file, "model-00002-of-00002.safetensors"));
    assert_int_equal(c->data[0], 0);
    folder_close(&folder);
    arena_free(&arena);
}

static void an_index_that_lies_is_refused(void **state)
{
    static const struct {
        const char *index;
        const char *message;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\","
         "\"c\":\"s2.safetensors\"}}",
         NULL},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\"}}", NULL},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s3.safetensors\"}}",
         "lists the shard 's3.safetensors', which is missing"},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\","
         "\"c\":\"s2.safetensors\"}}",
         "lists tensor 'b' in 's2.safetensors', but it is in"},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\","
         "\"d\":\"s2.safetensors\"}}",
         "lists tensor 'd' in 's2.safetensors', which does not hold it"},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\"}}", "does not list tensor 'b'"},
        {"{\"weight_map\":{\"a\":\"../s1.safetensors\"}}", "is not a *.safetensors file name"},
        {"{\"weight_map\":{\"a\":\"/etc/x.safetensors\"}}", "is not a *.safetensors file name"},
        {"{\"weight_map\":{\"a\":\".safetensors\"}}", "is not a *.safetensors file name"},
        {"{\"weight_map\":{\"a\":\"config.json\"}}", "is not a *.safetensors file name"},
        {"{\"weight_map\":{\"a\":7}}", "(not a string)"},
        {"{\"weight_map\":{}}", "no \"weight_map\" object"},
        {"{\"weight_map\":[]}", "no \"weight_map\" object"},
        {"{}", "no \"weight_map\" object"},
        {"[]", "not a JSON object"},
        {"{\"weight_map\":{\"a\":\"s1.safetensors\",\"a\":\"s2.safetensors\"}}", "duplicate"},
        {"", "not valid JSON"},
    };
    put_safetensors("s1.safetensors", two, 3);
    put_safetensors("s2.safetensors", only_c, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_text("model.safetensors.index.json", cases[i].index);
        expect(cases[i].message);
    }
}

static void a_tensor_in_two_shards_is_refused(void **state)
{
    put_safetensors("s1.safetensors", two, 3);
    put_safetensors("s2.safetensors", two, 3);
    put_text("model.safetensors.index.json",
             "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}}");
    expect("both contain the tensor 'a'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_file_of_any_name_is_the_model, clean),
        cmocka_unit_test_setup(no_weights_is_an_error_that_says_so, clean),
        cmocka_unit_test_setup(shards_are_one_list, clean),
        cmocka_unit_test_setup(an_index_that_lies_is_refused, clean),
        cmocka_unit_test_setup(a_tensor_in_two_shards_is_refused, clean),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
