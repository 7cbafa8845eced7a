/* A dialog whose cache is kept gives the text of one that is computed from nothing, for less work. */
#include "base/file.h"
#include "caravan/session.h"
#include "gqa_model.h"
#include "scratch.h"
#include "serve/engine.h"

enum { CONTEXT = 200, MOST = 256 };

/* A dialog as it grows, and what has been said last. */
typedef struct Talk {
    int32_t id[2 * MOST]; /* [n] the whole dialog */
    int64_t n;
    int64_t answered;       /* tokens of the last answer, the last ones of id */
    int64_t interrupt_at;   /* tokens until *interrupt is set; 0: never */
    int64_t stop_at;        /* tokens until on_token returns false; 0: never */
    volatile int interrupt; /* what sessions are given */
} Talk;

static bool hear(void *context, int request, int32_t token)
{
    Talk *t = context;
    assert_int_equal(request, 0);
    assert_true(t->n < 2 * MOST);
    t->id[t->n++] = token;
    t->answered++;
    if (t->interrupt_at && t->answered >= t->interrupt_at)
        t->interrupt = 1;
    return !t->stop_at || t->answered < t->stop_at;
}

static cvn_engine *new_engine(int rows)
{
    cvn_err err = {0};
    cvn_engine *engine = NULL;
    cvn_engine_options options = {.slots = rows,
                                  .context = CONTEXT,
                                  .threads = 2,
                                  .sampling = true,
                                  .penalties = true,
                                  .n_buckets = 2,
                                  .bucket = {16, 64}};
    must(cvn_engine_new(model, &options, &engine, &err), &err);
    return engine;
}

static cvn_session *new_session(cvn_engine *engine)
{
    cvn_err err = {0};
    cvn_session *session = NULL;
    must(cvn_session_new(engine, &session, &err), &err);
    return session;
}

/* Some user's turn of n tokens. */
static void say(Talk *t, int n, int salt)
{
    for (int i = 0; i < n; i++)
        t->id[t->n++] = (int32_t)((salt * 37 + i * 11 + 5) % 259);
    t->answered = 0;
}

static cvn_request request_of(const Talk *t, int64_t max_tokens)
{
    return (cvn_request){.prompt = t->id,
                         .n_prompt = t->n,
                         .max_tokens = max_tokens,
                         .ignore_eos = true,
                         .sampling = {.temperature = 0.7f, .top_p = 1, .seed = 9}};
}

static cvn_session_result answer(cvn_session *s, Talk *t, int64_t max_tokens, int expected)
{
    cvn_err err = {0};
    cvn_session_result result;
    int32_t before[2 * MOST];
    memcpy(before, t->id, sizeof before);
    cvn_request request = request_of(t, max_tokens);
    request.prompt = before;
    int code = cvn_session_generate(s, &request, hear, t, &t->interrupt, &result, &err);
    if (code != expected)
        fail_msg("code %d, not %d: %s", code, expected, err.message);
    assert_int_equal(result.n_tokens, t->answered);
    return result;
}

/* Asserts that the last answer is what an engine without a past gives. */
static void assert_as_from_nothing(cvn_engine *fresh, const Talk *t)
{
    Talk again = *t;
    again.n -= t->answered;
    again.answered = again.interrupt_at = again.stop_at = 0;
    int32_t prompt[2 * MOST];
    memcpy(prompt, again.id, sizeof prompt);
    cvn_request request = request_of(&again, t->answered);
    request.prompt = prompt;
    cvn_result result;
    cvn_err err = {0};
    must(cvn_engine_generate(fresh, &request, 1, hear, &again, NULL, &result, &err), &err);
    assert_int_equal(again.n, t->n);
    assert_memory_equal(again.id, t->id, (size_t)t->n * sizeof *t->id);
}

