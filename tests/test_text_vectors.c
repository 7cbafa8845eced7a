/* Tokenizers against vectors that the reference libraries made, on the tokenizers of real models.
 * All of it is in the shared test data: without it every test here is skipped. */
#include "test_text.h"

#define VECTORS CVN_SHARED_DATA "/vectors/"
#define TOKENIZERS CVN_SHARED_DATA "/tokenizers/"

static const char *text_of(const json_t *line, const char *key, size_t *n)
{
    const json_t *text = json_object_get(line, key);
    *n = json_string_length(text);
    return json_string_value(text);
}

/* {text, ids, ids_parse_special where different, decoded} */
static void check_vector(const json_t *line, void *arg)
{
    const Tokenizer *t = arg;
    size_t n, n_decoded;
    const char *text = text_of(line, "text", &n);
    const json_t *expected = json_object_get(line, "ids");
    check_ids(t, text, n, 0, expected);
    const json_t *special = json_object_get(line, "ids_parse_special");
    if (special)
        check_ids(t, text, n, TOKENIZER_SPECIAL, special);
    const char *decoded = text_of(line, "decoded", &n_decoded);
    TokenIds ids = json_ids(expected);
    check_decode(t, ids.id, ids.n, 0, decoded ? decoded : text, decoded ? n_decoded : n);
    token_ids_free(&ids);
}

static void check_file(const char *tokenizer, const char *vectors, size_t n_expected)
{
    need_file(tokenizer);
    need_file(vectors);
    Tokenizer *t = open_tokenizer(tokenizer);
    assert_int_equal(each_line(vectors, check_vector, t), n_expected);
    tokenizer_free(t);
}

static void sentencepiece_llama2_agrees(void **state)
{
    check_file(TOKENIZERS "llama2/tokenizer.model", VECTORS "llama2-sentencepiece.jsonl", 320);
}

static void sentencepiece_llama2_in_gguf_agrees(void **state)
{
    check_file(TOKENIZERS "llama2/ggml-vocab-llama-spm.gguf", VECTORS "llama2-sentencepiece.jsonl",
               320);
}

static void sentencepiece_llama2_agrees_with_llamacpp(void **state)
{
    check_file(TOKENIZERS "llama2/tokenizer.model", VECTORS "llamacpp-llama-spm.jsonl", 47);
}

static void sentencepiece_tok512_agrees(void **state)
{
    check_file(TOKENIZERS "tok512/tok512.model", VECTORS "tok512-sentencepiece.jsonl", 230);
}

/* A whole book as one text: count, sum, first and last ids. */
static void check_book(const Tokenizer *t, const char *file, const json_t *expected)
{
    size_t n;
    char *text = read_whole(file, &n);
    cvn_err err = {0};
    TokenIds ids = {0};
    assert_int_equal(tokenizer_encode(t, text, n, 0, &ids, &err), CVN_OK);
    assert_int_equal(ids.n, json_integer_value(json_object_get(expected, "n_ids")));
    int64_t sum = 0;
    for (size_t i = 0; i < ids.n; i++)
        sum += ids.id[i];
    assert_int_equal(sum, json_integer_value(json_object_get(expected, "sum")));
    const json_t *first = json_object_get(expected, "first16");
    const json_t *last = json_object_get(expected, "last16");
    for (size_t i = 0; i < 16; i++) {
        assert_int_equal(ids.id[i], json_integer_value(json_array_get(first, i)));
        assert_int_equal(ids.id[ids.n - 16 + i], json_integer_value(json_array_get(last, i)));
    }
    check_decode(t, ids.id, ids.n, 0, text, n);
    token_ids_free(&ids);
    free(text);
}

