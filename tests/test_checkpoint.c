/* Checkpoints: what was saved is what comes back; damage is seen; old ones go when they should. */
#include "base/crc32c.h"
#include "train/checkpoint/checkpoint.h"

#include "train/checkpoint/folder.h"
#include "train_support.h"
#include "unit.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

static const CheckpointOptions in_background = {.copy_limit = UINT64_MAX};
static const CheckpointOptions in_foreground = {.copy_limit = 0};

/* Trains a run from nothing, saving every `every` steps up to `steps`. */
static void train(const char *run, int64_t steps, int64_t every, const CheckpointOptions *options)
{
    cvn_err err = {0};
    Toy *toy = toy_new(1);
    CheckpointWriter *writer = checkpoint_writer_new(run, 0, options, &err);
    must(writer ? CVN_OK : err.code, &err);
    while (toy->state.step < steps) {
        toy_step(toy);
        if (toy->state.step % every == 0)
            must(checkpoint_save(writer, &toy->state, &err), &err);
        must(checkpoint_poll(writer, NULL, &err), &err);
    }
    must(checkpoint_wait(writer, &err), &err);
    checkpoint_writer_free(writer);
    toy_free(toy);
}

static char warned[2048]; /* all warnings of the last look, one after another */

static void warn(void *context, const char *sentence)
{
    (void)context;
    size_t n = strlen(warned);
    snprintf(warned + n, sizeof warned - n, "%s\n", sentence);
}

/* Restores the newest whole checkpoint of a run; its step. */
static int64_t newest(const char *run, Toy *toy)
{
    cvn_err err = {0};
    Checkpoint checkpoint;
    warned[0] = '\0';
    must(checkpoint_open_latest(&checkpoint, run, NULL, warn, NULL, &err), &err);
    must(toy_restore(&checkpoint, &toy->state, &err), &err);
    assert_non_null(strstr(checkpoint.manifest.config, "\"preset\": \"toy\",\n  \"lr\": 1e-"));
    checkpoint_close(&checkpoint);
    return toy->state.step;
}

static void expect_newest(const char *run, int64_t step)
{
    Toy *got = toy_new(1), *want = toy_at(1, step);
    assert_int_equal(newest(run, got), step);
    assert_true(toy_equal(got, want));
    toy_free(got);
    toy_free(want);
}

