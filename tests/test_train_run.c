/* Whole runs: from text to a model on the disk, interrupted and gone on, and what is refused. */
#include "base/file.h"
#include "caravan/engine.h"
#include "caravan/train.h"
#include "scratch.h"
#include "splitmix.h"
#include "train/run.h"
#include "unit.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static void put_file(const char *name, const char *text, size_t n)
{
    cvn_err err = {0};
    must(file_write(in_scratch(name), text, n, &err), &err);
}

/* Sentences that repeat enough to be learned. */
static void put_story(const char *name)
{
    static const char *const who[] = {"The fox", "A child", "My aunt", "The miller"};
    static const char *const what[] = {"saw", "found", "lost", "painted"};
    static const char *const which[] = {"a red door", "the old well", "two apples", "a key"};
    StrBuf text = {0};
    uint64_t random = 3;
    for (int i = 0; i < 600; i++)
        strbuf_printf(&text, "%s %s %s.%s", who[draw(&random, 4)], what[draw(&random, 4)],
                      which[draw(&random, 4)], i % 9 == 8 ? "\n<|endoftext|>\n" : " ");
    put_file(name, text.text, text.length);
    strbuf_free(&text);
}

static int prepare(void **state)
{
    if (make_scratch(state))
        return -1;
    put_story("story.txt");
    return 0;
}

/* A small run of 8 steps into scratch/NAME. */
static TrainConfig small_run(const char *name)
{
    TrainConfig c = train_config_defaults();
    c.data[0] = strdup(in_scratch("story.txt"));
    c.n_data = 1;
    c.preset = "stories260k";
    c.out = strdup(in_scratch(name));
    c.seq = 32;
    c.batch = 4;
    c.steps = 8;
    c.save_every = 3;
    c.threads = 1;
    c.validation = 0.1;
    c.evaluate_every = 4;
    c.cache = strdup(in_scratch("cache"));
    return c;
}

static void free_run(TrainConfig *c)
{
    free((char *)(uintptr_t)c->data[0]);
    free((char *)(uintptr_t)c->out);
    free((char *)(uintptr_t)c->cache);
}

/* What a run said, and how often. */
typedef struct Heard {
    int notes, warnings, steps, samples;
    double validation;
    char warning[512];
} Heard;

static void on_note(void *context, const char *sentence)
{
    Heard *h = context;
    h->notes += *sentence != 0;
}

static void on_warning(void *context, const char *sentence)
{
    Heard *h = context;
    h->warnings++;
    snprintf(h->warning, sizeof h->warning, "%s", sentence);
}

static bool on_step(void *context, const TrainProgress *progress)
{
    Heard *h = context;
    h->steps++;
    if (!isnan(progress->row.validation_loss))
        h->validation = progress->row.validation_loss;
    return true;
}

static int on_sample(void *context, const char *folder, const char *prompt, char **text,
                     cvn_err *err)
{
    Heard *h = context;
    (void)err;
    assert_true(file_is_folder(folder));
    *text = strdup(*prompt ? prompt : "nothing");
    h->samples++;
    return CVN_OK;
}

static TrainResult run(const TrainConfig *c, bool resume, Heard *heard)
{
    cvn_err err = {0};
    TrainResult result;
    Heard ignored = {0};
    TrainEvents events = {.context = heard ? heard : &ignored,
                          .note = on_note,
                          .warning = on_warning,
                          .step = on_step,
                          .sample = on_sample};
    bool *given = calloc((size_t)train_n_keys, sizeof *given);
    for (int i = 0; i < train_n_keys; i++)
        given[i] = strcmp(train_keys[i].name, "stop-after") == 0;
    must(train_run(c, given, resume, &events, &result, &err), &err);
    free(given);
    return result;
}

static void same_file(const TrainConfig *a, const TrainConfig *b, const char *name)
{
    cvn_err err = {0};
    char path[2][512];
    FileMap map[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", i ? b->out : a->out, name);
        must(file_map(&map[i], path[i], &err), &err);
    }
    if (map[0].size != map[1].size || memcmp(map[0].data, map[1].data, map[0].size) != 0)
        fail_msg("%s and %s differ", path[0], path[1]);
    file_unmap(&map[0]);
    file_unmap(&map[1]);
}

