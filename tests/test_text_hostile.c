/*
 * Files and text that mean harm. A malformed tokenizer is refused in one sentence, or, where a change did
 * no harm, accepted and usable; it never crashes, hangs or is half accepted. Encoding is linear in the text
 * whatever the text is, and gives back every byte.
 */
#include "test_text.h"
#include "text/utf8.h"

#include <dirent.h>

#define DATA CVN_TEST_DATA "/text/"

/* Encodes and decodes a little, as a sanitizer's bait. */
static void use(const Tokenizer *t)
{
    static const char text[] =
        "The 12 foxes'  \n\xe2\x96\x81 <s>\xff\xe4\xb8\x96</s><|eot_id|> aaaaaaaaaaaaaaaaaa";
    static const unsigned flags[] = {0, TOKENIZER_SPECIAL | TOKENIZER_BOS | TOKENIZER_EOS,
                                     TOKENIZER_PLAIN};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        TokenIds ids = {0};
        StrBuf out = {0};
        cvn_err err = {0};
        if (tokenizer_encode(t, text, sizeof text - 1, flags[i], &ids, &err) == CVN_OK)
            assert_int_equal(tokenizer_decode(t, ids.id, ids.n, TOKENIZER_SPECIAL, &out, &err),
                             CVN_OK);
        else
            assert_true(err.message[0] != '\0' && ids.n == 0);
        token_ids_free(&ids);
        strbuf_free(&out);
    }
}

/* Reads an exact copy, so that reading past its end is seen. 0 when it was accepted. */
static int try_read(const char *bytes, size_t n)
{
    char *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n)
        memcpy(copy, bytes, n);
    cvn_err err = {0};
    Tokenizer *t = NULL;
    int rc = tokenizer_read(copy, n, &t, &err);
    free(copy);
    if (rc) {
        assert_null(t);
        assert_int_equal(err.code, rc);
        assert_true(err.message[0] != '\0' && !strchr(err.message, '\n'));
    } else {
        use(t);
    }
    tokenizer_free(t);
    return rc;
}

static const char *const files[] = {"spm.model",       "spm_plain.model",       "rank.model",
                                    "byte_level.json", "metaspace_legacy.json", "strings.json",
                                    "spm.gguf",        "byte_level.gguf"};

enum { N_FILES = sizeof files / sizeof *files };

static char *read_data(const char *name, size_t *n)
{
    char path[512];
    snprintf(path, sizeof path, "%s%s", DATA, name);
    return read_whole(path, n);
}

