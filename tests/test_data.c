/* Training data: from files to rows. */
#include "train/data.h"

#include "base/file.h"
#include "train/data_impl.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static Tokenizer *tokenizer;

static int set_up(void **state)
{
    (void)state;
    cvn_err err = {0};
    snprintf(folder, sizeof folder, "/tmp/caravan-data-XXXXXX");
    return mkdtemp(folder) &&
                   !tokenizer_open(CVN_TEST_DATA "/chat/tokenizer.json", &tokenizer, &err)
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char line[128];
    tokenizer_free(tokenizer);
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    return system(line);
}

/* Writes a file in the test's folder; the path lives until the next call but three. */
static const char *put(const char *name, const void *bytes, size_t n)
{
    static char path[4][128];
    static int next;
    char *at = path[next++ % 4];
    cvn_err err = {0};
    snprintf(at, sizeof path[0], "%s/%s", folder, name);
    if (file_write(at, bytes, n, &err))
        fail_msg("%s", err.message);
    return at;
}

static const char *put_text(const char *name, const char *text)
{
    return put(name, text, strlen(text));
}

static DataOptions options_for(const char *const *path, int64_t seq)
{
    static char cache[80];
    snprintf(cache, sizeof cache, "%s/cache/deep", folder);
    return (DataOptions){.paths = path,
                         .n_paths = 1,
                         .tokenizer = tokenizer,
                         .vocab = 32000,
                         .seq = seq,
                         .seed = 7,
                         .cache = cache,
                         .threads = 2};
}

static TrainData *open_data(const DataOptions *options)
{
    cvn_err err = {0};
    TrainData *data;
    if (data_open(&data, options, &err))
        fail_msg("%s", err.message);
    return data;
}

/* Opening fails with that code, and the message has these pieces. */
static void refuse(const DataOptions *options, int code, const char *piece, const char *other)
{
    cvn_err err = {0};
    TrainData *data;
    int got = data_open(&data, options, &err);
    if (got != code || !strstr(err.message, piece) || !strstr(err.message, other))
        fail_msg("code %d: %s", got, err.message);
    assert_null(data);
}

/* A shard of documents of these lengths; token t of document d is 100 d + t. */
static const char *put_documents(const char *name, const int *length, int n)
{
    cvn_err err = {0};
    TokenWriter writer;
    static char path[2][128];
    static int next;
    char *at = path[next++ % 2];
    snprintf(at, sizeof path[0], "%s/%s", folder, name);
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

/* ---- rows ---- */

enum { PAD = -7, NONE = -1 };

/* The rows of an epoch in the order of the data: row k is the one whose first token is k-th smallest. */
static void expect_rows(DataPacking packing, const int32_t *tokens, int64_t n)
{
    static const int length[] = {8, 3, 6};
    const char *path = put_documents("rows.bin", length, 3);
    DataOptions options = options_for(&path, 6);
    options.packing = packing;
    TrainData *data = open_data(&options);
    cvn_err err = {0};
    assert_int_equal(data_sequences(data, DATA_TRAIN), n);
    int32_t *got = calloc((size_t)n * 18, sizeof *got), *targets = got + n * 6,
            *starts = targets + n * 6;
    assert_int_equal(data_fill(data, DATA_TRAIN, 0, n, got, targets, starts, &err), 0);
    for (int64_t r = 0; r < n; r++) {
        int64_t row = -1;
        for (int64_t k = 0; k < n; k++)
            if (got[k * 6] == tokens[r * 6])
                row = k;
        assert_in_range(row, 0, n - 1);
        for (int64_t s = 0; s < 6; s++) {
            int32_t id = got[row * 6 + s], expected = tokens[r * 6 + s];
            int32_t target = targets[row * 6 + s], start = starts[row * 6 + s];
            assert_int_equal(id, expected == PAD ? tokenizer_eos(tokenizer) : expected);
            bool last = expected == PAD || id % 100 + 1 == length[id / 100];
            assert_int_equal(target, last ? NONE : id + 1);
            bool first = s == 0 || expected == PAD || id % 100 == 0;
            if (first && expected != PAD)
                assert_int_equal(start, s);
            else
                assert_true(start <= s && (expected == PAD) == (tokens[r * 6 + start] == PAD));
            if (!first)
                assert_int_equal(start, starts[row * 6 + s - 1]);
        }
    }
    free(got);
    data_free(data);
}

static void rows_are_cut_as_the_header_draws_them(void **state)
{
    (void)state;
    const int32_t stream[] = {0, 1, 2, 3, 4, 5, 6, 7, 100, 101, 102, 200};
    const int32_t whole[] = {0,   1,   2,   3,   4,   5,   6,   7,   100,
                             101, 102, PAD, 200, 201, 202, 203, 204, 205};
    const int32_t one[] = {0,   1,   2,   3,   4,   5,   6,   7,   PAD, PAD, PAD, PAD,
                           100, 101, 102, PAD, PAD, PAD, 200, 201, 202, 203, 204, 205};
    expect_rows(DATA_PACK_STREAM, stream, 2);
    expect_rows(DATA_PACK_WHOLE, whole, 3);
    expect_rows(DATA_PACK_ONE, one, 4);
}

static void every_epoch_has_every_row_once_in_another_order(void **state)
{
    (void)state;
    int length[60];
    for (int d = 0; d < 60; d++)
        length[d] = 10;
    const char *path = put_documents("epochs.bin", length, 60);
    DataOptions options = options_for(&path, 5);
    TrainData *data = open_data(&options);
    cvn_err err = {0};
    int64_t n = data_sequences(data, DATA_TRAIN);
    assert_int_equal(n, 120);
    int32_t tokens[5], targets[5], first[2][120];
    int moved = 0;
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        bool seen[6000] = {0};
        for (int64_t i = 0; i < n; i++) {
            assert_int_equal(
                data_fill(data, DATA_TRAIN, epoch * n + i, 1, tokens, targets, NULL, &err), 0);
            assert_false(seen[tokens[0]]);
            seen[tokens[0]] = true;
            first[epoch][i] = tokens[0];
        }
    }
    for (int i = 0; i < 120; i++)
        moved += first[0][i] != first[1][i];
    assert_true(moved > 100);
    data_free(data);
}

