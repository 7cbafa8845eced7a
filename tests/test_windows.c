/*
 * Models whose layers look back so far and no further: what they see, and that engines give back what lies behind, which
 * changes no text: conversations go on, prompts are shared, drafts and lookups guess, caches are read from files.
 */
#include "base/json_file.h"
#include "caravan/session.h"
#include "scratch.h"
#include "serve/bench.h"
#include "serve/engine.h"
#include "serve/pages.h"
#include "serve/prefix.h"
#include "serve/windows.h"
#include "splitmix.h"
#include "unit.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CONTEXT = 2048, WINDOW = 48, LONG = 1100, VOCAB = 259 };

/* What limits attention, 0 for nothing: of Ministral, whose tensors are Llama's, or with a cap of Gemma 2. */
typedef struct Limits {
    int64_t window;
    double cap;
} Limits;

/* The config.json of a tiny model for texts of CONTEXT tokens, whose second layer (or all) has a window. */
static void limit(const char *path, const Limits *how, bool all)
{
    static const char sliding[] = "sliding_attention", full[] = "full_attention";
    cvn_err err = {0};
    char file[512];
    snprintf(file, sizeof file, "%s/llama/%s/config.json", CVN_TEST_DATA,
             how->cap > 0 ? "gemma2" : "gqa");
    json_t *json = json_object_read(file, &err), *types = json_array();
    assert_non_null(json);
    const int64_t layers = json_integer_value(json_object_get(json, "num_hidden_layers"));
    for (int64_t i = 0; i < layers; i++)
        json_array_append_new(types,
                              json_string(how->window > 0 && (all || i > 0) ? sliding : full));
    json_object_set_new(json, "layer_types", types);
    json_object_set_new(json, "max_position_embeddings", json_integer(CONTEXT));
    json_object_set_new(json, "sliding_window",
                        how->window > 0 ? json_integer(how->window) : json_null());
    if (how->cap > 0)
        json_object_set_new(json, "attn_logit_softcapping", json_real(how->cap));
    else
        json_object_set_new(json, "model_type", json_string("ministral"));
    must(json_file_write(path, json, &err), &err);
    json_decref(json);
}

static cvn_model *open_model(cvn_dtype dtype, const Limits *how, bool all)
{
    cvn_err err = {0};
    cvn_model *model = NULL;
    char path[512];
    const cvn_model_options options = {.dtype = dtype, .no_tokenizer = true};
    snprintf(path, sizeof path, "%s/config.json", in_scratch(how->cap > 0 ? "capped" : "windowed"));
    limit(path, how, all);
    path[strlen(path) - strlen("/config.json")] = '\0';
    must(cvn_model_open(path, &options, &model, &err), &err);
    return model;
}

static cvn_engine *new_engine(const cvn_model *model, cvn_engine_options options)
{
    cvn_err err = {0};
    cvn_engine *e = NULL;
    options.threads = 1;
    options.context = CONTEXT;
    options.n_buckets = 2;
    options.bucket[0] = 16;
    options.bucket[1] = 128;
    must(cvn_engine_new(model, &options, &e, &err), &err);
    return e;
}

static void make_text(int32_t *token, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        token[i] = (int32_t)(splitmix(&seed) % VOCAB);
}

/* ---- what is seen ---- */

enum { SHORT = 120, CHANGED = 20 };

static void score(cvn_engine *e, const int32_t *token, int64_t n, float *logprob)
{
    cvn_err err = {0};
    int32_t argmax[SHORT];
    must(cvn_engine_score(e, token, n, logprob, argmax, &err), &err);
}

/* A token is changed: which of those behind it are foretold otherwise? `far`: the first that is not, or SHORT. */
static void reaches(const Limits *how, int64_t far)
{
    for (int kv = 0; kv < 2; kv++) {
        cvn_model *model = open_model(CVN_F32, how, true);
        cvn_engine *e = new_engine(model, (cvn_engine_options){.slots = 1,
                                                               .scoring = true,
                                                               .no_generation = true,
                                                               .kv_cache = kv ? "int8" : NULL});
        int32_t token[SHORT];
        float before[SHORT], after[SHORT];
        make_text(token, SHORT, 3);
        score(e, token, SHORT, before);
        token[CHANGED] = (token[CHANGED] + 1) % VOCAB;
        score(e, token, SHORT, after);
        for (int64_t i = 0; i < SHORT; i++) {
            /* the token itself is another one, and those behind it are foretold from it */
            bool same = before[i] == after[i], reached = i >= CHANGED && i < far;
            if (same == reached)
                fail_msg("window %lld: token %lld is %s", (long long)how->window, (long long)i,
                         same ? "the same" : "another");
        }
        cvn_engine_free(e, NULL);
        cvn_model_free(model);
    }
}