static void truncated_files_are_refused(void **state)
{
    for (size_t f = 0; f < N_FILES; f++) {
        size_t n;
        char *bytes = read_data(files[f], &n);
        for (size_t i = 0; i < 100; i++) {
            size_t cut = i < 50 ? i : n - 1 - (n - 51) * (i - 50) / 50;
            int rc = try_read(bytes, cut);
            /* A rank file has no end mark, and the end of a SentencePiece file is settings with defaults:
             * cut there they are smaller files of their kind. JSON is closed or it is not. */
            if ((strstr(files[f], ".json") && cut < n - 1) || strstr(files[f], ".gguf"))
                assert_true(rc < 0);
            if (cut < 50)
                assert_true(rc < 0);
        }
        free(bytes);
    }
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void changed_bytes_do_no_harm(void **state)
{
    uint64_t seed = 1;
    for (size_t f = 0; f < N_FILES; f++) {
        size_t n;
        char *bytes = read_data(files[f], &n);
        for (int i = 0; i < 120; i++) {
            size_t place = next_random(&seed) % n;
            char old = bytes[place];
            bytes[place] = (char)(i % 2 ? old ^ (1 << i / 2 % 8) : (char)next_random(&seed));
            (void)try_read(bytes, n);
            bytes[place] = old;
        }
        assert_int_equal(try_read(bytes, n), CVN_OK);
        free(bytes);
    }
}

static void deep_nesting_is_refused(void **state)
{
    static const char *const openings[] = {"{\"model\":", "{\"model\":{\"vocab\":{},\"merges\":[",
                                           "{\"a\":[[{\"b\":"};
    enum { DEEP = 1000000 };
    for (size_t k = 0; k < sizeof openings / sizeof *openings; k++) {
        for (int closed = 0; closed < 2; closed++) {
            StrBuf text = {0};
            strbuf_puts(&text, openings[k]);
            for (int i = 0; i < DEEP; i++)
                strbuf_putc(&text, '[');
            for (int i = 0; closed && i < DEEP; i++)
                strbuf_putc(&text, ']');
            assert_int_equal(try_read(text.text, text.length), CVN_EFORMAT);
            strbuf_free(&text);
        }
    }
}

/* None of them is a tokenizer. */
static void json_test_suite_is_refused(void **state)
{
    const char *folder = CVN_SHARED_DATA "/formats/JSONTestSuite/test_parsing";
    need_file(folder);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    size_t count = 0;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name), n;
        if (length < 5 || strcmp(entry->d_name + length - 5, ".json") != 0)
            continue;
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        char *bytes = read_whole(path, &n);
        assert_true(try_read(bytes, n) < 0);
        /* The same text where a tokenizer.json has its vocabulary. */
        StrBuf wrapped = {0};
        strbuf_puts(&wrapped, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":");
        strbuf_add(&wrapped, bytes, n);
        strbuf_puts(&wrapped, "}}");
        (void)try_read(wrapped.text, wrapped.length);
        strbuf_free(&wrapped);
        free(bytes);
        count++;
    }
    closedir(dir);
    assert_true(count > 300);
}

/* ---- tokenizer.json, section by section ---- */

#define VOCAB "{\"a\":0,\"b\":1,\"ab\":2,\"<s>\":3}"
#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[\"a b\"]}"

/* Makes eight bytes of one: twice is borne, three times would be 512. */
#define LONGER "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaa\"}"

