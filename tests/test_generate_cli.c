/* `caravan generate` of several texts, and `caravan score` of long ones. */
#include "adapter_make.h"
#include "io/model.h"
#include "io_support.h"
#include "shell.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>

/* The n-th line of a text as JSON; the caller frees it. */
static json_t *line_json(const char *text, int n)
{
    while (n-- > 0 && strchr(text, '\n'))
        text = strchr(text, '\n') + 1;
    json_t *json = json_loadb(text, strcspn(text, "\n"), 0, NULL);
    if (!json)
        fail_msg("no JSON: %s", text);
    return json;
}

static void assert_same(const json_t *a, const json_t *b, const char *key)
{
    assert_true(json_equal(json_object_get(a, key), json_object_get(b, key)));
}

static int count_lines(const StrBuf *text)
{
    int n = 0;
    for (size_t i = 0; i < text->length; i++)
        n += text->text[i] == '\n';
    return n;
}

static void a_batch_gives_each_prompt_what_it_gets_alone(void **state)
{
    int status;
    StrBuf all =
        shell("printf '\"the sea\"\\n\\n\"a much longer story of the land\"\\n\"what\"\\n' | "
              "caravan generate -m model --prompts - -n 9 --ignore-eos --slots 2 --json",
              &status);
    assert_int_equal(status, 0);
    assert_int_equal(count_lines(&all), 3);
    StrBuf one = shell("caravan generate -m model -p 'a much longer story of the land' -n 9 "
                       "--ignore-eos --json",
                       &status);
    json_t *a = line_json(all.text, 1), *b = line_json(one.text, 0);
    assert_same(a, b, "prompt_tokens");
    assert_same(a, b, "tokens");
    assert_same(a, b, "text");
    assert_same(a, b, "finish");
    json_decref(a);
    json_decref(b);
    strbuf_free(&all);
    strbuf_free(&one);
}

static void samples_differ_and_the_first_is_the_seeds_own(void **state)
{
    int status;
    StrBuf three = shell(
        "caravan generate -m model -p 'the sea' -n 9 --ignore-eos --n 3 -s 5 --json", &status);
    assert_int_equal(count_lines(&three), 3);
    StrBuf one =
        shell("caravan generate -m model -p 'the sea' -n 9 --ignore-eos -s 5 --json", &status);
    json_t *sample[3], *alone = line_json(one.text, 0);
    for (int i = 0; i < 3; i++)
        sample[i] = line_json(three.text, i);
    assert_same(sample[0], alone, "tokens");
    const json_t *t0 = json_object_get(sample[0], "tokens"),
                 *t1 = json_object_get(sample[1], "tokens"),
                 *t2 = json_object_get(sample[2], "tokens");
    assert_false(json_equal(t0, t1) || json_equal(t0, t2) || json_equal(t1, t2));
    for (int i = 0; i < 3; i++)
        json_decref(sample[i]);
    json_decref(alone);
    strbuf_free(&three);
    strbuf_free(&one);
    expect(0, "caravan generate -m model -p 'the sea' -n 4 --n 2 2>/dev/null", "--- 0, sample 1\n");
}

static void a_stop_text_ends_a_text_and_is_not_printed(void **state)
{
    int status;
    const char *args =
        "caravan generate -m model -p 'the sea' -n 40 --ignore-eos --temperature 0 2>/dev/null";
    StrBuf whole = shell(args, &status);
    assert_true(whole.length > 12);
    /* Bytes from its middle, which need not be where a token begins or ends. */
    size_t middle = 0;
    for (size_t i = 4; i + 2 < whole.length && !middle; i++)
        if (isalpha((unsigned char)whole.text[i]) && isalpha((unsigned char)whole.text[i + 1]))
            middle = i;
    assert_true(middle > 0);
    char stop[3] = {whole.text[middle], whole.text[middle + 1], '\0'};
    const char *first = strstr(whole.text, stop);
    StrBuf line = {0};
    strbuf_printf(&line, "%s --stop nothing --stop %s", args, stop);
    StrBuf cut = shell(line.text, &status);
    assert_int_equal(status, 0);
    size_t kept = (size_t)(first - whole.text);
    assert_int_equal(cut.length, kept + (kept > 0)); /* and a line end */
    assert_memory_equal(cut.text, whole.text, kept);
    strbuf_printf(&line, " --json");
    StrBuf json = shell(line.text, &status);
    json_t *object = line_json(json.text, 0);
    assert_string_equal(json_string_value(json_object_get(object, "finish")), "stop");
    assert_string_equal(json_string_value(json_object_get(object, "prompt")), "the sea");
    assert_int_equal(json_integer_value(json_object_get(object, "index")), 0);
    /* The tokens reach as far as the text does, and none begins behind it. */
    size_t n = json_array_size(json_object_get(object, "tokens"));
    assert_true(n <= strlen(json_string_value(json_object_get(object, "text"))));
    json_decref(object);
    strbuf_free(&whole);
    strbuf_free(&line);
    strbuf_free(&cut);
    strbuf_free(&json);
}

