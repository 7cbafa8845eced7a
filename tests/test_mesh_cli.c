/* Commands on meshes: the same output in one process and in several, and what is said when something is wrong. */
#include "ranks.h"
#include "shell.h"

static StrBuf launch(const char *n, const char *command, int *status)
{
    StrBuf line = {0};
    strbuf_printf(&line, MPIRUN "-n %s " CVN_BINARY " %s", n, command);
    StrBuf output = shell(line.text, status);
    strbuf_free(&line);
    return output;
}

static void a_mesh_scores_as_one_device_does(void **state)
{
    static const char *const layouts[][2] = {{"dp", "data=4"},
                                             {"tp", "model=4"},
                                             {"fsdp", "data=4"},
                                             {"2d", "data=2,model=2"},
                                             {"fsdp+tp", "data=2,model=2"}};
    int status;
    StrBuf whole = shell("caravan score -m model --text 'The quick brown fox' --summary", &status);
    assert_int_equal(status, 0);
    whole.text[strcspn(whole.text, ".") + 4] = 0; /* to three digits of the mean */
    for (int i = 0; i < 5; i++) {
        char line[256];
        snprintf(line, sizeof line,
                 "caravan score -m model --text 'The quick brown fox' --summary --mesh "
                 "%s --layout %s",
                 layouts[i][1], layouts[i][0]);
        expect(0, line, whole.text);
    }
    strbuf_free(&whole);
}

static void overlap_is_not_seen_in_what_is_printed(void **state)
{
    static const char *const commands[][2] = {
        {"score -m model --text 'The quick brown fox' --mesh data=2,model=2 --json", ""},
        {"generate -m model -p 'The fox' -n 20 --mesh data=2,model=2 --threads 1 --seed 5 --json",
         "2>/dev/null | sed 's/\"timings.*//'"},
    };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        int status[2];
        char line[2][512];
        for (int k = 0; k < 2; k++)
            snprintf(line[k], sizeof line[k], "caravan %s --overlap %s %s", commands[i][0],
                     k ? "off" : "on", commands[i][1]);
        StrBuf on = shell(line[0], &status[0]), off = shell(line[1], &status[1]);
        assert_int_equal(status[0] | status[1], 0);
        assert_true(on.length > 20);
        assert_string_equal(on.text, off.text);
        strbuf_free(&on);
        strbuf_free(&off);
    }
    expect(0, "caravan plan --preset stories15m --mesh data=4 --layout fsdp --train --overlap off",
           "all_gather");
    expect(2, "caravan score -m model --text abc --mesh data=2 --overlap never 2>&1", "on, off");
    expect(2, "caravan plan -p tiny --device abacus 2>&1", "--device: unknown device");
}

static void ranks_print_what_threads_print(void **state)
{
    static const char *const commands[] = {
        "score -m model --text 'The quick brown fox' --mesh data=2,model=2 --json",
        "generate -m model -p 'The fox' -n 20 --mesh data=2,model=2 --layout fsdp+tp --threads 1 "
        "--temperature 0 --json 2>/dev/null | sed 's/\"timings.*//'",
        "generate -m model -p 'The fox' -n 20 --mesh model=4 --layout tp --threads 1 --seed 5 "
        "--json 2>/dev/null | sed 's/\"timings.*//'",
    };
    need_mpirun();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        int status;
        char line[512];
        snprintf(line, sizeof line, "caravan %s", commands[i]);
        StrBuf threads = shell(line, &status);
        assert_int_equal(status, 0);
        for (int n = 2; n <= 4; n += 2) {
            StrBuf ranks = launch(n == 2 ? "2" : "4", commands[i], &status);
            if (status || strcmp(ranks.text, threads.text) != 0)
                fail_msg("%d ranks, exit %d: %s\nthreads: %s", n, status, ranks.text, threads.text);
            strbuf_free(&ranks);
        }
        strbuf_free(&threads);
    }
}

#define TALK "printf 'one\\ntwo\\n/reset\\nthree\\n/save %s\\n' | "
#define CHAT_MESH                                                                                  \
    "chat -m model -n 12 --ignore-eos --temperature 0 --threads 1 --mesh data=1,model=2"

/* What is said is saved: every turn is the same, whoever answers. */
static void a_mesh_talks_as_one_device_does(void **state)
{
    int status;
    char line[1024];
    snprintf(line, sizeof line,
             TALK "caravan chat -m model -n 12 --ignore-eos --temperature 0 >/dev/null && " TALK
                  "caravan " CHAT_MESH ">/dev/null && cmp one.json mesh.json",
             "one.json", "mesh.json");
    expect(0, line, "");
    need_mpirun();
    snprintf(line, sizeof line,
             TALK MPIRUN "-n 2 " CVN_BINARY " " CHAT_MESH
                         " >/dev/null && cmp one.json ranks.json; echo $?; ls *.json | wc -l",
             "ranks.json");
    StrBuf output = shell(line, &status);
    assert_string_equal(output.text, "0\n3\n");
    strbuf_free(&output);
}

static void a_mesh_is_measured(void **state)
{
#define BENCH                                                                                      \
    "bench --mesh data=1,model=2 --prefill 20 --decode 4 --context 8 --repeats 1 --threads 1 "     \
    "--json "
    expect(0, "caravan " BENCH "-m model", "\"tokens_per_second\"");
    expect(0, "caravan " BENCH "--preset stories260k --layout fsdp+tp", "\"tokens_per_second\"");
    expect(0, "caravan bench --train --preset stories260k --mesh data=2 --repeats 1 --threads 1",
           "seq 512: "); /* the model's context, which is less than 1024 */
    need_mpirun();
    int status;
    StrBuf output = launch("2", BENCH "-m model --table --batches 1,2 --contexts 8", &status);
    assert_int_equal(status, 0);
    assert_non_null(strstr(output.text, "\"table\""));
    strbuf_free(&output);
}

