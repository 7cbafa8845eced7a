/*
 * Requests that are submitted, stepped and cancelled: each text is what its request gives alone, whatever runs beside it, is
 * cancelled beside it, or interrupts it.
 */
#include "caravan/session.h"
#include "gqa_model.h"
#include "serve/engine.h"

enum { N = 8, CONTEXT = 200, MOST = 256 };

/* What was heard of a request. */
typedef struct Heard {
    int32_t token[MOST];
    int n, ends;
    cvn_result result;
    int id;
    cvn_engine *e;
    /* What the listener does when it hears the at-th token; 0: nothing. */
    int at, cancels;           /* the id that it cancels */
    const cvn_request *submit; /* or this, to be heard by `then` */
    struct Heard *then;
} Heard;

static cvn_listener listener_of(Heard *h);

static bool hear(void *context, int id, int32_t token)
{
    Heard *h = context;
    assert_int_equal(id, h->id);
    assert_int_equal(h->ends, 0);
    assert_true(h->n < MOST);
    h->token[h->n++] = token;
    if (h->n != h->at)
        return true;
    assert_int_equal(cvn_engine_step(h->e, NULL, NULL), CVN_EINVAL);
    cvn_result result;
    if (h->submit) {
        const cvn_listener listener = listener_of(h->then);
        assert_int_equal(cvn_engine_generate(h->e, h->submit, 1, NULL, NULL, NULL, &result, NULL),
                         CVN_EINVAL);
        assert_int_equal(cvn_engine_submit(h->e, h->submit, &listener, &h->then->id, NULL), CVN_OK);
    }
    if (h->cancels)
        assert_int_equal(cvn_engine_cancel(h->e, h->cancels, NULL), CVN_OK);
    return true;
}

static void end(void *context, int id, const cvn_result *result)
{
    Heard *h = context;
    assert_int_equal(id, h->id);
    assert_int_equal(h->ends++, 0);
    h->result = *result;
    assert_int_equal(result->n_tokens, h->n);
}

static cvn_listener listener_of(Heard *h)
{
    return (cvn_listener){hear, end, h};
}

static cvn_engine *new_engine(int rows, const char *mesh)
{
    cvn_err err = {0};
    cvn_engine *e = NULL;
    cvn_engine_options options = {.slots = rows,
                                  .context = CONTEXT,
                                  .threads = 1,
                                  .sampling = true,
                                  .penalties = true,
                                  .n_buckets = 2,
                                  .bucket = {16, 64},
                                  .mesh = mesh};
    if (cvn_engine_new(model, &options, &e, &err))
        fail_msg("%s", err.message);
    return e;
}

/* Prompts of one chunk and of several, drawn in all ways; the last one fills the context. */
static int32_t prompt[N][CONTEXT];
static cvn_request request[N];
static Heard alone[N];

static void make_requests(void)
{
    static const int64_t length[N] = {5, 120, 16, 40, 1, 70, 9, 190};
    for (int r = 0; r < N; r++) {
        for (int i = 0; i < CONTEXT; i++)
            prompt[r][i] = (r * 31 + i * 7 + i * i % 13 + 3) % 259;
        request[r] = (cvn_request){.prompt = prompt[r],
                                   .n_prompt = length[r],
                                   .max_tokens = 12 + r % 5,
                                   .ignore_eos = true,
                                   .sampling = {.top_p = 1, .seed = (uint64_t)r + 100}};
        if (r % 3)
            request[r].sampling.temperature = 0.9f;
        if (r % 3 == 2)
            request[r].sampling.top_k = 30;
        if (r % 2)
            request[r].sampling.repeat_penalty = 1.3f;
    }
}

static bool collect(void *context, int i, int32_t token)
{
    Heard *h = context;
    (void)i;
    h->token[h->n++] = token;
    return true;
}