/* Through two layers of windows of 9 a token is seen 16 positions behind it, and foretells the next one. */
static void a_token_is_seen_as_far_as_windows_let_it(void **state)
{
    reaches(&(Limits){.window = 9}, CHANGED + 2 * 8 + 2);
    reaches(&(Limits){.window = 500}, SHORT);
    reaches(&(Limits){.cap = 0.5}, SHORT);
}

static void a_cap_counts_and_a_window_longer_than_the_text_does_not(void **state)
{
    static const Limits how[][2] = {{{0}, {.window = 500}},
                                    {{.cap = 1e5}, {.cap = 1e5, .window = 500}},
                                    {{.cap = 1e5}, {.cap = 1e4}},
                                    {{.cap = 1e5}, {.cap = 0.3}}};
    static const float least[] = {0, 0, 0, 1e-3F}, most[] = {0, 0, 1e-4F, INFINITY};
    int32_t token[SHORT];
    make_text(token, SHORT, 4);
    for (int i = 0; i < 4; i++) {
        float logprob[2][SHORT], far = 0;
        for (int k = 0; k < 2; k++) {
            cvn_model *model = open_model(CVN_F32, &how[i][k], true);
            cvn_engine *e = new_engine(
                model, (cvn_engine_options){.slots = 1, .scoring = true, .no_generation = true});
            score(e, token, SHORT, logprob[k]);
            cvn_engine_free(e, NULL);
            cvn_model_free(model);
        }
        for (int k = 0; k < SHORT; k++)
            far = fmaxf(far, fabsf(logprob[1][k] - logprob[0][k]));
        if (!(far >= least[i] && far <= most[i]))
            fail_msg("pair %d differs by %g", i, (double)far);
    }
}

/* ---- what is kept ---- */

/* An engine that gives nothing back, and has pages for it. */
static cvn_engine *new_keeper(const cvn_model *model, cvn_engine_options options)
{
    options.kv_memory = UINT64_C(1) << 40;
    cvn_engine *e = new_engine(model, options);
    assert_non_null(e->window);
    e->window = NULL;
    return e;
}

/* Bytes of the caches' keys that are in memory. */
static size_t resident(const cvn_engine *e)
{
    const Buffer *b = runtime_buffer(&e->rt, ROLE_CACHE, 0);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = cvn_type_bytes(&b->local), n = 0;
    uintptr_t at = (uintptr_t)buffer_address(&e->rt, b, 0), begin = (at + page - 1) / page * page;
    unsigned char *in = calloc(bytes / page + 1, 1);
    assert_int_equal(e->steps.caches.n, 1); /* of all layers */
    assert_int_equal(mincore((void *)begin, (at + bytes - begin) / page * page, in), 0);
    for (size_t i = 0; i < (at + bytes - begin) / page; i++)
        n += in[i] & 1;
    free(in);
    return n * page;
}

/* Pages that a text holds in a table. */
static size_t holds(const cvn_engine *e, int text, int table)
{
    size_t n = 0;
    for (int64_t i = 0; i < e->pages->held[text]; i++)
        n += e->pages->table[table].page[text * e->pages->each + i] >= 0;
    return n;
}

typedef struct Heard {
    int32_t token[CONTEXT];
    int n;
} Heard;

static bool hear(void *context, int id, int32_t token)
{
    Heard *h = context;
    (void)id;
    h->token[h->n++] = token;
    return true;
}

/* Answers a prompt; returns how many of its tokens were in a cache. */
static int64_t answer(cvn_engine *e, const int32_t *prompt, int64_t n, int64_t tokens, Heard *out)
{
    cvn_err err = {0};
    const cvn_request request = {
        .prompt = prompt, .n_prompt = n, .max_tokens = tokens, .ignore_eos = true};
    cvn_result result;
    out->n = 0;
    must(cvn_engine_generate(e, &request, 1, hear, out, NULL, &result, &err), &err);
    assert_int_equal(out->n, tokens);
    return result.reused;
}

static void same(const char *what, const Heard *got, const Heard *want)
{
    assert_int_equal(got->n, want->n);
    for (int i = 0; i < got->n; i++)
        if (got->token[i] != want->token[i])
            fail_msg("%s: token %d is %d, not %d", what, i, got->token[i], want->token[i]);
}

