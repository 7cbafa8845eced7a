/*
 * Every error that a plugin can return becomes one sentence, and nothing that it handed out is kept. The plugin is one of
 * our own (fake_pjrt.c), which computes nothing and fails when it is told to.
 */
#include "mesh_answers.h"
#include "model/presets.h"
#include "model_make.h"
#include "pjrt/api.h"
#include "pjrt/optimized.h"
#include "pjrt/toolkit.h"
#include "ranks.h"
#include "shell.h"
#include "sim/plan.h"
#include "unit.h"

#include <dlfcn.h>

#define DEVICE "pjrt:" CVN_FAKE_PJRT

static struct {
    void (*inject)(int function, int n);
    int (*failed)(void);
    int (*live)(void);
    int (*calls)(int function);
    int64_t (*moved)(void);
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
    find(object, "fake_calls", &fake.calls);
    find(object, "fake_moved", &fake.moved);
    find(object, "fake_table", &fake.table);
    return make_scratch(state);
}

static int ask(const char *device, const char *mesh, int n_new, cvn_err *err)
{
    const Question q = {.variant = "gqa",
                        .rows = 2,
                        .n_tokens = 20,
                        .n_new = n_new,
                        .first = 5,
                        .more = 2,
                        .device = device};
    Answers a;
    return answers_ask(&q, mesh, "2d", &a, err);
}

static int generate(const char *mesh, cvn_err *err)
{
    return ask(DEVICE ",executables=none", mesh, 3, err);
}

/* With programs that are kept in a folder of the scratch folder. */
static int generate_kept(const char *folder, cvn_err *err)
{
    char device[1024];
    snprintf(device, sizeof device, DEVICE ",executables=%s/%s", scratch, folder);
    return ask(device, "model=2", 3, err);
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
    ask.model = model_preset("tiny");
    int code = backend_find(DEVICE, &ask.device, err);
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

static void check(int function, int n, int code, bool kept, const cvn_err *err)
{
    if (fake.live())
        fail_msg("call %d of function %d fails: %d objects are kept", n, function, fake.live());
    bool disk = function == PJRT_EXECUTABLE_SERIALIZE || function == PJRT_DESERIALIZE_AND_LOAD;
    bool fails = fake.failed() && !is_borne(function) && !(kept && disk);
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
            check(function, calls[i], scenario(of, &err), scenario == generate_kept, &err);
            if (!fake.failed())
                break;
        }
    }
    fake.inject(-1, 0);
}

static void errors_of_a_run_are_one_sentence(void **state)
{
    fail_each(generate, "model=2");
}

/* What a run moves that goes on for so many tokens, and how often devices ran. */
static int64_t moves(const char *mesh, int n_new, int *runs)
{
    cvn_err err = {0};
    fake.calls(PJRT_LOADED_EXECUTE);
    fake.moved();
    must(ask(DEVICE ",executables=none", mesh, n_new, &err), &err);
    *runs = fake.calls(PJRT_LOADED_EXECUTE);
    return fake.moved();
}

/* A step gives each of the devices a few numbers of each row, and takes as many back; weights and caches stay where they are. */
static void a_step_moves_a_few_numbers(void **state)
{
    enum { MOST = 13 }; /* one more per result that is not written in a cache's place */
    static const struct {
        const char *mesh;
        int devices;
    } on[] = {{NULL, 1}, {"model=2", 2}};
    (void)state;
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        int few, many;
        int64_t first = moves(on[i].mesh, 3, &few), more = moves(on[i].mesh, ANSWER_NEW, &many);
        assert_true(many > few + 6);
        if (more - first > (int64_t)MOST * on[i].devices * (many - few))
            fail_msg("%d steps on %d devices move %lld numbers", many - few, on[i].devices,
                     (long long)(more - first));
    }
}

/* The lines of a command, as a number. */
static int count(const char *command)
{
    int status;
    StrBuf output = shell(command, &status);
    assert_int_equal(status, 0);
    int n = (int)strtol(output.text, NULL, 10);
    strbuf_free(&output);
    return n;
}

/* What was compiled once is taken from the disk, but where it is damaged, or the plugin does not like it. */
static void programs_are_kept(void **state)
{
    cvn_err err = {0};
    fake.calls(PJRT_CLIENT_COMPILE);
    must(generate_kept("a/b", &err), &err);
    int programs = count("ls a/b/*.program | wc -l");
    assert_true(programs > 2);
    assert_int_equal(fake.calls(PJRT_CLIENT_COMPILE), programs);
    fake.calls(PJRT_DESERIALIZE_AND_LOAD);
    must(generate_kept("a/b", &err), &err);
    assert_int_equal(fake.calls(PJRT_CLIENT_COMPILE), 0);
    assert_int_equal(fake.calls(PJRT_DESERIALIZE_AND_LOAD), programs);
    static const char *const damage[] = {"printf x | dd of=$f bs=1 seek=33 conv=notrunc",
                                         "printf x >> $f",
                                         "truncate -s 31 $f",
                                         "truncate -s 0 $f",
                                         "printf '\\377' | dd of=$f bs=1 seek=15 conv=notrunc",
                                         "rm $f; ln -s /dev/zero $f",
                                         "rm $f; mkdir $f"};
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        char command[400];
        snprintf(command, sizeof command, "f=$(ls a/b/*.program | head -n 1); { %s; } 2>&1; echo 0",
                 damage[i]);
        count(command);
        must(generate_kept("a/b", &err), &err);
        assert_int_equal(fake.calls(PJRT_CLIENT_COMPILE), 1);
    }
    /* Whole, and no program. */
    fake.calls(PJRT_DESERIALIZE_AND_LOAD);
    fake.inject(PJRT_DESERIALIZE_AND_LOAD, 1);
    must(generate_kept("a/b", &err), &err);
    fake.inject(-1, 0);
    assert_int_equal(fake.calls(PJRT_CLIENT_COMPILE), 2); /* with the folder in a file's place */
    assert_int_equal(fake.live(), 0);
}