/* Each request with nobody beside it. */
static void answer_alone(void)
{
    cvn_engine *e = new_engine(1, NULL);
    cvn_err err = {0};
    for (int r = 0; r < N; r++)
        if (cvn_engine_generate(e, &request[r], 1, collect, &alone[r], NULL, &alone[r].result,
                                &err))
            fail_msg("%s", err.message);
    assert_int_equal(alone[N - 1].result.finish, CVN_FINISH_CONTEXT);
    assert_int_equal(alone[N - 1].n, CONTEXT - 190 + 1);
    assert_int_equal(alone[1].result.finish, CVN_FINISH_LENGTH);
    cvn_engine_free(e, NULL);
}

static void submit(cvn_engine *e, int r, Heard *h)
{
    cvn_err err = {0};
    h->e = e;
    const cvn_listener listener = listener_of(h);
    if (cvn_engine_submit(e, &request[r], &listener, &h->id, &err))
        fail_msg("%s", err.message);
    assert_true(h->id > 0);
}

static int step(cvn_engine *e)
{
    cvn_err err = {0};
    int left, code;
    do
        code = cvn_engine_step(e, &left, &err);
    while (code == CVN_EINTERRUPTED);
    if (code)
        fail_msg("%s", err.message);
    return left;
}

static void assert_whole(const Heard *h, int r)
{
    assert_int_equal(h->ends, 1);
    assert_int_equal(h->result.finish, alone[r].result.finish);
    assert_int_equal(h->n, alone[r].n);
    assert_memory_equal(h->token, alone[r].token, (size_t)h->n * sizeof *h->token);
    assert_int_equal(h->result.computed, request[r].n_prompt);
    assert_int_equal(h->result.reused, 0);
}

static void assert_beginning(const Heard *h, int r)
{
    assert_int_equal(h->ends, 1);
    assert_int_equal(h->result.finish, CVN_FINISH_CANCELLED);
    assert_true(h->n <= alone[r].n);
    assert_memory_equal(h->token, alone[r].token, (size_t)h->n * sizeof *h->token);
}

/* All requests in an order of their own, some of them while others run; those whose bit is set in `cancel` are cancelled
   after so many steps as their number. */
static void run_mix(cvn_engine *e, unsigned order, unsigned cancel)
{
    Heard h[N];
    memset(h, 0, sizeof h);
    bool gone[N] = {0};
    int r[N], submitted = 0;
    for (int i = 0; i < N; i++)
        r[i] = i;
    for (int i = N - 1; i > 0; i--, order = order * 1103515245u + 12345u) {
        int k = (int)(order >> 16) % (i + 1), was = r[i];
        r[i] = r[k];
        r[k] = was;
    }
    for (int steps = 0, left = 1; left || submitted < N; steps++) {
        for (int i = 0; submitted < N && i < 3 && (order >> i & 1 || i == 0); i++, submitted++)
            submit(e, r[submitted], &h[r[submitted]]);
        left = step(e);
        for (int i = 0; i < submitted; i++)
            if (cancel >> r[i] & 1 && !gone[r[i]] && steps >= r[i]) {
                bool ended = h[r[i]].ends > 0;
                assert_int_equal(cvn_engine_cancel(e, h[r[i]].id, NULL),
                                 ended ? CVN_EINVAL : CVN_OK);
                gone[r[i]] = !ended;
                cancel &= ~(1u << r[i]);
                assert_int_equal(h[r[i]].ends, 1);
            }
        assert_true(steps < 1000);
    }
    for (int i = 0; i < N; i++)
        if (gone[i])
            assert_beginning(&h[i], i);
        else
            assert_whole(&h[i], i);
    for (int i = 0; i < e->options.slots; i++)
        assert_int_equal(e->filled[i], 0);
}

static void texts_do_not_depend_on_company(void **state)
{
    (void)state;
    for (int rows = 1; rows <= 4; rows += 3) {
        cvn_engine *e = new_engine(rows, NULL);
        for (unsigned order = 1; order <= 4; order++)
            run_mix(e, order * 77777u, 0);
        for (unsigned cancel = 1; cancel < 256; cancel += 37)
            run_mix(e, cancel * 4444u, cancel);
        cvn_engine_free(e, NULL);
    }
}

