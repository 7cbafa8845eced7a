/*
 * Tokenizers in the form of each family of models against what the tokenizers library makes of hard text: encoding, decoding at once
 * and id by id, special tokens; see tests/oracles/text_families.py. Written to GGUF files and read again they are the same, and so does
 * llama.cpp read them, but where it is listed (tests/oracles/text_llama_cpp.py). And the published ones that lie in the folder that
 * CARAVAN_TOKENIZERS names, against what tests/oracles/text_published.py says.
 */
#include "test_text.h"

#include "base/file.h"
#include "text/gguf_write.h"
#include "text/tokenizer_impl.h"

#define FOLDER CVN_TEST_DATA "/text/families/"

typedef struct Run {
    json_t *texts;     /* owned */
    json_t *llama_cpp; /* owned; file -> its row of llama_cpp.jsonl */
    size_t n;          /* tokenizers */
    /* Checks a tokenizer against its row of vectors.jsonl. */
    void (*check)(struct Run *run, const char *file, const Tokenizer *t, const json_t *row);
} Run;

static void each_row(const json_t *line, void *arg)
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
    run->check(run, file, t, line);
    tokenizer_free(t);
}

/* Goes through vectors.jsonl. */
static void each_tokenizer(Run *run)
{
    each_line(FOLDER "vectors.jsonl", each_row, run);
    json_decref(run->texts);
    json_decref(run->llama_cpp);
}

/* The ids of a text as "special" has them: null stands for those of "ids". */
static const json_t *special_ids(const json_t *row, size_t i)
{
    const json_t *special = json_array_get(json_object_get(row, "special"), i);
    return json_is_null(special) ? json_array_get(json_object_get(row, "ids"), i) : special;
}

static void check_file(Run *run, const char *file, const Tokenizer *t, const json_t *row)
{
    for (size_t i = 0; i < json_array_size(run->texts); i++) {
        const json_t *text = json_array_get(run->texts, i);
        const json_t *expected = json_array_get(json_object_get(row, "ids"), i);
        const json_t *decoded = json_array_get(json_object_get(row, "decoded"), i);
        const json_t *back = json_is_null(decoded) ? text : decoded;
        const char *bytes = json_string_value(text);
        size_t n = json_string_length(text);
        check_ids(t, bytes, n, 0, expected);
        check_ids(t, bytes, n, TOKENIZER_BOS | TOKENIZER_SPECIAL, special_ids(row, i));
        TokenIds ids = json_ids(expected);
        check_decode(t, ids.id, ids.n, TOKENIZER_SPECIAL, json_string_value(back),
                     json_string_length(back));
        token_ids_free(&ids);
    }
    run->n++;
}

static void every_family_agrees_with_the_reference(void **state)
{
    Run run = {.check = check_file};
    each_tokenizer(&run);
    assert_int_equal(run.n, 22);
}

/* FNV-1a. */
enum { HASH_PRIME = 16777619 };
#define HASH_START 2166136261u

static uint32_t hash_add(uint32_t hash, uint32_t word)
{
    return (hash ^ word) * HASH_PRIME;
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
    if (t->ids.bos >= 0)
        gguf_key_u32(&keys, "tokenizer.ggml.bos_token_id", t->ids.bos);
    if (t->ids.eos >= 0)
        gguf_key_u32(&keys, "tokenizer.ggml.eos_token_id", t->ids.eos);
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

/* The tokenizer that is read from the GGUF file which `t` is written to; NULL where no GGUF file can have it. */
static Tokenizer *by_gguf(const Tokenizer *t, const char *file, uint32_t *hash)
{
    const char *folder = getenv("CARAVAN_WRITE_GGUF"); /* for llama.cpp to read them */
    Tokenizer *back = NULL;
    StrBuf gguf = {0};
    cvn_err err = {0};
    if (write_gguf(t, &gguf)) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s.gguf", folder ? folder : "", file);
        if (folder)
            must(file_write(path, gguf.text, gguf.length, &err), &err);
        must(tokenizer_read(gguf.text, gguf.length, &back, &err), &err);
        *hash = HASH_START;
        for (size_t i = 0; i < gguf.length; i++)
            *hash = hash_add(*hash, (unsigned char)gguf.text[i]);
    }
    strbuf_free(&gguf);
    return back;
}

static void check_gguf(Run *run, const char *file, const Tokenizer *t, const json_t *row)
{
    uint32_t hash;
    Tokenizer *back = by_gguf(t, file, &hash);
    if (!back)
        return;
    for (size_t i = 0; i < json_array_size(run->texts); i++) {
        const json_t *text = json_array_get(run->texts, i);
        if (is_unsaid(t, text))
            continue;
        const char *bytes = json_string_value(text);
        size_t n = json_string_length(text);
        check_ids(back, bytes, n, 0, json_array_get(json_object_get(row, "ids"), i));
        /* Nor can GGUF files say a second token in front of a text, or that no space follows a special token. */
        if (!t->ids.n_lead && t->prepare.n < 2)
            check_ids(back, bytes, n, TOKENIZER_BOS | TOKENIZER_SPECIAL, special_ids(row, i));
    }
    tokenizer_free(back);
    run->n++;
}

static void every_family_comes_back_from_gguf(void **state)
{
    Run run = {.check = check_gguf};
    each_tokenizer(&run);
    assert_int_equal(run.n, 18); /* Falcon's and the three that are no family's have no name */
}

