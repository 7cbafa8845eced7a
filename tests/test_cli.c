/* The command line as scripts and people meet it: the program is run, its output and exit code read. */
#include "base/file.h"
#include "base/strbuf.h"
#include "cpu/registry.h"
#include "scratch.h"
#include "unit.h"

#include <fcntl.h>
#include <math.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

/* A run of `caravan …` by the shell. */
typedef struct Run {
    int status;    /* exit code, or 128 + signal */
    StrBuf output; /* standard output, and standard error when the command line sends it there */
} Run;

/* Runs "ENV caravan ARGS"; ARGS may redirect. The caller frees output. */
static Run run(const char *environment, const char *args)
{
    StrBuf line = {0};
    Run r = {0};
    strbuf_printf(&line, "%s %s %s", environment, CVN_BINARY, args);
    assert_false(line.failed);
    FILE *pipe = popen(line.text, "r");
    assert_non_null(pipe);
    char piece[4096];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, pipe)) > 0)
        strbuf_add(&r.output, piece, n);
    strbuf_putc(&r.output, '\0');
    int status = pclose(pipe);
    r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    strbuf_free(&line);
    return r;
}

/* Runs, and holds the exit code and a piece of what is printed to what is expected. */
static void expect(int status, const char *environment, const char *args, const char *piece)
{
    Run r = run(environment, args);
    if (r.status != status || !strstr(r.output.text, piece))
        fail_msg("%s caravan %s: exit %d, expected %d and \"%s\" in:\n%s", environment, args,
                 r.status, status, piece, r.output.text);
    strbuf_free(&r.output);
}

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

