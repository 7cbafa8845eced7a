/* The command line as scripts and people meet it: options, mistakes, help, the environment, and what is made of the tables of options. */
#include "cli_run.h"
#include "cpu/registry.h"

#include <sys/statvfs.h>

/* Calls check(command name) for every command there is. */
static void each_command(void (*check)(const char *name))
{
    Run r = run("", "_commands");
    assert_int_equal(r.status, 0);
    int n = 0;
    for (char *at = r.output.text, *end; (end = strchr(at, '\n')); at = end + 1, n++) {
        *end = '\0';
        check(at);
    }
    assert_true(n >= 2);
    strbuf_free(&r.output);
}

/* Columns of the first n bytes of a line in UTF-8. */
static size_t columns(const char *text, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += (text[i] & 0xc0) != 0x80;
    return count;
}

static void check_help(const char *name)
{
    char args[64];
    snprintf(args, sizeof args, "%s --help", name);
    Run r = run("", args);
    assert_int_equal(r.status, 0);
    int lines = 0;
    for (char *at = r.output.text; *at; lines++) {
        size_t n = strcspn(at, "\n");
        if (columns(at, n) > 80)
            fail_msg("caravan %s: a line of %zu columns: %.*s", args, n, (int)n, at);
        char example[64];
        int length = snprintf(example, sizeof example, "  caravan %s", name);
        if (strncmp(at, example, 10) == 0 && strncmp(at, example, (size_t)length) != 0)
            fail_msg("an example of %s is of another command: %.*s", name, (int)n, at);
        at += n + (at[n] == '\n');
    }
    if (lines > 75)
        fail_msg("caravan %s: %d lines, more than a page", args, lines);
    const char *examples = strstr(r.output.text, "Examples:\n  caravan ");
    const char *usage = strstr(r.output.text, "Usage: caravan ");
    assert_non_null(examples);
    assert_non_null(usage);
    assert_true(examples < usage);
    strbuf_free(&r.output);
}

static void help_of_every_command_is_one_page_with_examples_first(void **state)
{
    each_command(check_help);
    expect(0, "", "--help", "caravan COMMAND --help");
    expect(0, "", "help init", "caravan init");
    expect(0, "", "init --help --nonsense", "caravan init");
}

