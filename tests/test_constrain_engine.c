/* Texts under constraints, as an engine writes them: whatever its logits are, what comes out is what was asked for. */
#include "caravan/constrain.h"

#include "serve/speculate.h"
#include "shell.h"

enum { MOST = 400, N_PROMPT = 5, VOCAB = 512 };

static cvn_model *model, *bare;
static const int32_t prompt[N_PROMPT] = {1, 70, 80, 90, 100};

typedef struct Text {
    int32_t token[MOST];
    int n;
    cvn_result result;
} Text;

static bool hear(void *context, int id, int32_t token)
{
    Text *t = context;
    (void)id;
    t->token[t->n++] = token;
    return true;
}

static void end(void *context, int id, const cvn_result *result)
{
    Text *t = context;
    (void)id;
    t->result = *result;
}

static cvn_engine *new_engine(const cvn_model *of, int rows, bool processors)
{
    cvn_err err = {0};
    cvn_engine *e = NULL;
    const cvn_engine_options options = {.slots = rows,
                                        .context = MOST + N_PROMPT,
                                        .threads = 1,
                                        .penalties = true,
                                        .sampling = true,
                                        .logits_processors = processors,
                                        .speculate = rows > 1 ? "lookup" : NULL,
                                        .n_buckets = 1,
                                        .bucket = {16}};
    must(cvn_engine_new(of, &options, &e, &err), &err);
    return e;
}

static void run(cvn_engine *e, const cvn_request *request, int n, Text *text)
{
    cvn_err err = {0};
    for (int i = 0; i < n; i++) {
        const cvn_listener listener = {hear, end, &text[i]};
        text[i].n = 0;
        must(cvn_engine_submit(e, &request[i], &listener, NULL, &err), &err);
    }
    for (int left = 1; left;)
        must(cvn_engine_step(e, &left, &err), &err);
}

static cvn_constraint *constraint_of(const char *text)
{
    cvn_constraint *c;
    cvn_err err = {0};
    bool schema = text[0] == '{';
    if (schema ? cvn_constraint_schema(text, strlen(text), NULL, &c, &err)
               : cvn_constraint_regex(text, strlen(text), &c, &err))
        fail_msg("%s: %s", text, err.message);
    return c;
}

static cvn_request ask(cvn_constraint *constraint, float temperature, uint64_t seed)
{
    return (cvn_request){.prompt = prompt,
                         .n_prompt = N_PROMPT,
                         .max_tokens = MOST,
                         .constraint = constraint,
                         .sampling = {.temperature = temperature, .top_p = 1, .seed = seed}};
}

/* The text is whole where its end token came, else the beginning of one that could have been. */
static void assert_fulfils(const Text *t, const char *of)
{
    cvn_constraint *c = constraint_of(of);
    cvn_constrained *read;
    cvn_err err = {0};
    char *text;
    size_t length;
    bool ended = t->result.finish == CVN_FINISH_EOS;
    assert_int_equal(cvn_model_decode(model, t->token, t->n - ended, &text, &length, &err), CVN_OK);
    assert_int_equal(cvn_constrained_new(c, NULL, &read, &err), CVN_OK);
    if (cvn_constrained_advance_bytes(read, text, length, &err) ||
        (ended && !cvn_constrained_complete(read)))
        fail_msg("%s: finish %d: %s", of, (int)t->result.finish, text);
    assert_true(ended || t->result.finish == CVN_FINISH_LENGTH);
    cvn_constrained_free(read);
    cvn_constraint_free(c);
    free(text);
}

static const char *const asked[] = {
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-9,\"maximum\":"
    "99}"
    ",\"b\":{\"enum\":[\"x\",\"yy\",null]}},\"required\":[\"a\",\"b\"],\"additionalProperties\":"
    "false}",
    "[ab]{3,9}c|(?:yes|no)!",
    "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":3,\"maxItems\":5}",
    "{\"type\":\"string\",\"pattern\":\"^[0-9]{4}-[0-9]{2}$\"}",
};
enum { ASKED = sizeof asked / sizeof *asked, TEXTS = 24 };

static Text said[TEXTS], plain[TEXTS];
static cvn_engine *three;