static void a_text_is_the_same_when_what_is_behind_windows_is_given_back(void **state)
{
    static int32_t prompt[LONG];
    static Heard got, want;
    make_text(prompt, LONG, 5);
    for (int i = 0; i < 4; i++) {
        static const Limits how[] = {{.window = WINDOW}, {.window = 300}};
        cvn_model *model = open_model(i % 2 ? CVN_BF16 : CVN_F32, &how[i / 2], false);
        for (int kv = 0; kv < 2; kv++) {
            const cvn_engine_options options = {.slots = 2,
                                                .kv_cache = kv ? "int8" : NULL,
                                                .mesh = i == 3 ? "model=3" : NULL,
                                                .layout = "tp"};
            cvn_engine *e = new_engine(model, options), *all = new_keeper(model, options);
            answer(e, prompt, LONG, 600, &got);
            answer(all, prompt, LONG, 600, &want);
            same("a long text", &got, &want);
            cvn_engine_free(e, NULL);
            cvn_engine_free(all, NULL);
        }
        cvn_model_free(model);
    }
}

/* A slot of 1,700 positions, one layer with a window of 48 and one without. */
static void memory_is_the_window_s(void **state)
{
    static int32_t prompt[LONG];
    Heard got;
    const Limits how = {.window = WINDOW};
    cvn_err err = {0};
    cvn_model *model = open_model(CVN_F32, &how, false);
    cvn_engine *e = new_engine(model, (cvn_engine_options){.slots = 1});
    cvn_session *s;
    cvn_session_result result;
    must(cvn_session_new(e, &s, &err), &err);
    make_text(prompt, LONG, 6);
    got.n = 0;
    const cvn_request request = {
        .prompt = prompt, .n_prompt = LONG, .max_tokens = 600, .ignore_eos = true};
    must(cvn_session_generate(s, &request, hear, &got, NULL, &result, &err), &err);
    const Buffer *b = runtime_buffer(&e->rt, ROLE_CACHE, 0);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), own = 64 * cvn_dtype_bytes(CVN_F32, 3 * 20);
    const int text = prefix_own(e, s), windowed = e->steps.caches.layer[1].table;
    const size_t all = holds(e, text, e->steps.caches.layer[0].table),
                 kept = holds(e, text, windowed);
    assert_int_equal(all, (LONG + 599 + 63) / 64);
    assert_true(kept >= 2 && kept <= (size_t)e->steps.most[windowed] && 2 * kept < all);
    /* Pages of the caches are no whole ones of the system here: of each there may be one between it and its neighbour. */
    assert_true(resident(e) >= all * own && resident(e) <= (all + kept) * (own + page));
    /* The statistics, and what a plan says, count no more. */
    assert_true(e->stats.cache_bytes == 2 * cvn_type_bytes(&b->local));
    assert_int_equal(b->local.dim[0], CONTEXT / 64 + e->steps.most[windowed]);
    assert_true(2 * e->steps.most[windowed] <= CONTEXT / 64);
    cvn_session_free(s);
    assert_true(resident(e) <= 2 * (all + 2) * page);
    BenchFigure figure; /* takes no more pages for texts that it makes up */
    must(bench_decode(e, LONG + 600, 3, 0, &figure, &err), &err);
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

/* Two texts of 1,700 tokens, of which a table holds 27 pages each where nothing is given back; nobody is preempted. */
static void pages_behind_windows_are_taken_by_others(void **state)
{
    enum { SLOTS = 2, NEW = 600 };
    static int32_t prompt[SLOTS][LONG];
    static Heard got[SLOTS], want;
    static const int64_t pages[] = {84, 32}; /* of 108 and 54 */
    const Limits how = {.window = WINDOW};
    cvn_err err = {0};
    for (int all = 0; all < 2; all++) {
        cvn_model *model = open_model(CVN_F32, &how, all);
        cvn_engine *plain = new_keeper(model, (cvn_engine_options){.slots = 1});
        int64_t memory = pages[all] * cache_pool_bytes(plain->steps.caches.pool, 64, CVN_F32);
        cvn_engine *e =
            new_engine(model, (cvn_engine_options){.slots = SLOTS, .kv_memory = (uint64_t)memory});
        assert_int_equal(e->steps.pages[0], pages[all]);
        for (int i = 0; i < SLOTS; i++) {
            make_text(prompt[i], LONG, 7 + (uint64_t)i);
            const cvn_request request = {
                .prompt = prompt[i], .n_prompt = LONG, .max_tokens = NEW, .ignore_eos = true};
            const cvn_listener listener = {.on_token = hear, .context = &got[i]};
            got[i].n = 0;
            must(cvn_engine_submit(e, &request, &listener, NULL, &err), &err);
        }
        int both = 0;
        for (int left = 1; left;) {
            must(cvn_engine_step(e, &left, &err), &err);
            both += e->queue.running == SLOTS;
        }
        assert_true(both > NEW / 2);
        assert_int_equal(cvn_engine_get_stats(e).preemptions, 0);
        for (int i = 0; i < SLOTS; i++) {
            answer(plain, prompt[i], LONG, NEW, &want);
            same("one of two", &got[i], &want);
        }
        cvn_engine_free(e, NULL);
        cvn_engine_free(plain, NULL);
        cvn_model_free(model);
    }
}

