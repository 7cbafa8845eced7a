/* Tokenizers of GGUF files: how each kind cuts text, and what the keys beside the vocabulary say. */
#include "test_text.h"

#include "text/gguf_pre.h"
#include "text/tokenizer_impl.h"

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
    static const char *const same[][2] = {
        {"llama-bpe", "llama3"},  {"llama-bpe", "lfm2"},
        {"gpt-2", "phi-2"},       {"gpt-2", "olmo"},
        {"gpt-2", "mpt"},         {"gpt-2", "jais"},
        {"smollm", "starcoder"},  {"smollm", "refact"},
        {"smollm", "command-r"},  {"smollm", "exaone"},
        {"smollm", "minerva-7b"}, {"qwen2", "deepseek-r1-qwen"},
        {"qwen2", "stablelm2"},   {"gpt-4o", "kanana2"},
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

/* ---- files made here ---- */

enum { U32 = 4, I32 = 5, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9 };

/* A GGUF file without tensors. */
typedef struct File {
    StrBuf pairs;
    uint64_t n;
} File;

static void put(StrBuf *out, uint64_t value, size_t bytes)
{
    strbuf_add(out, (const char *)&value, bytes);
}

static void put_text(StrBuf *out, const char *text)
{
    put(out, strlen(text), 8);
    strbuf_puts(out, text);
}

static void add_key(File *file, const char *key, unsigned type)
{
    put_text(&file->pairs, key);
    put(&file->pairs, type, 4);
    file->n++;
}

static void add_text(File *file, const char *key, const char *text)
{
    add_key(file, key, STRING);
    put_text(&file->pairs, text);
}

static void add_number(File *file, const char *key, uint32_t value)
{
    add_key(file, key, U32);
    put(&file->pairs, value, 4);
}

static void add_flag(File *file, const char *key, bool value)
{
    add_key(file, key, BOOL);
    put(&file->pairs, value, 1);
}

static void add_texts(File *file, const char *key, const char *const *text, size_t n)
{
    add_key(file, key, ARRAY);
    put(&file->pairs, STRING, 4);
    put(&file->pairs, n, 8);
    for (size_t i = 0; i < n; i++)
        put_text(&file->pairs, text[i]);
}

static void add_numbers(File *file, const char *key, unsigned type, const int32_t *value, size_t n)
{
    add_key(file, key, ARRAY);
    put(&file->pairs, type, 4);
    put(&file->pairs, n, 8);
    strbuf_add(&file->pairs, (const char *)value, 4 * n);
}

static StrBuf bytes_of(File *file)
{
    StrBuf bytes = {0};
    strbuf_puts(&bytes, "GGUF");
    put(&bytes, 3, 4);
    put(&bytes, 0, 8);
    put(&bytes, file->n, 8);
    strbuf_add(&bytes, file->pairs.text, file->pairs.length);
    strbuf_free(&file->pairs);
    *file = (File){0};
    return bytes;
}

static int read_file(File *file, Tokenizer **t, cvn_err *err)
{
    StrBuf bytes = bytes_of(file);
    int rc = tokenizer_read(bytes.text, bytes.length, t, err);
    strbuf_free(&bytes);
    return rc;
}

static Tokenizer *open_file(File *file)
{
    Tokenizer *t = NULL;
    cvn_err err = {0};
    must(read_file(file, &t, &err), &err);
    return t;
}

/* `ids` as "1 2 3". */
static void check(const Tokenizer *t, const char *text, unsigned flags, const char *ids)
{
    TokenIds got = {0};
    StrBuf line = {0};
    cvn_err err = {0};
    must(tokenizer_encode(t, text, strlen(text), flags, &got, &err), &err);
    for (size_t i = 0; i < got.n; i++)
        strbuf_printf(&line, i ? " %d" : "%d", got.id[i]);
    if (strcmp(line.length ? line.text : "", ids) != 0)
        fail_msg("'%s' is %s, expected %s", text, line.length ? line.text : "nothing", ids);
    strbuf_free(&line);
    token_ids_free(&got);
}

/* Ids 0 to 9, and from 10 on the 256 bytes. */
static const char *const SPM[] = {
    "<unk>", "<s>", "</s>", "\xe2\x96\x81", "a",
    "b",     "ab",  "ba",   "<|m|>",        "\xe2\x96\x81\xe2\x96\x81"};
enum { N_SPM = sizeof SPM / sizeof *SPM };

static void start_spm(File *file, bool bytes)
{
    const char *token[N_SPM + 256];
    char names[256][8];
    memcpy(token, SPM, sizeof SPM);
    for (unsigned i = 0; i < 256; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", i);
        token[N_SPM + i] = names[i];
    }
    add_text(file, "tokenizer.ggml.model", "llama");
    add_texts(file, "tokenizer.ggml.tokens", token, N_SPM + (bytes ? 256 : 0));
    add_number(file, "tokenizer.ggml.bos_token_id", 1);
    add_number(file, "tokenizer.ggml.eos_token_id", 2);
}

static void add_spm_types(File *file, bool bytes)
{
    int32_t type[N_SPM + 256] = {2, 3, 3, 1, 1, 1, 1, 1, 4, 4};
    for (size_t i = N_SPM; i < N_SPM + 256; i++)
        type[i] = 6;
    add_numbers(file, "tokenizer.ggml.token_type", I32, type, N_SPM + (bytes ? 256 : 0));
}

static void sentencepiece_is_read_without_scores_and_types(void **state)
{
    File file = {0};
    start_spm(&file, true);
    Tokenizer *t = open_file(&file);
    assert_int_equal(tokenizer_vocab_size(t), N_SPM + 256);
    check(t, "aba", TOKENIZER_BOS, "1 3 6 4"); /* of equal scores, from the left */
    check(t, "C", 0, "3 77");
    check(t, "<s>", TOKENIZER_SPECIAL, "1");
    tokenizer_free(t);
}

static void scores_may_be_integers(void **state)
{
    static const int32_t score[N_SPM + 256] = {[6] = -2, [7] = -1};
    File file = {0};
    start_spm(&file, true);
    add_spm_types(&file, true);
    add_numbers(&file, "tokenizer.ggml.scores", I32, score, N_SPM + 256);
    Tokenizer *t = open_file(&file);
    check(t, "aba", 0, "3 4 7");
    tokenizer_free(t);
}

static void keys_say_what_stands_in_front(void **state)
{
    for (int i = 0; i < 4; i++) {
        File file = {0};
        start_spm(&file, true);
        add_spm_types(&file, true);
        add_flag(&file, "tokenizer.ggml.add_bos_token", i & 1);
        add_flag(&file, "tokenizer.ggml.add_space_prefix", i & 2);
        Tokenizer *t = open_file(&file);
        char ids[32];
        snprintf(ids, sizeof ids, "%s%s4", i & 1 ? "1 " : "", i & 2 ? "3 " : "");
        check(t, "a", TOKENIZER_BOS, ids);
        assert_int_equal(tokenizer_bos(t), 1);
        tokenizer_free(t);
    }
}

static void without_bytes_there_is_the_unknown_piece(void **state)
{
    File file = {0};
    start_spm(&file, false);
    add_spm_types(&file, false);
    add_flag(&file, "tokenizer.ggml.add_space_prefix", false);
    Tokenizer *t = open_file(&file);
    check(t, "axxb", 0, "4 0 5");
    tokenizer_free(t);
}

/* Phi-3's files fill their vocabulary up with unknown tokens. */
static void one_unknown_token_counts(void **state)
{
    static const char *const token[] = {"<unk>", "<s>", "a", "[PAD3]", "[PAD4]"};
    static const int32_t type[] = {3, 3, 1, 2, 2};
    File file = {0};
    add_text(&file, "tokenizer.ggml.model", "llama");
    add_texts(&file, "tokenizer.ggml.tokens", token, 5);
    add_numbers(&file, "tokenizer.ggml.token_type", I32, type, 5);
    add_number(&file, "tokenizer.ggml.unknown_token_id", 0);
    add_flag(&file, "tokenizer.ggml.add_space_prefix", false);
    Tokenizer *t = open_file(&file);
    check(t, "xa", 0, "0 2");
    check(t, "[PAD3]a", 0, "0 2");
    assert_int_equal(tokenizer_vocab_size(t), 5);
    tokenizer_free(t);
}

/* A user-defined piece that the template writes is no text of those who write messages; white space is. */
static void a_message_forges_no_marker_of_the_template(void **state)
{
    File file = {0};
    start_spm(&file, true);
    add_spm_types(&file, true);
    add_flag(&file, "tokenizer.ggml.add_space_prefix", false);
    add_text(&file, "tokenizer.chat_template", "<|m|>{{ messages }}");
    Tokenizer *t = open_file(&file);
    check(t, "<|m|>a", TOKENIZER_SPECIAL, "8 4");
    check(t, "<|m|>a", 0, "8 4");
    check(t, "<|m|>a", TOKENIZER_PLAIN, "70 134 119 134 72 4");
    check(t, "a  b", TOKENIZER_PLAIN, "4 9 5");
    assert_string_equal(tokenizer_chat_template(t), "<|m|>{{ messages }}");
    tokenizer_free(t);
}

/* ---- byte-pair encodings ---- */

static const char *const BPE[] = {"a", "b", "ab", "<|begin|>", "<|end|>", "[PAD5]", "", "1", "[7]"};
enum { N_BPE = sizeof BPE / sizeof *BPE };

static void start_bpe(File *file, const char *pre)
{
    static const char *const merge[] = {"a b"};
    static const int32_t type[N_BPE] = {1, 1, 1, 3, 1, 5, 1, 1, 4};
    add_text(file, "tokenizer.ggml.model", "gpt2");
    if (pre)
        add_text(file, "tokenizer.ggml.pre", pre);
    add_texts(file, "tokenizer.ggml.tokens", BPE, N_BPE);
    add_numbers(file, "tokenizer.ggml.token_type", I32, type, N_BPE);
    add_texts(file, "tokenizer.ggml.merges", merge, 1);
    add_number(file, "tokenizer.ggml.bos_token_id", 3);
    add_number(file, "tokenizer.ggml.eos_token_id", 4);
}

static void bos_is_put_in_front_as_the_name_or_the_key_says(void **state)
{
    static const struct {
        const char *pre;
        int key; /* -1: absent */
        const char *ids;
    } cases[] = {{"smollm", -1, "2"},   {"smollm", 1, "3 2"},  {"llama-bpe", -1, "3 2"},
                 {"llama-bpe", 0, "2"}, {"tekken", -1, "3 2"}, {NULL, -1, "2"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        File file = {0};
        start_bpe(&file, cases[i].pre);
        if (cases[i].key >= 0)
            add_flag(&file, "tokenizer.ggml.add_bos_token", cases[i].key);
        Tokenizer *t = open_file(&file);
        check(t, "ab", TOKENIZER_BOS, cases[i].ids);
        check(t, "ab", 0, "2");
        assert_int_equal(tokenizer_bos(t), 3);
        tokenizer_free(t);
    }
}

static void types_of_tokens_say_what_text_becomes_them(void **state)
{
    File file = {0};
    start_bpe(&file, "gpt-2");
    Tokenizer *t = open_file(&file);
    assert_int_equal(tokenizer_vocab_size(t), N_BPE);
    check(t, "a<|begin|>", 0, "0 1"); /* characters that no token has are left out */
    check(t, "a<|begin|>", TOKENIZER_SPECIAL, "0 3");
    check(t, "<|end|>a", TOKENIZER_SPECIAL, "4 0"); /* said to be normal, but it ends a text */
    check(t, "<|end|>a", 0, "0");
    check(t, "a[PAD5]b", TOKENIZER_SPECIAL, "0 5 1");
    check(t, "a[PAD5]b", 0, "0 1");
    check(t, "a[7]b", 0, "0 8 1");
    check(t, "a[7]b", TOKENIZER_PLAIN, "0 1");
    tokenizer_free(t);
}

/* Hugging Face's library numbers added tokens anew that are not in the vocabulary: only the last ones may be missing there. */
static void a_file_for_others_has_added_tokens_where_they_are(void **state)
{
    (void)state;
    File file = {0};
    StrBuf made = {0};
    Tokenizer *t = NULL;
    start_bpe(&file, "gpt-2");
    StrBuf bytes = bytes_of(&file);
    assert_int_equal(gguf_tokenizer_file(bytes.text, bytes.length, &made, NULL), 0);
    assert_non_null(strstr(made.text, "\"<|begin|>\": 3"));
    assert_int_equal(tokenizer_read(made.text, made.length, &t, NULL), 0);
    check(t, "a<|begin|>", 0, "0 1");
    check(t, "a<|begin|>", TOKENIZER_SPECIAL, "0 3");
    check(t, "a[PAD5]b", TOKENIZER_SPECIAL, "0 5 1");
    tokenizer_free(t);
    strbuf_free(&made);
    strbuf_free(&bytes);
}

/* Gemma's: spaces are U+2581, no words, bytes for what is missing. */
static void a_byte_pair_encoding_may_be_spelled_as_sentencepiece(void **state)
{
    static const char *const merge[] = {"\xe2\x96\x81 a", "\n \n",
                                        "\xe2\x96\x81"
                                        "a \xe2\x96\x81"
                                        "a"};
    const char *token[8 + 256] = {"<bos>",
                                  "a",
                                  "\xe2\x96\x81",
                                  "\xe2\x96\x81"
                                  "a",
                                  "\xe2\x96\x81"
                                  "a\xe2\x96\x81"
                                  "a",
                                  "\n",
                                  "\n\n",
                                  "<eos>"};
    int32_t type[8 + 256] = {3, 1, 1, 1, 1, 1, 1, 3};
    char names[256][8];
    for (unsigned i = 0; i < 256; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", i);
        token[8 + i] = names[i];
        type[8 + i] = 6;
    }
    File file = {0};
    add_text(&file, "tokenizer.ggml.model", "gemma4");
    add_texts(&file, "tokenizer.ggml.tokens", token, 8 + 256);
    add_numbers(&file, "tokenizer.ggml.token_type", I32, type, 8 + 256);
    add_texts(&file, "tokenizer.ggml.merges", merge, 3);
    add_number(&file, "tokenizer.ggml.bos_token_id", 0);
    Tokenizer *t = open_file(&file);
    check(t, " a a\n\na\xc3\xa9", TOKENIZER_BOS, "0 4 6 1 203 177");
    static const int32_t ids[] = {4, 6, 203, 177};
    check_decode(t, ids, 4, 0, " a a\n\n\xc3\xa9", 8);
    tokenizer_free(t);
}

static void other_tokenizers_are_refused_by_name(void **state)
{
    static const char *const models[] = {"bert", "t5", "rwkv", "plamo2", "no_vocab", "whitespace"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        File file = {0};
        Tokenizer *t;
        cvn_err err = {0};
        add_text(&file, "tokenizer.ggml.model", models[i]);
        assert_int_equal(read_file(&file, &t, &err), CVN_EUNSUPPORTED);
        assert_non_null(strstr(err.message, models[i]));
    }
}

static void lists_of_another_form_are_refused(void **state)
{
    static const int32_t type[N_BPE] = {1, 1, 1, 3, 7};
    for (int i = 0; i < 3; i++) {
        File file = {0};
        Tokenizer *t;
        cvn_err err = {0};
        add_text(&file, "tokenizer.ggml.model", i == 2 ? "llama" : "gpt2");
        add_texts(&file, "tokenizer.ggml.tokens", BPE, N_BPE);
        if (i < 2)
            add_numbers(&file, "tokenizer.ggml.token_type", I32, type, i ? 3 : N_BPE);
        else
            add_numbers(&file, "tokenizer.ggml.scores", U32, type, N_BPE);
        assert_int_equal(read_file(&file, &t, &err), CVN_EFORMAT);
        assert_non_null(strstr(err.message, i < 2 ? "token_type" : "scores"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_cut_as_the_name_says),
        cmocka_unit_test(names_stand_for_one_rule),
        cmocka_unit_test(sentencepiece_is_read_without_scores_and_types),
        cmocka_unit_test(scores_may_be_integers),
        cmocka_unit_test(keys_say_what_stands_in_front),
        cmocka_unit_test(without_bytes_there_is_the_unknown_piece),
        cmocka_unit_test(one_unknown_token_counts),
        cmocka_unit_test(a_message_forges_no_marker_of_the_template),
        cmocka_unit_test(bos_is_put_in_front_as_the_name_or_the_key_says),
        cmocka_unit_test(types_of_tokens_say_what_text_becomes_them),
        cmocka_unit_test(a_file_for_others_has_added_tokens_where_they_are),
        cmocka_unit_test(a_byte_pair_encoding_may_be_spelled_as_sentencepiece),
        cmocka_unit_test(other_tokenizers_are_refused_by_name),
        cmocka_unit_test(lists_of_another_form_are_refused),
        cmocka_unit_test(random_strings_agree_for_each_vocabulary),
        cmocka_unit_test(expected_ids_agree_for_each_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
