/*
 * How long rows that decode wait for prompts (serve/pace.h), by a clock of the test's own: each run of a program takes what
 * the test says, so that nothing here depends on real time.
 */
#include "gqa_model.h"
#include "serve/list.h"
#include "serve/pace.h"

enum { ROWS = 6, CONTEXT = 240, N = 40 };

/* ---- a machine: a back end that takes time ---- */

static double now;
static double noise; /* a run takes up to so much more, as share */
static double slow;  /* all runs take so many times as long */
static const double LEAST = 0.03, TOKEN = 0.004, POSITION = 1e-6;
static cvn_engine *engine;
static Backend real, timed;

static double read_clock(void)
{
    return now;
}

/* Seconds of a run: products take them by the token, attention by the token and position. */
static double seconds_of(const Executable *x)
{
    const Lists *l = engine->lists;
    double n = 0, start = 0;
    for (int m = 0; m < LIST_PROGRAMS; m++)
        for (int i = 0; i < l->n; i++)
            if (l->step[m][i].executable == x)
                n = (double)l->size[i].tokens;
    for (int i = 0; i < (int)n; i++)
        start = l->in.start[i] > start ? l->in.start[i] : start;
    return LEAST + TOKEN * n + POSITION * n * start;
}

static int run_timed(Devices *devices, const Executable *executable, const Argument *argument,
                     const void **output, cvn_err *err)
{
    now += seconds_of(executable) * slow * (1 + noise * (double)(rand() % 1000) / 1000);
    return real.run(devices, executable, argument, output, err);
}

static cvn_engine *new_engine(double max_stall)
{
    cvn_err err = {0};
    const cvn_engine_options options = {
        .slots = ROWS, .context = CONTEXT, .threads = 1, .n_buckets = 4, .bucket = {8, 16, 32, 64}};
    if (cvn_engine_new(model, &options, &engine, &err))
        fail_msg("%s", err.message);
    real = timed = *engine->rt.backend;
    timed.run = run_timed;
    engine->rt.backend = &timed;
    engine->pace.clock = read_clock;
    engine->options.max_stall = max_stall;
    srand(1);
    now = 1;
    noise = 0;
    slow = 1;
    return engine;
}

/* ---- texts ---- */

typedef struct Heard {
    int n, most;     /* tokens: that came; when it is enough */
    double at, wait; /* when the last one came; the longest wait */
    int32_t token[CONTEXT];
} Heard;

static bool hear(void *context, int id, int32_t token)
{
    Heard *h = context;
    (void)id;
    if (h->n && now - h->at > h->wait)
        h->wait = now - h->at;
    h->at = now;
    h->token[h->n++] = token;
    return true;
}

static void submit(int seed, int length, int most, Heard *h)
{
    int32_t prompt[CONTEXT];
    for (int i = 0; i < length; i++)
        prompt[i] = (seed * 31 + i * 7 + i * i % 13 + 3) % 259;
    const cvn_request request = {
        .prompt = prompt, .n_prompt = length, .max_tokens = most, .ignore_eos = true};
    const cvn_listener listener = {.on_token = hear, .context = h};
    assert_int_equal(cvn_engine_submit(engine, &request, &listener, NULL, NULL), CVN_OK);
}

static int step(void)
{
    int left;
    assert_int_equal(cvn_engine_step(engine, &left, NULL), CVN_OK);
    return left;
}

/* Texts that come one after another and several at once; the longest that any of them waited. */
static double run_mix(Heard *h)
{
    static const int length[] = {5, 120, 14, 7, 8, 6, 200, 33, 64, 1};
    double wait = 0;
    for (int i = 0, left = 1; left || i < N;) {
        for (int come = i % 3 ? 1 : 4; come && i < N; come--, i++)
            submit(i, length[i * 7 % 10], 12 + i % 9, &h[i]);
        left = step();
    }
    for (int i = 0; i < N; i++)
        wait = h[i].wait > wait ? h[i].wait : wait;
    return wait;
}

static void no_text_waits_for_longer(void **state)
{
    (void)state;
    static Heard h[3][N];
    static const double limit[3] = {0, 0.4, 0.15}; /* lists of 64 and of 16 take 0.286 and 0.094 */
    for (int i = 0; i < 3; i++) {
        new_engine(limit[i] > 0 ? limit[i] : 1);
        engine->options.max_stall = limit[i];
        noise = 0.05;
        double wait = run_mix(h[i]);
        if (limit[i] > 0)
            assert_true(wait <= limit[i] && wait > 0.6 * limit[i]);
        else
            assert_true(wait > 0.3);
        for (int k = 0; k < N; k++) {
            assert_int_equal(h[i][k].n, h[0][k].n);
            assert_memory_equal(h[i][k].token, h[0][k].token, (size_t)h[0][k].n * sizeof(int32_t));
        }
        cvn_engine_free(engine, NULL);
    }
}