static void what_json_asks_for_is_refused_by_name(void **state)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"{" MODEL "}", NULL},
        {"{}", "model"},
        {"{\"model\":{\"type\":\"Unigram\"}}", "Unigram"},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", "WordPiece"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "vocabulary"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB "}}", "merges"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "'b'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "'a'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":2147483648},\"merges\":[]}}", "'a'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}}", "'a'"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", "JSON"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\":0},\"merges\":[]}}", "''"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[\"a c\"]}}", "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[\"b a\"]}}", "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[\"a b\",\"ab\"]}}",
         "merge 1"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[\" ab\"]}}", "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[[\"a\"]]}}", "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[[\"a\",\"b\",\"a\"]]}}",
         "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[7]}}", "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[],\"dropout\":0.1}}",
         "dropout"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB
         ",\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}",
         "end_of_word_suffix"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[],\"unk_token\":\"?\"}}",
         "unk_token"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":" VOCAB ",\"merges\":[],\"byte_fallback\":1}}",
         "byte_fallback"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"NFKC\"}}", NULL},
        {"{" MODEL ",\"normalizer\":{\"type\":\"NFX\"}}", "NFX"},
        {"{" MODEL
         ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\"}]}}",
         "Precompiled"},
        {"{" MODEL
         ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":"
         "\"NFKD\"}]}}",
         "64 times"},
        {"{" MODEL
         ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"}}",
         "Regex"},
        {"{" MODEL
         ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}}",
         "String"},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" LONGER "," LONGER
         "]}}",
         NULL},
        {"{" MODEL ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" LONGER "," LONGER
         "," LONGER "]}}",
         "64 times"},
        {"{" MODEL ",\"normalizer\":[]}", "normalizer"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}}", "BertPreTokenizer"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},"
         "\"behavior\":\"Isolated\"}}",
         "pattern"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
         "\"behavior\":\"Removed\"}}",
         NULL},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
         "\"behavior\":\"Gone\"}}",
         "Gone"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},"
         "\"behavior\":\"Removed\",\"invert\":1}}",
         "invert"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"}}}",
         "behavior"},
        {"{" MODEL ",\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}", "decoder"},
        {"{" MODEL ",\"decoder\":{\"type\":\"ByteLevel\"}}", "pre-tokenizer"},
        {"{" MODEL ",\"decoder\":{\"type\":\"CTC\"}}", "CTC"},
        {"{" MODEL ",\"decoder\":{\"type\":\"Strip\",\"content\":\"x\",\"start\":1,\"stop\":0}}",
         "Strip"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"BertProcessing\"}}", "BertProcessing"},
        {"{" MODEL ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{"
         "\"SpecialToken\":{\"id\":\"x\"}},"
         "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{}}}",
         "'x'"},
        {"{" MODEL ",\"added_tokens\":[{\"id\":0,\"content\":\"z\"}]}", "'z'"},
        {"{" MODEL ",\"added_tokens\":[{\"id\":9,\"content\":\"z\",\"single_word\":7}]}",
         "single_word"},
        {"{" MODEL ",\"added_tokens\":[{\"content\":\"z\"}]}", "'z'"},
        {"{" MODEL
         ",\"added_tokens\":[{\"id\":9,\"content\":\"z\"},{\"id\":10,\"content\":\"z\"}]}",
         "'z'"},
        {"{" MODEL ",\"added_tokens\":[7]}", "id"},
        {"{" MODEL "} x", "JSON"},
        {"", "empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Tokenizer *t = NULL;
        cvn_err err = {0};
        int rc = tokenizer_read(cases[i].json, strlen(cases[i].json), &t, &err);
        if ((rc == CVN_OK) != (cases[i].says == NULL))
            fail_msg("%s: %s", cases[i].json, err.message);
        if (rc && !strstr(err.message, cases[i].says))
            fail_msg("%s says: %s", cases[i].json, err.message);
        tokenizer_free(t);
    }
}

static void a_hundred_thousand_tokens_that_begin_alike_do_not_slow_encoding(void **state)
{
    enum { TOKENS = 100000, PAIRS = 100000 };
    StrBuf json = {0}, text = {0};
    strbuf_puts(&json, "{" MODEL ",\"added_tokens\":[");
    for (int i = 0; i < TOKENS; i++)
        strbuf_printf(&json, "%s{\"id\":%d,\"content\":\"a%.*d\"}", i ? "," : "", 10 + i, 5 + i % 3,
                      i);
    strbuf_puts(&json, "]}");
    Tokenizer *t;
    TokenIds ids = {0};
    cvn_err err = {0};
    must(tokenizer_read(json.text, json.length, &t, &err), &err);
    for (int i = 0; i < PAIRS; i++)
        strbuf_puts(&text, "ab");
    strbuf_puts(&text, "a0000002a000001a00000"); /* the longest wins, of 12, 11 and 10 */
    assert_int_equal(tokenizer_encode(t, text.text, text.length, 0, &ids, &err), CVN_OK);
    assert_true(ids.n > PAIRS);
    assert_int_equal(ids.id[ids.n - 3], 12);
    assert_int_equal(ids.id[ids.n - 2], 11);
    assert_int_equal(ids.id[ids.n - 1], 10);
    token_ids_free(&ids);
    tokenizer_free(t);
    strbuf_free(&json);
    strbuf_free(&text);
}