static void turns_equal_a_fresh_run_of_the_whole_dialog(void **state)
{
    cvn_engine *e = new_engine(1), *fresh = new_engine(1);
    cvn_session *s = new_session(e);
    Talk t = {0};
    int64_t compilations = cvn_engine_get_stats(e).compilations;
    for (int turn = 0; turn < 5; turn++) {
        int64_t before = t.n;
        say(&t, 3 + 7 * turn, turn);
        cvn_session_result r = answer(s, &t, 12, CVN_OK);
        assert_int_equal(r.finish, CVN_FINISH_LENGTH);
        /* The last token of an answer is drawn and not computed, so it is new with the next turn. */
        assert_int_equal(r.reused, before ? before - 1 : 0);
        assert_int_equal(r.computed, 3 + 7 * turn + (before ? 1 : 0));
        assert_as_from_nothing(fresh, &t);
    }
    assert_int_equal(cvn_engine_get_stats(e).compilations, compilations);
    cvn_session_stats stats = cvn_session_get_stats(s);
    assert_int_equal(stats.cached, t.n - 1);
    assert_int_equal(stats.turns, 5);
    assert_int_equal(stats.generated, 60);
    assert_int_equal(stats.computed, t.n - 60 + 4);
    assert_int_equal(cvn_engine_get_stats(e).prefill_tokens, stats.computed);
    cvn_session_free(s);
    cvn_engine_free(e, NULL);
    cvn_engine_free(fresh, NULL);
}

static void going_back_reuses_what_is_common(void **state)
{
    cvn_engine *e = new_engine(1), *fresh = new_engine(1);
    cvn_session *s = new_session(e);
    Talk t = {0};
    say(&t, 50, 1);
    answer(s, &t, 10, CVN_OK);
    /* Another question after the first 40 tokens. */
    t.n = 40;
    say(&t, 9, 2);
    cvn_session_result r = answer(s, &t, 10, CVN_OK);
    assert_int_equal(r.reused, 40);
    assert_int_equal(r.computed, 9);
    assert_as_from_nothing(fresh, &t);
    /* The same prompt again: all but its last token is there. */
    t.n -= t.answered;
    t.answered = 0;
    r = answer(s, &t, 10, CVN_OK);
    assert_int_equal(r.reused, 48);
    assert_as_from_nothing(fresh, &t);
    cvn_session_reset(s);
    assert_int_equal(cvn_session_get_stats(s).cached, 0);
    t.n -= t.answered;
    t.answered = 0;
    r = answer(s, &t, 10, CVN_OK);
    assert_int_equal(r.reused, 0);
    assert_as_from_nothing(fresh, &t);
    cvn_session_free(s);
    cvn_engine_free(e, NULL);
    cvn_engine_free(fresh, NULL);
}

static void an_interrupted_answer_can_be_gone_on_from(void **state)
{
    cvn_engine *e = new_engine(1), *fresh = new_engine(1);
    cvn_session *s = new_session(e);
    Talk t = {.interrupt_at = 5};
    say(&t, 20, 3);
    cvn_session_result r = answer(s, &t, 30, CVN_EINTERRUPTED);
    assert_int_equal(r.n_tokens, 5);
    assert_as_from_nothing(fresh, &t);
    t.interrupt_at = 0;
    t.interrupt = 0;
    say(&t, 4, 4);
    r = answer(s, &t, 12, CVN_OK);
    assert_int_equal(r.reused, 24);
    assert_as_from_nothing(fresh, &t);
    /* Interrupted before a prompt of several chunks is computed. */
    say(&t, 100, 5);
    t.interrupt = 1;
    r = answer(s, &t, 12, CVN_EINTERRUPTED);
    assert_int_equal(r.n_tokens, 0);
    assert_int_equal(r.computed, 0);
    t.interrupt = 0;
    r = answer(s, &t, 12, CVN_OK);
    assert_int_equal(r.finish, CVN_FINISH_LENGTH);
    assert_as_from_nothing(fresh, &t);
    /* Stopped by the listener. */
    t.stop_at = 3;
    say(&t, 2, 6);
    r = answer(s, &t, 12, CVN_OK);
    assert_int_equal(r.finish, CVN_FINISH_STOPPED);
    assert_int_equal(r.n_tokens, 3);
    cvn_session_free(s);
    cvn_engine_free(e, NULL);
    cvn_engine_free(fresh, NULL);
}