/* Who has a model whose chat format is unknown writes it out. */
static void special_tokens_can_be_typed(void **state)
{
    expect(0,
           "caravan generate -m model -p '<|start_header_id|>x<|eot_id|>' --special -n 1 --json | "
           "tr -d '\\n '",
           "\"prompt_tokens\":[1,3,128,5]");
    expect(0, "caravan generate -m bare --tokenizer model/tokenizer.json -p 'the sea' -n 1 --json",
           "\"text\"");
    expect(0,
           "printf '\"<|eot_id|>\"\\n' | caravan generate -m model --prompts - --special -n 1 "
           "--json | grep -c '<|eot_id|>'",
           "1");
}

static void ctrl_c_is_told_from_a_stop_text(void **state)
{
    expect(0,
           "(exec " CVN_BINARY
           " generate -m long -p x -n 60000 --ignore-eos -t 1 --json >out 2>/dev/null) & pid=$!; "
           "for i in $(seq 6000); do grep -q 'SigCgt:.*[2367abef]$' /proc/$pid/status && break; "
           "sleep 0.01; done; kill -INT $pid; wait $pid; echo code $?; cat out",
           "\"finish\": \"interrupted\"");
}

static void mistakes_in_prompts_name_the_line(void **state)
{
    expect(1, "printf '\"a\"\\nno\\n' | caravan generate -m model --prompts - 2>&1",
           "-:2: not a JSON string");
    expect(1, "printf '\"a\"\\n{}\\n' | caravan generate -m model --prompts - 2>&1",
           "-:2: not a JSON string");
    expect(1, "printf '\\n' | caravan generate -m model --prompts - 2>&1", "has no prompts");
    expect(2, "caravan generate -m model --prompts - -p x 2>&1", "give only one of");
    expect(2, "caravan generate -m model -p x --n 0 2>&1", "--n is \"0\"");
    expect(2, "caravan generate -m model -p A --prompt B 2>&1",
           "--prompt is given twice, \"A\" and \"B\"; give it once");
    expect(0, "caravan generate -m model -p x -n 1 -n 2 --temperature 0 --json 2>&1", "\"length\"");
    expect(1, "caravan generate -m model -p x --stop '' 2>&1", "--stop is empty");
    expect(1, "caravan generate -m bare --tokens 1,2 --stop x 2>&1", "no tokenizer");
}

static void put(FILE *file, const void *bytes, size_t n)
{
    assert_int_equal(fwrite(bytes, 1, n, file), n);
}

static void put_string(FILE *file, const char *text)
{
    uint64_t n = strlen(text);
    put(file, &n, sizeof n);
    put(file, text, n);
}

/* scratch/name: mixed.gguf with a tokenizer that cuts text in a way nobody knows. */
static void write_odd_gguf(const char *name)
{
    static const uint32_t string = 8, array = 9;
    static const uint64_t one = 1;
    Bytes model = bytes_of_file(CVN_TEST_DATA "/gguf/mixed.gguf");
    FILE *file = fopen(in_scratch(name), "wb");
    assert_non_null(file);
    enum { COUNT = 16, HEADER = 24 }; /* of the keys, before them */
    uint64_t n_keys;
    memcpy(&n_keys, model.data + COUNT, sizeof n_keys);
    n_keys += 3;
    put(file, model.data, COUNT);
    put(file, &n_keys, sizeof n_keys);
    put_string(file, "tokenizer.ggml.model");
    put(file, &string, sizeof string);
    put_string(file, "gpt2");
    put_string(file, "tokenizer.ggml.tokens");
    put(file, &array, sizeof array);
    put(file, &string, sizeof string);
    put(file, &one, sizeof one);
    put_string(file, "a");
    put_string(file, "tokenizer.ggml.pre");
    put(file, &string, sizeof string);
    put_string(
        file,
        "a-way-that-nobody-knows!"); /* with which all of it has 160 bytes: data stays aligned */
    assert_int_equal(ftell(file) % 32, HEADER);
    put(file, model.data + HEADER, model.n - HEADER);
    assert_int_equal(fclose(file), 0);
    free(model.data);
}

