/* Tokenizers of GGUF files: how each kind cuts text, and what the keys beside the vocabulary say. */
#include "test_text.h"

#include "text/gguf_pre.h"

#define DATA CVN_TEST_DATA "/text/"

/* ---- random strings, as tests/oracles/text_gguf_pre.py makes them ---- */

static uint32_t below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

static void random_string(const json_t *atoms, uint64_t *state, StrBuf *text)
{
    strbuf_clear(text);
    for (uint32_t left = 1 + below(state, 24); left > 0; left--) {
        uint32_t i = below(state, (uint32_t)json_array_size(atoms));
        strbuf_puts(text, json_string_value(json_array_get(atoms, i)));
    }
}

/* FNV-1a over the number of ids and the ids. */
static uint32_t hash_ids(uint32_t hash, const TokenIds *ids)
{
    hash = (hash ^ (uint32_t)ids->n) * 16777619u;
    for (size_t i = 0; i < ids->n; i++)
        hash = (hash ^ (uint32_t)ids->id[i]) * 16777619u;
    return hash;
}

/* Encodes strings, of which each `together` have one hash, and holds them to those expected. */
static void check_hashes(const Tokenizer *t, const char *name, size_t together,
                         const json_t *expected)
{
    json_error_t error;
    json_t *atoms = json_load_file(DATA "atoms.json", 0, &error);
    assert_non_null(atoms);
    uint64_t state = 1;
    StrBuf text = {0};
    TokenIds ids = {0};
    cvn_err err = {0};
    assert_int_equal(json_array_size(expected), 100);
    for (size_t i = 0; i < 100; i++) {
        uint32_t hash = 2166136261u;
        for (size_t k = 0; k < together; k++) {
            random_string(atoms, &state, &text);
            ids.n = 0;
            if (tokenizer_encode(t, text.text, text.length, 0, &ids, &err))
                fail_msg("%s: %s", name, err.message);
            hash = hash_ids(hash, &ids);
        }
        if (hash != json_integer_value(json_array_get(expected, i)))
            fail_msg("%s: other ids than the reference's, row %zu, last text '%s'", name, i,
                     text.text);
    }
    token_ids_free(&ids);
    strbuf_free(&text);
    json_decref(atoms);
}

/* tests/data/text/pre.gguf, which names a row of '@', with another name. */
static void name_pre(const char *name, StrBuf *out)
{
    size_t n;
    char *bytes = read_whole(DATA "pre.gguf", &n);
    static const char placeholder[] = "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@";
    char *at = memmem(bytes, n, placeholder, strlen(placeholder));
    assert_non_null(at);
    uint64_t length = strlen(name);
    strbuf_clear(out);
    strbuf_add(out, bytes, (size_t)(at - bytes) - 8);
    strbuf_add(out, (const char *)&length, 8);
    strbuf_puts(out, name);
    at += strlen(placeholder);
    strbuf_add(out, at, (size_t)(bytes + n - at));
    free(bytes);
}

static void text_is_cut_as_the_name_says(void **state)
{
    (void)state;
    json_error_t error;
    json_t *rows = json_load_file(DATA "pre.json", 0, &error), *row;
    const char *name;
    assert_non_null(rows);
    StrBuf file = {0};
    json_object_foreach(rows, name, row)
    {
        Tokenizer *t = NULL;
        cvn_err err = {0};
        name_pre(name, &file);
        if (tokenizer_read(file.text, file.length, &t, &err))
            fail_msg("%s: %s", name, err.message);
        check_hashes(t, name, 1, row);
        tokenizer_free(t);
    }
    assert_int_equal(json_object_size(rows), 30);
    strbuf_free(&file);
    json_decref(rows);
}

/* Names that are listed with one that the test above goes through. */
static void names_stand_for_one_rule(void **state)
{
    (void)state;
    static const char *const same[][2] = {
        {"llama-bpe", "llama3"},  {"llama-bpe", "lfm2"},
        {"gpt-2", "phi-2"},       {"gpt-2", "olmo"},
        {"gpt-2", "mpt"},         {"gpt-2", "jais"},
        {"smollm", "starcoder"},  {"smollm", "refact"},
        {"smollm", "command-r"},  {"smollm", "exaone"},
        {"smollm", "minerva-7b"}, {"qwen2", "deepseek-r1-qwen"},
        {"qwen2", "stablelm2"},   {"gpt-4o", "llama4"},
        {"bloom", "poro-chat"},   {"deepseek-v3", "hunyuan-dense"},
        {"dbrx", "chatglm-bpe"},  {"glm4", "glm5"},
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_ptr_equal(gguf_pre_find(same[i][0]), gguf_pre_find(same[i][1]));
    static const char *const none[] = {"", " ", "llama", "llama-bpe llama3", "gpt", "whitespace"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_null(gguf_pre_find(none[i]));
}

/* ---- the vocabularies that come with llama.cpp ---- */

/* Where they are; skips where they are not. */
static const char *vocabularies(void)
{
    const char *given = getenv("GGUF_VOCABULARIES");
    const char *folder = given ? given : CVN_SHARED_DATA "/tokenizers/ggml-vocab";
    need_file(folder);
    return folder;
}

static void random_strings_agree_for_each_vocabulary(void **state)
{
    (void)state;
    const char *folder = vocabularies(), *name;
    json_error_t error;
    json_t *rows = json_load_file(DATA "vocabularies.json", 0, &error), *row;
    assert_non_null(rows);
    json_object_foreach(rows, name, row)
    {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, name);
        Tokenizer *t = open_tokenizer(path);
        check_hashes(t, name, 100, row);
        tokenizer_free(t);
    }
    json_decref(rows);
}

/* FILE.inp holds texts, FILE.out a line of ids for each. */
static void compare_expected(const Tokenizer *t, const char *path)
{
    static const char between[] = "\n__ggml_vocab_test__\n";
    char name[700];
    size_t n, n_lines;
    snprintf(name, sizeof name, "%s.inp", path);
    char *texts = read_whole(name, &n), *text = texts;
    snprintf(name, sizeof name, "%s.out", path);
    char *lines = read_whole(name, &n_lines), *line = lines;
    for (const char *end = texts + n; text < end;) {
        char *stop = memmem(text, (size_t)(end - text), between, strlen(between));
        json_t *ids = json_array();
        for (; *line && *line != '\n'; line += strspn(line, " "))
            json_array_append_new(ids, json_integer(strtol(line, &line, 10)));
        line += *line == '\n';
        check_ids(t, text, (size_t)((stop ? stop : end) - text), 0, ids);
        json_decref(ids);
        text = stop ? stop + strlen(between) : texts + n;
    }
    free(texts);
    free(lines);
}

static void expected_ids_agree_for_each_vocabulary(void **state)
{
    (void)state;
    const char *folder = vocabularies(), *name;
    json_error_t error;
    json_t *rows = json_load_file(DATA "vocabularies.json", 0, &error), *row;
    assert_non_null(rows);
    size_t n = 0;
    json_object_foreach(rows, name, row)
    {
        char path[600], texts[700];
        snprintf(path, sizeof path, "%s/%s", folder, name);
        snprintf(texts, sizeof texts, "%s.inp", path);
        if (access(texts, R_OK))
            continue;
        Tokenizer *t = open_tokenizer(path);
        compare_expected(t, path);
        tokenizer_free(t);
        n++;
    }
    assert_true(n >= 14);
    json_decref(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_cut_as_the_name_says),
        cmocka_unit_test(names_stand_for_one_rule),
        cmocka_unit_test(random_strings_agree_for_each_vocabulary),
        cmocka_unit_test(expected_ids_agree_for_each_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