static void a_full_context_is_said_and_survived(void **state)
{
    cvn_engine *e = new_engine(1), *fresh = new_engine(1);
    cvn_session *s = new_session(e);
    Talk t = {0};
    say(&t, 190, 1);
    cvn_session_result r = answer(s, &t, 50, CVN_OK);
    assert_int_equal(r.finish, CVN_FINISH_CONTEXT);
    assert_int_equal(r.n_tokens, CONTEXT - 190 + 1);
    assert_as_from_nothing(fresh, &t);
    assert_int_equal(cvn_session_get_stats(s).cached, CONTEXT);
    int64_t prefills = cvn_engine_get_stats(e).prefills;
    say(&t, 3, 2);
    r = answer(s, &t, 50, CVN_OK);
    assert_int_equal(r.finish, CVN_FINISH_CONTEXT);
    assert_int_equal(r.n_tokens, 0);
    assert_int_equal(cvn_engine_get_stats(e).prefills, prefills);
    assert_int_equal(cvn_session_get_stats(s).cached, CONTEXT);
    /* A shorter dialog fits again. */
    t.n = 100;
    say(&t, 3, 3);
    r = answer(s, &t, 5, CVN_OK);
    assert_int_equal(r.reused, 100);
    assert_as_from_nothing(fresh, &t);
    cvn_session_free(s);
    cvn_engine_free(e, NULL);
    cvn_engine_free(fresh, NULL);
}

static bool hear_nothing(void *context, int request, int32_t token)
{
    (void)context;
    (void)request;
    (void)token;
    return true;
}

static void sessions_side_by_side_and_strangers_do_no_harm(void **state)
{
    cvn_engine *e = new_engine(3), *fresh = new_engine(1);
    cvn_session *s[2] = {new_session(e), new_session(e)};
    Talk t[2] = {{.n = 0}, {.n = 0}};
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < 2; i++) {
            say(&t[i], 6 + turn, 10 * i + turn);
            cvn_session_result r = answer(s[i], &t[i], 8, CVN_OK);
            assert_int_equal(r.reused > 0, turn > 0);
            assert_as_from_nothing(fresh, &t[i]);
        }
    /* A request takes a slot, and then three take all. */
    for (int n = 1; n <= 3; n += 2) {
        Talk other = {0};
        say(&other, 30, 77);
        int32_t prompt[30];
        memcpy(prompt, other.id, sizeof prompt);
        cvn_request request[3];
        for (int i = 0; i < n; i++) {
            request[i] = request_of(&other, 5);
            request[i].prompt = prompt;
        }
        cvn_result result[3];
        assert_int_equal(cvn_engine_generate(e, request, n, hear_nothing, NULL, NULL, result, NULL),
                         CVN_OK);
        for (int i = 0; i < 2; i++)
            assert_int_equal(cvn_session_get_stats(s[i]).cached, t[i].n - 1);
    }
    for (int i = 0; i < 2; i++) {
        int64_t held = t[i].n - 1;
        say(&t[i], 5, 30 + i);
        cvn_session_result r = answer(s[i], &t[i], 8, CVN_OK);
        assert_int_equal(r.reused, held);
        assert_as_from_nothing(fresh, &t[i]);
        cvn_session_free(s[i]);
    }
    cvn_engine_free(e, NULL);
    cvn_engine_free(fresh, NULL);
}

/* With a penalty that nothing withstands no token comes twice, in whatever turn it was first. */
static void a_repeat_penalty_spans_turns(void **state)
{
    cvn_engine *e = new_engine(1);
    cvn_session *s = new_session(e);
    int32_t ids[64] = {1, 2, 3};
    int64_t n = 3;
    for (int turn = 0; turn < 3; turn++) {
        Talk t = {.n = 0};
        cvn_request request = {.prompt = ids, .n_prompt = n, .max_tokens = 12, .ignore_eos = true};
        request.sampling = (cvn_sampling){.top_p = 1, .repeat_penalty = 1e6f};
        cvn_session_result result;
        cvn_err err = {0};
        must(cvn_session_generate(s, &request, hear, &t, NULL, &result, &err), &err);
        for (int64_t i = 0; i < t.n; i++) {
            for (int64_t k = 0; k < n; k++)
                assert_int_not_equal(t.id[i], ids[k]);
            ids[n++] = t.id[i];
        }
        if (turn == 1) { /* what was taken back may come again */
            n -= t.n;
            request.n_prompt = n;
            Talk again = {.n = 0};
            assert_int_equal(cvn_session_generate(s, &request, hear, &again, NULL, &result, &err),
                             0);
            assert_memory_equal(again.id, t.id, (size_t)t.n * sizeof *t.id);
        }
    }
    cvn_session_free(s);
    cvn_engine_free(e, NULL);
}