/* What the text is, but for its last tokens. */
static int foretell(void *context, int row, int32_t *guess)
{
    const Text *t = three->job[row]->listener.context, *is = &plain[t - said];
    (void)context;
    for (int i = 0; i < DRAFT_MOST; i++)
        guess[i] = t->n + i < is->n - 2 ? is->token[t->n + i] : 100 + i;
    return DRAFT_MOST;
}

static void texts_fulfil_what_is_asked_of_their_row(void **state)
{
    cvn_request request[TEXTS];
    cvn_constraint *c[ASKED];
    int ended = 0;
    cvn_engine *one = new_engine(model, 1, true);
    three = new_engine(model, 3, true);
    three->speculation->from = foretell;
    for (int i = 0; i < ASKED; i++)
        c[i] = constraint_of(asked[i]);
    for (int i = 0; i < TEXTS; i++) {
        request[i] = ask(c[i % ASKED], i < ASKED ? 0 : 1.5f, (uint64_t)i);
        request[i].ignore_eos = i % 3 == 0;
        request[i].sampling.repeat_penalty = i % 5 == 1 ? 1.5f : 1;
        request[i].sampling.frequency_penalty = i % 5 == 2 ? 2 : 0;
        request[i].sampling.presence_penalty = i % 5 == 2 ? -1.5f : 0;
        request[i].sampling.top_k = i % 5 == 3 ? 3 : 0;
        request[i].sampling.top_p = i % 5 == 4 ? 0.6f : 1;
        request[i].sampling.min_p = i % 4 == 1 ? 0.2f : 0;
        request[i].min_tokens = i % 6 == 5 ? 6 : 0;
        request[i].max_tokens = i % 7 == 6 ? 2 : MOST;
    }
    run(one, request, TEXTS, plain);
    run(three, request, TEXTS, said);
    assert_true(cvn_engine_get_stats(three).accepted_tokens > TEXTS);
    for (int i = 0; i < TEXTS; i++) {
        assert_fulfils(&said[i], asked[i % ASKED]);
        ended += said[i].result.finish == CVN_FINISH_EOS;
        assert_int_equal(said[i].n, plain[i].n);
        assert_memory_equal(said[i].token, plain[i].token, (size_t)said[i].n * sizeof(int32_t));
    }
    assert_true(ended > TEXTS / 2);
    for (int i = 0; i < ASKED; i++)
        cvn_constraint_free(c[i]);
    cvn_engine_free(three, NULL);
    cvn_engine_free(one, NULL);
}

static int guess_nothing(void *context, int row, int32_t *guess)
{
    (void)context;
    (void)row;
    (void)guess;
    return 0;
}

/* Tokens without a choice are read together, and those between them drawn as if they had not been. */
static void what_is_forced_is_not_drawn_one_by_one(void **state)
{
    enum { N = 6 };
    static const char *const texts[] = {
        "(?:[ab](?:, and so it goes on for a while; )){2}!",
        "{\"type\":\"object\",\"properties\":{\"a long name of a member\":{\"type\":\"boolean\"},"
        "\"another one\":{\"const\":\"is always this\"}},\"required\":[\"a long name of a member\","
        "\"another one\"],\"additionalProperties\":false}"};
    static Text jumps[N], steps[N];
    cvn_request request[N];
    cvn_constraint *c[2];
    for (int rows = 1; rows <= 2; rows++) {
        cvn_engine *with = new_engine(model, rows, true), *without = new_engine(model, rows, true);
        without->speculation->from = guess_nothing;
        for (int i = 0; i < 2; i++)
            c[i] = constraint_of(texts[i]);
        for (int i = 0; i < N; i++) {
            request[i] = ask(i < N - 1 ? c[i % 2] : NULL, i < 2 ? 0 : 1.5f, (uint64_t)i);
            request[i].max_tokens = i < N - 1 ? MOST : 40;
            request[i].sampling.repeat_penalty = i == 2 ? 1.3f : 1;
            request[i].sampling.top_k = i == 3 ? 5 : 0;
        }
        run(with, request, N, jumps);
        run(without, request, N, steps);
        const cvn_engine_stats fast = cvn_engine_get_stats(with),
                               slow = cvn_engine_get_stats(without);
        assert_true(slow.accepted_tokens == 0 && (rows > 1 || fast.accepted_tokens > 50));
        assert_int_equal(fast.decoded_tokens, slow.decoded_tokens);
        for (int i = 0; i < N; i++) {
            assert_int_equal(jumps[i].n, steps[i].n);
            assert_memory_equal(jumps[i].token, steps[i].token,
                                (size_t)steps[i].n * sizeof(int32_t));
            if (i < N - 1)
                assert_fulfils(&jumps[i], texts[i % 2]);
        }
        for (int i = 0; i < 2; i++)
            cvn_constraint_free(c[i]);
        cvn_engine_free(with, NULL);
        cvn_engine_free(without, NULL);
    }
}