/* Of every value its spec, the mark that set it, and the operations on the way; of a long way the ends. */
static void specs_say_who_set_them(void **state)
{
    StrBuf line = {0};
    strbuf_puts(&line, "printf 'graph @f {\n  %%x: f32[8,64]<data,_> = parameter {name=\"x\"}\n"
                       "  %%w: f32[32,64]<1:model,_> = parameter {name=\"w\"}\n"
                       "  %%h: f32[8,32] = dot_general %%x, %%w {lhs_contract=[1], "
                       "rhs_contract=[1]}\n");
    for (int i = 0; i < 20; i++)
        strbuf_printf(&line, "  %%%%y%d: f32[8,32] = tanh %%%%%c%.0d\n", i, i ? 'y' : 'h',
                      i > 1 ? i - 1 : 0);
    strbuf_puts(&line, "  return %%y19\n}\n' | sed 's/tanh %y$/tanh %y0/' > long.txt; caravan opt "
                       "--emit specs --mesh data=2,model=2 long.txt");
    expect(0, line.text,
           "%y0: f32[8,32]<data,model>\n    dim 1 by model: tanh from %h; "
           "dot_general from %w; mark on %w\n");
    expect(0, line.text, "tanh from %y7; 9 more; mark on %x\n");
    expect(0, line.text, "0 conflicts");
    expect(1, "caravan opt --emit specs long.txt 2>&1", "specs require a mesh");
    strbuf_free(&line);
}

static void one_rank_says_what_is_wrong(void **state)
{
    static const struct {
        const char *n, *command, *sentence;
    } cases[] = {
        {"3", "score -m model --text abc --mesh data=2,model=2 2>&1", "cannot be divided among 3"},
        {"2", "score -m model --text abc 2>&1", "several processes were started without --mesh"},
        {"2", "tokenize -m model --text abc 2>&1", "does not support several processes"},
        {"2", "score -m nothing --text abc --mesh data=2 2>&1", "nothing"},
    };
    need_mpirun();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status;
        StrBuf output = launch(cases[i].n, cases[i].command, &status);
        const char *first = strstr(output.text, "caravan:");
        if (status == 0 || !strstr(output.text, cases[i].sentence) || !first ||
            strstr(first + 1, "caravan:"))
            fail_msg("%s: exit %d: %s", cases[i].command, status, output.text);
        strbuf_free(&output);
    }
}

static void meshes_that_cannot_be_are_refused(void **state)
{
    expect(2, "caravan score -m model --text abc --mesh nonsense 2>&1", "nonsense");
    expect(1, "caravan score -m model --text abc --mesh data=2 --layout 4d 2>&1",
           "is not a layout");
}

/* Devices that only repeat what others do: no layout asks for them, so whoever did has mistyped something. */
static void axes_that_divide_nothing_are_refused(void **state)
{
    static const char *const commands[] = {
        "score -m model --text abc",
        "generate -m model -p abc -s 0",
        "chat -m model",
        "bench -p tiny --prefill 8 --decode 2",
        "bench -p stories260k --train --seq 32",
        "plan -p tiny",
        "train --data text -p stories260k --seq 16 --batch 2 --steps 1 --out no-run"};
    char line[512];
    expect(0, "for i in 1 2 3 4 5 6 7 8 9; do echo a text of the same words; done >text", "");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        snprintf(line, sizeof line, "caravan %s --mesh data=2,foo=3 </dev/null 2>&1", commands[i]);
        expect(1, line,
               "caravan: the 3 devices along the mesh's axis foo would all compute the same: "
               "layout 2d shards nothing over it, only over dcn, data, model;");
        snprintf(line, sizeof line, "caravan %s --mesh data=2,model=2 --layout tp </dev/null 2>&1",
                 commands[i]);
        expect(1, line,
               "axis data would all compute the same: layout tp shards nothing over it, only "
               "over model;");
    }
    expect(0, "caravan plan -p tiny --mesh data=2,foo=1 2>&1", "layout 2d");
    snprintf(line, sizeof line, "caravan %s --mesh data=2 --layout dp --batch 1 2>&1", commands[6]);
    expect(1, line, "a batch of 1 sequence cannot be sharded over it; give a larger --batch");
    expect(0, "test ! -e no-run", "");
}

/* A batch of one row is no mistake where texts come one by one, but is told. */
static void rows_that_do_not_divide_are_told(void **state)
{
    int status;
    expect(0, "caravan score -m model --text abc --mesh data=2 --layout dp 2>&1",
           "warning: the 2 devices along data all compute the same: with layout dp a batch of 1 "
           "sequence ");
    StrBuf output = shell("caravan score -m model --text abc --mesh data=2 --layout fsdp 2>&1; "
                          "caravan score -m model --text abc --mesh model=2 --layout tp 2>&1; "
                          "caravan score -m model --text abc --mesh context=2 2>&1",
                          &status);
    assert_int_equal(status, 0);
    assert_null(strstr(output.text, "warning"));
    strbuf_free(&output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mesh_scores_as_one_device_does),
        cmocka_unit_test(overlap_is_not_seen_in_what_is_printed),
        cmocka_unit_test(ranks_print_what_threads_print),
        cmocka_unit_test(a_mesh_talks_as_one_device_does),
        cmocka_unit_test(a_mesh_is_measured),
        cmocka_unit_test(specs_say_who_set_them),
        cmocka_unit_test(one_rank_says_what_is_wrong),
        cmocka_unit_test(meshes_that_cannot_be_are_refused),
        cmocka_unit_test(axes_that_divide_nothing_are_refused),
        cmocka_unit_test(rows_that_do_not_divide_are_told),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