static void a_batch_holds_what_its_rows_hold_one_by_one(void **state)
{
    (void)state;
    int length[40];
    for (int d = 0; d < 40; d++)
        length[d] = 3 + d * 7 % 50;
    const char *path = put_documents("batch.bin", length, 40);
    DataOptions options = options_for(&path, 16);
    cvn_err err = {0};
    for (int packing = DATA_PACK_STREAM; packing <= DATA_PACK_ONE; packing++) {
        options.packing = (DataPacking)packing;
        TrainData *data = open_data(&options), *again = open_data(&options);
        int32_t all[3][50 * 16], row[3][16];
        assert_int_equal(data_key(data), data_key(again));
        assert_int_equal(data_fill(data, DATA_TRAIN, 30, 50, all[0], all[1], all[2], &err), 0);
        for (int64_t i = 0; i < 50; i++) {
            assert_int_equal(data_fill(again, DATA_TRAIN, 30 + i, 1, row[0], row[1], row[2], &err),
                             0);
            for (int k = 0; k < 3; k++)
                assert_memory_equal(row[k], all[k] + i * 16, sizeof row[k]);
        }
        data_free(data);
        data_free(again);
    }
}

static void permutations_are_permutations_for_all_sizes(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 100, 1000, 4097};
    RngKey key = rng_key(3, "test");
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        bool seen[5000] = {0};
        for (int64_t i = 0; i < sizes[k]; i++) {
            int64_t place = data_permute(key, 5, i, sizes[k]);
            assert_in_range(place, 0, sizes[k] - 1);
            assert_false(seen[place]);
            seen[place] = true;
        }
    }
    int64_t large = data_permute(key, 0, 12345, (int64_t)1 << 61);
    assert_true(large >= 0 && large < (int64_t)1 << 61);
}

static void an_order_is_no_other_seeds_or_epochs(void **state)
{
    (void)state;
    RngKey a = rng_key(1, "order"), b = rng_key(2, "order");
    int same_seed = 0, same_epoch = 0, fixed = 0;
    for (int64_t i = 0; i < 1000; i++) {
        same_seed += data_permute(a, 0, i, 1000) == data_permute(b, 0, i, 1000);
        same_epoch += data_permute(a, 0, i, 1000) == data_permute(a, 1, i, 1000);
        fixed += data_permute(a, 0, i, 1000) == i;
    }
    assert_true(same_seed < 10 && same_epoch < 10 && fixed < 10);
}