static void rows_beside_are_as_they_were(void **state)
{
    static Text alone, beside[2];
    cvn_engine *e = new_engine(model, 2, true), *without = new_engine(model, 1, false);
    cvn_constraint *c = constraint_of(asked[0]);
    cvn_request request[2] = {ask(c, 1, 1), ask(NULL, 1, 7)};
    request[1].max_tokens = 50;
    run(e, request, 2, beside);
    run(without, &request[1], 1, &alone);
    assert_int_equal(beside[1].n, alone.n);
    assert_memory_equal(beside[1].token, alone.token, (size_t)alone.n * sizeof(int32_t));
    /* a row that had a constraint forgets it */
    run(e, &request[1], 1, beside);
    assert_memory_equal(beside[0].token, alone.token, (size_t)alone.n * sizeof(int32_t));
    cvn_constraint_free(c);
    cvn_engine_free(e, NULL);
    cvn_engine_free(without, NULL);
}

static void no_bias_outweighs_a_constraint(void **state)
{
    static Text text[2];
    static cvn_bias bias[VOCAB];
    cvn_engine *e = new_engine(model, 2, true);
    cvn_constraint *c = constraint_of("a{2}b*");
    int32_t *ids = NULL;
    int64_t n_ids;
    assert_int_equal(cvn_model_encode(model, "a", 1, 0, &ids, &n_ids, NULL), CVN_OK);
    assert_int_equal(n_ids, 1);
    for (int i = 0; i < VOCAB; i++)
        bias[i] = (cvn_bias){i, i == ids[0] ? -1e6f : 1e6f};
    cvn_request request[2] = {ask(c, 0, 0), ask(c, 1.5f, 3)};
    for (int i = 0; i < 2; i++) {
        request[i].bias = bias;
        request[i].n_bias = cvn_model_vocab(model);
        request[i].min_tokens = 8;
    }
    run(e, request, 2, text);
    for (int i = 0; i < 2; i++) {
        assert_fulfils(&text[i], "a{2}b*");
        assert_true(text[i].n > 8);
    }
    free(ids);
    cvn_constraint_free(c);
    cvn_engine_free(e, NULL);
}

/* The same model with these bytes for all its weights: zeros make all logits 0, ones make them no numbers. */
static cvn_model *model_of(const char *name, int byte)
{
    cvn_err err = {0};
    char path[512];
    cvn_model *made = NULL;
    uint64_t header = 0;
    snprintf(path, sizeof path, "cp -r model %s", name);
    expect(0, path, "");
    snprintf(path, sizeof path, "%s/%s/model.safetensors", scratch, name);
    FILE *f = fopen(path, "r+b");
    if (!f || fread(&header, 1, sizeof header, f) != sizeof header || fseek(f, 0, SEEK_END))
        fail_msg("%s", path);
    long end = ftell(f);
    fseek(f, (long)(sizeof header + header), SEEK_SET);
    while (ftell(f) < end)
        fputc(byte, f);
    fclose(f);
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    if (cvn_model_open(path, NULL, &made, &err))
        fail_msg("%s", err.message);
    return made;
}