static void mistakes_are_refused_and_leave_the_session_usable(void **state)
{
    cvn_engine *e = new_engine(1);
    cvn_session *s = new_session(e);
    Talk t = {0};
    say(&t, 10, 1);
    t.id[4] = 259;
    answer(s, &t, 5, CVN_EINVAL);
    t.id[4] = 4;
    answer(s, &t, 0, CVN_EINVAL);
    cvn_session_result r = answer(s, &t, 5, CVN_OK);
    assert_int_equal(r.n_tokens, 5);
    cvn_session_free(s);
    cvn_session_free(NULL);
    cvn_engine_free(e, NULL);
}

/* One row, and whatever else is wanted. */
static cvn_engine *engine_with(const cvn_model *of, const char *kv_cache, const char *mesh,
                               const char *layout)
{
    cvn_err err = {0};
    cvn_engine *engine = NULL;
    cvn_engine_options options = {.slots = 1,
                                  .context = CONTEXT,
                                  .threads = mesh ? 1 : 2,
                                  .sampling = true,
                                  .penalties = true,
                                  .kv_cache = kv_cache,
                                  .mesh = mesh,
                                  .layout = layout,
                                  .n_buckets = 2,
                                  .bucket = {16, 64}};
    if (cvn_engine_new(of, &options, &engine, &err))
        fail_msg("%s", err.message);
    return engine;
}

static FileMap bytes_of(const char *path)
{
    cvn_err err = {0};
    FileMap map = {0};
    if (file_map(&map, path, &err))
        fail_msg("%s", err.message);
    return map;
}

/* An engine that takes the file goes on as the one that wrote it, and as one that computes it all again; what it would
   write is the same file, bit for bit. */
static void goes_on_from(const char *path, const char *kv_cache, const char *mesh,
                         const char *layout, const Talk *before, const Talk *after)
{
    cvn_err err = {0};
    cvn_engine *e = engine_with(model, kv_cache, mesh, layout);
    cvn_session *s = new_session(e);
    if (path && cvn_session_load(s, path, &err))
        fail_msg("%s", err.message);
    if (path) {
        const char *again = in_scratch("again");
        assert_int_equal(cvn_session_get_stats(s).cached, before->n - 1);
        assert_int_equal(cvn_session_save(s, again, &err), CVN_OK);
        FileMap was = bytes_of(path), is = bytes_of(again);
        assert_int_equal(was.size, is.size);
        assert_memory_equal(was.data, is.data, was.size);
        file_unmap(&was);
        file_unmap(&is);
    }
    Talk t = *before;
    say(&t, 5, 8);
    cvn_session_result r = answer(s, &t, 12, CVN_OK);
    assert_int_equal(r.reused, path ? before->n - 1 : 0);
    assert_int_equal(t.n, after->n);
    assert_memory_equal(t.id, after->id, (size_t)t.n * sizeof *t.id);
    cvn_session_free(s);
    cvn_engine_free(e, NULL);
}

