/* Making tokenizers: against the trainer of Hugging Face's tokenizers, and by what must hold of any. */
#include "test_text.h"

#include "text/bpe_train.h"

#define DATA CVN_TEST_DATA "/text/"

/* Trains on n bytes. */
static StrBuf train(const char *text, size_t n, int32_t vocab, int32_t *reached)
{
    cvn_err err = {0};
    StrBuf json = {0};
    BpeTrainer *trainer = bpe_trainer_new(&err);
    assert_non_null(trainer);
    assert_int_equal(bpe_trainer_add(trainer, text, n, &err), 0);
    must(bpe_trainer_run(trainer, vocab, &json, reached, &err), &err);
    bpe_trainer_free(trainer);
    return json;
}

static StrBuf train_on_file(int32_t *vocab)
{
    size_t n;
    char *text = read_whole(DATA "bpe_train.txt", &n);
    while (n && strchr("\r\n", text[n - 1]))
        n--;
    json_t *expected = json_load_file(DATA "bpe_train.json", 0, NULL);
    int32_t reached;
    *vocab = (int32_t)json_integer_value(json_object_get(expected, "vocab"));
    StrBuf json = train(text, n, *vocab, &reached);
    assert_int_equal(reached, *vocab);
    json_decref(expected);
    free(text);
    return json;
}

static void merges_are_those_of_hugging_face(void **state)
{
    int32_t vocab;
    StrBuf json = train_on_file(&vocab);
    json_t *ours = json_loadb(json.text, json.length, 0, NULL);
    json_t *theirs = json_load_file(DATA "bpe_train.json", 0, NULL);
    const json_t *merges = json_object_get(json_object_get(ours, "model"), "merges");
    const json_t *expected = json_object_get(theirs, "merges");
    assert_int_equal(json_array_size(merges), json_array_size(expected));
    assert_true(json_array_size(expected) > 700);
    for (size_t i = 0; i < json_array_size(merges); i++)
        assert_string_equal(json_string_value(json_array_get(merges, i)),
                            json_string_value(json_array_get(expected, i)));
    json_decref(ours);
    json_decref(theirs);
    strbuf_free(&json);
}

static void check_row(const json_t *row, void *tokenizer)
{
    const json_t *text = json_object_get(row, "text");
    check_ids(tokenizer, json_string_value(text), json_string_length(text),
              TOKENIZER_BOS | TOKENIZER_SPECIAL, json_object_get(row, "ids"));
}

static void ids_are_those_that_hugging_face_makes_with_the_file(void **state)
{
    cvn_err err = {0};
    int32_t vocab;
    StrBuf json = train_on_file(&vocab);
    Tokenizer *tokenizer;
    must(tokenizer_read(json.text, json.length, &tokenizer, &err), &err);
    assert_int_equal(tokenizer_vocab_size(tokenizer), vocab);
    assert_int_equal(tokenizer_bos(tokenizer), vocab - BPE_TRAIN_SPECIAL);
    assert_int_equal(tokenizer_eos(tokenizer), vocab - BPE_TRAIN_SPECIAL + 1);
    assert_int_equal(tokenizer_special(tokenizer, "<|eot_id|>"), vocab - 1);
    assert_true(each_line(DATA "bpe_train_ids.jsonl", check_row, tokenizer) > 200);
    tokenizer_free(tokenizer);
    strbuf_free(&json);
}

static void the_commonest_pair_is_merged_first_and_ties_by_symbols(void **state)
{
    static const char text[] = "ab ab ab cd cd cd xyz";
    int32_t reached;
    StrBuf json = train(text, sizeof text - 1, 300, &reached);
    /* Three times: "ab"; " ab" is a word twice, and "cd" three times. 'a' < 'c' decides. */
    const char *first = strstr(json.text, "\"a b\""), *second = strstr(json.text, "\"c d\"");
    assert_true(first && second && first < second);
    assert_null(strstr(json.text, "\"x y\""));
    assert_in_range(reached, BPE_TRAIN_LEAST + 3, 299);
    strbuf_free(&json);
}

/* A tokenizer of at most `vocab` pieces, made from the text itself, gives it back; into how many ids it is cut. */
static size_t ids_there_and_back(const char *text, size_t n, int32_t vocab)
{
    cvn_err err = {0};
    int32_t reached;
    StrBuf json = train(text, n, vocab, &reached), out = {0};
    Tokenizer *tokenizer;
    TokenIds ids = {0};
    assert_int_equal(tokenizer_read(json.text, json.length, &tokenizer, &err), 0);
    assert_int_equal(tokenizer_encode(tokenizer, text, n, 0, &ids, &err), 0);
    assert_int_equal(tokenizer_decode(tokenizer, ids.id, ids.n, 0, &out, &err), 0);
    assert_int_equal(out.length, n);
    assert_memory_equal(out.text, text, n);
    size_t count = ids.n;
    token_ids_free(&ids);
    tokenizer_free(tokenizer);
    strbuf_free(&json);
    strbuf_free(&out);
    return count;
}

static void runs_of_one_letter_end_and_decode(void **state)
{
    char text[3000];
    memset(text, 'a', sizeof text);
    text[1000] = text[2000] = ' ';
    assert_true(ids_there_and_back(text, sizeof text, 400) < 100);
}

static void bytes_that_are_no_text_survive(void **state)
{
    char text[512];
    for (int i = 0; i < 512; i++)
        text[i] = (char)(i % 256);
    assert_true(ids_there_and_back(text, sizeof text, 300) > 0);
}

static void no_text_and_impossible_sizes_are_refused(void **state)
{
    StrBuf json = {0};
    int32_t reached;
    static const int32_t sizes[] = {-1, 0, BPE_TRAIN_LEAST - 1, (1 << 22) + 1, 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cvn_err err = {0};
        BpeTrainer *trainer = bpe_trainer_new(&err);
        bool empty = sizes[i] == 4096;
        if (!empty)
            assert_int_equal(bpe_trainer_add(trainer, "text", 4, &err), 0);
        assert_int_equal(bpe_trainer_run(trainer, sizes[i], &json, &reached, &err),
                         empty ? CVN_EFORMAT : CVN_EINVAL);
        bpe_trainer_free(trainer);
    }
    assert_int_equal(json.length, 0);
    strbuf_free(&json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_are_those_of_hugging_face),
        cmocka_unit_test(ids_are_those_that_hugging_face_makes_with_the_file),
        cmocka_unit_test(the_commonest_pair_is_merged_first_and_ties_by_symbols),
        cmocka_unit_test(runs_of_one_letter_end_and_decode),
        cmocka_unit_test(bytes_that_are_no_text_survive),
        cmocka_unit_test(no_text_and_impossible_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