static void ids_need_no_tokenizer_that_can_be_read(void **state)
{
    write_odd_gguf("odd.gguf");
    expect(0, "cp -r bare broken && echo '{}' >broken/tokenizer.json", "");
    expect(0, "caravan generate -m odd.gguf --tokens 1,2 -n 3 --json 2>&1",
           "'a-way-that-nobody-knows!' in the GGUF file; only token ids");
    static const char *const models[] = {"odd.gguf", "bare", "broken"};
    for (size_t i = 0; i < 3; i++) {
        char line[256];
        snprintf(line, sizeof line, "caravan generate -m %s --tokens 1,2 -n 3 --json", models[i]);
        expect(0, line, "\"text\": null, \"finish\": \"length\"");
        snprintf(line, sizeof line, "caravan score -m %s --tokens 1,2,3 | tail -n 1", models[i]);
        expect(0, line, "3 tokens, mean log-probability");
        snprintf(line, sizeof line, "caravan score -m %s --tokens 1,2,3", models[i]);
        expect(0, line, "  2  likeliest ");
        snprintf(line, sizeof line, "caravan generate -m %s -p a 2>&1", models[i]);
        expect(1, line, "; give token ids with --tokens\n");
        snprintf(line, sizeof line, "caravan score -m %s --tokens 1,2 --show 2>&1", models[i]);
        expect(1, line, "so there is no tokenizer for text\n");
    }
    expect(1, "caravan chat -m odd.gguf 2>&1", "'a-way-that-nobody-knows!'");
}

/* Of a piece that is half a character, as the first byte of é, a terminal would show nothing. */
static void pieces_that_are_no_characters_are_scored_visibly(void **state)
{
    expect(0, "caravan score -m model --text 'aé'", "  \"\\xc3\"  likeliest ");
}

/* The result of a score as JSON; the caller frees it. */
static json_t *score(const char *options)
{
    int status;
    StrBuf line = {0};
    strbuf_printf(
        &line,
        "for i in 1 2 3 4 5; do printf 'the story of the sea and its %%s people ' $i; done "
        ">text; caravan score -m model -f text --json %s",
        options);
    StrBuf output = shell(line.text, &status);
    assert_int_equal(status, 0);
    json_t *json = line_json(output.text, 0);
    strbuf_free(&line);
    strbuf_free(&output);
    return json;
}

static double logprob(const json_t *json, size_t i)
{
    return json_real_value(json_array_get(json_object_get(json, "logprobs"), i));
}

static void a_long_text_is_scored_in_windows(void **state)
{
    json_t *whole = score(""), *windows = score("-c 32 --stride 8");
    assert_same(whole, windows, "tokens");
    size_t n = json_array_size(json_object_get(whole, "tokens"));
    assert_true(n > 60);
    /* The first window is the same; later ones have less before them, but all have something. */
    for (size_t i = 1; i < 32; i++)
        assert_true(fabs(logprob(whole, i) - logprob(windows, i)) < 1e-4);
    double difference = 0;
    for (size_t i = 32; i < n; i++) {
        assert_true(logprob(windows, i) < 0);
        difference += fabs(logprob(whole, i) - logprob(windows, i));
    }
    assert_true(difference > 1e-4);
    json_decref(whole);
    json_decref(windows);
    expect(1, "caravan score -m model -f text -c 32 --stride 32 2>&1", "so that windows overlap");
    expect(0, "caravan score -m model -f text -c 32 --summary | wc -l", "1\n");
    expect(0, "caravan score -m model -f text --show", "the story of the sea and its 3 people");
}