static void a_run_that_is_interrupted_gives_the_same_bits(void **state)
{
    static const char *const optimizer[] = {"adamw", "adafactor"};
    for (int i = 0; i < 2; i++) {
        char name[2][32];
        snprintf(name[0], sizeof name[0], "whole-%d", i);
        snprintf(name[1], sizeof name[1], "parts-%d", i);
        TrainConfig whole = small_run(name[0]), parts = small_run(name[1]);
        whole.optimizer = parts.optimizer = optimizer[i];
        whole.micro_batch = parts.micro_batch = i ? 2 : 0;
        parts.stop_after = 2;
        TrainResult result = run(&whole, false, NULL);
        assert_true(result.finished);
        for (int part = 0; part < 4; part++) {
            result = run(&parts, part > 0, NULL);
            assert_int_equal(result.step, 2 * (part + 1));
        }
        assert_true(result.finished);
        same_file(&whole, &parts, "model.safetensors");
        same_file(&whole, &parts, "checkpoints/step-00000008/optimizer.safetensors");
        free_run(&whole);
        free_run(&parts);
    }
}

static void what_a_run_leaves_is_a_model(void **state)
{
    cvn_err err = {0};
    Heard heard = {0};
    TrainConfig c = small_run("model");
    c.sample_every = 5;
    c.prompt = "The fox";
    c.steps = 60;
    c.lr = 5e-3;
    TrainResult result = run(&c, false, &heard);
    assert_true(result.finished);
    assert_int_equal(heard.steps, 60);
    assert_int_equal(heard.warnings, 0);
    assert_int_equal(heard.samples, 12);
    assert_int_equal(result.compilations, 2);
    print_message("loss %.3f, validation %.3f\n", result.loss, heard.validation);
    assert_true(result.loss < 4 && fabs(heard.validation - result.loss) < 0.5);
    cvn_model *model;
    cvn_model_options options = {.dtype = CVN_DTYPE_COUNT};
    must(cvn_model_open(c.out, &options, &model, &err), &err);
    assert_true(cvn_model_has_tokenizer(model));
    assert_string_equal(cvn_model_warnings(model), "");
    cvn_model_free(model);

    /* and may be trained further, under another name */
    TrainConfig tuned = small_run("tuned");
    tuned.preset = NULL;
    tuned.init = c.out;
    tuned.steps = 2;
    tuned.lr = 1e-5;
    tuned.warmup = 0;
    TrainResult more = run(&tuned, false, NULL);
    assert_true(fabs(more.loss - result.loss) < 0.5);
    free_run(&tuned);
    free_run(&c);
}

static void count_step(void *context, const cvn_train_step *step)
{
    assert_true(step->steps == 3 && step->loss > 0);
    ++*(int *)context;
}

static void the_public_functions_train_and_go_on(void **state)
{
    cvn_err err = {0};
    cvn_train_result result;
    int steps = 0;
    cvn_train_events events = {.context = &steps, .step = count_step};
    char options[1024];
    snprintf(options, sizeof options,
             "{\"data\":\"%s\",\"preset\":\"stories260k\",\"out\":\"%s\",\"seq\":16,\"batch\":2,"
             "\"steps\":3,\"stop_after\":1,\"threads\":1,\"cache\":\"%s\"}",
             in_scratch("story.txt"), in_scratch("public"), in_scratch("cache"));
    must(cvn_train(options, &events, &result, &err), &err);
    assert_true(result.step == 1 && !result.finished);
    must(cvn_train_resume(in_scratch("public"), NULL, &events, &result, &err), &err);
    assert_true(result.step == 3 && result.finished && steps == 3);
    assert_int_equal(cvn_train("{\"step\":1}", NULL, &result, &err), CVN_EFORMAT);
    err = (cvn_err){0};
    assert_int_equal(cvn_train("[1]", NULL, &result, &err), CVN_EFORMAT);
}

/* ---- what is refused ---- */

/* Neither the folder, if it was not there, nor anything in it, if it was. */
static void nothing_is_left(const char *folder, bool existed)
{
    char line[512];
    if (existed)
        snprintf(line, sizeof line, "test -z \"$(ls -A '%s')\"", folder);
    else
        snprintf(line, sizeof line, "test ! -e '%s'", folder);
    if (system(line) != 0)
        fail_msg("something was left in %s", folder);
}