static void nor_does_it_on_meshes(void **state)
{
    (void)state;
    static const char *const meshes[] = {"data=2", "data=2,model=2"};
    for (int m = 0; m < 2; m++) {
        cvn_engine *e = new_engine(4, meshes[m]);
        run_mix(e, 1234567, 0);
        run_mix(e, 7654321, 0x2a);
        cvn_engine_free(e, NULL);
    }
}

/* Short prompts share a program where they lie in different parts; rows are taken from both. */
static void prompts_of_different_parts_are_read_side_by_side(void **state)
{
    (void)state;
    cvn_engine *e = new_engine(4, "data=2");
    Heard h[4];
    memset(h, 0, sizeof h);
    static const int r[4] = {0, 2, 4, 6};
    for (int i = 0; i < 4; i++)
        submit(e, r[i], &h[i]);
    step(e);
    assert_int_equal(cvn_engine_get_stats(e).prefills, 2);
    assert_int_equal(cvn_engine_get_stats(e).prefill_tokens, 5 + 16 + 1 + 9);
    while (step(e))
        ;
    for (int i = 0; i < 4; i++)
        assert_whole(&h[i], r[i]);
    cvn_engine_free(e, NULL);
}

/* On one device short prompts are read by one run, whichever slots they have. */
static void short_prompts_are_read_as_a_batch(void **state)
{
    (void)state;
    static const int r[5] = {1, 0, 2, 4, 6};
    for (int others = 0; others < 2; others++) { /* beside one that decodes, or another prompt */
        cvn_engine *e = new_engine(5, NULL);
        Heard h[5];
        memset(h, 0, sizeof h);
        for (int i = others; i < 5; i++) {
            submit(e, r[i], &h[i]);
            if (i == 0)
                while (!h[0].n)
                    step(e);
        }
        int64_t before = cvn_engine_get_stats(e).prefills;
        step(e);
        assert_int_equal(cvn_engine_get_stats(e).prefills, before + 1);
        while (step(e))
            ;
        for (int i = others; i < 5; i++)
            assert_whole(&h[i], r[i]);
        cvn_engine_free(e, NULL);
    }
}

static void a_long_prompt_does_not_stop_others(void **state)
{
    (void)state;
    cvn_engine *e = new_engine(2, NULL);
    Heard h[2];
    memset(h, 0, sizeof h);
    submit(e, 0, &h[0]);
    step(e);
    submit(e, 1, &h[1]); /* 120 = 64 + 56 tokens */
    int before = h[0].n;
    step(e);
    assert_int_equal(h[0].n, before + 1);
    assert_int_equal(h[1].n, 0);
    while (step(e))
        ;
    assert_whole(&h[0], 0);
    assert_whole(&h[1], 1);
    cvn_engine_free(e, NULL);
}

/* On one device a slot that decodes draws by every run, also by those that read others' prompts; where a mesh is, by steps of its own. */
static void slots_decode_beside_chunks(void **state)
{
    (void)state;
    for (int mesh = 0; mesh < 2; mesh++) {
        cvn_engine *e = new_engine(4, mesh ? "model=2" : NULL);
        Heard h[4];
        memset(h, 0, sizeof h);
        submit(e, 0, &h[0]);
        while (!h[0].n)
            step(e);
        cvn_engine_stats before = cvn_engine_get_stats(e);
        int drawn = h[0].n;
        for (int i = 1; i < 4; i++)
            submit(e, i, &h[i]); /* 120 tokens, 16 and some */
        while (!h[1].n || !h[2].n || !h[3].n)
            step(e);
        cvn_engine_stats after = cvn_engine_get_stats(e);
        int64_t chunks = after.prefills - before.prefills, steps = after.decodes - before.decodes;
        assert_true(chunks >= 2);
        assert_int_equal(h[0].n - drawn, steps + (mesh ? 0 : chunks));
        while (step(e))
            ;
        for (int i = 0; i < 4; i++)
            assert_whole(&h[i], i);
        cvn_engine_free(e, NULL);
    }
}