/* A merge that would make a special token is no way to forge one. */
static void merges_cannot_make_a_special_token(void **state)
{
    static const char json[] =
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"<\":0,\"s>\":1,\"<s>\":2,\"s\":4,\">\":5},"
        "\"merges\":[\"s >\",\"< s>\"],\"ignore_merges\":true},"
        "\"added_tokens\":[{\"id\":2,\"content\":\"<s>\",\"special\":true}]}";
    Tokenizer *t = NULL;
    cvn_err err = {0};
    TokenIds ids = {0};
    assert_int_equal(tokenizer_read(json, sizeof json - 1, &t, &err), CVN_OK);
    assert_int_equal(tokenizer_encode(t, "<s>", 3, 0, &ids, &err), CVN_OK);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.id[0], 0);
    assert_int_equal(ids.id[1], 1);
    ids.n = 0;
    assert_int_equal(tokenizer_encode(t, "<s>", 3, TOKENIZER_SPECIAL, &ids, &err), CVN_OK);
    assert_int_equal(ids.n, 1);
    assert_int_equal(ids.id[0], 2);
    token_ids_free(&ids);
    tokenizer_free(t);
}

/* ---- rank files ---- */

static void malformed_rank_files_are_refused(void **state)
{
    static const struct {
        const char *find, *replace, *says;
    } cases[] = {
        {"AQ== 1\n", "AQ== 1x\n", "line 2"}, {"AQ== 1\n", "AQ==1\n", "line 2"},
        {"AQ== 1\n", "A*== 1\n", "line 2"},  {"AQ== 1\n", "AQ= 1\n", "line 2"},
        {"AQ== 1\n", "AR== 1\n", "line 2"},  {"AQ== 1\n", "AQ== 2\n", "line"},
        {"AQ== 1\n", "AA== 1\n", "line 2"},  {"AQ== 1\n", "AQ== 99999999999999999999\n", "line 2"},
        {"AQ== 1\n", "AQAB 1\n", "0x01"},    {"AQ== 1\n", "\n", "line 2"},
    };
    StrBuf good = {0};
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (unsigned i = 0; i < 256; i++)
        strbuf_printf(&good, "%c%c== %u\n", digits[i >> 2], digits[(i & 3) << 4], i);
    assert_int_equal(try_read(good.text, good.length), CVN_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        StrBuf bad = {0};
        const char *place = strstr(good.text, cases[i].find);
        strbuf_add(&bad, good.text, (size_t)(place - good.text));
        strbuf_puts(&bad, cases[i].replace);
        strbuf_puts(&bad, place + strlen(cases[i].find));
        Tokenizer *t = NULL;
        cvn_err err = {0};
        assert_int_equal(tokenizer_read(bad.text, bad.length, &t, &err), CVN_EFORMAT);
        if (!strstr(err.message, cases[i].says))
            fail_msg("case %zu says: %s", i, err.message);
        strbuf_free(&bad);
    }
    strbuf_free(&good);
}

/* ---- SentencePiece ---- */

static void put_piece(StrBuf *out, const char *text, float score, int type)
{
    size_t n = strlen(text);
    strbuf_printf(out, "\n%c\n%c%s\x15", (char)(n + 9), (char)n, text);
    strbuf_add(out, &score, 4);
    strbuf_printf(out, "\x18%c", (char)type);
}