static void hostile_models_say_what_is_asked(void **state)
{
    static const char *const texts[] = {
        "[ab]{3,9}c|(?:yes|no)!",
        "{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":3,\"maxItems\":5}",
        "{\"type\":\"string\",\"pattern\":\"^[0-9]{4}-[0-9]{2}$\"}",
        "{\"properties\":{\"a\":{\"enum\":[1,null]},\"b\":{\"type\":\"string\",\"maxLength\":9}},"
        "\"required\":[\"b\"],\"additionalProperties\":false,\"type\":\"object\"}",
    };
    enum { KINDS = sizeof texts / sizeof *texts, N = 4 * KINDS };
    static const int bytes[] = {0x00, 0xff};
    static Text text[N];
    (void)state;
    for (int m = 0; m < 2; m++) {
        cvn_model *hostile = model_of(m ? "nan" : "flat", bytes[m]);
        cvn_engine *e = new_engine(hostile, 2, true);
        cvn_constraint *c[KINDS];
        cvn_request request[N];
        const cvn_bias forbidden = {.token = 7, .bias = 1e6f};
        int ended = 0;
        for (int i = 0; i < KINDS; i++)
            c[i] = constraint_of(texts[i]);
        for (int i = 0; i < N; i++) {
            request[i] = ask(c[i % KINDS], i < KINDS ? 0 : 1.5f, (uint64_t)i);
            request[i].bias = &forbidden;
            request[i].n_bias = i / KINDS == 2;
        }
        run(e, request, N, text);
        for (int i = 0; i < N; i++) {
            assert_fulfils(&text[i], texts[i % KINDS]);
            ended += text[i].result.finish == CVN_FINISH_EOS;
        }
        assert_true(m || ended > N / 2);
        for (int i = 0; i < KINDS; i++)
            cvn_constraint_free(c[i]);
        cvn_engine_free(e, NULL);
        cvn_model_free(hostile);
    }
}

static void an_end_comes_only_where_the_text_is_complete(void **state)
{
    static Text text[3];
    cvn_engine *e = new_engine(model, 3, true);
    cvn_constraint *c = constraint_of("[ab]{4}"), *d = constraint_of("x*");
    const int32_t marks[] = {5, 6}; /* special tokens that are no ends of the model's own */
    const cvn_bias wanted = {.token = 6, .bias = 1000};
    cvn_request request[3] = {ask(c, 1, 2), ask(d, 1, 2), ask(d, 1, 3)};
    for (int i = 0; i < 3; i++) {
        request[i].bias = &wanted;
        request[i].n_bias = 1;
        request[i].end = marks;
        request[i].n_end = i < 2 ? 2 : 0;
    }
    request[0].min_tokens = 300; /* no token but an end may come after four */
    run(e, request, 3, text);
    assert_fulfils(&text[0], "[ab]{4}");
    assert_true(text[0].n <= 5);
    assert_int_equal(text[0].token[text[0].n - 1], 6);
    assert_int_equal(text[1].n, 1);
    assert_int_equal(text[1].result.finish, CVN_FINISH_EOS);
    assert_fulfils(&text[2], "x*");
    for (int i = 0; i < text[2].n; i++)
        assert_int_not_equal(text[2].token[i], 6);
    cvn_constraint_free(c);
    cvn_constraint_free(d);
    cvn_engine_free(e, NULL);
}

static void what_cannot_be_done_is_refused(void **state)
{
    cvn_constraint *c = constraint_of("a");
    cvn_request request = ask(c, 0, 0);
    cvn_engine *without = new_engine(model, 1, false), *wordless = new_engine(bare, 1, true);
    cvn_err err = {0};
    assert_int_equal(cvn_engine_submit(without, &request, NULL, NULL, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "options.logits_processors"));
    err = (cvn_err){0};
    assert_int_equal(cvn_engine_submit(wordless, &request, NULL, NULL, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "tokenizer"));
    cvn_constraint *empty = constraint_of("{\"type\":\"string\",\"minLength\":2,\"maxLength\":1}");
    cvn_engine *with = new_engine(model, 1, true);
    request = ask(empty, 0, 0);
    err = (cvn_err){0};
    assert_int_equal(cvn_engine_submit(with, &request, NULL, NULL, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "no text satisfies"));
    cvn_constraint_free(empty);
    cvn_engine_free(with, NULL);
    request = ask(NULL, 0, 0);
    request.end = &(const int32_t){1 << 20};
    request.n_end = 1;
    assert_int_equal(cvn_engine_submit(without, &request, NULL, NULL, &err), CVN_EINVAL);
    cvn_constraint_free(c);
    cvn_engine_free(without, NULL);
    cvn_engine_free(wordless, NULL);
}

