/*
 * One text equals itself, to the bit: alone and in company, read in chunks of any length, with drafts that are right or wrong, from pages that
 * others have read, after it gave its pages up once or many times, whichever adapters others have, on one device and on meshes. Of each seed a schedule is drawn: an engine,
 * requests with all that sampling has, and when they come, are cancelled, and what is scored and asked by sessions meanwhile. Tokens and the
 * logits that they were drawn from are held to those of the request alone.
 *
 * CVN_SEEDS=1000 tries so many seeds, CVN_SEED=7 begins with another.
 */
#include "adapter_make.h"
#include "answer.h"
#include "caravan/constrain.h"
#include "caravan/session.h"
#include "serve/pages.h"
#include "serve/speculate.h"
#include "shell.h"
#include "splitmix.h"

enum { CONTEXT = 200, REQUESTS = 16, LONGEST = 120, ALONE = 160, CONSTRAINTS = 3, ADAPTERS = 3 };

/* Models, the first with a tokenizer; windows are shorter than texts. */
static const char *const models[] = {"model",          "gqa",    "tied",
                                     "mistral_window", "gemma2", "qwen3_moe"};
enum { MODELS = sizeof models / sizeof *models };
static cvn_model *opened[MODELS][2][2]; /* in f32, bf16; in 8 bits */
static cvn_constraint *constraints[CONSTRAINTS];
static cvn_engine *made[ALONE]; /* that answer alone */

typedef struct Ask {
    int32_t prompt[CONTEXT];
    cvn_bias bias;
    cvn_request request;
    Answer plain, is; /* alone; in company */
    int id;           /* 0: it was not submitted yet */
    int score;        /* tokens of it that are scored, too */
    float scored[2][CONTEXT];
} Ask;

static Ask ask[REQUESTS];
static cvn_engine *crowd;
static uint64_t seed, drafts;
static int64_t preempted[2], reused, accepted, cancelled;

/* ---- engines ---- */

/* What an engine's texts may depend on. */
typedef struct Kind {
    int model, dtype, quantized, adapters;
    const char *kv, *mesh, *layout;
} Kind;

static cvn_model *model_of(const Kind *k)
{
    cvn_model **at = &opened[k->model][k->dtype][k->quantized];
    cvn_err err = {0};
    if (*at)
        return *at;
    const cvn_dtype dtype = k->dtype ? CVN_BF16 : CVN_F32;
    if (k->model)
        return *at = open_variant(models[k->model], dtype, k->quantized ? "int8" : NULL);
    must(cvn_model_open(in_scratch("model"), &(cvn_model_options){.dtype = dtype}, at, &err), &err);
    return *at;
}

/* Some have more ranks than others, and adapt other weights. */
static cvn_engine *new_engine(const Kind *k, cvn_engine_options o)
{
    static const char *const kinds[ADAPTERS] = {"r=4,targets=q,v,o,down", "r=1,alpha=3",
                                                "r=11,alpha=8,targets=k,gate,up"};
    cvn_err err = {0};
    cvn_engine *e = NULL;
    const char *folder[ADAPTERS];
    for (int i = 0; i < k->adapters; i++) {
        folder[i] = in_scratch((const char *[]){"a", "b", "c"}[i]);
        make_adapter(folder[i], model_of(k)->io.desc, kinds[i], NULL, (uint64_t)i, false);
    }
    o.adapter = folder;
    o.n_adapters = k->adapters;
    o.context = CONTEXT;
    o.sampling = o.penalties = o.logits_processors = o.scoring = true;
    o.kv_cache = k->kv;
    o.mesh = k->mesh;
    o.layout = k->layout;
    must(cvn_engine_new(model_of(k), &o, &e, &err), &err);
    return e;
}

/* One slot, and nothing is kept: made once. */
static cvn_engine *alone_of(const Kind *k)
{
    static Kind kind[ALONE];
    int n = 0;
    for (int i = 0; made[i]; i++, n++)
        if (memcmp(&kind[i], k, sizeof *k) == 0)
            return made[i];
    assert_true(n + 1 < ALONE);
    kind[n] = *k;
    return made[n] = new_engine(
               k,
               (cvn_engine_options){.slots = 1, .threads = 1, .n_buckets = 2, .bucket = {16, 64}});
}

