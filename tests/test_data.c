/* Training data: from tokens to rows. */
#include "data_support.h"

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
        assert_int_equal(data_report(data)->key, data_report(again)->key);
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

/* Rows of a mixture are those of its parts, each in its own order, as often as the weights say. */
static void a_mixture_has_its_parts_by_weight(void **state)
{
    const int length[] = {100, 100};
    char a[160], b[160], c[160];
    const char *alone = put_documents("mix_a", length, 1);
    snprintf(a, sizeof a, "%s=7", alone);
    snprintf(b, sizeof b, "%s=3", put_documents("mix_b", length, 2));
    snprintf(c, sizeof c, "%s", put_documents("mix_c", length, 1));
    const char *paths[] = {a, b};
    DataOptions options = {
        .paths = paths, .n_paths = 2, .seq = 10, .vocab = 32000, .seed = 5, .held = c};
    TrainData *data = open_data(&options);
    cvn_err err = {0};
    int of_a = 0;
    assert_int_equal(data_sequences(data, DATA_TRAIN), 30);
    assert_int_equal(data_sequences(data, DATA_VALIDATION), 10);
    bool seen[10] = {0};
    for (int i = 0; i < 1000; i++) {
        int32_t tokens[10], targets[10];
        assert_int_equal(data_fill(data, DATA_TRAIN, i, 1, tokens, targets, NULL, &err), 0);
        DataPlace at = data_place(data, DATA_TRAIN, i);
        of_a += at.data == data->part[0];
        seen[tokens[0] / 10 % 10] |= at.data == data->part[0] && at.i < 10;
    }
    assert_int_equal(of_a, 700);
    for (int i = 0; i < 10; i++) /* an epoch of it has every row */
        assert_true(seen[i]);
    for (int i = 0; i < 3; i++) {
        int32_t tokens[10], targets[10];
        assert_int_equal(data_fill(data, DATA_VALIDATION, i, 1, tokens, targets, NULL, &err), 0);
        assert_int_equal(tokens[0], 10 * i); /* in the order of the file */
    }
    data_free(data);
    paths[1] = alone;
    refuse(&options, CVN_EINVAL, "either all or none of the data must have a weight", "");
    snprintf(b, sizeof b, "%s=0.001", alone);
    paths[1] = b;
    refuse(&options, CVN_EINVAL, "less than a thousandth", "");
}

static void shards_and_text_are_read_together(void **state)
{
    static const int length[] = {10, 10};
    const char *path[] = {put_documents("shard.bin", length, 2), put_text("beside.txt", "hello")};
    DataOptions options = options_for(path, 5);
    options.n_paths = 2;
    TrainData *data = open_data(&options);
    assert_int_equal(data_report(data)->documents, 3);
    assert_int_equal(data->n_files, 2);
    cvn_err err = {0};
    bool found[2] = {false};
    for (int64_t i = 0; i < data_sequences(data, DATA_TRAIN); i++) {
        int32_t tokens[5], targets[5];
        assert_int_equal(data_fill(data, DATA_TRAIN, i, 1, tokens, targets, NULL, &err), 0);
        for (int s = 0; s < 5; s++) {
            found[0] |= tokens[s] == tokenizer_bos(tokenizer);
            found[1] |= tokens[s] == 9 && targets[s] == -1;
        }
    }
    assert_true(found[0] && found[1]);
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
        cmocka_unit_test(a_mixture_has_its_parts_by_weight),
        cmocka_unit_test(shards_and_text_are_read_together),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
