/*
 * Every error that a plugin can return becomes one sentence, and nothing that it handed out is kept. The plugin is one of
 * our own (fake_pjrt.c), which computes nothing and fails when it is told to.
 */
#include "mesh_answers.h"
#include "model/presets.h"
#include "pjrt/api.h"
#include "pjrt/optimized.h"
#include "scratch.h"
#include "sim/plan.h"

#include <dlfcn.h>

#define DEVICE "pjrt:" CVN_FAKE_PJRT

static struct {
    void (*inject)(int function, int n);
    int (*failed)(void);
    int (*live)(void);
    void (*table)(int major, int minor, size_t bytes);
} fake;

static void find(void *object, const char *name, void *function)
{
    void *symbol = dlsym(object, name);
    assert_non_null(symbol);
    memcpy(function, &symbol, sizeof symbol);
}

static int load_fake(void **state)
{
    void *object = dlopen(CVN_FAKE_PJRT, RTLD_NOW);
    assert_non_null(object);
    find(object, "fake_fail", &fake.inject);
    find(object, "fake_failed", &fake.failed);
    find(object, "fake_live", &fake.live);
    find(object, "fake_table", &fake.table);
    return make_scratch(state);
}

static int generate(const char *mesh, cvn_err *err)
{
    const Question q = {.variant = "gqa",
                        .rows = 2,
                        .n_tokens = 20,
                        .n_new = 3,
                        .first = 5,
                        .more = 2,
                        .device = DEVICE};
    Answers a;
    return answers_ask(&q, mesh, "2d", &a, err);
}

static int compile(const char *topology, cvn_err *err)
{
    char path[512];
    SimAnswer answer = {0};
    snprintf(path, sizeof path, "%s/program", scratch);
    SimAsk ask = {.mesh = "model=2",
                  .layout = "2d",
                  .task = SIM_DECODE,
                  .batch = 1,
                  .context = 16,
                  .compute = CVN_F32,
                  .name = DEVICE,
                  .topology = topology,
                  .save = path};
    int code = preset_config("tiny", &ask.config, err);
    code = code ? code : backend_find(DEVICE, &ask.device, err);
    code = code ? code : sim_plan(&ask, &answer, err);
    if (code == CVN_OK && !fake.failed()) {
        assert_int_equal(answer.compiled->arguments, 1000);
        assert_int_equal(answer.compiled->peak, 1010);
        assert_int_equal((int)answer.compiled->cycles, 1234567);
        assert_string_equal(answer.compiled->collective[0].kind, "all-reduce");
        assert_int_equal(answer.compiled->collective[0].count, 1);
    }
    sim_answer_free(&answer);
    return code;
}

/* What it is worth to go on without: figures, and that something was destroyed. */
static bool is_borne(int function)
{
    static const PjrtFunction borne[] = {
        PJRT_EXECUTABLE_MEMORY_STATS, PJRT_EXECUTABLE_OPTIMIZED_PROGRAM,
        PJRT_EVENT_DESTROY,           PJRT_CLIENT_DESTROY,
        PJRT_EXECUTABLE_DESTROY,      PJRT_LOADED_DESTROY,
        PJRT_BUFFER_DESTROY,          PJRT_TOPOLOGY_DESTROY};
    for (size_t i = 0; i < sizeof borne / sizeof *borne; i++)
        if ((int)borne[i] == function)
            return true;
    return false;
}

static void check(int function, int n, int code, const cvn_err *err)
{
    if (fake.live())
        fail_msg("call %d of function %d fails: %d objects are kept", n, function, fake.live());
    bool fails = fake.failed() && !is_borne(function);
    if (!fails && code)
        fail_msg("call %d of function %d ends all: %s", n, function, err->message);
    if (fails && (code != CVN_EMEM || strchr(err->message, '\n') ||
                  !strstr(err->message, "injected") || !strstr(err->message, CVN_FAKE_PJRT)))
        fail_msg("call %d of function %d fails: %d, \"%s\"", n, function, code, err->message);
}

/* Some of the calls of each function fail, until there are no more of them. */
static void fail_each(int (*scenario)(const char *, cvn_err *), const char *of)
{
    static const int calls[] = {1, 2, 3, 7, 20, 50};
    for (int function = PJRT_PLUGIN_INITIALIZE; function < PJRT_FUNCTIONS; function++) {
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            cvn_err err = {0};
            fake.inject(function, calls[i]);
            check(function, calls[i], scenario(of, &err), &err);
            if (!fake.failed())
                break;
        }
    }
    fake.inject(-1, 0);
}

static void errors_of_a_run_are_one_sentence(void **state)
{
    (void)state;
    fail_each(generate, "model=2");
}

static void errors_of_compiling_for_others_are_one_sentence(void **state)
{
    (void)state;
    fail_each(compile, "fake:2");
}

static void expect(int code, const cvn_err *err, const char *says)
{
    if (!code || !strstr(err->message, says))
        fail_msg("\"%s\" does not say: %s", err->message, says);
    assert_int_equal(fake.live(), 0);
}

static void what_does_not_fit_is_said(void **state)
{
    (void)state;
    cvn_err err = {0};
    expect(generate("model=8", &err), &err, "the mesh has 8 devices and");
    err = (cvn_err){0};
    expect(compile("fake:4", &err), &err, "'fake:4' has 4 devices and the mesh 2");
}

static void other_versions_are_refused(void **state)
{
    const size_t size = sizeof(PjrtApi);
    cvn_err err = {0};
    (void)state;
    fake.table(1, 5, size);
    expect(generate(NULL, &err), &err, "another PJRT than version 0");
    err = (cvn_err){0};
    fake.table(0, PJRT_OLDEST - 1, size);
    expect(generate(NULL, &err), &err, "which is too old");
    err = (cvn_err){0};
    fake.table(0, PJRT_OLDEST, size - 8);
    expect(generate(NULL, &err), &err, "which is too old");
    err = (cvn_err){0};
    fake.table(0, 500, size + 800);
    assert_int_equal(generate(NULL, &err), CVN_OK);
}

static void a_damaged_program_is_refused(void **state)
{
    static const char program[] = "\x0a\x08\x1a\x06\x12\x04\x12\x02no";
    Compiled c = {0};
    (void)state;
    assert_true(optimized_read(program, sizeof program - 1, &c));
    assert_true(optimized_read(program, 0, &c));
    for (size_t n = 1; n < 6; n++)
        assert_false(optimized_read(program, n, &c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_of_a_run_are_one_sentence),
        cmocka_unit_test(errors_of_compiling_for_others_are_one_sentence),
        cmocka_unit_test(what_does_not_fit_is_said),
        cmocka_unit_test(other_versions_are_refused),
        cmocka_unit_test(a_damaged_program_is_refused),
    };
    return cmocka_run_group_tests(tests, load_fake, remove_scratch);
}
