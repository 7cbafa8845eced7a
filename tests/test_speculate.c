/* Tokens that are drafted change no text: engines that draft and that do not agree, whatever requests ask for. */
#include "answer.h"
#include "serve/speculate.h"
#include "splitmix.h"

#include <stdlib.h>

enum { CONTEXT = 160, N = 14, MOST = 40, VOCAB = 259 };

static cvn_request request[N];
static cvn_bias bias = {.token = 17, .bias = 1.5f};

/* Texts that repeat themselves, drawn in all ways; some nearly fill the context. */
static void make_requests(void)
{
    static int32_t prompt[N][CONTEXT];
    uint64_t random = 3;
    for (int i = 0; i < N; i++) {
        int period = 1 + (int)(splitmix(&random) % 9);
        for (int k = 0; k < CONTEXT; k++)
            prompt[i][k] =
                k < period ? (int32_t)(splitmix(&random) % VOCAB) : prompt[i][k - period];
        request[i] = (cvn_request){.prompt = prompt[i],
                                   .n_prompt = i % 7 == 6 ? CONTEXT - 10 : 20 + i,
                                   .max_tokens = i % 5 ? MOST : 7,
                                   .ignore_eos = true,
                                   .sampling = {.top_p = 1, .seed = (uint64_t)i}};
        cvn_sampling *s = &request[i].sampling;
        s->temperature = i % 3 ? 0.3f : 0;
        s->top_k = i % 3 == 2 ? 5 : 0;
        s->repeat_penalty = i % 4 == 3 ? 1.1f : 1;
    }
}

static void ask_for_tokens(bool processors)
{
    for (int i = 0; i < N; i++) {
        cvn_request *r = &request[i];
        bool own = processors && i % 2;
        r->on_logits = own && i % 4 == 1 ? answer_see : NULL;
        r->bias = &bias;
        r->n_bias = own;
        r->sampling.presence_penalty = own && i % 3 == 0 ? 0.2f : 0;
        r->sampling.frequency_penalty = own && i % 3 == 1 ? 0.1f : 0;
        r->min_tokens = own ? 4 : 0;
    }
}

typedef struct Kind {
    const char *variant;
    cvn_dtype dtype;
    const char *quantize, *kv, *mesh, *layout, *draft;
    int rows;
    bool logits_processors;
} Kind;

static cvn_engine *new_engine(const cvn_model *model, const cvn_model *draft, const Kind *k,
                              int rows, bool drafts)
{
    cvn_err err = {0};
    cvn_engine *e = NULL;
    const cvn_engine_options options = {.slots = rows,
                                        .context = CONTEXT,
                                        .threads = 1,
                                        .sampling = true,
                                        .penalties = true,
                                        .logits_processors = k->logits_processors,
                                        .n_buckets = 2,
                                        .bucket = {16, 64},
                                        .kv_cache = k->kv,
                                        .mesh = k->mesh,
                                        .layout = k->layout,
                                        .draft = draft,
                                        .speculate = drafts ? "lookup" : NULL};
    must(cvn_engine_new(model, &options, &e, &err), &err);
    return e;
}

static Answer plain[N], drafted[N];
static cvn_engine *drafting;

/* What the text is, with mistakes now and then. */
static int foretell(void *context, int row, int32_t *draft)
{
    uint64_t *random = context;
    const cvn_listener *l = &drafting->job[row]->listener;
    const Answer *t = l->context, *is = &plain[t - drafted];
    int n = (int)(splitmix(random) % (DRAFT_MOST + 1));
    for (int i = 0; i < n; i++) {
        bool right = splitmix(random) % 5 && t->n + i < is->n;
        draft[i] = right ? is->token[t->n + i] : (int32_t)(splitmix(random) % VOCAB);
    }
    return n;
}

static int64_t wrong_guesses;

static void guesses_change_no_text(const Kind *k)
{
    uint64_t random = 5;
    cvn_model *model = open_variant(k->variant, k->dtype, k->quantize);
    cvn_model *draft = k->draft ? open_variant(k->draft, k->dtype, k->quantize) : NULL;
    /* on a mesh rows are split, where there are several */
    cvn_engine *without = new_engine(model, NULL, k, k->mesh ? k->rows : 1, false);
    cvn_engine *with = new_engine(model, draft, k, k->rows, true);
    ask_for_tokens(k->logits_processors);
    memset(plain, 0, sizeof plain);
    memset(drafted, 0, sizeof drafted);
    for (int i = 0; i < N; i++) {
        answer_submit(without, &request[i], &plain[i]);
        while (engine_step(without))
            ;
    }
    drafting = with;
    with->speculation->from = draft ? NULL : foretell;
    for (int i = 0; i < with->lists->n; i++)
        with->lists->seconds[i] = 1e9; /* of whatever is run: any draft is better */
    with->speculation->context = &random;
    int cancelled = 0;
    for (int i = 0; i < N; i++) {
        int id = answer_submit(with, &request[i], &drafted[i]);
        for (int s = 0; s < (i + 3) % 4; s++)
            engine_step(with);
        if (i % 6 == 5 && drafted[i].n < plain[i].n)
            cancelled += cvn_engine_cancel(with, id, NULL) == CVN_OK;
    }
    while (engine_step(with))
        ;
    assert_true(cancelled > 0);
    for (int i = 0; i < N; i++) {
        const Answer *a = &plain[i], *b = &drafted[i];
        bool whole = b->result.finish != CVN_FINISH_CANCELLED;
        for (int t = 0; t < b->n; t++)
            if (a->token[t] != b->token[t])
                fail_msg("%s, %s, %d rows, request %d, token %d is %d, not %d", k->variant,
                         cvn_dtype_name(k->dtype), k->rows, i, t, b->token[t], a->token[t]);
        if (whole)
            assert_int_equal(a->n, b->n);
        assert_int_equal(b->seen, request[i].on_logits ? b->n : 0);
        assert_memory_equal(a->logits, b->logits, (size_t)b->seen * sizeof *b->logits);
    }
    cvn_engine_stats s = cvn_engine_get_stats(with);
    assert_true(s.verifies > 0 && s.accepted_tokens > 0);
    assert_true(s.accepted_tokens <= s.drafted_tokens);
    wrong_guesses += s.drafted_tokens - s.accepted_tokens;
    cvn_engine_free(with, NULL);
    cvn_engine_free(without, NULL);
    cvn_model_free(model);
    cvn_model_free(draft);
}

