/*
 * What a request answers depends on nothing but itself: alone, and in random company, the same tokens come out, drawn from the
 * same logits to the bit; whatever other rows do, whichever adapters they have, whatever caches hold, is guessed, or is
 * cancelled beside it. CARAVAN_COMPANY=1000 has so many requests of each kind.
 */
#include "adapter_make.h"
#include "answer.h"
#include "scratch.h"
#include "serve/speculate.h"
#include "splitmix.h"

enum { CONTEXT = 240, MOST = 20, VOCAB = 259, ADAPTERS = 3 };

typedef struct Asked {
    int32_t prompt[CONTEXT];
    cvn_request request;
} Asked;

static int n_requests;
static Asked *asked;           /* [n_requests] */
static Answer *alone, *beside; /* [n_requests] */
static cvn_engine *company;

static int foretell(void *context, int row, int32_t *guess)
{
    uint64_t *random = context;
    const Answer *t = company->job[row]->listener.context, *is = &alone[t - beside];
    for (int i = 0; i < DRAFT_MOST; i++)
        guess[i] = splitmix(random) % 6 && t->n + i < is->n ? is->token[t->n + i] : i;
    return (int)(splitmix(random) % (DRAFT_MOST + 1));
}

typedef struct Kind {
    const char *variant, *quantize, *kv;
    cvn_dtype dtype;
    int rows;
    bool reuse, guesses, adapters;
} Kind;

/* Some have more ranks than others, adapt other weights, and all begin and end within what kernels take at once. */
static void make_adapters(const cvn_model *model, const char *folder[ADAPTERS])
{
    static const char *const kinds[ADAPTERS] = {"r=4,targets=q,v,o,down", "r=1,alpha=3",
                                                "r=11,alpha=8,targets=k,gate,up"};
    for (int i = 0; i < ADAPTERS; i++) {
        folder[i] = in_scratch((const char *[]){"a", "b", "c"}[i]);
        make_adapter(folder[i], model->io.desc, kinds[i], NULL, (uint64_t)i, false);
    }
}

static cvn_engine *new_engine(const cvn_model *model, const Kind *k)
{
    cvn_err err = {0};
    cvn_engine *e = NULL;
    const char *folder[ADAPTERS];
    make_adapters(model, folder);
    const cvn_engine_options options = {.slots = k->rows,
                                        .context = CONTEXT,
                                        .threads = 1,
                                        .logits_processors = true,
                                        .penalties = true,
                                        .kv_cache = k->kv,
                                        .reuse = k->reuse,
                                        .adapter = folder,
                                        .n_adapters = k->adapters ? ADAPTERS : 0,
                                        .max_stall = k->rows > 1 ? 3e-4 : 0,
                                        .speculate = k->guesses ? "lookup" : NULL,
                                        .n_buckets = 3,
                                        .bucket = {16, 32, 64}};
    must(cvn_engine_new(model, &options, &e, &err), &err);
    return e;
}

/* Prompts that begin as others do, go on from what those answered, or are new. */
static void make_request(int i, bool adapters, uint64_t *random)
{
    const uint64_t earlier = i ? splitmix(random) % (uint64_t)i : 0;
    const Answer *said = &alone[earlier];
    const Asked *old = &asked[earlier];
    Asked *t = &asked[i];
    int64_t n = 0, most = CONTEXT - MOST;
    if (i && splitmix(random) % 3) {
        n = splitmix(random) % 2 ? old->request.n_prompt
                                 : (int64_t)(splitmix(random) % (uint64_t)old->request.n_prompt);
        memcpy(t->prompt, old->prompt, (size_t)n * sizeof *t->prompt);
        for (int k = 0; n == old->request.n_prompt + k && k < said->n && n < most; k++)
            t->prompt[n++] = said->token[k];
    }
    /* A new one is longer than a page of the cache, so that others can share it. */
    for (int64_t more = (n ? 1 : 70) + (int64_t)(splitmix(random) % 90); more && n < most; more--)
        t->prompt[n++] = (int32_t)(splitmix(random) % VOCAB);
    t->request =
        (cvn_request){.prompt = t->prompt,
                      .n_prompt = n,
                      .max_tokens = 1 + (int64_t)(splitmix(random) % MOST),
                      .ignore_eos = true,
                      .on_logits = i % 4 ? answer_see : NULL,
                      .sampling = {.temperature = i % 3 ? 1.f : 0,
                                   .top_p = i % 5 ? 1 : 0.8f,
                                   .top_k = i % 4 ? 0 : 40,
                                   .repeat_penalty = i % 5 ? 1 : 1.2f,
                                   .frequency_penalty = i % 6 ? 0 : 0.3f,
                                   .seed = splitmix(random)},
                      .adapter = adapters ? (int)(splitmix(random) % (ADAPTERS + 1)) - 1 : 0,
                      .cache_salt = i % 7 == 6};
}