/* Runs and parses what is printed as JSON. */
static json_t *run_json(const char *args)
{
    Run r = run("", args);
    assert_int_equal(r.status, 0);
    json_t *json = json_loads(r.output.text, 0, NULL);
    if (!json)
        fail_msg("caravan %s: no JSON: %s", args, r.output.text);
    strbuf_free(&r.output);
    return json;
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

static void init_and_inspect_agree(void **state)
{
    char args[256];
    snprintf(args, sizeof args, "init --preset stories260k --seed 4 -o %s/model", scratch);
    expect(0, "", args, "260,032 random parameters in f32");
    snprintf(args, sizeof args, "init --preset stories260k --seed 4 -o %s/model 2>&1", scratch);
    expect(1, "", args, "caravan: ");
    snprintf(args, sizeof args, "inspect --model %s/model", scratch);
    expect(0, "", args, "\nparameters  260,032, ");
    snprintf(args, sizeof args, "inspect --model %s/model --json", scratch);
    Run r = run("", args);
    json_t *json = json_loads(r.output.text, 0, NULL);
    assert_non_null(json);
    json_t *groups = json_object_get(json, "groups"), *value;
    const char *key;
    json_int_t sum = 0;
    json_object_foreach(groups, key, value) sum += json_integer_value(value);
    assert_int_equal(sum, 260032);
    assert_int_equal(json_integer_value(json_object_get(json, "disk_bytes")), 260032 * 4);
    json_decref(json);
    strbuf_free(&r.output);
}

static void inspect_names_the_types_of_blocks(void **state)
{
    const char *file = CVN_TEST_DATA "/gguf/mixed.gguf";
    char args[512];
    snprintf(args, sizeof args, "inspect --tensors --model %s", file);
    expect(0, "", args,
           "\nweights     Q4_K, Q6_K, Q4_0, IQ4_NL, IQ4_XS, Q3_K, Q5_K, Q5_0, Q2_K, Q5_1, F32\n");
    expect(0, "", args, "\n  IQ4_NL  [256, 256]       36864        blk.1.ffn_down.weight\n");
    snprintf(args, sizeof args, "inspect --json --model %s", file);
    expect(0, "", args, "\"type_bytes\": {\"Q4_K\": 165888, \"Q6_K\": 94080, ");
    snprintf(args, sizeof args, "inspect --stats --model %s", file);
    expect(0, "", args,
           "\n  Q5_1    [64, 256]        12288        -0.31665    0.34412     0.0018371   -     "
           "token_embd.weight");
    snprintf(args, sizeof args, "plan --model %s", file);
    expect(0, "", args, ", weights Q4_K, Q6_K, ");
}

/* A model of random weights for the tests below, made once. */
static const char *random_model(void)
{
    char args[256];
    const char *path = in_scratch("random");
    if (!file_exists(path)) {
        snprintf(args, sizeof args, "init --preset stories260k --context 100000 -o %s", path);
        expect(0, "", args, "random parameters");
    }
    return in_scratch("random");
}

static void score_prints_what_scripts_rely_on(void **state)
{
    char args[256];
    snprintf(args, sizeof args, "score --model %s -t 1 --tokens 1,7,500,7 --json", random_model());
    json_t *json = run_json(args), *logprobs = json_object_get(json, "logprobs");
    json_t *tokens = json_object_get(json, "tokens"), *argmax = json_object_get(json, "argmax");
    assert_int_equal(json_array_size(tokens), 4);
    assert_int_equal(json_array_size(argmax), 4);
    assert_int_equal(json_array_size(logprobs), 4);
    assert_int_equal(json_integer_value(json_array_get(tokens, 2)), 500);
    assert_true(json_is_null(json_array_get(logprobs, 0)));
    double sum = 0;
    for (size_t i = 1; i < 4; i++) {
        double logprob = json_real_value(json_array_get(logprobs, i));
        assert_true(logprob < 0);
        sum += logprob;
    }
    double perplexity = json_real_value(json_object_get(json, "perplexity"));
    assert_true(fabs(log(perplexity) + sum / 3) < 1e-5);
    json_decref(json);
}

static void generate_prints_what_scripts_rely_on(void **state)
{
    char args[512];
    snprintf(
        args, sizeof args,
        "generate --model %s -t 1 --tokens 1,7,500 --max-tokens 5 --temperature 0 --ignore-eos "
        "--json",
        random_model());
    json_t *json = run_json(args), *tokens = json_object_get(json, "tokens");
    assert_int_equal(json_array_size(json_object_get(json, "prompt_tokens")), 3);
    assert_int_equal(json_array_size(tokens), 5);
    assert_non_null(json_object_get(json, "text"));
    assert_true(json_is_object(json_object_get(json, "timings")));

    /* Greedy tokens are those that score finds likeliest. */
    StrBuf list = {0};
    strbuf_printf(&list, "score --model %s -t 1 --json --tokens 1,7,500", random_model());
    for (size_t i = 0; i < 5; i++)
        strbuf_printf(&list, ",%d", (int)json_integer_value(json_array_get(tokens, i)));
    json_t *score = run_json(list.text), *argmax = json_object_get(score, "argmax");
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(json_integer_value(json_array_get(tokens, i)),
                         json_integer_value(json_array_get(argmax, 2 + i)));
    strbuf_free(&list);
    json_decref(score);
    json_decref(json);
}

static void the_seed_decides_the_text(void **state)
{
    json_t *tokens[3];
    const int seeds[3] = {5, 5, 6};
    for (int i = 0; i < 3; i++) {
        char args[512];
        snprintf(args, sizeof args,
                 "generate --model %s -t 1 --tokens 1,7 -n 20 --ignore-eos --json --seed %d",
                 random_model(), seeds[i]);
        json_t *json = run_json(args);
        tokens[i] = json_incref(json_object_get(json, "tokens"));
        json_decref(json);
    }
    assert_true(json_equal(tokens[0], tokens[1]));
    assert_false(json_equal(tokens[0], tokens[2]));
    for (int i = 0; i < 3; i++)
        json_decref(tokens[i]);
}

static void every_seed_that_is_printed_is_taken(void **state)
{
    char args[512];
    snprintf(args, sizeof args,
             "generate --model %s -t 1 --tokens 1,7 -n 12 --n 40 --ignore-eos --json --seed "
             "9223372036854775807",
             random_model());
    Run all = run("", args);
    assert_int_equal(all.status, 0);
    int i = 0;
    for (const char *at = all.output.text; *at; at += strcspn(at, "\n") + 1, i++) {
        json_t *sample = json_loadb(at, strcspn(at, "\n"), 0, NULL);
        json_int_t seed = json_integer_value(json_object_get(sample, "seed"));
        assert_true(seed >= 0 && (i == 0 || seed < (json_int_t)1 << 53));
        snprintf(args, sizeof args,
                 "generate --model %s -t 1 --tokens 1,7 -n 12 --ignore-eos --json --seed %lld",
                 random_model(), (long long)seed);
        if (i % 8 == 0) {
            json_t *alone = run_json(args);
            assert_true(
                json_equal(json_object_get(alone, "tokens"), json_object_get(sample, "tokens")));
            json_decref(alone);
        }
        json_decref(sample);
    }
    assert_int_equal(i, 40);
    strbuf_free(&all.output);
}

static void the_first_operand_is_the_model(void **state)
{
    char args[512];
    snprintf(args, sizeof args, "generate %s -t 1 --tokens 1,7 -n 3 --seed 4 --json",
             random_model());
    json_t *json = run_json(args);
    snprintf(args, sizeof args, "generate -t 1 --tokens 1,7 -n 3 --seed 4 --json -m %s",
             random_model());
    json_t *other = run_json(args);
    assert_true(json_equal(json_object_get(json, "tokens"), json_object_get(other, "tokens")));
    json_decref(json);
    json_decref(other);
    snprintf(args, sizeof args, "inspect %s", random_model());
    expect(0, "CARAVAN_MODEL=/nowhere", args, "shape ");
    snprintf(args, sizeof args, "score --tokens 1,7 -t 1 %s --summary", random_model());
    expect(0, "", args, "perplexity");
    snprintf(args, sizeof args, "plan %s", random_model());
    expect(0, "", args, "a decode step");
}

static void threads_are_no_more_than_there_are_cores(void **state)
{
    char args[512];
    snprintf(args, sizeof args,
             "generate --model %s -t 999 --tokens 1,7 -n 3 --ignore-eos --json 2>/dev/null",
             random_model());
    json_t *json = run_json(args);
    assert_true(json_integer_value(json_object_get(json_object_get(json, "timings"), "threads")) <=
                sysconf(_SC_NPROCESSORS_ONLN));
    json_decref(json);
    snprintf(args, sizeof args, "score --model %s -t 999 --tokens 1,7 2>&1", random_model());
    expect(0, "", args, "999 threads exceed the ");
}

/* A vocabulary in which bytes that are never part of UTF-8 have no token, as of models whose tokenizer was made from text. */
static void bytes_without_a_token_are_told_of(void **state)
{
    json_t *json = json_load_file(CVN_TEST_DATA "/text/byte_level.json", 0, NULL);
    json_t *vocab = json_object_get(json_object_get(json, "model"), "vocab");
    json_int_t id = json_integer_value(json_object_get(vocab, "\xc3\xbf"));
    assert_int_equal(json_object_del(vocab, "\xc3\xbf"), 0);
    json_object_set_new(vocab, "another", json_integer(id));
    assert_int_equal(json_dump_file(json, in_scratch("lacking.json"), 0), 0);
    json_decref(json);
    char args[512];
    snprintf(args, sizeof args, "tokenize --tokenizer %s --json 2>&1", in_scratch("lacking.json"));
    expect(0, "printf 'ab\\377cd' |", args,
           "standard input: byte 2 (0xff) has no token in the vocabulary and is dropped");
    expect(0, "printf 'a\\377c\\377' |", args,
           "2 bytes have no token in the vocabulary and are dropped, the first is byte 1");
    expect(0, "printf 'ab\\376' |", args, "{\"ids\":[");
    Run r = run("printf 'ab\\376' |", args);
    assert_null(strstr(r.output.text, "dropped"));
    strbuf_free(&r.output);
}

static void ctrl_c_ends_a_generation_with_130(void **state)
{
    char args[512];
    /* In the middle of it: a shell's background process ignores the signal until the program catches it. */
    snprintf(args, sizeof args,
             "--version >/dev/null; cd %s; %s generate --model . -t 1 --tokens 1,7 -n 90000 "
             "--ignore-eos >out 2>&1 & pid=$!; "
             "for i in $(seq 6000); do grep -q , out && break; sleep 0.01; done; "
             "kill -INT $pid; wait $pid; code=$?; cat out; rm out; exit $code",
             random_model(), CVN_BINARY);
    expect(130, "", args, ",");
}

/* What was begun is not left behind: neither the folder nor the one in which it was being made. */
static void ctrl_c_leaves_no_folder(void **state)
{
    char args[512];
    snprintf(args, sizeof args,
             "--help >/dev/null; mkdir %s/made; cd %s/made; (exec %s init -p stories110m -o new) & "
             "pid=$!; "
             "for i in $(seq 6000); do [ -e new.tmp-$pid ] && break; sleep 0.01; done; "
             "kill -INT $pid; wait $pid; echo $?; ls",
             scratch, scratch, CVN_BINARY);
    Run r = run("", args);
    assert_string_equal(r.output.text, "130\n");
    strbuf_free(&r.output);
}

static void what_cannot_be_run_is_refused_in_a_sentence(void **state)
{
    char args[512];
    const char *model = random_model();
    snprintf(args, sizeof args, "score --model %s --tokens 1,512 2>&1", model);
    expect(1, "", args, "512");
    snprintf(args, sizeof args, "score --model %s --tokens 1 2>&1", model);
    expect(1, "", args, "only one token");
    snprintf(args, sizeof args, "train --data %s --preset tiny --out %s 2>&1", model, model);
    expect(1, "", args, "contains a model, which training would overwrite");
    snprintf(args, sizeof args, "train --data %s --preset tiny --out %s/config.json 2>&1", model,
             model);
    expect(1, "", args, "/config.json' is a file; --out names the folder of the run");
    snprintf(args, sizeof args, "generate --model %s --prompt hello 2>&1", model);
    expect(1, "", args, "tokenizer");
    snprintf(args, sizeof args, "generate --model %s --tokens 1 --memory 1M 2>&1", model);
    expect(1, "", args, "limit");
    snprintf(args, sizeof args, "generate --model %s --tokens 1 --top-p 2 2>&1", model);
    expect(2, "", args, "--top-p is \"2\"; give a number from");
    snprintf(args, sizeof args, "truncate -s -1 %s/model.safetensors", model);
    assert_int_equal(system(args), 0);
    snprintf(args, sizeof args, "score --model %s --tokens 1,2 2>&1", model);
    expect(1, "", args, "model.safetensors");
    snprintf(args, sizeof args, "rm -r %s", model);
    assert_int_equal(system(args), 0);
}

static void tokenize_goes_there_and_back(void **state)
{
    const char *model = CVN_SHARED_DATA "/checkpoints/stories260K-hf";
    if (access(model, R_OK) != 0) {
        print_message("no %s\n", model);
        skip();
    }
    char variable[512];
    snprintf(variable, sizeof variable, "CARAVAN_MODEL=%s", model);
    expect(0, variable, "tokenize --text 'Once upon a time'", "    403  \xe2\x96\x81Once\n");
    expect(0, variable, "tokenize --text 'Once upon a time' --json",
           "{\"ids\":[1,403,407,261,378]}\n");
    expect(0, variable, "tokenize --text 'Once upon a time' --json --no-bos", "[403,407,261,378]");
    expect(0, variable, "tokenize --text 'Once upon a time' --count", "5\n");
    expect(0, variable, "tokenize --decode --text '1, 403 407,261,378'", "Once upon a time");
    expect(0, variable, "tokenize --decode --text 1,403 --json", "{\"text\":\"Once\"}\n");
    expect(2, variable, "tokenize --text a --file b 2>&1", "give only one of --text or --file");
    expect(1, variable, "tokenize --decode --text 1,x 2>&1", "--text: id 2 is invalid");
    expect(1, variable, "tokenize --decode --text 512 2>&1", "outside the vocabulary of 512");

    const char *lines = "{\"text\":\"a tree\"}\n\n{\"text\":\"\\u00e9\\u0000\\n\"}\n";
    file_write(in_scratch("texts.jsonl"), lines, strlen(lines), NULL);
    char args[512];
    snprintf(args, sizeof args, "tokenize --jsonl < %s | %s %s tokenize --jsonl --decode",
             in_scratch("texts.jsonl"), variable, CVN_BINARY);
    expect(0, variable, args, "{\"text\":\"a tree\"}\n{\"text\":\"\303\251\\u0000\\n\"}\n");
    file_write(in_scratch("texts.jsonl"), "{}", 2, NULL);
    snprintf(args, sizeof args, "tokenize --jsonl -f %s 2>&1", in_scratch("texts.jsonl"));
    expect(1, variable, args, "texts.jsonl:1: there is no string \"text\"");
}

/* A row for each length, way and phase, and both ways in the picture. */
static void bench_sweeps_over_the_lengths_of_prompts(void **state)
{
    (void)state;
    char args[512];
    snprintf(
        args, sizeof args,
        "bench -p stories260k --prefill 0 --decode 2 --sweep --prompts 3,9,600 --repeats 1 -t 1 "
        "--csv --svg %s",
        in_scratch("sweep.svg"));
    Run r = run("", args);
    assert_int_equal(r.status, 0);
    static const char *const rows[] = {
        ",sweep,buckets,prefill,1,0,3,",        ",sweep,buckets,decode,1,3,2,",
        ",sweep,buckets,prefill,1,0,9,",        ",sweep,buckets,decode,1,9,2,",
        ",sweep,token by token,prefill,1,0,3,", ",sweep,token by token,decode,1,9,2,"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strstr(r.output.text, rows[i]))
            fail_msg("no '%s' in:\n%s", rows[i], r.output.text);
    assert_null(strstr(r.output.text, ",600,")); /* longer than the context */
    strbuf_free(&r.output);
    snprintf(args, sizeof args, "grep -c '<text.*token by token\\|<text.*buckets' %s",
             in_scratch("sweep.svg"));
    FILE *lines = popen(args, "r");
    int n = 0;
    assert_non_null(lines);
    assert_int_equal(fscanf(lines, "%d", &n), 1);
    pclose(lines);
    assert_int_equal(n, 4);
}

/* As with llama-bench, 0 leaves one of the two out. */
static void bench_measures_what_it_is_asked_for(void **state)
{
    Run r = run("", "bench --preset stories260k --prefill 0 --decode 2 --context 4 -t 1 --json");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.output.text, "\"decode\": {"));
    assert_null(strstr(r.output.text, "\"prefill\""));
    strbuf_free(&r.output);
    r = run("", "bench --preset stories260k --prefill 3 --decode 0 --repeats 1 -t 1");
    assert_int_equal(r.status, 0);
    assert_non_null(strstr(r.output.text, "  prefill 3 "));
    assert_null(strstr(r.output.text, "  decode"));
    strbuf_free(&r.output);
    /* A token waits for its step, however many rows have one; the throughput counts all of them. */
    r = run("", "bench --preset stories260k --prefill 0 --decode 4 --batch 3 -t 1");
    const char *row = strstr(r.output.text, "context 128");
    double step, rate, latency;
    assert_non_null(row);
    assert_int_equal(
        sscanf(row, "context 128 %lf ms %lf tokens/s %lf ms/token", &step, &rate, &latency), 3);
    assert_true(fabs(latency - step) < 0.01 && fabs(rate * latency / 3e3 - 1) < 0.1);
    strbuf_free(&r.output);
    expect(2, "", "bench --preset tiny --prefill 0 --decode 0 2>&1", "nothing to measure");
    expect(2, "", "bench --preset tiny --decode 0 --table 2>&1", "--decode is 0");
    expect(2, "", "bench --preset tiny --decode 0 --sweep 2>&1", "--sweep measures decoding");
    expect(2, "", "bench --preset tiny --svg x.svg 2>&1", "--svg has no effect without --sweep");
    expect(1, "", "bench --preset tiny --sweep --prompts 600 2>&1", "too short for the sweep's");
    expect(2, "", "bench --train --model /tmp 2>&1", "--train needs a --preset");
    expect(0, "",
           "bench --train --preset stories260k --seq 600 --batch 2 --repeats 1 --mesh data=2 -t 1",
           " tokens/s per device   MFU ");
    expect(0, "", "bench --preset stories260k --prefill 0 --decode 2 --batch 2 --mesh data=2 -t 1",
           " tokens/s per device ");
}

