/* What requests say of single tokens: it does what it says, and nothing to the rows beside it. */
#include "gqa_model.h"
#include "serve/engine.h"

enum { MOST = 40, VOCAB = 259, N_PROMPT = 30 };

static int32_t prompt[N_PROMPT];

typedef struct Text {
    int32_t token[MOST];
    int n, looked;
    float logits[VOCAB]; /* of the last token */
    bool greedy;         /* every token is the likeliest of the logits */
    cvn_result result;
} Text;

static void look(void *context, int id, const float *logits, int32_t token)
{
    Text *t = context;
    (void)id;
    assert_int_equal(t->looked++, t->n);
    memcpy(t->logits, logits, sizeof t->logits);
    for (int v = 0; v < VOCAB; v++)
        t->greedy = t->greedy && logits[v] <= logits[token];
}

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

static cvn_engine *new_engine(int rows, bool processors, const char *mesh)
{
    cvn_err err = {0};
    cvn_engine *e = NULL;
    const cvn_engine_options options = {.slots = rows,
                                        .context = 100,
                                        .threads = 1,
                                        .sampling = true,
                                        .penalties = true,
                                        .logits_processors = processors,
                                        .n_buckets = 1,
                                        .bucket = {16},
                                        .mesh = mesh,
                                        .layout = "tp"};
    must(cvn_engine_new(model, &options, &e, &err), &err);
    return e;
}

static void run(cvn_engine *e, const cvn_request *request, int n, Text *text)
{
    cvn_err err = {0};
    for (int i = 0; i < n; i++) {
        const cvn_listener listener = {hear, end, &text[i]};
        text[i] = (Text){.greedy = true};
        must(cvn_engine_submit(e, &request[i], &listener, NULL, &err), &err);
    }
    for (int left = 1; left;)
        must(cvn_engine_step(e, &left, &err), &err);
}

static cvn_request ask(float temperature)
{
    return (cvn_request){.prompt = prompt,
                         .n_prompt = N_PROMPT,
                         .max_tokens = MOST,
                         .ignore_eos = true,
                         .sampling = {.temperature = temperature, .top_p = 1, .seed = 5}};
}

static void assert_same(const Text *a, const Text *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->token, b->token, (size_t)a->n * sizeof *a->token);
}

static void rows_beside_are_as_they_were(void **state)
{
    enum { N = 6 };
    static const char *const meshes[] = {NULL, "model=2"};
    static Text plain[N], beside[N];
    for (int m = 0; m < 2; m++) {
        cvn_request request[N];
        cvn_engine *without = new_engine(1, false, meshes[m]);
        cvn_engine *with = new_engine(3, true, meshes[m]);
        const cvn_bias none = {.token = 3};
        for (int i = 0; i < N; i++) {
            request[i] = ask(i % 2 ? 0.9f : 0);
            request[i].sampling.seed = (uint64_t)i;
            request[i].sampling.repeat_penalty = i % 3 == 1 ? 1.3f : 1;
        }
        run(without, request, N, plain);
        /* some see their logits, or have a bias of nothing */
        request[0].on_logits = request[3].on_logits = look;
        request[1].bias = &none;
        request[1].n_bias = 1;
        run(with, request, N, beside);
        for (int i = 0; i < N; i++)
            assert_same(&plain[i], &beside[i]);
        assert_int_equal(beside[0].looked, MOST);
        assert_true(beside[0].greedy);
        assert_int_equal(beside[1].looked, 0);
        cvn_engine_free(with, NULL);
        cvn_engine_free(without, NULL);
    }
}

static void biases_move_tokens(void **state)
{
    static Text text[3];
    cvn_engine *e = new_engine(2, true, NULL);
    const cvn_bias force[] = {{.token = 7, .bias = 50}, {.token = 7, .bias = 50}};
    cvn_request request[3] = {ask(0), ask(1), ask(0)};
    request[0].bias = request[1].bias = force;
    request[0].n_bias = request[1].n_bias = 2;
    run(e, request, 3, text);
    for (int k = 0; k < MOST; k++)
        assert_true(text[0].token[k] == 7 && text[1].token[k] == 7);
    /* what one row was told is forgotten with it */
    Text after;
    run(e, &request[2], 1, &after);
    assert_same(&after, &text[2]);
    const cvn_bias ban = {.token = text[2].token[0], .bias = -1e6f};
    request[2].bias = &ban;
    request[2].n_bias = 1;
    run(e, &request[2], 1, &after);
    for (int k = 0; k < after.n; k++)
        assert_int_not_equal(after.token[k], ban.token);
    cvn_engine_free(e, NULL);
}

static void penalties_count_what_was_generated(void **state)
{
    static Text text[2];
    cvn_engine *e = new_engine(2, true, NULL);
    const cvn_bias force = {.token = 7, .bias = 100};
    cvn_request request[2] = {ask(0), ask(0)};
    request[0].sampling.presence_penalty = 100;
    request[1].bias = &force;
    request[1].n_bias = 1;
    request[1].sampling.frequency_penalty = 30;
    run(e, request, 2, text);
    int seen[VOCAB] = {0};
    for (int k = 0; k < MOST; k++)
        assert_int_equal(seen[text[0].token[k]]++, 0);
    /* 100, 70, 40, 10, and then others outweigh it */
    for (int k = 0; k < 3; k++)
        assert_int_equal(text[1].token[k], 7);
    assert_int_not_equal(text[1].token[4], 7);
    cvn_engine_free(e, NULL);
}

static void a_text_has_its_least_length(void **state)
{
    static Text text[2];
    cvn_engine *e = new_engine(1, true, NULL);
    const SpecialIds *eos = model_ends(e->model->io.desc);
    assert_true(eos->n > 0);
    const cvn_bias force = {.token = eos->id[0], .bias = 1000};
    cvn_request request[2] = {ask(0.7f), ask(0.7f)};
    for (int i = 0; i < 2; i++) {
        request[i].ignore_eos = false;
        request[i].bias = &force;
        request[i].n_bias = 1;
    }
    request[1].min_tokens = 10;
    run(e, request, 2, text);
    assert_int_equal(text[0].n, 1);
    assert_int_equal(text[0].result.finish, CVN_FINISH_EOS);
    assert_int_equal(text[1].n, 11);
    assert_int_equal(text[1].result.finish, CVN_FINISH_EOS);
    cvn_engine_free(e, NULL);
}

static void what_makes_no_sense_is_refused(void **state)
{
    cvn_engine *without = new_engine(1, false, NULL), *with = new_engine(1, true, NULL);
    const cvn_bias bias[] = {{.token = VOCAB * 1000}, {.token = -1}, {.bias = 1e30f}};
    for (int i = 0; i < 5; i++) {
        cvn_request request = ask(0);
        cvn_err err = {0};
        request.bias = i < 3 ? &bias[i] : NULL;
        request.n_bias = i < 3;
        request.sampling.presence_penalty = i == 3 ? 1e9f : 0;
        request.min_tokens = i == 4;
        assert_int_equal(cvn_engine_submit(without, &request, NULL, NULL, &err), CVN_EINVAL);
        if (i < 4)
            assert_int_equal(cvn_engine_submit(with, &request, NULL, NULL, &err), CVN_EINVAL);
    }
    cvn_engine_free(without, NULL);
    cvn_engine_free(with, NULL);
}

int main(void)
{
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = (i * 37 + 11) % VOCAB;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_beside_are_as_they_were),
        cmocka_unit_test(biases_move_tokens),
        cmocka_unit_test(penalties_count_what_was_generated),
        cmocka_unit_test(a_text_has_its_least_length),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