static void answers_alone(const cvn_model *model, const Kind *k)
{
    const Kind plain = {.kv = k->kv, .rows = 1, .adapters = k->adapters};
    cvn_engine *e = new_engine(model, &plain);
    uint64_t random = 17;
    memset(alone, 0, (size_t)n_requests * sizeof *alone);
    for (int i = 0; i < n_requests; i++) {
        make_request(i, k->adapters, &random);
        answer_submit(e, &asked[i].request, &alone[i]);
        while (engine_step(e))
            ;
    }
    cvn_engine_free(e, NULL);
}

static void company_changes_no_bit(const Kind *k)
{
    cvn_model *model = open_variant(k->variant, k->dtype, k->quantize);
    answers_alone(model, k);
    company = new_engine(model, k);
    uint64_t random = 23;
    if (k->guesses) {
        company->speculation->from = foretell;
        company->speculation->context = &random;
    }
    memset(beside, 0, (size_t)n_requests * sizeof *beside);
    for (int i = 0; i < n_requests; i++) {
        int id = answer_submit(company, &asked[i].request, &beside[i]);
        for (uint64_t steps = splitmix(&random) % 6; steps; steps--)
            engine_step(company);
        if (i % 10 == 9)
            cvn_engine_cancel(company, id, NULL);
    }
    while (engine_step(company))
        ;
    int64_t reused = 0;
    for (int i = 0; i < n_requests; i++) {
        const Answer *a = &alone[i], *b = &beside[i];
        reused += b->result.reused;
        if (b->result.finish != CVN_FINISH_CANCELLED)
            assert_int_equal(a->n, b->n);
        for (int t = 0; t < b->n; t++)
            if (a->token[t] != b->token[t] || a->logits[t] != b->logits[t])
                fail_msg("%s, %s, request %d of %lld tokens, %lld reused: token %d is %d and was "
                         "%d; logits are %s",
                         k->variant, cvn_dtype_name(k->dtype), i,
                         (long long)asked[i].request.n_prompt, (long long)b->result.reused, t,
                         b->token[t], a->token[t],
                         a->logits[t] == b->logits[t] ? "the same" : "others");
    }
    assert_true(k->reuse ? reused > 0 : reused == 0);
    assert_true(!k->guesses || cvn_engine_get_stats(company).accepted_tokens > 0);
    cvn_engine_free(company, NULL);
    cvn_model_free(model);
}

static void in_all_types(void **state)
{
    const char *many = getenv("CARAVAN_COMPANY");
    n_requests = many ? (int)strtol(many, NULL, 10) : 60;
    asked = calloc((size_t)n_requests, sizeof *asked);
    alone = calloc((size_t)n_requests, sizeof *alone);
    beside = calloc((size_t)n_requests, sizeof *beside);
    assert_true(n_requests > 0 && asked && alone && beside);
    static const Kind kinds[] = {
        {.variant = "gqa", .dtype = CVN_F32, .rows = 4, .reuse = true},
        {.variant = "gqa", .dtype = CVN_F32, .rows = 4, .reuse = true, .guesses = true},
        {.variant = "mha", .dtype = CVN_BF16, .rows = 6, .reuse = true, .adapters = true},
        {.variant = "llama3_rope", .dtype = CVN_BF16, .rows = 4, .reuse = true, .guesses = true},
        {.variant = "gqa",
         .dtype = CVN_BF16,
         .kv = "int8",
         .rows = 5,
         .reuse = true,
         .guesses = true,
         .adapters = true},
        {.variant = "gqa",
         .quantize = "int8",
         .dtype = CVN_F32,
         .rows = 3,
         .guesses = true,
         .adapters = true},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        company_changes_no_bit(&kinds[i]);
    free(asked);
    free(alone);
    free(beside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_all_types)};
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
