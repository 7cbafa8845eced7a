/* What tests of training data share: a tokenizer, a scratch folder, files of text and of tokens, data opened and refused. */
#ifndef DATA_SUPPORT_H
#define DATA_SUPPORT_H

#include "base/file.h"
#include "scratch.h"
#include "train/data/data.h"
#include "train/data/data_impl.h"
#include "unit.h"

static Tokenizer *tokenizer;

static inline int set_up(void **state)
{
    cvn_err err = {0};
    return !make_scratch(state) &&
                   !tokenizer_open(CVN_TEST_DATA "/chat/tokenizer.json", &tokenizer, &err)
               ? 0
               : -1;
}

static inline int tear_down(void **state)
{
    tokenizer_free(tokenizer);
    return remove_scratch(state);
}

/* Writes a file in the test's folder; the path lives until the next call but three. */
static inline const char *put(const char *name, const void *bytes, size_t n)
{
    static char path[4][128];
    static int next;
    char *at = path[next++ % 4];
    cvn_err err = {0};
    snprintf(at, sizeof path[0], "%s/%s", scratch, name);
    must(file_write(at, bytes, n, &err), &err);
    return at;
}

static inline const char *put_text(const char *name, const char *text)
{
    return put(name, text, strlen(text));
}

static inline DataOptions options_for(const char *const *path, int64_t seq)
{
    static char cache[80];
    snprintf(cache, sizeof cache, "%s/cache/deep", scratch);
    return (DataOptions){.paths = path,
                         .n_paths = 1,
                         .tokenizer = tokenizer,
                         .vocab = 32000,
                         .seq = seq,
                         .seed = 7,
                         .cache = cache,
                         .threads = 2};
}

static inline TrainData *open_data(const DataOptions *options)
{
    cvn_err err = {0};
    TrainData *data;
    must(data_open(&data, options, &err), &err);
    return data;
}

/* Opening fails with that code, and the message has these pieces. */
static inline void refuse(const DataOptions *options, int code, const char *piece,
                          const char *other)
{
    cvn_err err = {0};
    TrainData *data;
    int got = data_open(&data, options, &err);
    if (got != code || !strstr(err.message, piece) || !strstr(err.message, other))
        fail_msg("code %d: %s", got, err.message);
    assert_null(data);
}

/* A shard of documents of these lengths; token t of document d is 100 d + t. */
static inline const char *put_documents(const char *name, const int *length, int n)
{
    cvn_err err = {0};
    TokenWriter writer;
    static char path[2][128];
    static int next;
    char *at = path[next++ % 2];
    snprintf(at, sizeof path[0], "%s/%s", scratch, name);
    assert_int_equal(token_writer_open(&writer, at, 32000, 0, &err), 0);
    for (int d = 0; d < n; d++) {
        int32_t ids[100];
        for (int t = 0; t < length[d]; t++)
            ids[t] = 100 * d + t;
        assert_int_equal(token_writer_add(&writer, ids, (size_t)length[d], NULL, true, &err), 0);
    }
    assert_int_equal(token_writer_commit(&writer, &err), 0);
    token_writer_free(&writer);
    return at;
}

/* All ids of the data in order, as text. */
static inline StrBuf text_of(const TrainData *data, unsigned flags)
{
    StrBuf text = {0};
    cvn_err err = {0};
    for (size_t f = 0; f < data->n_files; f++)
        for (int64_t i = 0; i < data->file[f].tokens.n_tokens; i++) {
            int32_t id = token_file_id(&data->file[f].tokens, i);
            assert_int_equal(tokenizer_decode(tokenizer, &id, 1, flags, &text, &err), 0);
        }
    return text;
}

#endif