/* The order in which requests end on one row. */
static int order[2000], ended;

static void note_end(void *context, int id, const cvn_result *result)
{
    (void)id;
    (void)result;
    order[ended++] = (int)((const cvn_request *)context - request);
}

static void submit_of(cvn_engine *e, int as, uint64_t key, int priority)
{
    static cvn_request r;
    r = request[4]; /* of one token */
    r.max_tokens = 1;
    r.key = key;
    r.priority = priority;
    const cvn_listener listener = {.on_end = note_end, .context = &request[as]};
    assert_int_equal(cvn_engine_submit(e, &r, &listener, NULL, NULL), CVN_OK);
}

static void those_who_ask_take_turns_by_priority(void **state)
{
    (void)state;
    cvn_engine *e = new_engine(1, NULL);
    /* three of one, then two of others, and one that is in a hurry */
    static const int expected[] = {5, 0, 3, 4, 1, 2};
    for (int i = 0; i < 3; i++)
        submit_of(e, i, 1, 0);
    submit_of(e, 3, 2, 0);
    submit_of(e, 4, 3, 0);
    submit_of(e, 5, 1, -1);
    for (ended = 0; step(e);)
        ;
    assert_memory_equal(order, expected, sizeof expected);
    /* nobody waits for ever */
    submit_of(e, 0, 1, 1);
    for (ended = 0; ended < 280; step(e))
        for (int i = 0; i < 6; i++) /* more than a step answers */
            submit_of(e, 1, 2, 0);
    int at = 0;
    while (at < ended && order[at] != 0)
        at++;
    assert_int_equal(at, 256);
    cvn_engine_free(e, NULL);
}

static void listeners_may_submit_and_cancel(void **state)
{
    (void)state;
    cvn_engine *e = new_engine(3, NULL);
    Heard h[5];
    memset(h, 0, sizeof h);
    for (int i = 0; i < 4; i++)
        submit(e, i, &h[i]);
    h[0].at = 4, h[0].cancels = h[0].id; /* itself */
    h[1].at = 2, h[1].cancels = h[3].id; /* one that runs or waits */
    h[2].at = 6, h[2].submit = &request[5], h[2].then = &h[4];
    h[4].e = e;
    while (step(e))
        ;
    assert_beginning(&h[0], 0);
    assert_int_equal(h[0].n, 4);
    assert_beginning(&h[3], 3);
    assert_whole(&h[1], 1);
    assert_whole(&h[2], 2);
    assert_whole(&h[4], 5);
    cvn_engine_free(e, NULL);
}

/* A back end whose every third run is interrupted when all of it has been done. */
static Backend real, late;
static int runs;

static int run_late(Devices *devices, const Executable *executable, const Argument *argument,
                    const void **output, cvn_err *err)
{
    int code = real.run(devices, executable, argument, output, err);
    if (code == CVN_OK && runs++ % 3 == 0)
        code = err_set(err, CVN_EINTERRUPTED, "interrupted");
    return code;
}

static void interrupted_runs_are_taken_back(void **state)
{
    (void)state;
    static const char *const meshes[] = {NULL, "data=2"};
    for (int m = 0; m < 2; m++) {
        cvn_engine *e = new_engine(4, meshes[m]);
        real = late = *e->rt.backend;
        late.run = run_late;
        e->rt.backend = &late;
        run_mix(e, 99, 0);
        run_mix(e, 98, 0x14);
        volatile int flag = 1;
        cvn_engine_watch(e, &flag);
        assert_int_equal(cvn_engine_step(e, NULL, NULL), CVN_OK); /* nothing to run */
        Heard h = {0};
        submit(e, 5, &h);
        assert_int_equal(cvn_engine_step(e, NULL, NULL), CVN_EINTERRUPTED);
        assert_int_equal(h.n, 0);
        flag = 0;
        while (step(e))
            ;
        assert_whole(&h, 5);
        cvn_engine_free(e, NULL);
    }
}