/* And back again, when it is as fast as before. */
static void a_machine_that_is_slower_has_shorter_sections(void **state)
{
    (void)state;
    static Heard h[4][N];
    memset(h, 0, sizeof h);
    new_engine(0.25);
    assert_true(run_mix(h[0]) <= 0.25);
    slow = 2;
    run_mix(h[1]); /* the first run of these is a surprise */
    assert_true(run_mix(h[2]) <= 0.25);
    slow = 1;
    for (int i = 0; i < 4; i++) {
        memset(h[3], 0, sizeof h[3]);
        run_mix(h[3]);
    }
    double wait = 0;
    for (int i = 0; i < N; i++)
        wait = h[3][i].wait > wait ? h[3][i].wait : wait;
    assert_true(wait <= 0.25 && wait > 0.15);
    cvn_engine_free(engine, NULL);
}

/* What was done between two steps counts, too. */
static void time_that_has_passed_is_not_spent_again(void **state)
{
    (void)state;
    Heard stream = {0}, prompt = {0};
    new_engine(0.4);
    submit(0, 5, 100, &stream);
    step();
    submit(1, 200, 2, &prompt);
    while (!prompt.n) {
        now += 0.15;
        step();
    }
    assert_true(stream.wait <= 0.4 && stream.wait > 0.3);
    cvn_engine_free(engine, NULL);
}

/* Rows of another engine, which takes turns with this one, wait as its own do. */
static void those_of_other_engines_wait_no_longer(void **state)
{
    (void)state;
    Heard prompt = {0};
    new_engine(0.3);
    submit(1, 200, 1, &prompt);
    while (!prompt.n) {
        double begin = now;
        engine->pace.beside = begin;
        now += 0.1; /* they were at it, and it is this one's turn */
        step();
        assert_true(now - begin <= 0.3 && now - begin > 0.15);
    }
    cvn_engine_free(engine, NULL);
}

static void where_none_fits_the_shortest_is_read(void **state)
{
    (void)state;
    Heard stream = {0}, prompt = {0};
    new_engine(0.01);
    submit(0, 5, 100, &stream);
    step();
    submit(1, 84, 2, &prompt); /* 12 lists of 8: one that decodes, and a chunk of 7 */
    for (int i = 0; i < 12; i++) {
        int before = stream.n;
        assert_int_equal(prompt.n, 0);
        step();
        assert_int_equal(stream.n, before + (i < 11 ? 1 : 2));
    }
    assert_int_equal(prompt.n, 2);
    assert_true(stream.wait < 0.12);
    cvn_engine_free(engine, NULL);
}

/* Nobody waits: the longest chunks, and a batch. */
static void prompts_alone_are_read_at_once(void **state)
{
    (void)state;
    Heard h[4];
    memset(h, 0, sizeof h);
    new_engine(0.12);
    submit(1, 120, 2, &h[0]);
    step();
    step();
    assert_int_equal(h[0].n, 2);
    assert_int_equal(cvn_engine_get_stats(engine).prefills, 2);
    for (int i = 0; i < 4; i++)
        submit(i, 6, 1, &h[i]);
    assert_int_equal(step(), 0);
    assert_int_equal(cvn_engine_get_stats(engine).prefills, 3);
    cvn_engine_free(engine, NULL);
}

/* Texts that are read between steps, too, do not stop those that decode. */
static void rows_decode_between_the_sections_of_a_score(void **state)
{
    (void)state;
    float logprob[2][100];
    int32_t text[100];
    for (int i = 0; i < 100; i++)
        text[i] = (i * 11 + i * i % 17) % 259;
    for (int i = 0; i < 2; i++) {
        Heard stream = {0};
        cvn_err err = {0};
        const cvn_engine_options options = {.slots = 2,
                                            .context = CONTEXT,
                                            .threads = 1,
                                            .scoring = true,
                                            .max_stall = i ? 1e3 : 0,
                                            .n_buckets = 2,
                                            .bucket = {16, 64}};
        if (cvn_engine_new(model, &options, &engine, &err))
            fail_msg("%s", err.message);
        submit(0, 5, 100, &stream);
        step();
        int before = stream.n;
        assert_int_equal(cvn_engine_score(engine, text, 100, logprob[i], NULL, &err), CVN_OK);
        assert_int_equal(stream.n - before, i ? 7 : 0); /* 100 = 6 * 16 + 4 */
        cvn_engine_free(engine, NULL);
    }
    assert_memory_equal(logprob[0], logprob[1], sizeof *logprob);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_text_waits_for_longer),
        cmocka_unit_test(a_machine_that_is_slower_has_shorter_sections),
        cmocka_unit_test(time_that_has_passed_is_not_spent_again),
        cmocka_unit_test(those_of_other_engines_wait_no_longer),
        cmocka_unit_test(where_none_fits_the_shortest_is_read),
        cmocka_unit_test(prompts_alone_are_read_at_once),
        cmocka_unit_test(rows_decode_between_the_sections_of_a_score),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