static void commands_take_schemas_expressions_and_choices(void **state)
{
    expect(0, "caravan generate -m model -p Once --json-schema '{\"const\":[null,[true]]}' 2>&1",
           "[null,[true]]");
    expect(1, "caravan generate -m model -p Once --json-schema false 2>&1", "no text satisfies");
    expect(2, "caravan generate -m model -p Once --pretty 2>&1", "--json-schema");
    expect(0,
           "echo '{\"const\":[true]}' > s.json; caravan generate -m model -p Once --json "
           "--json-schema s.json",
           "\"text\": \"[true]\", \"finish\": \"eos\"");
    expect(0, "caravan generate -m model -p Once --regex 'x{3}' -n 2 --json",
           "\"finish\": \"length\"");
    expect(0, "caravan generate -m model -p Once --regex 'x{300}' -n 2 2>&1",
           "1 of 1 texts reached the token limit before they were complete");
    expect(0,
           "for i in 1 2 3; do caravan generate -m model -p Once --choice yes --choice no -s $i "
           "2> log; echo; done | grep -cx 'yes\\|no'",
           "3");
    expect(
        0,
        "caravan generate -m model -p Once --regex '[ab]{2,5}c' --n 5 --slots 2 --temperature 1.5 "
        "--repeat-penalty 1.4 --min-p 0.1 --top-p 0.8 --json | "
        "grep -c '\"text\": \"[ab]*c\", \"finish\": \"eos\"'",
        "5");
    expect(0,
           "caravan generate -m model -p Once --regex 'aaab{2,5}c' --stop b --json | "
           "grep -c '\"text\": \"aaa\", \"finish\": \"stop\"'",
           "1");
    expect(0,
           "printf 'hi\nyou\n' | caravan chat -m model --regex '[ab]{2,5}c' | grep -cx "
           "'[ab]*c'",
           "2");
    expect(0,
           "echo 'root ::= \"(\" root? \")\"' > g.gbnf; caravan generate -m model -p Once "
           "--grammar g.gbnf 2> log | grep -c '^(*)*$'",
           "1");
    expect(1, "echo 'root ::= a' > g.gbnf; caravan generate -m model -p Once --grammar g.gbnf 2>&1",
           "g.gbnf: the grammar refers to the rule 'a'");
    expect(1, "caravan generate -m model -p Once --regex '(a' 2>&1", "--regex: the regular");
    expect(1, "caravan generate -m model -p Once --json-schema '{\"$dynamicRef\":\"x\"}' 2>&1",
           "--json-schema: #/$dynamicRef");
    expect(2, "caravan generate -m model -p Once --regex a --choice b 2>&1", "--regex");
    expect(1, "caravan generate -m bare --tokens 1 --regex a 2>&1", "tokenizer");
}

static int open_models(void **state)
{
    cvn_err err = {0};
    char path[512];
    if (make_models(state))
        return -1;
    snprintf(path, sizeof path, "%s/model", scratch);
    int code = cvn_model_open(path, NULL, &model, &err);
    snprintf(path, sizeof path, "%s/bare", scratch);
    if (!code)
        code = cvn_model_open(path, NULL, &bare, &err);
    if (code)
        fprintf(stderr, "%s\n", err.message);
    return code;
}

static int close_models(void **state)
{
    cvn_model_free(model);
    cvn_model_free(bare);
    return remove_scratch(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_fulfil_what_is_asked_of_their_row),
        cmocka_unit_test(what_is_forced_is_not_drawn_one_by_one),
        cmocka_unit_test(rows_beside_are_as_they_were),
        cmocka_unit_test(no_bias_outweighs_a_constraint),
        cmocka_unit_test(hostile_models_say_what_is_asked),
        cmocka_unit_test(an_end_comes_only_where_the_text_is_complete),
        cmocka_unit_test(what_cannot_be_done_is_refused),
        cmocka_unit_test(commands_take_schemas_expressions_and_choices),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