/* The least memory that one text fits in: of several at once all but one are preempted, again and again. */
static void texts_that_are_preempted_are_the_same(void **state)
{
    enum { SLOTS = 4 };
    static int32_t prompt[SLOTS][LONG];
    static Heard got[SLOTS], want;
    const Limits how = {.window = WINDOW};
    cvn_err err = {0};
    for (int kv = 0; kv < 2; kv++) {
        cvn_model *model = open_model(CVN_BF16, &how, false);
        const cvn_engine_options options = {.slots = SLOTS, .kv_cache = kv ? "int8" : NULL};
        cvn_engine *plain = new_keeper(model, options);
        int64_t page = cache_pool_bytes(plain->steps.caches.pool, 64, kv ? CVN_I8 : CVN_BF16);
        int64_t least = plain->steps.most[0] + plain->steps.most[1];
        cvn_engine_options tight = options;
        tight.kv_memory = (uint64_t)(least * page);
        tight.reuse = true;
        cvn_engine *e = new_engine(model, tight);
        for (int i = 0; i < SLOTS; i++) {
            make_text(prompt[i], LONG, 21 + (uint64_t)(i / 2)); /* two begin alike */
            const cvn_request request = {.prompt = prompt[i],
                                         .n_prompt = 500 + 200 * (i % 2),
                                         .max_tokens = 500,
                                         .ignore_eos = true};
            const cvn_listener listener = {.on_token = hear, .context = &got[i]};
            got[i].n = 0;
            must(cvn_engine_submit(e, &request, &listener, NULL, &err), &err);
        }
        for (int left = 1; left;)
            must(cvn_engine_step(e, &left, &err), &err);
        assert_true(cvn_engine_get_stats(e).preemptions > 0);
        for (int i = 0; i < SLOTS; i++) {
            answer(plain, prompt[i], 500 + 200 * (i % 2), 500, &want);
            same("one of four", &got[i], &want);
        }
        cvn_engine_free(e, NULL);
        cvn_engine_free(plain, NULL);
        cvn_model_free(model);
    }
}

/* Requests that go on from others, share their beginning, or nothing; of answers longer and shorter than what is kept. */
static void shared_beginnings_change_no_text(void **state)
{
    enum { TURNS = 14 };
    static int32_t prompt[TURNS][CONTEXT];
    static int64_t n[TURNS];
    static Heard got[TURNS], want;
    const Limits how = {.window = WINDOW};
    cvn_model *model = open_model(CVN_F32, &how, false);
    cvn_engine *e = new_engine(model, (cvn_engine_options){.slots = 3, .reuse = true});
    cvn_engine *plain = new_keeper(model, (cvn_engine_options){.slots = 1});
    uint64_t random = 8;
    int64_t reused = 0, lost = 0;
    for (int i = 0; i < TURNS; i++) {
        int from = i ? (int)(splitmix(&random) % (uint64_t)i) : 0;
        int64_t keep = i % 3 == 2 ? n[from] / 2 : i % 5 == 4 ? 0 : n[from];
        memcpy(prompt[i], prompt[from], (size_t)keep * sizeof **prompt);
        n[i] = keep;
        if (i && keep == n[from] && keep + got[from].n < 1500) { /* the next turn of it */
            memcpy(prompt[i] + keep, got[from].token, (size_t)got[from].n * sizeof **prompt);
            n[i] += got[from].n;
        }
        n[i] = n[i] > 1200 ? 0 : n[i];
        int64_t more = 20 + (int64_t)(splitmix(&random) % 400);
        make_text(prompt[i] + n[i], more, splitmix(&random));
        n[i] += more;
        int64_t here = answer(e, prompt[i], n[i], i % 2 ? 350 : 30, &got[i]);
        reused += here;
        lost += n[i] > more && keep > 0 && here == 0;
        answer(plain, prompt[i], n[i], got[i].n, &want);
        same("a request", &got[i], &want);
    }
    assert_true(reused > 500 && lost > 0); /* both happen */
    cvn_engine_free(e, NULL);
    cvn_engine_free(plain, NULL);
    cvn_model_free(model);
}