/* What takes long says on a terminal what it is at, and leaves nothing of it behind. */
static void bench_shows_its_steps_on_a_terminal(void **state)
{
    if (system("command -v script >/dev/null"))
        skip();
    Run r = {0};
    FILE *pipe = popen("script -qec '" CVN_BINARY
                       " bench --train -p tiny --seq 32 --repeats 1' /dev/null </dev/null",
                       "r");
    char line[4096];
    assert_non_null(pipe);
    while (fgets(line, sizeof line, pipe))
        strbuf_puts(&r.output, line);
    assert_int_equal(pclose(pipe), 0);
    assert_non_null(r.output.text);
    const char *first = strstr(r.output.text, "step 1 of 2, at least ");
    const char *second = first ? strstr(first, "step 2 of 2, ") : NULL;
    const char *wiped = second ? strstr(second, "\r\033[Ktiny, products in") : NULL;
    if (!wiped)
        fail_msg("%s", r.output.text);
    strbuf_free(&r.output);
}

/* Text typed at a terminal ends with one Ctrl-D at the beginning of a line. */
static void one_ctrl_d_ends_what_is_typed(void **state)
{
    static const char typed[] = "abc\n\004";
    int status, master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        skip(); /* no terminals here */
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(terminal, 0);
        dup2(null, 1);
        alarm(30);
        execl(CVN_BINARY, CVN_BINARY, "tokenize", "--tokenizer",
              CVN_TEST_DATA "/chat/tokenizer.json", (char *)NULL);
        _exit(127);
    }
    assert_int_equal(write(master, typed, sizeof typed - 1), sizeof typed - 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    close(terminal);
    close(master);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("ended with status %#x", (unsigned)status);
}