static void validation_takes_its_part_and_shares_no_document(void **state)
{
    (void)state;
    int length[200];
    for (int d = 0; d < 200; d++)
        length[d] = 20;
    const char *path = put_documents("split.bin", length, 200);
    DataOptions options = options_for(&path, 10);
    options.validation = 0.2;
    TrainData *data = open_data(&options);
    cvn_err err = {0};
    int64_t n[2] = {data_sequences(data, DATA_TRAIN), data_sequences(data, DATA_VALIDATION)};
    assert_int_equal(n[0] + n[1], 400);
    assert_in_range(n[1], 50, 110);
    int split_of[200] = {0};
    for (int split = 0; split < 2; split++)
        for (int64_t i = 0; i < n[split]; i++) {
            int32_t tokens[10], targets[10];
            assert_int_equal(data_fill(data, (DataSplit)split, i, 1, tokens, targets, NULL, &err),
                             0);
            for (int s = 0; s < 10; s++)
                split_of[tokens[s] / 100] |= 1 << split;
        }
    for (int d = 0; d < 200; d++)
        assert_true(split_of[d] == 1 || split_of[d] == 2);
    data_free(data);

    static const int one[] = {100};
    path = put_documents("one.bin", one, 1);
    data = open_data(&options);
    assert_int_equal(data_sequences(data, DATA_TRAIN), 8);
    assert_int_equal(data_sequences(data, DATA_VALIDATION), 2);
    data_free(data);
    options.seq = 100;
    refuse(&options, CVN_EINVAL, "validation", "no validation");
}

/* ---- text ---- */

/* All ids of the data in order, as text. */
static StrBuf text_of(const TrainData *data, unsigned flags)
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

static void expect_text(const DataOptions *options, int64_t documents, const char *expected)
{
    TrainData *data = open_data(options);
    StrBuf text = text_of(data, TOKENIZER_SPECIAL);
    assert_string_equal(text.text, expected);
    assert_int_equal(data_documents(data), documents);
    strbuf_free(&text);
    data_free(data);
}

#define BEGIN "<|begin_of_text|>"
#define END "<|end_of_text|>"

static void documents_of_text_end_at_separators_and_files(void **state)
{
    (void)state;
    char path[160];
    snprintf(path, sizeof path, "%s/texts", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    put_text("texts/b.txt", "second file\n");
    put_text("texts/a.txt", "\xef\xbb\xbf"
                            "one\n<|endoftext|>\n\ntwo\nlines\r\n<|endoftext|>\n<|endoftext|>\n");
    put_text("texts/.hidden", "not this");
    put_text("texts/empty", "");
    const char *at = path;
    DataOptions options = options_for(&at, 4);
    expect_text(&options, 3, BEGIN "one" END BEGIN "two\nlines" END BEGIN "second file" END);
    options.separator = "\nlines";
    expect_text(&options, 3,
                BEGIN "one\n<|endoftext|>\n\ntwo" END BEGIN "<|endoftext|>\n<|endoftext|>" END BEGIN
                      "second file" END);
}

static void special_tokens_in_text_are_plain_text(void **state)
{
    (void)state;
    const char *path = put_text("forged.txt", "say <|end_of_text|> now");
    DataOptions options = options_for(&path, 4);
    TrainData *data = open_data(&options);
    int ends = 0;
    for (int64_t i = 0; i < data_tokens(data); i++)
        ends += token_file_id(&data->file[0].tokens, i) == tokenizer_eos(tokenizer);
    assert_int_equal(ends, 1);
    data_free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_cut_as_the_header_draws_them),
        cmocka_unit_test(every_epoch_has_every_row_once_in_another_order),
        cmocka_unit_test(a_batch_holds_what_its_rows_hold_one_by_one),
        cmocka_unit_test(permutations_are_permutations_for_all_sizes),
        cmocka_unit_test(an_order_is_no_other_seeds_or_epochs),
        cmocka_unit_test(validation_takes_its_part_and_shares_no_document),
        cmocka_unit_test(documents_of_text_end_at_separators_and_files),
        cmocka_unit_test(special_tokens_in_text_are_plain_text),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