static Kind draw_kind(uint64_t *random)
{
    static const char *const mesh[] = {"model=2", "data=2", "data=2,model=2"};
    Kind k;
    memset(&k, 0, sizeof k);
    k.model = draw(random, MODELS);
    k.dtype = draw(random, 2);
    k.kv = draw(random, 3) ? NULL : "int8";
    k.quantized = k.model == 1 && !draw(random, 3);
    int which = draw(random, 7);
    if (which < 3 && k.model < 3) {
        k.mesh = mesh[which];
        k.layout = which == 1 ? "dp" : "tp";
    } else if (k.model < 3 && !draw(random, 3)) {
        k.adapters = ADAPTERS;
    }
    return k;
}

/* Bytes of a page of every table. */
static int64_t page_bytes(const Model *model, cvn_dtype dtype)
{
    Arena arena;
    Caches caches;
    int64_t bytes = 0;
    must(arena_init(&arena, NULL), NULL);
    model_caches(&caches, model, true, &arena);
    for (int i = 0; i < caches.tables; i++)
        bytes += cache_pool_bytes(&caches.pool[caches.table[i].pool], 64, dtype);
    arena_free(&arena);
    return bytes;
}

/* Of the same kind; chunks and pages are shared as they come where texts do not depend on that. */
static cvn_engine *draw_crowd(const Kind *k, bool any_cut, uint64_t *random)
{
    static const int64_t sizes[][3] = {{5}, {16}, {7, 48}, {16, 64, 128}, {200}, {16, 64}};
    int which = any_cut ? draw(random, 5) : 5, devices = !k->mesh               ? 1
                                                         : strchr(k->mesh, ',') ? 4
                                                                                : 2;
    cvn_engine_options o = {.slots = 1 + draw(random, k->mesh ? 14 : 8),
                            .threads = 1 + draw(random, 2),
                            .reuse = any_cut && draw(random, 3),
                            .max_stall = any_cut && !draw(random, 4) ? 0.001 : 0,
                            .speculate = draw(random, 2) ? "lookup" : NULL};
    while (o.n_buckets < 3 && sizes[which][o.n_buckets])
        o.bucket[o.n_buckets] = sizes[which][o.n_buckets], o.n_buckets++;
    const cvn_dtype dtype = k->kv ? CVN_I8 : k->dtype ? CVN_BF16 : CVN_F32;
    int64_t pages = devices * (4 + (k->mesh ? 0 : draw(random, 3)));
    if (draw(random, 5))
        o.kv_memory = (uint64_t)(pages * page_bytes(model_of(k)->io.desc, dtype));
    return new_engine(k, o);
}

/* Most of them right. */
static int foretell(void *context, int slot, int32_t *draft)
{
    const Job *job = crowd->job[slot];
    const Answer *is = &ask[0].plain;
    (void)context;
    for (int i = 0; i < REQUESTS; i++)
        is = ask[i].id == job->id ? &ask[i].plain : is;
    int n = draw(&drafts, DRAFT_MOST + 1);
    for (int i = 0; i < n; i++) {
        int64_t at = job->drawn + i;
        bool right = at < is->n && draw(&drafts, 6);
        draft[i] = right ? is->token[at] : draw(&drafts, 200);
    }
    return n;
}

/* ---- requests ---- */

