/*
 * Tokenizers in the form of each family of models against what the tokenizers library makes of hard text: encoding, decoding at once
 * and id by id, special tokens; see tests/oracles/text_families.py. And the published ones that lie in the folder that
 * CARAVAN_TOKENIZERS names, against what tests/oracles/text_published.py says.
 */
#include "test_text.h"

#include "base/file.h"
#include "text/gguf_write.h"
#include "text/tokenizer_impl.h"

#define FOLDER CVN_TEST_DATA "/text/families/"

typedef struct Run {
    json_t *texts; /* owned */
    size_t n;      /* tokenizers */
} Run;

static void check_file(const json_t *line, void *arg)
{
    Run *run = arg;
    if (!run->texts) {
        run->texts = json_incref(json_object_get(line, "texts"));
        return;
    }
    const char *file = json_string_value(json_object_get(line, "file"));
    char path[512];
    snprintf(path, sizeof path, "%s%s", FOLDER, file);
    print_message("%s\n", file);
    Tokenizer *t = open_tokenizer(path);
    for (size_t i = 0; i < json_array_size(run->texts); i++) {
        const json_t *text = json_array_get(run->texts, i);
        const json_t *expected = json_array_get(json_object_get(line, "ids"), i);
        const json_t *special = json_array_get(json_object_get(line, "special"), i);
        const json_t *decoded = json_array_get(json_object_get(line, "decoded"), i);
        const char *bytes = json_string_value(text);
        size_t n = json_string_length(text);
        check_ids(t, bytes, n, 0, expected);
        check_ids(t, bytes, n, TOKENIZER_BOS | TOKENIZER_SPECIAL,
                  json_is_null(special) ? expected : special);
        const json_t *back = json_is_null(decoded) ? text : decoded;
        TokenIds ids = json_ids(expected);
        check_decode(t, ids.id, ids.n, TOKENIZER_SPECIAL, json_string_value(back),
                     json_string_length(back));
        token_ids_free(&ids);
    }
    tokenizer_free(t);
    run->n++;
}

static void every_family_agrees_with_the_reference(void **state)
{
    Run run = {0};
    each_line(FOLDER "vectors.jsonl", check_file, &run);
    assert_int_equal(run.n, 22);
    json_decref(run.texts);
}

/* A GGUF file with nothing but the tokenizer; false where no GGUF file can have it. */
static bool write_gguf(const Tokenizer *t, StrBuf *file)
{
    static const struct {
        uint32_t magic, version;
        uint64_t n_tensors;
    } start = {0x46554747, 3, 0};
    GgufKeys keys = {0};
    cvn_err err = {0};
    gguf_key_text(&keys, "general.architecture", "llama");
    if (t->bos >= 0)
        gguf_key_u32(&keys, "tokenizer.ggml.bos_token_id", t->bos);
    if (t->eos >= 0)
        gguf_key_u32(&keys, "tokenizer.ggml.eos_token_id", t->eos);
    int code = gguf_write_tokenizer(t, &keys, &err);
    assert_true(code == CVN_OK || code == CVN_EUNSUPPORTED);
    gguf_put_raw(file, &start, sizeof start);
    gguf_put_raw(file, &keys.n, sizeof keys.n);
    gguf_put_raw(file, keys.bytes.text, keys.bytes.length);
    strbuf_free(&keys.bytes);
    return code == CVN_OK;
}

/* Whether GGUF files cannot say what happens to a text: white space that a token takes along, words, normalization forms. */
static bool is_unsaid(const Tokenizer *t, const json_t *text)
{
    static const char *const tokens[] = {"<left>", "<right>", "<both>",   "<word>",
                                         "<|im",   "<|end|>", "<|user|>", "</s>"};
    const char *bytes = json_string_value(text);
    size_t n = json_string_length(text);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        if (memmem(bytes, n, tokens[i], strlen(tokens[i])))
            return true;
    /* SentencePiece puts a space in front of every text; Metaspace does not where it begins with one, or with a token, and Prepend
     * not where it begins with a token that is looked for behind it. */
    bool metaspace = t->prepare.n > 1;
    if ((metaspace || t->normalize.n > 1) &&
        (memmem(bytes, n, "\xe2\x82\xac", 3) || memmem(bytes, n, "<norm>", 6)))
        return true;
    if (metaspace && (n == 0 || memchr(bytes, '<', n) || bytes[0] == ' ' ||
                      memcmp(bytes, "\xe2\x96\x81", 3) == 0))
        return true;
    StrBuf made = {0};
    const Rewrite *step = t->normalize.n ? &t->normalize.step[0] : NULL;
    if (step && step->kind == REWRITE_FORM)
        unicode_form(step->form, bytes, n, &made);
    bool changed = made.length && (made.length != n || memcmp(made.text, bytes, n) != 0);
    strbuf_free(&made);
    return changed;
}