static void sessions_go_on_and_back(void **state)
{
    static int32_t text[CONTEXT];
    static Heard got, want;
    const Limits how = {.window = WINDOW};
    cvn_err err = {0};
    cvn_model *model = open_model(CVN_F32, &how, false);
    cvn_engine *e = new_engine(model, (cvn_engine_options){.slots = 1});
    cvn_engine *plain = new_keeper(model, (cvn_engine_options){.slots = 1});
    cvn_session *s;
    must(cvn_session_new(e, &s, &err), &err);
    make_text(text, CONTEXT, 9);
    const char *path = in_scratch("windows.safetensors");
    /* prompts of so many tokens of one text: on, back a little, back to where nothing is kept, on; from a file */
    static const int64_t length[] = {700, 800, 790, 300, 1000, 1100, 1200, 1100};
    static const bool kept[] = {false, true, true, false, true, true, true, false};
    for (int i = 0; i < 8; i++) {
        cvn_session_result result;
        const cvn_request request = {
            .prompt = text, .n_prompt = length[i], .max_tokens = 12, .ignore_eos = true};
        got.n = 0;
        must(cvn_session_generate(s, &request, hear, &got, NULL, &result, &err), &err);
        answer(plain, text, length[i], 12, &want);
        same("a turn", &got, &want);
        if (kept[i] != (result.reused > 0))
            fail_msg("turn %d of %lld tokens used %lld again", i, (long long)length[i],
                     (long long)result.reused);
        if (i == 4 || i == 5) { /* the next turn takes the answer up */
            memcpy(text + length[i], got.token, (size_t)got.n * sizeof *text);
            must(cvn_session_save(s, path, &err), &err);
            cvn_session_reset(s);
            must(cvn_session_load(s, path, &err), &err);
        }
    }
    cvn_session_free(s);
    cvn_engine_free(e, NULL);
    cvn_engine_free(plain, NULL);
    cvn_model_free(model);
}

/* A model that drafts for itself, whose guesses all stand, and one whose do not; and texts that repeat themselves. */
static void guesses_change_no_text(void **state)
{
    static int32_t prompt[LONG];
    static Heard got, want;
    const Limits how = {.window = WINDOW}, other = {.window = 20};
    cvn_model *model = open_model(CVN_F32, &how, false), *draft = open_model(CVN_F32, &other, true);
    cvn_engine *plain = new_keeper(model, (cvn_engine_options){.slots = 1});
    make_text(prompt, LONG, 11);
    for (int i = 0; i < LONG; i++)
        prompt[i] = prompt[i % 97];
    answer(plain, prompt, 500, 700, &want);
    for (int i = 0; i < 3; i++) {
        cvn_engine *e =
            new_engine(model, (cvn_engine_options){.slots = 1,
                                                   .speculate = i == 0 ? "lookup" : NULL,
                                                   .draft = i == 1   ? model
                                                            : i == 2 ? draft
                                                                     : NULL});
        answer(e, prompt, 500, 700, &got);
        same("a guessed text", &got, &want);
        cvn_engine_free(e, NULL);
    }
    cvn_engine_free(plain, NULL);
    cvn_model_free(draft);
    cvn_model_free(model);
}

/* Weights; each model has a config.json of its own. */
static int make_model(void **state)
{
    char line[1024];
    if (make_scratch(state))
        return -1;
    snprintf(line, sizeof line,
             "cd '%s' && mkdir windowed capped && cp '%s/llama/gqa/model.safetensors' windowed && "
             "cp '%s/llama/gemma2/model.safetensors' capped",
             scratch, CVN_TEST_DATA, CVN_TEST_DATA);
    return system(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_is_seen_as_far_as_windows_let_it),
        cmocka_unit_test(a_cap_counts_and_a_window_longer_than_the_text_does_not),
        cmocka_unit_test(a_text_is_the_same_when_what_is_behind_windows_is_given_back),
        cmocka_unit_test(memory_is_the_window_s),
        cmocka_unit_test(pages_behind_windows_are_taken_by_others),
        cmocka_unit_test(texts_that_are_preempted_are_the_same),
        cmocka_unit_test(shared_beginnings_change_no_text),
        cmocka_unit_test(sessions_go_on_and_back),
        cmocka_unit_test(guesses_change_no_text),
    };
    return cmocka_run_group_tests(tests, make_model, remove_scratch);
}
