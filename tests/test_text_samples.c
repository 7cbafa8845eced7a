/* Tokenizers of our own making against what the reference libraries made of hard strings: see
 * tests/oracles/text_tokenizers.py. Runs everywhere, without the shared test data. */
#include "test_text.h"

#define DATA CVN_TEST_DATA "/text/"

typedef struct Run {
    char file[64];        /* the tokenizer that is open */
    Tokenizer *tokenizer; /* owned */
    Tokenizer *gguf;      /* the same tokenizer in a GGUF file (text_gguf.py), or NULL; owned */
    size_t n;             /* lines checked */
    size_t n_gguf;        /* of these with the GGUF file too */
} Run;

static size_t from_hex(const char *hex, char **bytes)
{
    size_t n = strlen(hex) / 2;
    *bytes = malloc(n + 1);
    assert_non_null(*bytes);
    for (size_t i = 0; i < n; i++) {
        const char pair[3] = {hex[2 * i], hex[2 * i + 1]};
        (*bytes)[i] = (char)strtol(pair, NULL, 16);
    }
    return n;
}

static void open_files(Run *run, const char *file)
{
    char path[512];
    tokenizer_free(run->tokenizer);
    tokenizer_free(run->gguf);
    snprintf(run->file, sizeof run->file, "%s", file);
    snprintf(path, sizeof path, "%s%s", DATA, file);
    run->tokenizer = open_tokenizer(path);
    snprintf(path, sizeof path, "%s%.*s.gguf", DATA, (int)strcspn(file, "."), file);
    run->gguf = access(path, R_OK) == 0 ? open_tokenizer(path) : NULL;
}

static void check_text(const Tokenizer *tokenizer, const char *text, size_t n, const json_t *line)
{
    const json_t *expected = json_object_get(line, "ids");
    const json_t *special = json_object_get(line, "special");
    const json_t *decoded = json_object_get(line, "decoded");
    check_ids(tokenizer, text, n, 0, expected);
    if (special)
        check_ids(tokenizer, text, n, TOKENIZER_SPECIAL, special);
    TokenIds ids = json_ids(expected);
    if (decoded)
        check_decode(tokenizer, ids.id, ids.n, 0, json_string_value(decoded),
                     json_string_length(decoded));
    token_ids_free(&ids);
}

/* Whether a text has a token that takes white space along, which GGUF cannot say. */
static bool strips(const char *text, size_t n)
{
    return memmem(text, n, "<left>", 6) || memmem(text, n, "<right>", 7) ||
           memmem(text, n, "<both>", 6);
}

static void check_line(const json_t *line, void *arg)
{
    Run *run = arg;
    const char *file = json_string_value(json_object_get(line, "file"));
    if (strcmp(file, run->file) != 0)
        open_files(run, file);
    char *text;
    size_t n = from_hex(json_string_value(json_object_get(line, "hex")), &text);
    check_text(run->tokenizer, text, n, line);
    run->n++;
    if (run->gguf && !strips(text, n)) {
        check_text(run->gguf, text, n, line);
        run->n_gguf++;
    }
    free(text);
}

static void all_kinds_agree_with_the_references(void **state)
{
    Run run = {.file = ""};
    each_line(DATA "vectors.jsonl", check_line, &run);
    assert_true(run.n >= 900);
    assert_true(run.n_gguf >= 100);
    tokenizer_free(run.tokenizer);
    tokenizer_free(run.gguf);
}

static void a_tokenizer_of_a_gguf_file_is_copied_as_a_file_of_its_own(void **state)
{
    static const char *const files[][2] = {{"spm.gguf", "tokenizer.model"},
                                           {"byte_level.gguf", "tokenizer.json"}};
    static const char text[] = "The 12 foxes' caf\xc3\xa9  is <|eot_id|> open.";
    for (int f = 0; f < 2; f++) {
        char folder[] = "/tmp/caravan-gguf-XXXXXX", path[512];
        cvn_err err = {0};
        TokenIds a = {0}, b = {0};
        assert_non_null(mkdtemp(folder));
        snprintf(path, sizeof path, "%s%s", DATA, files[f][0]);
        must(tokenizer_copy(path, folder, &err), &err);
        Tokenizer *gguf = open_tokenizer(path), *copy = open_tokenizer(folder);
        assert_int_equal(tokenizer_encode(gguf, text, sizeof text - 1, TOKENIZER_SPECIAL, &a, &err),
                         CVN_OK);
        assert_int_equal(tokenizer_encode(copy, text, sizeof text - 1, TOKENIZER_SPECIAL, &b, &err),
                         CVN_OK);
        assert_true(a.n == b.n && a.n > 10);
        assert_memory_equal(a.id, b.id, a.n * sizeof *a.id);
        token_ids_free(&a);
        token_ids_free(&b);
        tokenizer_free(gguf);
        tokenizer_free(copy);
        snprintf(path, sizeof path, "%s/%s", folder, files[f][1]);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(folder), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_kinds_agree_with_the_references),
        cmocka_unit_test(a_tokenizer_of_a_gguf_file_is_copied_as_a_file_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