/* Requests that were submitted go on while a session answers and a batch is generated. */
static void sessions_and_batches_run_beside_requests(void **state)
{
    (void)state;
    cvn_engine *e = new_engine(3, NULL);
    cvn_session *s;
    assert_int_equal(cvn_session_new(e, &s, NULL), CVN_OK);
    Heard h[3], mine = {0}, batch = {0};
    memset(h, 0, sizeof h);
    for (int i = 0; i < 3; i++)
        submit(e, i + 1, &h[i]);
    step(e); /* one of them has the session's row */
    cvn_session_result result;
    assert_int_equal(cvn_session_generate(s, &request[6], collect, &mine, NULL, &result, NULL),
                     CVN_OK);
    assert_int_equal(mine.n, alone[6].n);
    assert_memory_equal(mine.token, alone[6].token, (size_t)mine.n * sizeof *mine.token);
    assert_int_equal(cvn_session_get_stats(s).cached, request[6].n_prompt + mine.n - 1);
    cvn_result got;
    Heard last = {0};
    submit(e, 7, &last);
    assert_int_equal(cvn_engine_generate(e, &request[4], 1, collect, &batch, NULL, &got, NULL),
                     CVN_OK);
    assert_memory_equal(batch.token, alone[4].token, (size_t)batch.n * sizeof *batch.token);
    while (step(e))
        ;
    for (int i = 0; i < 3; i++)
        assert_whole(&h[i], i + 1);
    assert_whole(&last, 7);
    cvn_session_free(s);
    cvn_engine_free(e, NULL);
}

static void what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    cvn_engine *e = new_engine(1, NULL);
    cvn_err err = {0};
    Heard h = {0};
    int left = -1;
    assert_int_equal(cvn_engine_step(e, &left, &err), CVN_OK);
    assert_int_equal(left, 0);
    assert_int_equal(cvn_engine_cancel(e, 1, &err), CVN_EINVAL);
    cvn_request bad = request[0];
    bad.n_prompt = CONTEXT + 1;
    assert_int_equal(cvn_engine_submit(e, &bad, NULL, NULL, &err), CVN_EINVAL);
    bad = request[0];
    bad.sampling.temperature = -1;
    assert_int_equal(cvn_engine_submit(e, &bad, NULL, NULL, &err), CVN_EINVAL);
    /* No tokens are wanted, and nobody listens. */
    bad = request[0];
    bad.max_tokens = 0;
    assert_int_equal(cvn_engine_submit(e, &bad, NULL, NULL, &err), CVN_OK);
    submit(e, 0, &h);
    assert_int_equal(step(e), 1);
    while (step(e))
        ;
    assert_whole(&h, 0);
    assert_int_equal(cvn_engine_cancel(e, h.id, &err), CVN_EINVAL);
    /* What has not ended goes with the engine. */
    Heard dropped = {0};
    submit(e, 1, &dropped);
    step(e);
    cvn_engine_free(e, NULL);
    assert_int_equal(dropped.ends, 0);
}

static int open_and_answer(void **state)
{
    open_model(state);
    make_requests();
    answer_alone();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_do_not_depend_on_company),
        cmocka_unit_test(nor_does_it_on_meshes),
        cmocka_unit_test(prompts_of_different_parts_are_read_side_by_side),
        cmocka_unit_test(short_prompts_are_read_as_a_batch),
        cmocka_unit_test(a_long_prompt_does_not_stop_others),
        cmocka_unit_test(slots_decode_beside_chunks),
        cmocka_unit_test(those_who_ask_take_turns_by_priority),
        cmocka_unit_test(listeners_may_submit_and_cancel),
        cmocka_unit_test(interrupted_runs_are_taken_back),
        cmocka_unit_test(sessions_and_batches_run_beside_requests),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, open_and_answer, close_model);
}