/* Lines that end with status 2 and this piece. */
static void options_that_say_nothing_here_are_mistakes(void **state)
{
    static const char *const cases[][2] = {
        {"bench -p tiny --batches 1 2>&1", "--batches has no effect without --table"},
        {"bench -p tiny --seq 64 2>&1", "--seq has no effect without --train"},
        {"bench -p tiny --train --decode 4 2>&1", "--decode has no effect with --train"},
        {"generate -m /tmp -p x --layout tp 2>&1", "--layout has no effect without --mesh"},
        {"bench -p tiny --overlap off 2>&1", "--overlap has no effect without --mesh"},
        {"train --data /tmp -p tiny -o x --layout tp 2>&1",
         "--layout has no effect without --mesh"},
        {"train --data /tmp -p tiny -o x --overlap off 2>&1", "--overlap has no effect without"},
        {"bench -p tiny --table --batches 1,x 2>&1", "--batches is \"1,x\", and \"x\" is invalid"},
        {"bench -p tiny --table --batches 0 2>&1", "give comma-separated integers of at least 1"},
        {"generate -m /tmp --tokens 1,-3 2>&1", "--tokens is \"1,-3\", and \"-3\" is invalid"},
        {"generate -m /tmp -p x --dtype f16 2>&1", "did you mean bf16? There are f32, bf16"},
        {"generate -m /tmp -p x --memory 1X 2>&1", "from 0 to 1.00 EiB"},
        {"init --help=yes 2>&1", "--help takes no value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(2, "", cases[i][0], cases[i][1]);
    expect(1, "CARAVAN_LAYOUT=tp", "generate -m /dev/null -p x 2>&1", "is not a model");
}

static void outputs_are_tried_before_the_work(void **state)
{
    char args[512];
    snprintf(args, sizeof args, "bench -p tiny --prefill 8 --decode 2 --profile %s/no/x.json 2>&1",
             in_scratch(""));
    Run r = run("", args);
    assert_int_equal(r.status, 1);
    assert_true(strncmp(r.output.text, "caravan: --profile: cannot create '", 35) == 0);
    assert_ptr_equal(strchr(r.output.text, '\n') + 1, r.output.text + strlen(r.output.text));
    strbuf_free(&r.output);
    expect(1, "", "plan -p tiny --svg /dev/full 2>&1", "--svg: '/dev/full' is not a regular file");
}

static void what_cannot_fit_is_refused_before_it_is_begun(void **state)
{
    char args[512];
    expect(1, "", "bench -p llama-175b --prefill 0 --decode 2 2>&1", "GiB are free");
    snprintf(args, sizeof args, "init -p llama3.1-405b --dtype f32 -o %s 2>&1", in_scratch("big"));
    struct statvfs disk;
    if (statvfs(in_scratch(""), &disk) != 0 ||
        (double)disk.f_bavail * (double)disk.f_frsize > 1.5e12)
        skip(); /* a disk so large would be filled */
    expect(1, "", args, "free space or choose another folder");
    assert_false(file_exists(in_scratch("big")));
}

static void wrong_folders_are_told_what_they_are(void **state)
{
    char args[512], *model = strdup(in_scratch("parts"));
    snprintf(args, sizeof args, "init -p stories260k -o %s", model);
    expect(0, "", args, "");
    snprintf(args, sizeof args, "inspect -m %s/config.json 2>&1", model);
    expect(1, "", args, "is one file of a model; give the folder that contains it");
    snprintf(args, sizeof args, "train --resume %s 2>&1", model);
    expect(1, "", args, "is not a run of caravan train");
    snprintf(args, sizeof args, "export %s/config.json x 2>&1", model);
    expect(1, "", args, "is not a run of caravan train");
    snprintf(args, sizeof args, "init -p tiny -o %s/no/such 2>&1", model);
    expect(1, "", args, "/no/such': No such file or directory"); /* not a temporary name */
    free(model);
}

static void version_names_processor_and_parts(void **state)
{
    expect(0, "", "--version", "caravan " CVN_VERSION "\n");
    expect(0, "", "--version", "\nkernels: ");
    expect(0, "", "--version", "\nprocessor: ");
    expect(0, "", "--version", "\nseveral processes: ");
    expect(0, "CARAVAN_MPI=/no.so", "--version", "\nseveral processes: not here, /no.so: cannot");
    expect(0, "CARAVAN_CPU=portable", "--version", "kernels: portable\n");
    if (cpu_kernels_of(CPU_ISA_AVX2))
        expect(0, "CARAVAN_CPU=portable", "--version", " without CARAVAN_CPU\n");
#if defined(CVN_HAVE_AMX)
    if (!cpu_kernels_of(CPU_ISA_AMX))
        expect(0, "CARAVAN_CPU=", "--version", "amx with ");
#endif
    expect(2, "CARAVAN_CPU=avx22", "--version 2>&1", "CARAVAN_CPU is \"avx22\"; give one of ");
}

static void mistakes_end_in_one_sentence_with_the_nearest_word(void **state)
{
    expect(2, "", "2>&1", "Commands:");
    expect(2, "", "inti 2>&1", "did you mean init?");
    expect(2, "", "frobnicate 2>&1", "caravan --help lists them");
    expect(2, "", "help inti 2>&1", "did you mean init?");
    expect(2, "", "init --prest tiny 2>&1", "did you mean --preset?");
    expect(2, "", "init --preset=tyni -o x 2>&1", "did you mean tiny?");
    expect(2, "", "init --preset=sotries15m -o x 2>&1", "did you mean stories15m?");
    expect(2, "", "init --preset qqqqqqqq -o x 2>&1", "give one of ");
    expect(2, "", "init --preset qqqqqqqq -o x 2>&1", ", tiny, stories260k, ");
    expect(2, "", "init -z 2>&1", "unknown option -z");
    expect(2, "", "init --preset tiny 2>&1", "--out DIR is missing");
    expect(2, "", "init --preset 2>&1", "--preset needs a value: --preset NAME");
    expect(2, "", "init --force=yes 2>&1", "--force takes no value");
    expect(2, "", "init stray 2>&1", "unexpected argument \"stray\"");
    expect(2, "", "generate here and there 2>&1",
           "unexpected argument \"and\"; generate takes a model and options");
    expect(1, "", "generate /nowhere/at/all -p x 2>&1", "there is no file or folder /nowhere");
    expect(2, "", "inspect -p tiny stray 2>&1", "unexpected argument \"stray\"");
    expect(2, "", "generate -m a b -p x 2>&1", "unexpected argument \"b\"");
    expect(2, "", "inspect 2>&1", "--model or --preset is missing");
    expect(1, "", "inspect --model /nowhere/at/all 2>&1", "there is no file or folder");
    expect(2, "", "export 2>&1", "RUN and OUT are missing");
    expect(2, "", "export run 2>&1", "export takes RUN and OUT, and there is only \"run\"");
    expect(2, "", "export a b c 2>&1", "unexpected argument \"c\"; export takes RUN and OUT");
    expect(2, "", "opt '' 2>&1", "an argument is empty; opt takes FILE");
    expect(2, "", "--versoin 2>&1", "did you mean --version");
    expect(1, "", "simulate -p tiny --chip h100 2>&1", "did you mean h100_sxm?");
    expect(2, "", "train x 2>&1", "unexpected argument \"x\"; train takes only options");
    expect(2, "", "opt 2>&1", "FILE is missing");
    expect(1, "", "opt /tmp 2>&1", "'/tmp' is a folder; give a file");
    expect(1, "", "opt /nowhere/at/all 2>&1", "cannot open '/nowhere/at/all': ");
    expect(1, "", "export /nowhere/at/all out 2>&1", "there is no folder '/nowhere/at/all'");
    expect(1, "", "reshard /nowhere/at/all out 2>&1", "there is no folder '/nowhere/at/all'");
    expect(2, "", "train 2>&1", "--data FILE");
    expect(2, "", "train --data /tmp 2>&1", "--preset NAME");
    expect(2, "", "train --data /tmp --preset tiny 2>&1", "--out DIR");
    expect(2, "", "train --data /tmp --preset tyni --out x 2>&1", "did you mean tiny?");
    expect(2, "", "train --data /tmp --preset tiny --lora r=2 --out x 2>&1", "--init DIR");
    expect(2, "", "train 2>&1", "train --help shows examples");
    expect(1, "", "train --data /tmp --data /nowhere/at/all --preset tiny --out x 2>&1",
           "--data: there is no file or folder /nowhere/at/all");
    expect(1, "", "train --data /dev/null --preset tiny --out /tmp/x 2>&1", "not a regular file");
    char args[256];
    file_write(in_scratch("story.json"), "{}", 2, NULL);
    file_write(in_scratch("empty.csv"), "", 0, NULL);
    snprintf(args, sizeof args, "simulate --rows %s 2>&1", in_scratch("empty.csv"));
    expect(1, "", args, "empty.csv is empty; its first line must name the columns");
    snprintf(args, sizeof args, "inspect --model %s 2>&1", in_scratch("stroy.json"));
    expect(1, "", args, "did you mean ");
    assert_int_equal(symlink("/nowhere/at/all", in_scratch("dangling")), 0);
    snprintf(args, sizeof args, "inspect --model %s 2>&1", in_scratch("dangling"));
    expect(1, "", args, "dangling is a dangling symbolic link");
}

static void numbers_out_of_range_are_refused_by_name(void **state)
{
    expect(2, "", "inspect --preset tiny --batch 0 2>&1",
           "--batch is \"0\"; give a whole number from 1 to");
    expect(2, "", "inspect --preset tiny -b 1.5 2>&1", "-b is \"1.5\"; give a whole number");
    expect(2, "", "inspect --preset tiny -b '' 2>&1", "-b is \"\"");
    expect(2, "", "inspect --preset tiny -b 99999999999999999999 2>&1", "give a whole number");
    expect(2, "", "init --preset tiny -o x --shard-size 1Q 2>&1", "a size in bytes such as");
    expect(2, "", "init --preset tiny -o x --shard-size nan 2>&1", "a size in bytes such as");
    expect(2, "", "init --preset tiny -o x --seed -1 2>&1", "0 or more");
}

static void flags_win_over_the_environment(void **state)
{
    const char *json = "inspect --preset tiny --json";
    expect(0, "CARAVAN_BATCH=3", json, "\"batch\": 3");
    expect(0, "CARAVAN_BATCH=3", "inspect --preset tiny --json --batch 5", "\"batch\": 5");
    expect(0, "CARAVAN_BATCH=", json, "\"batch\": 1");
    expect(0, "CARAVAN_PRESET=tiny CARAVAN_JSON=1", "inspect", "\"name\": \"tiny\"");
    expect(0, "CARAVAN_PRESET=tiny CARAVAN_JSON=off", "inspect", "tiny: preset");
    expect(2, "CARAVAN_PRESET=tiny CARAVAN_JSON=maybe", "inspect 2>&1", "CARAVAN_JSON is");
    expect(2, "CARAVAN_BATCH=zero", "inspect --preset tiny 2>&1", "CARAVAN_BATCH is \"zero\"");
    /* An option takes the place of what the environment says of another of its group. */
    expect(0, "CARAVAN_MODEL=/nowhere", json, "\"name\": \"tiny\"");
}

static void check_plain(const char *name)
{
    char args[64];
    snprintf(args, sizeof args, "%s --help 2>&1", name);
    Run r = run("", args);
    assert_null(strchr(r.output.text, '\033'));
    strbuf_free(&r.output);
}

static void pipes_get_no_colours(void **state)
{
    each_command(check_plain);
    Run r = run("", "inspect --modle x 2>&1");
    assert_null(strchr(r.output.text, '\033'));
    strbuf_free(&r.output);
}

static void completions_are_scripts_that_offer_the_commands(void **state)
{
    expect(0, "", "_completion bash | bash -n 2>&1 && echo parsed", "parsed");
    expect(0,
           "COMP='COMP_WORDS=(caravan in); COMP_CWORD=1; _caravan; echo ${COMPREPLY[*]}'; export "
           "COMP;",
           "_completion bash > /tmp/c.$$; bash -c '. /tmp/c.'$$'; eval \"$COMP\"'; rm /tmp/c.$$",
           "init inspect");
    /* Values of options that have some, also of those that take others. */
    static const char *const values[][2] = {
        {"simulate --chip h1", "h100_sxm"},   {"plan --layout fs", "fsdp"},
        {"train --layout tp-", "tp-scatter"}, {"generate --device t", "tpu"},
        {"train --optimizer = mu", "muon"},   {"generate --dtype b", "bf16"}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char typed[300];
        snprintf(typed, sizeof typed,
                 "COMP='cd /; COMP_WORDS=(caravan %s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
                 "_caravan; echo ${COMPREPLY[*]}'; export COMP;",
                 values[i][0]);
        expect(
            0, typed,
            "_completion bash > /tmp/c.$$; bash -c '. /tmp/c.'$$'; eval \"$COMP\"'; rm /tmp/c.$$",
            values[i][1]);
    }
    expect(0, "", "_completion zsh", "#compdef caravan");
    if (system("command -v zsh >/dev/null") == 0)
        expect(0, "", "_completion zsh | zsh -n 2>&1 && echo parsed", "parsed");
    expect(0, "", "_completion fish", "-n __fish_use_subcommand -f -a generate -d ");
    expect(0, "", "_completion fish", "-l optimizer -x -a 'adamw adafactor muon' -d ");
    expect(0, "", "_completion fish", "-d 'show a model\\'s configuration, tensors and memory'");
    if (system("command -v fish >/dev/null") == 0)
        expect(0, "", "_completion fish | fish --no-config -n 2>&1 && echo parsed", "parsed");
    expect(2, "", "_completion tcsh 2>&1", "bash, zsh or fish");
}

static void check_man(const char *name)
{
    char args[128];
    snprintf(args, sizeof args, "_man %s", name);
    Run r = run("", args);
    assert_int_equal(r.status, 0);
    assert_int_equal(strncmp(r.output.text, ".TH ", 4), 0);
    assert_non_null(strstr(r.output.text, "\n.SH OPTIONS\n"));
    strbuf_free(&r.output);
    if (system("command -v man >/dev/null 2>&1") == 0) {
        snprintf(args, sizeof args, "_man %s | man --warnings -l - 2>&1 >/dev/null; echo done",
                 name);
        r = run("", args);
        assert_string_equal(r.output.text, "done\n");
        strbuf_free(&r.output);
    }
}

static void man_pages_render_without_warnings(void **state)
{
    each_command(check_man);
    check_man("init");
    expect(0, "", "_man", ".SH COMMANDS\n");
    expect(2, "", "_man inti 2>&1", "did you mean init?");
}

int main(void)
{
    forget_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_of_every_command_is_one_page_with_examples_first),
        cmocka_unit_test(options_that_say_nothing_here_are_mistakes),
        cmocka_unit_test(outputs_are_tried_before_the_work),
        cmocka_unit_test(what_cannot_fit_is_refused_before_it_is_begun),
        cmocka_unit_test(wrong_folders_are_told_what_they_are),
        cmocka_unit_test(version_names_processor_and_parts),
        cmocka_unit_test(mistakes_end_in_one_sentence_with_the_nearest_word),
        cmocka_unit_test(numbers_out_of_range_are_refused_by_name),
        cmocka_unit_test(flags_win_over_the_environment),
        cmocka_unit_test(pipes_get_no_colours),
        cmocka_unit_test(completions_are_scripts_that_offer_the_commands),
        cmocka_unit_test(man_pages_render_without_warnings),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
