/* What commands print of a model, and what they refuse to do with one. */
#include "cli_run.h"

#include <math.h>

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

/* Inputs that say nothing, or not all of it: no answer is made up for them. */
static void inputs_that_are_empty_or_cut_are_refused(void **state)
{
    char args[512];
    FileMap gguf = {0};
    cvn_err err = {0};
    must(file_write(in_scratch("empty"), "", 0, &err), &err);
    must(file_map(&gguf, CVN_TEST_DATA "/text/spm.gguf", &err), &err);
    must(file_write(in_scratch("cut.gguf"), gguf.data, 700, &err), &err);
    file_unmap(&gguf);
    snprintf(args, sizeof args, "tokenize -m %s --text hi 2>&1", in_scratch("cut.gguf"));
    expect(1, "", args, "cut.gguf': the header is cut short at byte 700; download the file again");
    snprintf(args, sizeof args, "init -p tiny --tokenizer " CVN_TEST_DATA "/text/spm.model -o %s",
             in_scratch("spoken"));
    expect(0, "", args, "");
    snprintf(args, sizeof args, "generate %s -f %s 2>&1", in_scratch("spoken"),
             in_scratch("empty"));
    expect(1, "", args, "/empty is empty; give a text");
    snprintf(args, sizeof args, "generate %s -f - 2>&1 </dev/null", in_scratch("spoken"));
    expect(1, "", args, "standard input is empty; give a text");
    snprintf(args, sizeof args, "score %s --text 'a b' --stride 4096 2>&1", in_scratch("spoken"));
    expect(1, "", args, "--stride is 4096; give less than the context of ");
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

int main(void)
{
    forget_environment();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_and_inspect_agree),
        cmocka_unit_test(inspect_names_the_types_of_blocks),
        cmocka_unit_test(score_prints_what_scripts_rely_on),
        cmocka_unit_test(generate_prints_what_scripts_rely_on),
        cmocka_unit_test(the_seed_decides_the_text),
        cmocka_unit_test(every_seed_that_is_printed_is_taken),
        cmocka_unit_test(the_first_operand_is_the_model),
        cmocka_unit_test(threads_are_no_more_than_there_are_cores),
        cmocka_unit_test(bytes_without_a_token_are_told_of),
        cmocka_unit_test(tokenize_goes_there_and_back),
        cmocka_unit_test(a_schema_alone_is_looked_at_and_told_of),
        cmocka_unit_test(inputs_that_are_empty_or_cut_are_refused),
        cmocka_unit_test(what_cannot_be_run_is_refused_in_a_sentence),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