/* How many texts have other ids by llama.cpp than by this program, from the same GGUF file. */
static const struct {
    const char *file;
    size_t n; /* texts */
} otherwise[] = {
    /* llama.cpp has no classes of marks in the pattern: a word of Devanagari is cut. */
    {"gpt_oss.json", 2}, /* and it looks for <|end|> in plain text, too */
    {"llama4.json", 1},
    {"tekken.json", 1},
    {"tekken_json.json", 1},
    /* It puts a space in front of what follows a token such as <mark>, where SentencePiece puts one in front of the text alone. */
    {"llama2_new.json", 6},
    {"mistral_v3.json", 6},
    {"phi3.json", 6},
    {"gemma.json", 1},  /* it looks for runs of U+2581 before spaces are such */
    {"gemma4.json", 5}, /* the same; and it cuts at the ends of lines */
};

static void put_row(const json_t *line, void *arg)
{
    json_object_set(arg, json_string_value(json_object_get(line, "file")), (json_t *)line);
}

/* Whether a tokenizer makes these ids. */
static bool makes_ids(const Tokenizer *t, const json_t *text, const json_t *expected)
{
    TokenIds ids = {0}, wanted = json_ids(expected);
    cvn_err err = {0};
    must(tokenizer_encode(t, json_string_value(text), json_string_length(text), 0, &ids, &err),
         &err);
    bool same =
        ids.n == wanted.n && (ids.n == 0 || memcmp(ids.id, wanted.id, ids.n * sizeof *ids.id) == 0);
    token_ids_free(&ids);
    token_ids_free(&wanted);
    return same;
}

static void check_llama_cpp(Run *run, const char *file, const Tokenizer *t, const json_t *row)
{
    const json_t *theirs = json_object_get(run->llama_cpp, file);
    const json_t *list = json_object_get(theirs, "ids");
    uint32_t hash;
    size_t next = 0, n = 0, known = 0;
    Tokenizer *back = by_gguf(t, file, &hash);
    assert_int_equal(back != NULL, theirs != NULL);
    if (!back)
        return;
    if (hash != json_integer_value(json_object_get(theirs, "hash")))
        fail_msg("llama.cpp read another file: run tests/oracles/text_llama_cpp.py");
    for (size_t i = 0; i < json_array_size(run->texts); i++) {
        const json_t *text = json_array_get(run->texts, i), *pair = json_array_get(list, next);
        bool listed = pair && json_integer_value(json_array_get(pair, 0)) == (json_int_t)i;
        next += listed;
        if (!makes_ids(back, text,
                       listed ? json_array_get(pair, 1)
                              : json_array_get(json_object_get(row, "ids"), i))) {
            print_message("otherwise: %s\n", json_string_value(text));
            n++;
        }
    }
    assert_int_equal(next, json_array_size(list));
    for (size_t i = 0; i < sizeof otherwise / sizeof *otherwise; i++)
        known = strcmp(otherwise[i].file, file) == 0 ? otherwise[i].n : known;
    assert_int_equal(n, known);
    tokenizer_free(back);
    run->n++;
}

static void llama_cpp_reads_the_same_from_gguf(void **state)
{
    Run run = {.check = check_llama_cpp, .llama_cpp = json_object()};
    each_line(FOLDER "llama_cpp.jsonl", put_row, run.llama_cpp);
    each_tokenizer(&run);
    assert_int_equal(run.n, 18);
}

/* A rank file of n tokens: all bytes, then pairs and triples of them. */
static void put_ranks(size_t n, StrBuf *out)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t rank = 0; rank < n; rank++) {
        size_t of[] = {rank, rank - 256, rank - 256 - 65536},
               length = 1 + (rank >= 256) + (rank >= 256 + 65536);
        uint32_t bits = (uint32_t)of[length - 1] << (24 - 8 * length);
        for (size_t i = 0; i < 4; i++)
            strbuf_putc(out, i <= length ? digit[bits >> (18 - 6 * i) & 63] : '=');
        strbuf_printf(out, " %zu\n", rank);
    }
}

/* The ids are those of Llama 4's tokenizer.json. */
static void a_rank_file_of_200000_tokens_is_llama_4(void **state)
{
    static const struct {
        const char *text;
        int32_t id;
    } special[] = {
        {"<|begin_of_text|>", 200000},      {"<|header_start|>", 200005}, {"<|eot|>", 200008},
        {"<|finetune_right_pad|>", 200018}, {"<|image_start|>", 200080},  {"<|patch|>", 200092},
    };
    StrBuf file = {0}, gguf = {0};
    cvn_err err = {0};
    Tokenizer *t = NULL;
    put_ranks(200000, &file);
    must(tokenizer_read(file.text, file.length, &t, &err), &err);
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        assert_int_equal(tokenizer_special(t, special[i].text), special[i].id);
    assert_int_equal(t->bpe.n_ids, 202048);
    assert_true(write_gguf(t, &gguf));
    static const char name[] = "tokenizer.ggml.pre\x08\0\0\0\x06\0\0\0\0\0\0\0llama4";
    assert_non_null(memmem(gguf.text, gguf.length, name, sizeof name - 1));
    tokenizer_free(t);
    strbuf_free(&file);
    strbuf_free(&gguf);
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
        uint32_t hash = HASH_START;
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
            hash = hash_add(hash, (uint32_t)ids.n);
            for (size_t k = 0; k < ids.n; k++)
                hash = hash_add(hash, (uint32_t)ids.id[k]);
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
        cmocka_unit_test(llama_cpp_reads_the_same_from_gguf),
        cmocka_unit_test(a_rank_file_of_200000_tokens_is_llama_4),
        cmocka_unit_test(published_tokenizers_agree_with_their_own_libraries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