static void in_all_types(void **state)
{
    (void)state;
    static const Kind kinds[] = {
        {.variant = "gqa", .dtype = CVN_F32, .rows = 1},
        {.variant = "gqa", .dtype = CVN_F32, .rows = 4},
        {.variant = "mha", .dtype = CVN_F32, .rows = 3},
        {.variant = "gqa", .dtype = CVN_BF16, .rows = 4},
        {.variant = "llama3_rope", .dtype = CVN_BF16, .rows = 1},
        {.variant = "gqa", .dtype = CVN_BF16, .kv = "int8", .rows = 4},
        {.variant = "gqa", .dtype = CVN_BF16, .quantize = "int8", .rows = 2},
        {.variant = "gqa", .dtype = CVN_F32, .quantize = "int4:32", .rows = 12},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        guesses_change_no_text(&kinds[i]);
    assert_true(wrong_guesses > 0);
}

static void with_biases_penalties_and_logits(void **state)
{
    (void)state;
    static const Kind kinds[] = {
        {.variant = "gqa", .dtype = CVN_F32, .rows = 1, .logits_processors = true},
        {.variant = "gqa", .dtype = CVN_BF16, .rows = 4, .logits_processors = true},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        guesses_change_no_text(&kinds[i]);
}

static void on_meshes(void **state)
{
    (void)state;
    static const Kind kinds[] = {
        {.variant = "gqa",
         .dtype = CVN_F32,
         .rows = 4,
         .mesh = "data=2",
         .layout = "dp",
         .logits_processors = true},
        {.variant = "gqa",
         .dtype = CVN_F32,
         .rows = 3,
         .mesh = "model=2",
         .layout = "tp",
         .logits_processors = true},
        {.variant = "gqa",
         .dtype = CVN_BF16,
         .rows = 1,
         .mesh = "model=2",
         .layout = "tp",
         .logits_processors = true},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        guesses_change_no_text(&kinds[i]);
}

static void a_draft_changes_no_text(void **state)
{
    (void)state;
    static const Kind kinds[] = {
        {.variant = "gqa", .dtype = CVN_F32, .rows = 4, .draft = "gqa", .logits_processors = true},
        {.variant = "gqa", .dtype = CVN_BF16, .rows = 1, .draft = "mha"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        guesses_change_no_text(&kinds[i]);
}

/* What was drafted is what followed when a text was last so: a model that says one thing again and again. */
static void texts_are_looked_up(void **state)
{
    (void)state;
    const Kind k = {.variant = "gqa", .dtype = CVN_F32, .rows = 2};
    cvn_model *model = open_variant(k.variant, k.dtype, NULL);
    cvn_engine *e = new_engine(model, NULL, &k, 2, true);
    static const int32_t text[] = {5, 6,  7, 8, 9, 1, 6, 7, 8, 4, 2, 3, 6, 7, /* drawn: */ 8,
                                   9, 100};
    SlotDraft *g = &e->speculation->slot[1];
    const cvn_request r = {.prompt = text, .n_prompt = 14};
    speculate_begin(e, 1, &r);
    speculate_look_up(g);
    static const int32_t next[] = {8, 4, 2, 3,
                                   6, 7, 8}; /* the last such place, and on into itself */
    assert_int_equal(g->n_draft, DRAFT_MOST);
    assert_memory_equal(g->draft, next, sizeof next);
    /* a longer match further back is better */
    speculate_add(e, 1);
    speculate_add(e, 1);
    speculate_look_up(g);
    assert_int_equal(g->draft[0], 1);
    /* nothing is like this */
    speculate_add(e, 1);
    speculate_look_up(g);
    assert_int_equal(g->n_draft, 0);
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

int main(void)
{
    make_requests();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_all_types),        cmocka_unit_test(with_biases_penalties_and_logits),
        cmocka_unit_test(on_meshes),           cmocka_unit_test(a_draft_changes_no_text),
        cmocka_unit_test(texts_are_looked_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