static void draw_ask(const Kind *k, int i, uint64_t *random)
{
    Ask *a = &ask[i];
    const Ask *old = &ask[i ? draw(random, i) : 0];
    const int32_t vocab = (int32_t)cvn_model_vocab(model_of(k));
    *a = (Ask){.id = 0};
    int64_t n = 0, whole = old->request.n_prompt,
            keep = !i                ? 0
                   : draw(random, 2) ? whole
                                     : draw(random, (int)whole + 1);
    memcpy(a->prompt, old->prompt, (size_t)keep * sizeof *a->prompt);
    n = keep;
    for (int t = 0; i && keep == whole && t < old->plain.n && n < CONTEXT - 1; t++)
        a->prompt[n++] = old->plain.token[t];
    int64_t more = 1 + draw(random, draw(random, 2) ? 100 : 12);
    while (more-- && n < CONTEXT - 1)
        a->prompt[n++] = draw(random, vocab);
    a->bias = (cvn_bias){draw(random, vocab), 5};
    a->request = (cvn_request){.prompt = a->prompt,
                               .n_prompt = n,
                               .max_tokens = 1 + draw(random, LONGEST),
                               .ignore_eos = draw(random, 4) > 0,
                               .min_tokens = draw(random, 5) ? 0 : 9,
                               .bias = &a->bias,
                               .n_bias = draw(random, 4) == 0,
                               .on_logits = draw(random, 3) ? answer_see : NULL,
                               .key = (uint64_t)draw(random, 3),
                               .priority = draw(random, 4) ? 0 : draw(random, 3) - 1,
                               .cache_salt = draw(random, 5) == 0,
                               .adapter = k->adapters ? draw(random, ADAPTERS + 1) - 1 : 0,
                               .sampling = {.temperature = draw(random, 3) ? 1 : 0,
                                            .top_p = draw(random, 3) ? 1 : 0.8f,
                                            .top_k = draw(random, 3) ? 0 : 20,
                                            .min_p = draw(random, 4) ? 0 : 0.05f,
                                            .repeat_penalty = draw(random, 3) ? 1 : 1.3f,
                                            .presence_penalty = draw(random, 4) ? 0 : 1,
                                            .frequency_penalty = draw(random, 4) ? 0 : 0.5f,
                                            .seed = splitmix(random)}};
    if (k->model == 0 && draw(random, 2))
        a->request.constraint = constraints[draw(random, CONSTRAINTS)];
    a->score = draw(random, 4) ? 0 : 1 + draw(random, (int)n);
}

static void score(cvn_engine *e, Ask *a, float *out)
{
    cvn_err err = {0};
    if (a->score)
        must(cvn_engine_score(e, a->prompt, a->score, out, NULL, &err), &err);
}

static bool hear_session(void *context, int id, int32_t token)
{
    return answer_hear(context, id, token);
}

/* By a session: whoever else is there goes on meanwhile. */
static void ask_session(cvn_session *s, Ask *a)
{
    cvn_err err = {0};
    cvn_session_result result;
    cvn_request r = a->request;
    r.on_logits = NULL;
    must(cvn_session_generate(s, &r, hear_session, &a->is, NULL, &result, &err), &err);
    a->id = -1;
    a->is.result.finish = result.finish;
}

/* ---- a schedule ---- */

static void compare(const Kind *k, int i)
{
    const Ask *a = &ask[i];
    const Answer *is = &a->is, *plain = &a->plain;
    const char *what = is->result.finish == CVN_FINISH_CANCELLED   ? NULL
                       : is->result.finish != plain->result.finish ? "why it ended"
                       : is->n != plain->n                         ? "tokens"
                                                                   : NULL;
    int at = 0;
    while (!what && at < is->n) {
        what = is->token[at] != plain->token[at]                      ? "a token"
               : at < is->seen && is->logits[at] != plain->logits[at] ? "logits"
                                                                      : NULL;
        at += !what;
    }
    if (memcmp(a->scored[0], a->scored[1], (size_t)a->score * sizeof a->scored[0][0]) != 0)
        what = "a score";
    if (what)
        fail_msg("seed %llu (%s, %s, %d adapters, cache %s, mesh %s, %d slots): request %d of %lld "
                 "tokens "
                 "differs in %s "
                 "at %d of %d, %d alone; it ended with %d, %d alone",
                 (unsigned long long)seed, models[k->model], k->dtype ? "bf16" : "f32", k->adapters,
                 k->kv ? k->kv : "plain", k->mesh ? k->mesh : "none", crowd->options.slots, i,
                 (long long)a->request.n_prompt, what, at, is->n, plain->n, (int)is->result.finish,
                 (int)plain->result.finish);
}