static void a_reader_of_profiles_ends_with_its_pipe(void **state)
{
    char args[512];
    if (system("command -v python3 >/dev/null"))
        skip();
    snprintf(args, sizeof args,
             "bench -p stories260k --prefill 8 --decode 2 --repeats 1 -t 1 --profile %s 2>&1",
             in_scratch("steps.json"));
    expect(0, "", args, "decode");
    snprintf(args, sizeof args,
             "_commands >/dev/null; (python3 " CVN_TEST_DATA "/../../bench/traffic.py %s | true) "
             "2>&1; echo then",
             in_scratch("steps.json"));
    Run r = run("", args);
    assert_string_equal(r.output.text, "then\n");
    strbuf_free(&r.output);
}

static void output_that_does_not_arrive_is_an_error(void **state)
{
    if (access("/dev/full", W_OK) != 0) {
        print_message("no /dev/full here\n");
        skip();
    }
    expect(1, "", "--help 2>&1 >/dev/full", "cannot write to standard output");
    expect(1, "", "train --help 2>&1 >/dev/full", "cannot write to standard output");
    expect(1, "", "inspect --preset tiny --json 2>&1 >/dev/full", "cannot write");
    char args[256]; /* and in one sentence */
    snprintf(
        args, sizeof args,
        "generate %s --tokens 1,7 -n 3 -t 1 2>&1 >/dev/full | grep -c caravan:", random_model());
    expect(0, "", args, "1\n");
    snprintf(args, sizeof args, "convert %s /dev/null 2>&1", random_model());
    expect(1, "", args, "'/dev/null' exists and is not a folder");
}