static void malformed_sentencepiece_is_refused(void **state)
{
    static const struct {
        const char *text; /* of a third piece */
        float score;
        int type;
        const char *tail; /* what follows the pieces */
        const char *says; /* NULL: accepted */
    } cases[] = {
        {"b", 0, 1, "\x12\x02\x18\x02", NULL},
        {"b", 0, 1, "\x12\x02\x18\x01", "unigram"},
        {"b", 0, 1, "", "unigram"},
        {"b", 0, 1, "\x12\x02\x18\x04", "char"},
        {"a", 0, 1, "\x12\x02\x18\x02", "earlier piece"},
        {"b", 0, 2, "\x12\x02\x18\x02", "of type unknown"},
        {"b", 0, 5, "\x12\x02\x18\x02", "type 5"},
        {"b", 0, 7, "\x12\x02\x18\x02", "type 7"},
        {"b", 0, 6, "\x12\x02\x18\x02", "type byte"},
        {"b", (float)(1e300 * 1e300), 1, "\x12\x02\x18\x02", "not a number"},
        {"\xff", 0, 1, "\x12\x02\x18\x02", "UTF-8"},
        {"", 0, 1, "\x12\x02\x18\x02", "0 bytes"},
        {"b", 0, 1, "\x12\x05\x18\x02\x98\x02\x01", "<0x00>"},
        {"b", 0, 1, "\x12\x02\x18\x02\x1a\x03\x12\x01x", "table"},
        {"b", 0, 1, "\x12\x7f\x18\x02", "malformed"},
        {"b", 0, 1, "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "malformed"},
        {"b", 0, 1, "\x10\x02", "wire type"},
        {"b", 0, 1, "\x13", "malformed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        StrBuf file = {0};
        put_piece(&file, "<unk>", 0, 2);
        put_piece(&file, "a", 0, 1);
        put_piece(&file, cases[i].text, cases[i].score, cases[i].type);
        strbuf_puts(&file, cases[i].tail);
        Tokenizer *t = NULL;
        cvn_err err = {0};
        int rc = tokenizer_read(file.text, file.length, &t, &err);
        if ((rc == CVN_OK) != (cases[i].says == NULL) ||
            (rc && !strstr(err.message, cases[i].says)))
            fail_msg("case %zu says: %s", i, err.message);
        tokenizer_free(t);
        strbuf_free(&file);
    }
}

/* ---- text ---- */

/* A quadratic algorithm would take hours for these. */
static void gguf_without_a_tokenizer_that_is_known_is_refused_by_name(void **state)
{
    static const char none[24] = "GGUF\3"; /* no tensors, no keys */
    cvn_err err = {0};
    Tokenizer *t;
    assert_int_equal(tokenizer_read(none, sizeof none, &t, &err), CVN_EIO);
    assert_null(t);
    size_t n;
    char *bytes = read_data("byte_level.gguf", &n);
    char *pre = memmem(bytes, n, "llama-bpe", 9);
    assert_non_null(pre);
    memcpy(pre, "other-bpe", 9);
    err = (cvn_err){0};
    assert_int_equal(tokenizer_read(bytes, n, &t, &err), CVN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "other-bpe"));
    free(bytes);
}

static void very_long_runs_are_encoded_in_linear_time(void **state)
{
    static const char *const units[] = {"a",        " ",  "=",    "\n",  "ab",
                                        "\xc3\xa9", "a ", "\xff", " \n", "'"};
    enum { BYTES = 400000 };
    for (size_t f = 0; f < N_FILES; f++) {
        char path[512];
        snprintf(path, sizeof path, "%s%s", DATA, files[f]);
        Tokenizer *t = open_tokenizer(path);
        for (size_t k = 0; k < sizeof units / sizeof *units; k++) {
            StrBuf text = {0}, back = {0};
            TokenIds ids = {0};
            cvn_err err = {0};
            while (text.length < BYTES)
                strbuf_puts(&text, units[k]);
            assert_int_equal(
                tokenizer_encode(t, text.text, text.length, TOKENIZER_SPECIAL, &ids, &err), CVN_OK);
            assert_int_equal(tokenizer_decode(t, ids.id, ids.n, 0, &back, &err), CVN_OK);
            if (strcmp(files[f], "spm_plain.model") != 0) {
                assert_int_equal(back.length, text.length);
                assert_memory_equal(back.text, text.text, text.length);
            }
            strbuf_free(&text);
            strbuf_free(&back);
            token_ids_free(&ids);
        }
        tokenizer_free(t);
    }
}

/* Random bytes come back whole; a stream of a valid text is cut between characters only. */
static void every_byte_comes_back(void **state)
{
    static const char valid[] = "a\xc3\xa9\xe4\xb8\x96\xf0\x9f\x98\x80 "
                                "\xe2\x80\x8d\xf4\x8f\xbf\xbf\xed\x9f\xbf\xf0\x90\x80\x80z";
    static const char *const whole[] = {"spm.model", "spm_bare.model", "rank.model",
                                        "byte_level.json", "strings.json"};
    uint64_t seed = 5;
    for (size_t f = 0; f < sizeof whole / sizeof *whole; f++) {
        char path[512], text[64];
        snprintf(path, sizeof path, "%s%s", DATA, whole[f]);
        Tokenizer *t = open_tokenizer(path);
        for (int i = 0; i < 300; i++) {
            size_t n = next_random(&seed) % sizeof text;
            for (size_t k = 0; k < n; k++)
                text[k] = (char)next_random(&seed);
            if (memmem(text, n, "\xe2\x96\x81", 3))
                continue;
            TokenIds ids = {0};
            assert_int_equal(tokenizer_encode(t, text, n, 0, &ids, NULL), CVN_OK);
            check_decode(t, ids.id, ids.n, 0, text, n);
            token_ids_free(&ids);
        }
        TokenIds ids = {0};
        StrBuf out = {0};
        assert_int_equal(tokenizer_encode(t, valid, sizeof valid - 1, 0, &ids, NULL), CVN_OK);
        Decoder decoder;
        decoder_init(&decoder, t, 0);
        for (size_t i = 0; i < ids.n; i++) {
            assert_int_equal(decoder_push(&decoder, ids.id[i], &out, NULL), CVN_OK);
            assert_true(utf8_valid(out.length ? out.text : "", out.length));
        }
        assert_string_equal(out.text, valid);
        assert_int_equal(decoder.n_held, 0);
        token_ids_free(&ids);
        strbuf_free(&out);
        tokenizer_free(t);
    }
}

static void ids_outside_the_vocabulary_are_refused(void **state)
{
    Tokenizer *t = open_tokenizer(DATA "rank.model");
    const int32_t n = tokenizer_vocab_size(t), ids[] = {-1, n, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < 4; i++) {
        StrBuf out = {0};
        cvn_err err = {0};
        assert_int_equal(tokenizer_decode(t, &ids[i], 1, 0, &out, &err), CVN_EINVAL);
        assert_non_null(strstr(err.message, "vocabulary"));
        assert_null(tokenizer_piece(t, ids[i], NULL));
        strbuf_free(&out);
    }
    tokenizer_free(t);
}

static void what_is_no_tokenizer_file_is_refused(void **state)
{
    static const char *const paths[] = {"/nowhere/tokenizer.json", "/dev/null", CVN_TEST_DATA};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        Tokenizer *t = NULL;
        cvn_err err = {0};
        assert_true(tokenizer_open(paths[i], &t, &err) < 0);
        assert_null(t);
        assert_non_null(strstr(err.message, paths[i]));
    }
}