static void expect(const TrainConfig *c, bool resume, int code, const char *words)
{
    cvn_err err = {0};
    TrainResult result;
    int got = train_run(c, NULL, resume, NULL, &result, &err);
    if (got != code || !strstr(err.message, words))
        fail_msg("%d '%s', not %d with '%s'", got, err.message, code, words);
    print_message("%s\n", err.message);
}

static void expect_data(const char *name, const char *text, size_t n, const char *words)
{
    TrainConfig c = small_run("refused");
    cvn_err err = {0};
    TrainResult result;
    put_file(name, text, n);
    free((char *)(uintptr_t)c.data[0]);
    c.data[0] = strdup(in_scratch(name));
    int code = train_run(&c, NULL, false, NULL, &result, &err);
    print_message("%s\n", err.message);
    if (code == CVN_OK || !strstr(err.message, words))
        fail_msg("%s: '%s', not with '%s'", name, err.message, words);
    nothing_is_left(c.out, false);
    /* A folder that was there stays, as empty as it was. */
    assert_int_equal(mkdir(c.out, 0777), 0);
    assert_int_not_equal(train_run(&c, NULL, false, NULL, &result, &err), CVN_OK);
    nothing_is_left(c.out, true);
    assert_int_equal(rmdir(c.out), 0);
    free_run(&c);
}

static void data_that_cannot_be_is_refused_by_name(void **state)
{
    expect_data("empty.txt", "", 0, "empty.txt");
    expect_data("line.txt", "Hello.\n", 7, "less than one sequence");
    expect_data("latin1.txt", "caf\xe9 au lait and so on", 22, "latin1.txt");
    static const char broken[] = "{\"text\":\"a b c\"}\n{\"text\":\n{\"text\":\"d\"}\n";
    expect_data("broken.jsonl", broken, sizeof broken - 1, "broken.jsonl:2");
}

static void options_that_cannot_be_are_refused(void **state)
{
    TrainConfig c = small_run("refused");
    c.memory = 1 << 20;
    expect(&c, false, CVN_EMEM, "training needs");
    nothing_is_left(c.out, false);
    c.memory = 7 << 19; /* room for weights, not for activations */
    expect(&c, false, CVN_EMEM, "activations");
    nothing_is_left(c.out, false);
    c.batch = 64;
    c.memory = 6 << 20;
    expect(&c, false, CVN_EMEM, "try --micro-batch ");
    nothing_is_left(c.out, false);
    c.batch = 4;
    c.preset = "llama-175b";
    c.memory = 0;
    expect(&c, false, CVN_EMEM, "training needs");
    nothing_is_left(c.out, false);
    c.preset = "tiniest";
    expect(&c, false, CVN_EINVAL, "tiniest");
    nothing_is_left(c.out, false);
    c.preset = "stories260k";
    c.micro_batch = 3;
    expect(&c, false, CVN_EINVAL, "micro-batches of 3");
    nothing_is_left(c.out, false);
    c.micro_batch = 0;
    c.seq = 1 << 20;
    expect(&c, false, CVN_EINVAL, "token");
    nothing_is_left(c.out, false);
    c.seq = 32;
    c.router_bias = 0.1;
    expect(&c, false, CVN_EINVAL, "this model has none");
    nothing_is_left(c.out, false);
    c.router_bias = 0;
    c.warmup = 9;
    expect(&c, false, CVN_EINVAL, "warm-up");
    nothing_is_left(c.out, false);
    free_run(&c);
}

/* Ctrl-C while the run is opened: it does not wait for a first step. */
static void what_is_interrupted_before_it_begins_leaves_nothing(void **state)
{
    int stop = 1;
    cvn_err err = {0};
    TrainResult result;
    Heard heard = {0};
    TrainEvents events = {.context = &heard,
                          .note = on_note,
                          .warning = on_warning,
                          .step = on_step,
                          .sample = on_sample,
                          .stop = &stop};
    TrainConfig c = small_run("never");
    assert_int_equal(train_run(&c, NULL, false, &events, &result, &err), CVN_EINTERRUPTED);
    assert_int_equal(heard.steps, 0);
    assert_false(file_exists(c.out));
    free_run(&c);
}