static void errors_of_kept_programs_are_borne(void **state)
{
    fail_each(generate_kept, "kept");
    cvn_err err = {0};
    fake.inject(PJRT_EXECUTABLE_SERIALIZE, 1);
    must(generate_kept("fresh", &err), &err);
    assert_true(fake.failed());
    fake.inject(-1, 0);
    must(generate_kept("/proc/nowhere", &err), &err);
}

static void errors_of_compiling_for_others_are_one_sentence(void **state)
{
    fail_each(compile, "fake:2");
}

static void is_said(int code, const cvn_err *err, const char *says)
{
    if (!code || !strstr(err->message, says))
        fail_msg("\"%s\" does not say: %s", err->message, says);
    assert_int_equal(fake.live(), 0);
}

static void what_does_not_fit_is_said(void **state)
{
    cvn_err err = {0};
    is_said(generate("model=8", &err), &err, "the mesh has 8 devices, but");
    err = (cvn_err){0};
    is_said(compile("fake:4", &err), &err, "'fake:4' has 4 devices, but the mesh has 2");
}

/* XLA's plugin ends the program where it is missing. */
static void where_the_cuda_toolkit_was_looked_for_is_said(void **state)
{
    static const char *const system[] = {"/nowhere/cuda", NULL};
    char flags[700];
    const char *found;
    cvn_err err = {0};
    Arena arena;
    (void)state;
    must(arena_begin(&arena, &err), &err);
    unsetenv("XLA_FLAGS");
    is_said(toolkit_find("/no/plugin.so", system, &arena, &found, &err), &err,
            "not found in /nowhere/cuda, /no/cuda, /no/../nvidia/cu13, /no/../../nvidia/cu13; ");
    count("mkdir -p kit/nvvm/libdevice && touch kit/nvvm/libdevice/libdevice.10.bc && echo 1");
    snprintf(flags, sizeof flags, "--xla_a=1 --xla_gpu_cuda_data_dir=%s/kit --xla_b", scratch);
    setenv("XLA_FLAGS", flags, 1);
    must(toolkit_find("plugin.so", system, &arena, &found, &err), &err);
    assert_non_null(strstr(found, "/kit"));
    unsetenv("XLA_FLAGS");
    arena_free(&arena);
}

/* What a TPU holds in the memory of its cores is not the device's. */
static void a_plan_for_tpus_leaves_out_what_is_on_the_chip(void **state)
{
    expect(0,
           "for d in cpu tpu; do caravan plan -p tiny --decode --json --device $d | grep -o "
           "'\"temporaries\": [0-9.e+]*, \"constants\": [0-9.e+]*' | tr -dc '0-9. '; echo; done "
           "| awk '{ print ($1 > $2) }' | tr '\\n' ' '",
           "1 0");
}

static void bench_measures_devices_of_a_plugin(void **state)
{
    expect(0,
           "caravan bench -p tiny --device " DEVICE
           ",executables=none --prefill 16 --decode 4 --context 16 "
           "--json 2>&1",
           "\"kernels\": \"pjrt:");
    expect(0,
           "caravan bench --train -p tiny --device " DEVICE
           ",executables=none --seq 16 --repeats 1 --json "
           "2>&1",
           "\"kernels\": \"pjrt:");
}

/* Two processes with 4 devices each, whose plugins find each other; and one of which cannot open its devices. */
static void processes_find_each_other(void **state)
{
    need_mpirun();
    expect(0, "caravan init -p tiny -o several", "");
    expect(0,
           MPIRUN "-n 2 " CVN_BINARY " score -m several --tokens 1,2,3 --mesh model=8 --layout tp "
                  "--device " DEVICE ",executables=none 2>&1",
           "3 tokens");
    expect(0,
           MPIRUN "-n 2 " CVN_BINARY " score -m several --tokens 1,2,3 --mesh model=8 --layout tp "
                  "--device " DEVICE
                  ",executables=none,fail_node=1 2>&1 | grep -c 'rank 1 on .*: the "
                  "plugin .* could not open its devices: injected'",
           "1");
    expect(0,
           MPIRUN "-n 2 " CVN_BINARY " score -m several --tokens 1,2,3 --mesh model=16 --layout tp "
                  "--device " DEVICE
                  " 2>&1 | grep -c 'the mesh has 8 devices in each process, but'",
           "1");
}