/* A tekken.json of single bytes and "he", with changes; to be freed. */
static char *tekken(const char *config, const char *special, const char *token)
{
    StrBuf text = {0};
    strbuf_printf(&text, "{\"config\":{%s},\"special_tokens\":%s,\"vocab\":[", config, special);
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (unsigned b = 0; b < 256; b++)
        strbuf_printf(&text, "{\"rank\":%u,\"token_bytes\":\"%c%c==\"},", b, digits[b >> 2],
                      digits[(b & 3) << 4]);
    strbuf_printf(&text, "%s]}", token);
    return text.text;
}

static void a_tekken_file_is_checked(void **state)
{
#define PATTERN "\"pattern\":\"[a-z]+|.\","
#define COUNTS(ids, special)                                                                       \
    "\"default_vocab_size\":" ids ",\"default_num_special_tokens\":" special
#define HE "{\"rank\":256,\"token_bytes\":\"aGU=\"}"
#define UNK "[{\"rank\":0,\"token_str\":\"<unk>\"}]"
    static const struct {
        const char *config, *special, *token, *says;
    } cases[] = {
        {PATTERN COUNTS("260", "3"), UNK, HE, NULL},
        {PATTERN COUNTS("260", "3"), "null", HE, NULL},
        {PATTERN COUNTS("261", "3"), UNK, HE, "default_vocab_size"},
        {PATTERN COUNTS("2147483648", "3"), UNK, HE, "default_vocab_size"},
        {PATTERN COUNTS("260", "-1"), UNK, HE, "default_vocab_size"},
        {PATTERN COUNTS("260", "300"), UNK, HE, "default_vocab_size"},
        {PATTERN COUNTS("260", "\"3\""), UNK, HE, "default_vocab_size"},
        {COUNTS("260", "3"), UNK, HE, "pattern"},
        {"\"pattern\":\"(\"," COUNTS("260", "3"), UNK, HE, "pattern"},
        {PATTERN COUNTS("260", "3"), "7", HE, "special_tokens"},
        {PATTERN COUNTS("260", "3"), "[7]", HE, "special token 0"},
        {PATTERN COUNTS("260", "3"), "[{\"rank\":3,\"token_str\":\"a\"}]", HE, "special token 0"},
        {PATTERN COUNTS("260", "3"), "[{\"rank\":0,\"token_str\":\"a\\u0000\"}]", HE,
         "special token 0"},
        {PATTERN COUNTS("260", "3"),
         "[{\"rank\":0,\"token_str\":\"a\"},{\"rank\":0,\"token_str\":\"b\"}]", HE,
         "special token 1"},
        {PATTERN COUNTS("260", "3"),
         "[{\"rank\":0,\"token_str\":\"a\"},{\"rank\":1,\"token_str\":\"a\"}]", HE,
         "special token 1"},
        {PATTERN COUNTS("260", "3"), UNK, "{\"rank\":257,\"token_bytes\":\"aGU=\"}", "token 256"},
        {PATTERN COUNTS("260", "3"), UNK, "{\"rank\":256,\"token_bytes\":\"AA==\"}", "token 256"},
        {PATTERN COUNTS("260", "3"), UNK, "{\"rank\":256,\"token_bytes\":\"?\"}", "token 256"},
        {PATTERN COUNTS("260", "3"), UNK, "7", "token 256"},
        {PATTERN COUNTS("200", "3"), UNK, HE, "byte 0xC5"},
        {PATTERN COUNTS("260", "3"), UNK, "{", "JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Tokenizer *t = NULL;
        cvn_err err = {0};
        char *json = tekken(cases[i].config, cases[i].special, cases[i].token);
        int rc = tokenizer_read(json, strlen(json), &t, &err);
        if ((rc == CVN_OK) != (cases[i].says == NULL) ||
            (rc && !strstr(err.message, cases[i].says)))
            fail_msg("case %zu says: %s", i, err.message);
        if (t)
            assert_string_equal(tokenizer_kind(t), "tekken");
        tokenizer_free(t);
        free(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tekken_file_is_checked),
        cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(changed_bytes_do_no_harm),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(json_test_suite_is_refused),
        cmocka_unit_test(what_json_asks_for_is_refused_by_name),
        cmocka_unit_test(a_hundred_thousand_tokens_that_begin_alike_do_not_slow_encoding),
        cmocka_unit_test(merges_cannot_make_a_special_token),
        cmocka_unit_test(malformed_rank_files_are_refused),
        cmocka_unit_test(malformed_sentencepiece_is_refused),
        cmocka_unit_test(gguf_without_a_tokenizer_that_is_known_is_refused_by_name),
        cmocka_unit_test(very_long_runs_are_encoded_in_linear_time),
        cmocka_unit_test(every_byte_comes_back),
        cmocka_unit_test(ids_outside_the_vocabulary_are_refused),
        cmocka_unit_test(what_is_no_tokenizer_file_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