/* Standard files that are closed are not mixed up with those that a command opens. */
static void closed_files_stay_closed(void **state)
{
    char args[256];
    expect(1, "", "inspect --preset tiny 2>&1 >&-", "cannot write to standard output");
    expect(1, "", "opt - 2>&1 <&-", "cannot read standard input");
    assert_int_equal(file_write(in_scratch("text"), "a fox ran over the hill", 23, NULL), 0);
    snprintf(args, sizeof args,
             "train --data %s/text --preset stories260k --seq 4 --batch 1 --steps 2 --out %s/run "
             ">&- 2>&-",
             scratch, scratch);
    expect(1, "", args, "");
    snprintf(args, sizeof args, "--help >/dev/null; grep -c '^[^{]' %s/run/metrics.jsonl", scratch);
    expect(1, "", args, "0");
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

static void a_schema_alone_is_looked_at_and_told_of(void **unused)
{
    (void)unused;
    const struct {
        const char *schema, *more, *piece;
    } cases[] = {
        {"{\"type\":\"object\"}", "", "every keyword is supported; it is satisfiable; no values"},
        {"{\"type\":\"object\"}", "--json", "\"satisfiable\": true"},
        {"false", "", "no value satisfies it"},
        {"{\"type\":\"object\"}", "--instances /dev/null", "has no lines"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char args[512];
        file_write(in_scratch("schema.json"), cases[i].schema, strlen(cases[i].schema), NULL);
        snprintf(args, sizeof args, "constrain --schema %s %s 2>&1", in_scratch("schema.json"),
                 cases[i].more);
        expect(0, "", args, cases[i].piece);
    }
}

int main(void)
{
    /* What the caller's environment says of options must not reach the program. */
    for (char **e = environ; *e;) {
        size_t n = strcspn(*e, "=");
        char name[256];
        if (strncmp(*e, "CARAVAN_", 8) == 0 && n < sizeof name) {
            snprintf(name, sizeof name, "%.*s", (int)n, *e);
            unsetenv(name);
            e = environ;
        } else
            e++;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_of_every_command_is_one_page_with_examples_first),
        cmocka_unit_test(version_names_processor_and_parts),
        cmocka_unit_test(mistakes_end_in_one_sentence_with_the_nearest_word),
        cmocka_unit_test(options_that_say_nothing_here_are_mistakes),
        cmocka_unit_test(outputs_are_tried_before_the_work),
        cmocka_unit_test(what_cannot_fit_is_refused_before_it_is_begun),
        cmocka_unit_test(wrong_folders_are_told_what_they_are),
        cmocka_unit_test(numbers_out_of_range_are_refused_by_name),
        cmocka_unit_test(flags_win_over_the_environment),
        cmocka_unit_test(init_and_inspect_agree),
        cmocka_unit_test(inspect_names_the_types_of_blocks),
        cmocka_unit_test(score_prints_what_scripts_rely_on),
        cmocka_unit_test(generate_prints_what_scripts_rely_on),
        cmocka_unit_test(the_seed_decides_the_text),
        cmocka_unit_test(every_seed_that_is_printed_is_taken),
        cmocka_unit_test(the_first_operand_is_the_model),
        cmocka_unit_test(threads_are_no_more_than_there_are_cores),
        cmocka_unit_test(bytes_without_a_token_are_told_of),
        cmocka_unit_test(ctrl_c_ends_a_generation_with_130),
        cmocka_unit_test(ctrl_c_leaves_no_folder),
        cmocka_unit_test(what_cannot_be_run_is_refused_in_a_sentence),
        cmocka_unit_test(tokenize_goes_there_and_back),
        cmocka_unit_test(closed_files_stay_closed),
        cmocka_unit_test(bench_sweeps_over_the_lengths_of_prompts),
        cmocka_unit_test(bench_measures_what_it_is_asked_for),
        cmocka_unit_test(bench_shows_its_steps_on_a_terminal),
        cmocka_unit_test(one_ctrl_d_ends_what_is_typed),
        cmocka_unit_test(a_reader_of_profiles_ends_with_its_pipe),
        cmocka_unit_test(output_that_does_not_arrive_is_an_error),
        cmocka_unit_test(a_schema_alone_is_looked_at_and_told_of),
        cmocka_unit_test(pipes_get_no_colours),
        cmocka_unit_test(completions_are_scripts_that_offer_the_commands),
        cmocka_unit_test(man_pages_render_without_warnings),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