/* What the host does and what the plugin recorded, in one file; of a plugin that cannot, the host's alone. */
static void profiles_have_the_devices_timeline(void **state)
{
    (void)state;
#define PROFILE "generate -m profiled --tokens 1,2,3 -n 4 --profile p.json --device " DEVICE
    expect(0, "caravan init -p tiny -o profiled && caravan " PROFILE ",executables=none 2>&1", "");
    expect(0, "python3 -m json.tool p.json >/dev/null && grep -c '\"cat\":\"host\"' p.json", "12");
    expect(
        0,
        "grep -c '\"name\":\"fusion.3\",\"cat\":\"device\",\"ph\":\"X\",\"ts\":3.500,\"dur\":0.800,"
        "\"pid\":2,\"tid\":1,\"args\":{\"bytes\":4096}}' p.json",
        "1");
    expect(0, "grep -c '\"name\":\"/device:FAKE:0\"' p.json", "1");
    static const char *const failing[] = {"create", "start", "stop", "collect"};
    for (size_t i = 0; i < sizeof failing / sizeof *failing; i++) {
        char command[400];
        snprintf(command, sizeof command,
                 "FAKE_PROFILER=%s caravan " PROFILE
                 ",executables=none >/dev/null 2>&1 && python3 -m json.tool p.json | grep -c "
                 "'caravan (the plugin could not .* profile: injected)'",
                 failing[i]);
        expect(0, command, "1");
    }
}

static void profiles_of_processes_are_one(void **state)
{
    (void)state;
    need_mpirun();
    expect(0,
           "caravan init -p tiny -o profiled2 && " MPIRUN "-n 2 " CVN_BINARY
           " score -m profiled2 --tokens 1,2,3 --mesh model=8 --layout tp --profile p2.json "
           "--device " DEVICE ",executables=none >/dev/null 2>&1 && python3 -m json.tool p2.json | "
           "grep -cE '\"name\": \"(caravan|/device:FAKE:0) \\(rank [01], '",
           "4");
}

static void other_versions_are_refused(void **state)
{
    const size_t size = sizeof(PjrtApi);
    cvn_err err = {0};
    fake.table(1, 5, size);
    is_said(generate(NULL, &err), &err, "a PJRT API version other than 0");
    err = (cvn_err){0};
    fake.table(0, PJRT_OLDEST - 1, size);
    is_said(generate(NULL, &err), &err, "; use a plugin with 0.");
    err = (cvn_err){0};
    fake.table(0, PJRT_OLDEST, size - 8);
    is_said(generate(NULL, &err), &err, "; use a plugin with 0.");
    err = (cvn_err){0};
    fake.table(0, 500, size + 800);
    assert_int_equal(generate(NULL, &err), CVN_OK);
}

static void a_damaged_program_is_refused(void **state)
{
    static const char program[] = "\x0a\x08\x1a\x06\x12\x04\x12\x02no";
    Compiled c = {0};
    assert_true(optimized_read(program, sizeof program - 1, &c));
    assert_true(optimized_read(program, 0, &c));
    for (size_t n = 1; n < 6; n++)
        assert_false(optimized_read(program, n, &c));
}

/* A loop of 16 turns: computation 7 is its body, of 10 cycles, 8 its condition. */
static void a_loop_counts_as_often_as_it_turns(void **state)
{
    static const char program[] =
        "\x0a\x3d"
        "\x1a\x20\x28\x07\x12\x1c\xda\x02\x19{\"estimated_cycles\":\"10\"}"
        "\x1a\x09\x28\x08\x12\x05\x42\x03\x22\x01\x10"
        "\x1a\x0e\x12\x0c\x12\x05while\xb2\x02\x02\x07\x08";
    Compiled c = {0};
    assert_true(optimized_read(program, sizeof program - 1, &c));
    assert_int_equal((int)c.cycles, 160);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_of_a_run_are_one_sentence),
        cmocka_unit_test(a_step_moves_a_few_numbers),
        cmocka_unit_test(programs_are_kept),
        cmocka_unit_test(errors_of_kept_programs_are_borne),
        cmocka_unit_test(errors_of_compiling_for_others_are_one_sentence),
        cmocka_unit_test(what_does_not_fit_is_said),
        cmocka_unit_test(where_the_cuda_toolkit_was_looked_for_is_said),
        cmocka_unit_test(bench_measures_devices_of_a_plugin),
        cmocka_unit_test(processes_find_each_other),
        cmocka_unit_test(profiles_have_the_devices_timeline),
        cmocka_unit_test(profiles_of_processes_are_one),
        cmocka_unit_test(a_plan_for_tpus_leaves_out_what_is_on_the_chip),
        cmocka_unit_test(other_versions_are_refused),
        cmocka_unit_test(a_damaged_program_is_refused),
        cmocka_unit_test(a_loop_counts_as_often_as_it_turns),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, load_fake, remove_scratch);
}