static void check_gguf(const json_t *line, void *arg)
{
    Run *run = arg;
    if (!run->texts) {
        run->texts = json_incref(json_object_get(line, "texts"));
        return;
    }
    const char *file = json_string_value(json_object_get(line, "file"));
    const char *folder = getenv("CARAVAN_WRITE_GGUF"); /* for another program to read them */
    char path[512];
    snprintf(path, sizeof path, "%s%s", FOLDER, file);
    Tokenizer *t = open_tokenizer(path), *back;
    StrBuf gguf = {0};
    cvn_err err = {0};
    if (write_gguf(t, &gguf)) {
        must(tokenizer_read(gguf.text, gguf.length, &back, &err), &err);
        snprintf(path, sizeof path, "%s/%s.gguf", folder ? folder : "", file);
        if (folder)
            must(file_write(path, gguf.text, gguf.length, &err), &err);
        print_message("%s\n", file);
        for (size_t i = 0; i < json_array_size(run->texts); i++) {
            const json_t *text = json_array_get(run->texts, i);
            const json_t *expected = json_array_get(json_object_get(line, "ids"), i);
            const json_t *special = json_array_get(json_object_get(line, "special"), i);
            if (is_unsaid(t, text))
                continue;
            const char *bytes = json_string_value(text);
            size_t n = json_string_length(text);
            check_ids(back, bytes, n, 0, expected);
            /* Nor can GGUF files say a second token in front of a text, or that no space follows a special token. */
            if (!t->n_lead && t->prepare.n < 2)
                check_ids(back, bytes, n, TOKENIZER_BOS | TOKENIZER_SPECIAL,
                          json_is_null(special) ? expected : special);
        }
        tokenizer_free(back);
        run->n++;
    }
    strbuf_free(&gguf);
    tokenizer_free(t);
}

static void every_family_comes_back_from_gguf(void **state)
{
    Run run = {0};
    each_line(FOLDER "vectors.jsonl", check_gguf, &run);
    assert_int_equal(run.n, 18); /* Falcon's and the three that are no family's have no name */
    json_decref(run.texts);
}

static uint32_t add(uint32_t hash, int32_t id)
{
    return (hash ^ (uint32_t)id) * 16777619u;
}

static void published_tokenizers_agree_with_their_own_libraries(void **state)
{
    const char *folder = getenv("CARAVAN_TOKENIZERS"), *name;
    if (!folder) {
        print_message("skipped: CARAVAN_TOKENIZERS names no folder\n");
        skip();
    }
    json_t *hashes = json_load_file(CVN_TEST_DATA "/text/published.json", 0, NULL), *expected;
    FILE *file = fopen(FOLDER "vectors.jsonl", "r");
    assert_true(hashes && file);
    json_t *first = json_loadf(file, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, NULL), *text;
    const json_t *texts = json_object_get(first, "texts");
    json_object_foreach(hashes, name, expected)
    {
        char path[1024];
        size_t i;
        uint32_t hash = 2166136261u;
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (access(path, R_OK) != 0) {
            print_message("%s is not there\n", path);
            continue;
        }
        Tokenizer *t = open_tokenizer(path);
        json_array_foreach(texts, i, text)
        {
            TokenIds ids = {0};
            cvn_err err = {0};
            must(tokenizer_encode(t, json_string_value(text), json_string_length(text), 0, &ids,
                                  &err),
                 &err);
            hash = add(hash, (int32_t)ids.n);
            for (size_t k = 0; k < ids.n; k++)
                hash = add(hash, ids.id[k]);
            token_ids_free(&ids);
        }
        if (hash != json_integer_value(expected))
            fail_msg("%s makes other ids than its own library", name);
        tokenizer_free(t);
    }
    json_decref(first);
    json_decref(hashes);
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_agrees_with_the_reference),
        cmocka_unit_test(every_family_comes_back_from_gguf),
        cmocka_unit_test(published_tokenizers_agree_with_their_own_libraries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