/* The same as merged with the model, which the folder's own config names; where the model was moved, --model says so. */
static void adapters_are_given_beside_the_model(void **state)
{
    cvn_err err = {0};
    IoModel model;
    must(io_open_model(&model, in_scratch("model"), &err), &err);
    make_adapter(in_scratch("lora"), model.desc, "r=4,alpha=160", in_scratch("model"), 1, false);
    make_adapter(in_scratch("lost"), model.desc, "r=4,alpha=160", "/nowhere", 1, false);
    io_close_model(&model);
    int status;
    StrBuf said[4];
    /* GGUF has rows of q and k in another order; blocks of 8 bits stay so beneath adapters */
    static const char *const ways[] = {
        "-m lora",  "-m model --adapter lora",      "-m model --adapter lost",
        "-m model", "-m plain.gguf --adapter lora", "-m eight.gguf --adapter lora"};
    double score[6];
    expect(0,
           "caravan convert model plain.gguf && caravan convert model eight.gguf --type q8_0 2>&1",
           "");
    for (int i = 0; i < 6; i++) {
        char line[200];
        snprintf(line, sizeof line,
                 "caravan score %s --text 'the story of the sea' --dtype f32 --json", ways[i]);
        StrBuf output = shell(line, &status);
        assert_int_equal(status, 0);
        json_t *json = line_json(output.text, 0);
        score[i] = json_number_value(json_object_get(json, "perplexity"));
        json_decref(json);
        strbuf_free(&output);
    }
    assert_true(score[0] > 0 && fabs(score[0] - score[1]) < 1e-3 * score[0]);
    assert_true(score[1] == score[2] && fabs(score[0] - score[3]) > 1e-2 * score[0]);
    if (!(fabs(score[4] - score[1]) < 1e-3 * score[1] &&
          fabs(score[5] - score[1]) < 5e-2 * score[1]))
        fail_msg("%g; of GGUF files %g, %g", score[1], score[4], score[5]);
    for (int i = 0; i < 4; i++) {
        char line[200];
        snprintf(line, sizeof line, "caravan generate %s -p 'the sea' -n 9 --dtype f32 2>/dev/null",
                 ways[i]);
        said[i] = shell(line, &status);
        assert_int_equal(status, 0);
        if ((strcmp(said[0].text, said[i].text) == 0) != (i < 3))
            fail_msg("%s: %s%s: %s", ways[0], said[0].text, ways[i], said[i].text);
    }
    for (int i = 0; i < 4; i++)
        strbuf_free(&said[i]);
    expect(1, "caravan generate -m lost -p x 2>&1", "this folder with --adapter");
    expect(1, "caravan generate -m model --adapter bare -p x 2>&1",
           "'bare' is not a folder of adapters; give one with adapter_config.json");
    expect(0, "printf 'Hi\n' | caravan chat -m model --adapter lora -n 3 2>&1", "");
    expect(0, "caravan bench -m model --adapter lora --prefill 4 --decode 2 --repeats 1", "decode");
    expect(2, "caravan bench --train -p tiny --adapter lora 2>&1", "--adapter has no effect");
}

/* However a prompt is read. */
static void steps_change_no_text(void **state)
{
    expect(0,
           "g() { caravan generate -m model -p 'a much longer story of the land' -n 9 -s 1 \"$@\" "
           "2>/dev/null; }; for o in '--buckets 1' '--buckets 4,8'; do "
           "[ \"$(g $o)\" = \"$(g)\" ] && echo same; done | wc -l",
           "2\n");
    expect(1, "caravan generate -m model -p a --buckets 8,4 2>&1", "positive and ascending");
    expect(1, "caravan generate -m model -p a --buckets $(seq -s, 17) 2>&1", "at most 16");
}

int main(void)
{
    setenv("CARAVAN_THREADS", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_change_no_text),
        cmocka_unit_test(a_batch_gives_each_prompt_what_it_gets_alone),
        cmocka_unit_test(samples_differ_and_the_first_is_the_seeds_own),
        cmocka_unit_test(a_stop_text_ends_a_text_and_is_not_printed),
        cmocka_unit_test(special_tokens_can_be_typed),
        cmocka_unit_test(ctrl_c_is_told_from_a_stop_text),
        cmocka_unit_test(mistakes_in_prompts_name_the_line),
        cmocka_unit_test(ids_need_no_tokenizer_that_can_be_read),
        cmocka_unit_test(pieces_that_are_no_characters_are_scored_visibly),
        cmocka_unit_test(a_long_text_is_scored_in_windows),
        cmocka_unit_test(adapters_are_given_beside_the_model),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