static void try_seed(void)
{
    uint64_t random = seed;
    const Kind k = draw_kind(&random);
    cvn_engine *alone = alone_of(&k);
    cvn_session *session;
    cvn_err err = {0};
    drafts = splitmix(&random);
    for (int i = 0; i < REQUESTS; i++) {
        draw_ask(&k, i, &random);
        answer_submit(alone, &ask[i].request, &ask[i].plain);
        while (engine_step(alone))
            ;
        score(alone, &ask[i], ask[i].scored[0]);
    }
    crowd = draw_crowd(&k, alone->chunk_invariant, &random);
    if (draw(&random, 2) && crowd->speculation)
        crowd->speculation->from = foretell;
    must(cvn_session_new(crowd, &session, &err), &err);
    for (int next = 0, scored = 0, left = 1; scored < REQUESTS || left;) {
        int what = draw(&random, 12);
        if (next < REQUESTS && what < 5) {
            Ask *a = &ask[next++];
            if (what)
                a->id = answer_submit(crowd, &a->request, &a->is);
            else
                ask_session(session, a);
        }
        if (scored < next && crowd->queue.running < crowd->options.slots)
            score(crowd, &ask[scored], ask[scored].scored[1]), scored++;
        Ask *a = &ask[draw(&random, REQUESTS)];
        if (a->id > 0 && !draw(&random, 60) && cvn_engine_cancel(crowd, a->id, NULL) == CVN_OK)
            cancelled++;
        left = engine_step(crowd);
    }
    for (int i = 0; i < REQUESTS; i++) {
        compare(&k, i);
        reused += ask[i].is.result.reused;
    }
    cvn_session_free(session);
    const cvn_engine_stats stats = cvn_engine_get_stats(crowd);
    preempted[crowd->chunk_invariant] += stats.preemptions;
    accepted += stats.accepted_tokens;
    for (int i = 0; i < crowd->options.slots; i++) /* and nothing is left of them */
        assert_true(!crowd->job[i] && crowd->pages->held[i] == 0);
    cvn_engine_free(crowd, NULL);
}

static void a_text_is_the_same_in_any_schedule(void **state)
{
    const char *n = getenv("CVN_SEEDS"), *first = getenv("CVN_SEED");
    seed = first ? strtoull(first, NULL, 10) : 1;
    (void)state;
    for (uint64_t end = seed + (n ? strtoull(n, NULL, 10) : SANITIZED ? 6 : 24); seed < end; seed++)
        try_seed();
    print_message("%lld + %lld preempted, %lld tokens reused, %lld drafts stood, %lld cancelled\n",
                  (long long)preempted[0], (long long)preempted[1], (long long)reused,
                  (long long)accepted, (long long)cancelled);
    assert_true(first || (preempted[0] + preempted[1] && accepted));
}

static int make_all(void **state)
{
    static const char *const regex[CONSTRAINTS] = {"[ab]{3,90}c|(?:yes|no)!", "(?:[0-9]{4}-){1,9}x",
                                                   "\\{\"a\": (?:true|false|\"[a-z ]*\")\\}"};
    cvn_err err = {0};
    if (make_models(state))
        return -1;
    for (int i = 0; i < CONSTRAINTS; i++)
        must(cvn_constraint_regex(regex[i], strlen(regex[i]), &constraints[i], &err), &err);
    return 0;
}

static int free_all(void **state)
{
    for (int i = 0; made[i]; i++)
        cvn_engine_free(made[i], NULL);
    for (int i = 0; i < MODELS * 4; i++)
        cvn_model_free(opened[i / 4][i / 2 % 2][i % 2]);
    for (int i = 0; i < CONSTRAINTS; i++)
        cvn_constraint_free(constraints[i]);
    return remove_scratch(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_text_is_the_same_in_any_schedule)};
    return cmocka_run_group_tests(tests, make_all, free_all);
}