static void expect_steps(const char *run, size_t n, const int64_t *want)
{
    int64_t *steps;
    size_t got;
    must(checkpoint_steps(checkpoint_folder(run).text, &steps, &got, NULL), &(cvn_err){0});
    assert_int_equal(got, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(steps[i], want[i]);
    free(steps);
}

#define EXPECT_STEPS(run, ...)                                                                     \
    expect_steps(run, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static const char *file_of(const char *run, int64_t step, const char *name)
{
    char text[128];
    snprintf(text, sizeof text, "%s/checkpoints/step-%08lld/%s", run + strlen(scratch) + 1,
             (long long)step, name);
    return in_scratch(text);
}

static void what_was_saved_comes_back_bit_for_bit(void **state)
{
    train(in_scratch("background"), 20, 5, &in_background);
    expect_newest(in_scratch("background"), 20);
    EXPECT_STEPS(in_scratch("background"), 5, 10, 15, 20);
    train(in_scratch("foreground"), 20, 5, &in_foreground);
    expect_newest(in_scratch("foreground"), 20);
}

static void files_are_split_and_indexed(void **state)
{
    CheckpointOptions options = in_background;
    options.file_bytes = 100;
    train(in_scratch("split"), 4, 4, &options);
    expect_newest(in_scratch("split"), 4);
    assert_true(file_exists(file_of(in_scratch("split"), 4, "model-00002-of-00002.safetensors")));
    assert_true(file_exists(file_of(in_scratch("split"), 4, "model.safetensors.index.json")));
    assert_true(
        file_exists(file_of(in_scratch("split"), 4, "optimizer-00001-of-00002.safetensors")));
}

static void a_state_may_change_as_soon_as_save_returns(void **state)
{
    cvn_err err = {0};
    Toy *toy = toy_at(2000, 3);
    CheckpointWriter *writer = checkpoint_writer_new(in_scratch("moving"), 0, &in_background, &err);
    assert_non_null(writer);
    must(checkpoint_save(writer, &toy->state, &err), &err);
    for (int i = 0; i < TOY_TENSORS; i++)
        memset(toy->tensor[i].data, 0xee, cvn_type_bytes(&toy->tensor[i].type));
    must(checkpoint_wait(writer, &err), &err);
    int64_t saved;
    must(checkpoint_poll(writer, &saved, &err), &err);
    assert_int_equal(saved, 3);
    checkpoint_writer_free(writer);
    Toy *want = toy_at(2000, 3);
    assert_int_equal(newest(in_scratch("moving"), toy), 3);
    assert_true(toy_equal(toy, want));
    toy_free(toy);
    toy_free(want);
}

static void flip_bit(const char *path, size_t byte)
{
    Bytes bytes = bytes_of_file(path);
    assert_true(byte < bytes.n);
    bytes.data[byte] ^= 0x10;
    must(file_write(path, bytes.data, bytes.n, NULL), &(cvn_err){.message = "cannot write"});
    free(bytes.data);
}

static void every_flipped_byte_is_seen_and_named(void **state)
{
    const char *const name[] = {"model.safetensors", "optimizer.safetensors", "manifest.json"};
    const char *run = in_scratch("flipped");
    train(run, 10, 5, &in_background);
    for (int f = 0; f < 3; f++) {
        char path[256];
        snprintf(path, sizeof path, "%s", file_of(run, 10, name[f]));
        Bytes size = bytes_of_file(path);
        size_t n = size.n;
        free(size.data);
        for (size_t byte = 0; byte < n; byte += f == 2 ? 1 : 97) {
            Bytes whole = bytes_of_file(path);
            flip_bit(path, byte);
            expect_newest(run, 5);
            if (!strstr(warned, name[f]))
                fail_msg("byte %zu of %s: warned \"%s\"", byte, name[f], warned);
            must(file_write(path, whole.data, whole.n, NULL), &(cvn_err){.message = "write"});
            free(whole.data);
        }
    }
    expect_newest(run, 10);
}

static void a_file_cut_short_or_missing_is_passed_over(void **state)
{
    const char *run = in_scratch("short");
    train(run, 15, 5, &in_background);
    assert_int_equal(truncate(file_of(run, 15, "model.safetensors"), 100), 0);
    assert_int_equal(unlink(file_of(run, 10, "optimizer.safetensors")), 0);
    expect_newest(run, 5);
    assert_non_null(strstr(warned, "step-00000015/model.safetensors"));
    assert_non_null(strstr(warned, "step-00000010/optimizer.safetensors"));
    assert_int_equal(unlink(file_of(run, 5, "manifest.json")), 0);
    Checkpoint checkpoint;
    cvn_err err = {0};
    assert_int_equal(checkpoint_open_latest(&checkpoint, run, NULL, NULL, NULL, &err), CVN_EIO);
    assert_non_null(strstr(err.message, "has no complete checkpoint; all are corrupt"));
}

static void old_ones_go_and_every_mth_stays(void **state)
{
    CheckpointOptions options = in_background;
    options.keep_last = 2;
    train(in_scratch("last"), 40, 5, &options);
    EXPECT_STEPS(in_scratch("last"), 35, 40);
    options.keep_every = 15;
    train(in_scratch("every"), 40, 5, &options);
    EXPECT_STEPS(in_scratch("every"), 15, 30, 35, 40);
    assert_int_equal(count_entries(in_scratch("every/checkpoints")), 5); /* and the lock */
}

/* Killed between a save and the deletion of what it makes superfluous, and gone on with: as if it were not. */
static void what_was_to_be_deleted_is_deleted_on_going_on(void **state)
{
    cvn_err err = {0};
    const char *run = in_scratch("undeleted");
    CheckpointOptions options = in_background;
    train(run, 20, 5, &options);
    EXPECT_STEPS(run, 5, 10, 15, 20);
    options.keep_last = 2;
    CheckpointWriter *writer = checkpoint_writer_new(run, 20, &options, &err);
    assert_non_null(writer);
    EXPECT_STEPS(run, 15, 20);
    checkpoint_writer_free(writer);
}

/* Going on from an older step: what lies ahead is set aside, and must not count as the newest. */
static void later_checkpoints_are_set_aside(void **state)
{
    cvn_err err = {0};
    const char *run = in_scratch("rewound");
    CheckpointOptions options = {.keep_last = 1, .copy_limit = UINT64_MAX};
    train(run, 20, 5, &in_background);
    flip_bit(file_of(run, 20, "model.safetensors"), 300);
    Toy *toy = toy_new(1);
    assert_int_equal(newest(run, toy), 15);
    CheckpointWriter *writer = checkpoint_writer_new(run, 15, &options, &err);
    assert_non_null(writer);
    EXPECT_STEPS(run, 15);
    assert_true(file_is_folder(in_scratch("rewound/checkpoints/step-00000020.aside")));
    toy_step(toy);
    must(checkpoint_save(writer, &toy->state, &err), &err);
    must(checkpoint_wait(writer, &err), &err);
    EXPECT_STEPS(run, 16);
    checkpoint_writer_free(writer);
    expect_newest(run, 16);
    toy_free(toy);
}

static void the_same_step_may_be_saved_again(void **state)
{
    cvn_err err = {0};
    const char *run = in_scratch("again");
    train(run, 5, 5, &in_background);
    Toy *toy = toy_at(1, 5), *got = toy_new(1);
    memset(toy->tensor[0].data, 7, 100);
    CheckpointWriter *writer = checkpoint_writer_new(run, 5, &in_background, &err);
    must(checkpoint_save(writer, &toy->state, &err), &err);
    must(checkpoint_save(writer, &toy->state, &err), &err);
    must(checkpoint_wait(writer, &err), &err);
    checkpoint_writer_free(writer);
    assert_int_equal(newest(run, got), 5);
    assert_true(toy_equal(got, toy));
    assert_int_equal(count_entries(in_scratch("again/checkpoints")), 2);
    toy_free(toy);
    toy_free(got);
}

static void one_process_at_a_time_and_its_leftovers_go(void **state)
{
    cvn_err err = {0};
    const char *run = in_scratch("locked");
    train(run, 5, 5, &in_background);
    must(file_make_folder(in_scratch("locked/checkpoints/step-00000009.partial"), &err), &err);
    must(file_write(in_scratch("locked/checkpoints/step-00000009.partial/model.safetensors"), "x",
                    1, &err),
         &err);
    CheckpointWriter *writer = checkpoint_writer_new(run, 5, &in_background, &err);
    assert_non_null(writer);
    assert_false(file_exists(in_scratch("locked/checkpoints/step-00000009.partial")));
    assert_null(checkpoint_writer_new(run, 5, &in_background, &err));
    assert_non_null(strstr(err.message, "another process"));
    checkpoint_writer_free(writer);
    writer = checkpoint_writer_new(run, 5, &in_background, &(cvn_err){0});
    assert_non_null(writer);
    checkpoint_writer_free(writer);
}

static void a_state_that_does_not_fit_is_refused_and_left_alone(void **state)
{
    cvn_err err = {0};
    Checkpoint checkpoint;
    train(in_scratch("fit"), 5, 5, &in_background);
    must(checkpoint_open_latest(&checkpoint, in_scratch("fit"), NULL, NULL, NULL, &err), &err);
    Toy *toy = toy_new(1), *blank = toy_new(1);
    toy->tensor[0].type = CVN_TYPE(CVN_F32, 4, 8, 16);
    assert_int_equal(toy_restore(&checkpoint, &toy->state, &err), CVN_EFORMAT);
    assert_non_null(strstr(err.message, "model.embed_tokens.weight' is f32 [16, 4, 8], but"));
    toy->tensor[0].type = CVN_TYPE(CVN_F32, 2, 8, 32); /* splits 16 and 4 x 8, merges nothing */
    assert_int_equal(toy_restore(&checkpoint, &toy->state, &(cvn_err){0}), CVN_EFORMAT);
    toy->tensor[0].type = blank->tensor[0].type;
    toy->tensor[3].type.dtype = CVN_F16;
    assert_int_equal(toy_restore(&checkpoint, &toy->state, &(cvn_err){0}), CVN_EFORMAT);
    toy->tensor[3].type.dtype = CVN_BF16;
    toy->tensor[4].name = "optimizer.number";
    err = (cvn_err){0};
    assert_int_equal(toy_restore(&checkpoint, &toy->state, &err), CVN_EFORMAT);
    assert_non_null(strstr(err.message, "no tensor 'optimizer.number'"));
    toy->state.n--;
    err = (cvn_err){0};
    assert_int_equal(toy_restore(&checkpoint, &toy->state, &err), CVN_EFORMAT);
    assert_non_null(strstr(err.message, "has the tensor 'optimizer.count'"));
    toy->tensor[4].name = "optimizer.count";
    toy->state.n++;
    assert_true(toy_equal(toy, blank));
    checkpoint_close(&checkpoint);
    toy_free(toy);
    toy_free(blank);
}

/* Half understood would be a wrong model. */
static void another_version_is_refused_in_a_sentence(void **state)
{
    cvn_err err = {0};
    Arena arena;
    Manifest manifest = {.seed = 1};
    char text[512];
    size_t n;
    FileMap map;
    must(file_make_folder(in_scratch("version"), &err), &err);
    must(manifest_write(&manifest, in_scratch("version"), &err), &err);
    must(file_map(&map, in_scratch("version/manifest.json"), &err), &err);
    n = map.size;
    assert_true(n < sizeof text);
    memcpy(text, map.data, n);
    file_unmap(&map);
    char *version = strstr(text, "\"version\": ") + strlen("\"version\": ");
    assert_int_equal(*version, '0' + MANIFEST_VERSION);
    *version = '0' + MANIFEST_VERSION - 1;
    char *tail = strstr(text, ",\n  \"checksum\"");
    snprintf(tail, 40, ",\n  \"checksum\": \"%08x\"\n}\n", crc32c(0, text, (size_t)(tail - text)));
    must(arena_init(&arena, &err), &err);
    assert_int_equal(manifest_parse(&manifest, "manifest.json", text, n, &arena, &err),
                     CVN_EFORMAT);
    assert_non_null(strstr(err.message, "has version 2 and this program reads version 3"));
    arena_free(&arena);
}

static void only_exact_names_are_checkpoints(void **state)
{
    static const struct {
        const char *name;
        int64_t step;
    } table[] = {{"step-00000000", 0},
                 {"step-00001000", 1000},
                 {"step-123456789", 123456789},
                 {"step-999999999999999999", 999999999999999999},
                 {"step-9999999999999999999", -1},
                 {"step-012345678", -1},
                 {"step-1000", -1},
                 {"step-00001000.partial", -1},
                 {"step-00001000.aside", -1},
                 {"step--0001000", -1},
                 {"step-0000100x", -1},
                 {"lock", -1},
                 {"", -1}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_int_equal(checkpoint_step_of(table[i].name), table[i].step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_comes_back_bit_for_bit),
        cmocka_unit_test(files_are_split_and_indexed),
        cmocka_unit_test(a_state_may_change_as_soon_as_save_returns),
        cmocka_unit_test(every_flipped_byte_is_seen_and_named),
        cmocka_unit_test(a_file_cut_short_or_missing_is_passed_over),
        cmocka_unit_test(old_ones_go_and_every_mth_stays),
        cmocka_unit_test(what_was_to_be_deleted_is_deleted_on_going_on),
        cmocka_unit_test(later_checkpoints_are_set_aside),
        cmocka_unit_test(the_same_step_may_be_saved_again),
        cmocka_unit_test(one_process_at_a_time_and_its_leftovers_go),
        cmocka_unit_test(a_state_that_does_not_fit_is_refused_and_left_alone),
        cmocka_unit_test(another_version_is_refused_in_a_sentence),
        cmocka_unit_test(only_exact_names_are_checkpoints),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