/* With and without micro-batches, validation and texts. */
static void a_run_compiles_two_graphs_at_most(void **state)
{
    for (int i = 0; i < 4; i++) {
        char name[32];
        Heard heard = {0};
        snprintf(name, sizeof name, "graphs-%d", i);
        TrainConfig c = small_run(name);
        c.micro_batch = i & 1 ? 1 : 0;
        c.validation = i & 2 ? 0.1 : 0;
        c.sample_every = 3;
        TrainResult result = run(&c, false, &heard);
        assert_int_equal(result.compilations, i == 0 ? 1 : 2);
        assert_true((heard.validation > 0) == (i >= 2));
        free_run(&c);
    }
}

/* Looking at what is held back changes nothing, though it goes through the gradients' plan. */
static void validation_is_the_same_in_micro_batches(void **state)
{
    double validation[2];
    for (int i = 0; i < 3; i++) {
        char name[32];
        Heard heard = {0};
        snprintf(name, sizeof name, "looks-%d", i);
        TrainConfig c = small_run(name);
        c.dtype = "f32";
        c.micro_batch = i > 0 ? 2 : 0;
        c.evaluate_every = i < 2 ? 2 : 0;
        run(&c, false, &heard);
        if (i < 2)
            validation[i] = heard.validation;
        free_run(&c);
    }
    assert_true(fabs(validation[0] - validation[1]) < 1e-4);
    TrainConfig a = small_run("looks-1"), b = small_run("looks-2");
    same_file(&a, &b, "model.safetensors");
    free_run(&a);
    free_run(&b);
}

static void folders_that_cannot_be_are_refused(void **state)
{
    TrainConfig c = small_run("story.txt/run");
    expect(&c, false, CVN_EIO, "story.txt/run");
    free_run(&c);
    c = small_run("story.txt");
    expect(&c, false, CVN_EINVAL, "is a file; --out names the folder");
    free_run(&c);
    c = small_run("nothing-here");
    expect(&c, true, CVN_EIO, "nothing-here");
    free_run(&c);
    c = small_run("twice");
    c.steps = 1;
    run(&c, false, NULL);
    expect(&c, false, CVN_EINVAL, "--resume");
    free_run(&c);
}

static void another_run_is_not_gone_on_with(void **state)
{
    TrainConfig c = small_run("fixed");
    cvn_err err = {0};
    TrainResult result;
    bool given[64] = {false};
    c.steps = 2;
    run(&c, false, NULL);
    c.seq = 16;
    given[train_key_find("seq") - train_keys] = true;
    assert_int_equal(train_run(&c, given, true, NULL, &result, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "--seq"));
    given[train_key_find("seq") - train_keys] = false;
    /* other data under the old name */
    FILE *f = fopen(c.data[0], "ae");
    fputs("And a sentence more. ", f);
    fclose(f);
    c.steps = 4;
    given[train_key_find("steps") - train_keys] = true;
    err = (cvn_err){0};
    assert_int_equal(train_run(&c, given, true, NULL, &result, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "data"));
    put_story("story.txt");
    err = (cvn_err){0};
    must(train_run(&c, given, true, NULL, &result, &err), &err);
    assert_int_equal(result.step, 4);
    free_run(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_is_interrupted_gives_the_same_bits),
        cmocka_unit_test(what_a_run_leaves_is_a_model),
        cmocka_unit_test(the_public_functions_train_and_go_on),
        cmocka_unit_test(data_that_cannot_be_is_refused_by_name),
        cmocka_unit_test(options_that_cannot_be_are_refused),
        cmocka_unit_test(what_is_interrupted_before_it_begins_leaves_nothing),
        cmocka_unit_test(a_run_compiles_two_graphs_at_most),
        cmocka_unit_test(validation_is_the_same_in_micro_batches),
        cmocka_unit_test(folders_that_cannot_be_are_refused),
        cmocka_unit_test(another_run_is_not_gone_on_with),
    };
    return cmocka_run_group_tests(tests, prepare, remove_scratch);
}