static void a_cache_from_a_file_is_gone_on_from(void **state)
{
    (void)state;
    static const char *const kv[] = {NULL, "int8"};
    for (int k = 0; k < 2; k++) {
        cvn_err err = {0};
        const char *path = in_scratch(k ? "int8" : "plain");
        cvn_engine *e = engine_with(model, kv[k], NULL, NULL);
        cvn_session *s = new_session(e);
        assert_int_equal(cvn_session_save(s, path, &err), CVN_EINVAL); /* there is nothing yet */
        Talk t = {0};
        say(&t, 70, 1);
        answer(s, &t, 12, CVN_OK);
        if (cvn_session_save(s, path, &err))
            fail_msg("%s", err.message);
        const Talk before = t;
        say(&t, 5, 8);
        answer(s, &t, 12, CVN_OK);
        cvn_session_free(s);
        cvn_engine_free(e, NULL);
        goes_on_from(path, kv[k], NULL, NULL, &before, &t);
        goes_on_from(path, kv[k], "model=3", "tp", &before, &t);
        goes_on_from(path, kv[k], "data=2", "dp", &before, &t);
        goes_on_from(NULL, kv[k], NULL, NULL, &before, &t);
    }
}

/* Whatever a file is that was not written by the same model, and whole: one sentence, and the cache is as it was. */
static void other_files_are_refused(void **state)
{
    (void)state;
    cvn_err err = {0};
    cvn_model *other;
    const char *path = in_scratch("good"), *bad = in_scratch("bad");
    cvn_model_options options = {.dtype = CVN_F32, .no_tokenizer = true};
    assert_int_equal(cvn_model_open(CVN_TEST_DATA "/llama/llama3_rope", &options, &other, &err),
                     CVN_OK);
    cvn_engine *e = engine_with(model, NULL, NULL, NULL);
    cvn_session *s = new_session(e);
    Talk t = {0};
    say(&t, 20, 1);
    answer(s, &t, 4, CVN_OK);
    assert_int_equal(cvn_session_save(s, path, &err), CVN_OK);
    cvn_engine *stranger[] = {engine_with(other, NULL, NULL, NULL),
                              engine_with(model, "int8", NULL, NULL)};
    for (int i = 0; i < 2; i++) {
        cvn_session *its = new_session(stranger[i]);
        err = (cvn_err){0};
        assert_int_equal(cvn_session_load(its, path, &err), CVN_EFORMAT);
        assert_non_null(strstr(err.message, "belongs to another model"));
        cvn_session_free(its);
        cvn_engine_free(stranger[i], NULL);
    }
    FileMap good = bytes_of(path);
    uint8_t *copy = malloc(good.size);
    for (size_t at = 0; at < good.size; at += at < 1200 ? 7 : 997) {
        memcpy(copy, good.data, good.size);
        copy[at] ^= 0x10;
        err = (cvn_err){0};
        assert_int_equal(file_write(bad, copy, good.size, &err), CVN_OK);
        if (!cvn_session_load(s, bad, &err))
            fail_msg("byte %zu makes no difference", at);
        err = (cvn_err){0};
        assert_int_equal(file_write(bad, good.data, at, &err), CVN_OK);
        if (!cvn_session_load(s, bad, &err))
            fail_msg("the first %zu bytes are enough", at);
    }
    err = (cvn_err){0};
    assert_int_equal(cvn_session_load(s, CVN_TEST_DATA "/llama/gqa/model.safetensors", &err),
                     CVN_EFORMAT);
    assert_non_null(strstr(err.message, "is not a saved KV cache"));
    assert_int_equal(cvn_session_load(s, in_scratch("nothing"), &err), CVN_EIO);
    int64_t held = t.n - 1;
    assert_int_equal(cvn_session_get_stats(s).cached, held);
    say(&t, 3, 2);
    assert_int_equal(answer(s, &t, 4, CVN_OK).reused, held);
    free(copy);
    file_unmap(&good);
    cvn_session_free(s);
    cvn_engine_free(e, NULL);
    cvn_model_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_equal_a_fresh_run_of_the_whole_dialog),
        cmocka_unit_test(going_back_reuses_what_is_common),
        cmocka_unit_test(an_interrupted_answer_can_be_gone_on_from),
        cmocka_unit_test(a_full_context_is_said_and_survived),
        cmocka_unit_test(sessions_side_by_side_and_strangers_do_no_harm),
        cmocka_unit_test(a_repeat_penalty_spans_turns),
        cmocka_unit_test_setup_teardown(a_cache_from_a_file_is_gone_on_from, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(other_files_are_refused, make_scratch, remove_scratch),
        cmocka_unit_test(mistakes_are_refused_and_leave_the_session_usable),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