static void check_books(const char *tokenizer, const char *group)
{
    const char *digests = VECTORS "long-text-digests.json";
    need_file(digests);
    need_file(tokenizer);
    Tokenizer *t = open_tokenizer(tokenizer);
    json_t *root = json_load_file(digests, 0, NULL);
    assert_non_null(root);
    const json_t *of = json_object_get(root, group);
    check_book(t, CVN_SHARED_DATA "/corpora/tinyshakespeare.txt",
               json_object_get(of, "tinyshakespeare"));
    check_book(t, CVN_SHARED_DATA "/corpora/war-and-peace.txt",
               json_object_get(of, "war-and-peace"));
    json_decref(root);
    tokenizer_free(t);
}

static void sentencepiece_llama2_agrees_on_books(void **state)
{
    check_books(TOKENIZERS "llama2/tokenizer.model", "llama2");
}

static void tiktoken_llama3_agrees(void **state)
{
    check_file(TOKENIZERS "llama3/tokenizer.model", VECTORS "llama3-tiktoken.jsonl", 321);
}

static void tiktoken_llama3_agrees_on_books(void **state)
{
    check_books(TOKENIZERS "llama3/tokenizer.model", "llama3");
}

static void json_llama3_agrees(void **state)
{
    check_file(TOKENIZERS "llama3/tokenizer.json", VECTORS "llama3-tiktoken.jsonl", 321);
}

static void json_llama3_agrees_on_books(void **state)
{
    check_books(TOKENIZERS "llama3/tokenizer.json", "llama3");
}

/* The tokenizer.json of Llama 2 agrees with SentencePiece on ids; its decoder differs for U+2581 only. */
static void json_llama2_agrees(void **state)
{
    check_file(TOKENIZERS "llama2/tokenizer.json", VECTORS "llama2-sentencepiece.jsonl", 320);
}

static void json_llama2_agrees_on_books(void **state)
{
    check_books(TOKENIZERS "llama2/tokenizer.json", "llama2");
}

/* {name: {text, ids with bos, decoded with special tokens}} */
static void json_llama2_agrees_with_transformersjs(void **state)
{
    const char *path = VECTORS "transformersjs-llama2.json";
    need_file(path);
    Tokenizer *t = open_tokenizer(TOKENIZERS "llama2/tokenizer.json");
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, NULL), *value;
    const char *name;
    size_t n, n_decoded, n_cases = 0;
    json_object_foreach(json_object_get(root, "Xenova/llama-tokenizer"), name, value)
    {
        const char *text = text_of(value, "text", &n);
        const json_t *expected = json_object_get(value, "ids");
        check_ids(t, text, n, TOKENIZER_BOS | TOKENIZER_SPECIAL, expected);
        const char *decoded = text_of(value, "decoded", &n_decoded);
        TokenIds ids = json_ids(expected);
        check_decode(t, ids.id, ids.n, TOKENIZER_SPECIAL, decoded, n_decoded);
        token_ids_free(&ids);
        n_cases++;
    }
    assert_true(n_cases >= 20);
    json_decref(root);
    tokenizer_free(t);
}

static void unigram_models_are_refused(void **state)
{
    const char *path = TOKENIZERS "sentencepiece/test_model.model";
    need_file(path);
    cvn_err err = {0};
    Tokenizer *t;
    assert_int_equal(tokenizer_open(path, &t, &err), CVN_EUNSUPPORTED);
    assert_null(t);
    assert_non_null(strstr(err.message, "unigram"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentencepiece_llama2_agrees),
        cmocka_unit_test(sentencepiece_llama2_agrees_with_llamacpp),
        cmocka_unit_test(sentencepiece_llama2_in_gguf_agrees),
        cmocka_unit_test(sentencepiece_tok512_agrees),
        cmocka_unit_test(sentencepiece_llama2_agrees_on_books),
        cmocka_unit_test(tiktoken_llama3_agrees),
        cmocka_unit_test(tiktoken_llama3_agrees_on_books),
        cmocka_unit_test(json_llama3_agrees),
        cmocka_unit_test(json_llama3_agrees_on_books),
        cmocka_unit_test(json_llama2_agrees),
        cmocka_unit_test(json_llama2_agrees_on_books),
        cmocka_unit_test(json_llama2_agrees_with_transformersjs),
        cmocka_unit_test(unigram_models_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
