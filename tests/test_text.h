/* What the tests of text share: opening tokenizers, comparing ids, reading JSON lines. */
#ifndef TEST_TEXT_H
#define TEST_TEXT_H

#include "text/tokenizer.h"
#include "unit.h"

#include <jansson.h>
#include <unistd.h>

/* Skips the running test when a file of the shared test data is not there. */
static inline void need_file(const char *path)
{
    if (access(path, R_OK) == 0)
        return;
    print_message("skipped: %s is not there\n", path);
    skip();
}

static inline Tokenizer *open_tokenizer(const char *path)
{
    cvn_err err = {0};
    Tokenizer *tokenizer = NULL;
    must(tokenizer_open(path, &tokenizer, &err), &err);
    return tokenizer;
}

static inline void print_ids(const char *label, const int32_t *id, size_t n)
{
    print_message("%s", label);
    for (size_t i = 0; i < n && i < 60; i++)
        print_message(" %d", id[i]);
    print_message("\n");
}

/* Encodes and compares with the ids in a JSON array. */
static inline void check_ids(const Tokenizer *t, const char *text, size_t n, unsigned flags,
                             const json_t *expected)
{
    cvn_err err = {0};
    TokenIds ids = {0};
    must(tokenizer_encode(t, text, n, flags, &ids, &err), &err);
    bool same = ids.n == json_array_size(expected);
    for (size_t i = 0; same && i < ids.n; i++)
        same = ids.id[i] == json_integer_value(json_array_get(expected, i));
    if (!same) {
        print_message("text: %.*s\n", (int)(n < 300 ? n : 300), text);
        print_ids("got:     ", ids.id, ids.n);
        char *dump = json_dumps(expected, JSON_COMPACT);
        print_message("expected: %.400s\n", dump);
        free(dump);
        fail_msg("ids differ");
    }
    token_ids_free(&ids);
}

/* Decodes, at once and id by id, and compares with the text expected. Each step of the stream must
 * end between characters when the whole is UTF-8, which is checked by the caller's choice of text. */
static inline void check_decode(const Tokenizer *t, const int32_t *id, size_t n_ids, unsigned flags,
                                const char *text, size_t n)
{
    cvn_err err = {0};
    StrBuf whole = {0}, stream = {0};
    assert_int_equal(tokenizer_decode(t, id, n_ids, flags, &whole, &err), CVN_OK);
    Decoder decoder;
    decoder_init(&decoder, t, flags);
    for (size_t i = 0; i < n_ids; i++)
        assert_int_equal(decoder_push(&decoder, id[i], &stream, &err), CVN_OK);
    decoder_flush(&decoder, &stream);
    assert_int_equal(whole.length, stream.length);
    if (n)
        assert_memory_equal(whole.text, stream.text, n);
    if (whole.length != n || (n && memcmp(whole.text, text, n) != 0))
        fail_msg("decoded '%.*s', expected '%.*s'", (int)whole.length,
                 whole.length ? whole.text : "", (int)n, text);
    strbuf_free(&whole);
    strbuf_free(&stream);
}

static inline TokenIds json_ids(const json_t *array)
{
    TokenIds ids = {0};
    for (size_t i = 0; i < json_array_size(array); i++)
        token_ids_add(&ids, (int32_t)json_integer_value(json_array_get(array, i)));
    return ids;
}

/* Calls `check` for each line of a file of JSON values. */
static inline size_t each_line(const char *path, void (*check)(const json_t *line, void *arg),
                               void *arg)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t size = 0, n = 0;
    while (getline(&line, &size, file) > 0) {
        json_error_t error;
        json_t *value = json_loads(line, JSON_ALLOW_NUL | JSON_DECODE_ANY, &error);
        if (!value)
            fail_msg("%s: line %zu: %s", path, n + 1, error.text);
        check(value, arg);
        json_decref(value);
        n++;
    }
    free(line);
    fclose(file);
    return n;
}

/* The whole file; *n its length. To be freed. */
static inline char *read_whole(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    rewind(file);
    char *bytes = malloc((size_t)size + 1);
    assert_non_null(bytes);
    *n = fread(bytes, 1, (size_t)size, file);
    assert_int_equal(*n, size);
    bytes[*n] = '\0';
    fclose(file);
    return bytes;
}

#endif
