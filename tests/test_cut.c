/*
 * A text has the same bits however it is cut into runs: read in chunks of any length, drawn token by token, drawn by runs that
 * verify drafts, or read again after it was drawn. Caches are equal to the byte and logits to the bit, with weights and caches of every form,
 * through windows, on every set of instructions that the machine has (tests of levels run this one again). Scoring the text gives the
 * log-probabilities that drawing it gave, bit for bit.
 */
#include "adapter_make.h"
#include "answer.h"
#include "llama_fixture.h"
#include "part.h"
#include "scratch.h"
#include "serve/speculate.h"

enum {
    CONTEXT = 1024,
    LONG_PROMPT = 430,
    SHORT_PROMPT = 80,
    DRAWN = 40,
    TEXT = LONG_PROMPT + DRAWN
};

typedef struct Case {
    const char *model, *quantize, *activations, *kv;
    cvn_dtype dtype;
    bool adapter;
} Case;

static const Case *current;

/* The tokens, logits and caches of a text, which are compared. */
typedef struct Recorded {
    int32_t token[TEXT];
    int n;                 /* tokens, those of the prompt included */
    uint64_t logits[TEXT]; /* [n] digests of those that a token was drawn from; 0: not recorded */
    float logprob[TEXT];   /* [n] of the same tokens */
    char *cache;           /* positions [0, n - 1) of all caches, one after the other */
    size_t bytes;
} Recorded;

static int64_t vocab, longest;

static bool record_token(void *context, int id, int32_t token)
{
    Recorded *h = context;
    (void)id;
    h->token[h->n++] = token;
    return true;
}

static void record_logits(void *context, int id, const float *logits, int32_t token)
{
    Recorded *h = context;
    (void)id;
    h->logits[h->n] = logits_digest(logits, vocab);
    cvn_logprobs(logits, vocab, token, &h->logprob[h->n], NULL, NULL, 0);
}

static void take_cache(const cvn_engine *e, Recorded *h)
{
    h->cache = NULL;
    h->bytes = 0;
    for (int i = 0; i < e->n_caches; i++) {
        const Buffer *b = runtime_buffer(&e->rt, ROLE_CACHE, i);
        const cvn_type *t = &b->local; /* [slots, kv_heads, positions, width] */
        const char *data = buffer_address(&e->rt, b, 0);
        size_t position = cvn_dtype_bytes(t->dtype, t->dim[3]);
        size_t bytes = position * (size_t)(h->n - 1), head = position * (size_t)t->dim[2];
        h->cache = realloc(h->cache, h->bytes + bytes * (size_t)t->dim[1]);
        assert_non_null(h->cache);
        for (int64_t k = 0; k < t->dim[1]; k++, h->bytes += bytes)
            memcpy(h->cache + h->bytes, data + head * (size_t)k, bytes);
    }
}

static cvn_model *open_model(const Case *c)
{
    cvn_err err = {0};
    cvn_model *model = NULL;
    const cvn_model_options options = {
        .dtype = c->dtype, .quantize = c->quantize, .no_tokenizer = true};
    const char *path = c->model[0] == '/' ? c->model : in_scratch(c->model);
    must(cvn_model_open(path, &options, &model, &err), &err);
    vocab = cvn_model_vocab(model);
    longest = cvn_model_context(model);
    return model;
}

/* The options of an engine of one slot. */
static cvn_engine_options options_of(const cvn_model *model, const char **folder)
{
    if (current->adapter)
        make_adapter(*folder, model->io.desc, "r=11,alpha=8,targets=q,v,o,down,gate", NULL, 3,
                     false);
    return (cvn_engine_options){.slots = 1,
                                .adapter = folder,
                                .n_adapters = current->adapter,
                                .context = longest,
                                .threads = 1,
                                .kv_cache = current->kv,
                                .activations = current->activations};
}

static int faults;

/* The first n tokens of a text were read, and the others drawn. */
static void score(const cvn_model *model, const Recorded *drawn, int64_t n)
{
    cvn_err err = {0};
    cvn_engine *e = NULL;
    const char *folder[] = {in_scratch("adapter")};
    cvn_engine_options options = options_of(model, folder);
    float logprob[TEXT];
    int32_t argmax[TEXT];
    options.scoring = options.no_generation = true;
    must(cvn_engine_new(model, &options, &e, &err), &err);
    must(cvn_engine_score(e, drawn->token, drawn->n, logprob, argmax, &err), &err);
    for (int64_t i = n; i < drawn->n; i++)
        if (memcmp(&logprob[i], &drawn->logprob[i], sizeof *logprob) != 0) {
            print_message("%s, %s, weights %s, cache %s: token %d scored %.9g, drawn %.9g\n",
                          current->model, cvn_dtype_name(current->dtype),
                          current->quantize ? current->quantize : "plain",
                          current->kv ? current->kv : "plain", (int)i, (double)logprob[i],
                          (double)drawn->logprob[i]);
            faults++;
            break;
        }
    cvn_engine_free(e, NULL);
}

static const Recorded *expected;

/* Drafts that are right but every third time. */
static int draft_expected(void *context, int slot, int32_t *draft)
{
    const cvn_engine *e = context;
    static int turn;
    int64_t at = e->filled[slot] + 1;
    int n = 0;
    for (; n < DRAFT_MOST && at + n < expected->n; n++)
        draft[n] = expected->token[at + n];
    if (++turn % 3 == 0)
        draft[n ? n / 2 : 0] = (int32_t)((draft[n ? n / 2 : 0] + 1) % vocab);
    return n;
}

/* The first n tokens of a text are read in chunks of so many, and more are drawn. */
static void run(const cvn_model *model, int64_t chunk, bool drafts, const int32_t *text, int64_t n,
                int64_t more, Recorded *out)
{
    cvn_err err = {0};
    cvn_engine *e = NULL;
    const char *folder[] = {in_scratch("adapter")};
    cvn_engine_options options = options_of(model, folder);
    options.logits_processors = true;
    options.reuse = true; /* so that caches are not given back */
    options.n_buckets = 1;
    options.bucket[0] = chunk;
    must(cvn_engine_new(model, &options, &e, &err), &err);
    if (!e->chunk_invariant) {
        cvn_engine_free(e, NULL);
        print_message("skipped: kernels for tiles sum otherwise\n");
        skip();
    }
    e->window = NULL; /* nor what lies behind windows */
    if (drafts) {
        e->speculation->from = draft_expected;
        e->speculation->context = e;
    }
    *out = (Recorded){.n = (int)n};
    memcpy(out->token, text, (size_t)n * sizeof *text);
    const cvn_request request = {.prompt = text,
                                 .n_prompt = n,
                                 .max_tokens = more,
                                 .ignore_eos = true,
                                 .on_logits = record_logits,
                                 .sampling = {.temperature = 1, .top_p = 1, .seed = 5}};
    const cvn_listener listener = {.on_token = record_token, .context = out};
    must(cvn_engine_submit(e, &request, &listener, NULL, &err), &err);
    for (int left = 1; left;)
        must(cvn_engine_step(e, &left, &err), &err);
    assert_int_equal(out->n, n + more);
    assert_true(!drafts || cvn_engine_get_stats(e).accepted_tokens > 0);
    take_cache(e, out);
    cvn_engine_free(e, NULL);
}

static void compare(const char *how, int64_t chunk, const Recorded *got, const Recorded *want)
{
    const char *name =
        current->model + (strlen(current->model) > 30 ? strlen(current->model) - 30 : 0);
    char what[512];
    snprintf(what, sizeof what, "%s, %s, weights %s, activations %s, cache %s: %s %d", name,
             cvn_dtype_name(current->dtype), current->quantize ? current->quantize : "plain",
             current->activations ? current->activations : "plain",
             current->kv ? current->kv : "plain", how, (int)chunk);
    for (int i = 0; i < got->n; i++)
        if (got->logits[i] &&
            (got->logits[i] != want->logits[i] || got->token[i] != want->token[i])) {
            print_message("%s: other logits at %d\n", what, i);
            faults++;
            break;
        }
    if (got->n == want->n && memcmp(got->cache, want->cache, want->bytes) != 0) {
        size_t at = 0;
        while (got->cache[at] == want->cache[at])
            at++;
        print_message("%s: another cache, from byte %zu of %zu\n", what, at, want->bytes);
        faults++;
    }
}

static void try_case(const Case *c)
{
    static const int64_t chunks[] = {1, 7, 16, 48, 130};
    static Recorded drawn, got;
    int32_t prompt[LONG_PROMPT];
    static size_t turn;
    current = c;
    turn++; /* so that the part taken is another one in each case */
    cvn_model *model = open_model(c);
    int64_t n_prompt = longest < CONTEXT ? longest * 2 / 3 : LONG_PROMPT;
    int64_t more = longest < CONTEXT ? longest / 4 : DRAWN, all = n_prompt + more;
    for (int64_t i = 0; i < n_prompt; i++)
        prompt[i] = (int32_t)((i * i * 7 + i * 3) % 251 % vocab);
    run(model, 512, false, prompt, n_prompt, more, &drawn);
    expected = &drawn;
    score(model, &drawn, n_prompt);
    bool brief =
        longest < CONTEXT; /* other families: what they have of their own, not all of it again */
    for (size_t i = brief; i < (brief ? 3 : sizeof chunks / sizeof *chunks); i++) {
        if (!brief && !in_part(i + turn, getenv("CARAVAN_CPU") ? 2 : 1))
            continue;
        run(model, chunks[i], chunks[i] == 16, prompt, n_prompt, more, &got);
        compare(chunks[i] == 16 ? "drafted, chunks of" : "chunks of", chunks[i], &got, &drawn);
        free(got.cache);
    }
    /* what was drawn is read */
    for (int64_t n = all - 1; n >= n_prompt; n -= 1 + more / (brief ? 2 : 3)) {
        run(model, n % 2 ? 512 : 7, false, drawn.token, n, all - n, &got);
        compare("read again, tokens", n, &got, &drawn);
        free(got.cache);
    }
    free(drawn.cache);
    cvn_model_free(model);
}

#define MIXED CVN_TEST_DATA "/gguf/mixed.gguf"

static void a_text_has_the_same_bits_however_it_is_cut(void **state)
{
    static const Case cases[] = {
        {.model = "gqa", .dtype = CVN_F32},
        {.model = "gqa", .dtype = CVN_BF16},
        {.model = "gqa", .dtype = CVN_F32, .kv = "int8"},
        {.model = "gqa", .dtype = CVN_BF16, .kv = "int8"},
        {.model = "window100", .dtype = CVN_BF16},
        {.model = "window250", .dtype = CVN_F32, .kv = "int8"},
        {.model = "tied", .dtype = CVN_F32},
        {.model = "tied", .dtype = CVN_BF16},
        {.model = "gqa", .dtype = CVN_F32, .quantize = "int8"},
        {.model = "gqa", .dtype = CVN_BF16, .quantize = "int8", .activations = "int8"},
        {.model = "gqa", .dtype = CVN_F32, .adapter = true},
        {.model = "tied", .dtype = CVN_BF16, .quantize = "int8", .adapter = true},
        {.model = MIXED, .dtype = CVN_F32, .quantize = "none"},
        {.model = MIXED, .dtype = CVN_BF16, .quantize = "none", .kv = "int8"},
        {.model = MIXED, .dtype = CVN_F32},
        {.model = MIXED, .dtype = CVN_BF16},
        {.model = MIXED, .dtype = CVN_BF16, .activations = "int8"},
        {.model = MIXED, .dtype = CVN_BF16, .quantize = "int4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        try_case(&cases[i]);
    assert_int_equal(faults, 0);
}

static void all_families_do(void **state)
{
    for (int i = 0; i < LLAMA_VARIANTS; i++)
        for (int k = 0; k < 2; k++) {
            if (!in_part((size_t)(i + k), getenv("CARAVAN_CPU") ? 3 : 1))
                continue;
            char path[512];
            snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, llama_variants[i]);
            try_case(&(Case){.model = path, .dtype = k ? CVN_BF16 : CVN_F32});
        }
    assert_int_equal(faults, 0);
}

/* The tiny models for texts of CONTEXT tokens, of which some have a window in the second layer. */
static int make_models(void **state)
{
    static const struct {
        const char *name, *from;
        int window;
    } models[] = {{"gqa", "gqa", 0},
                  {"tied", "tied", 0},
                  {"window100", "gqa", 100},
                  {"window250", "gqa", 250}};
    char line[2048], window[256];
    if (make_scratch(state))
        return -1;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        snprintf(window, sizeof window,
                 "s/\"llama\"/\"ministral\", \"sliding_window\": %d, \"layer_types\": "
                 "[\"full_attention\", \"sliding_attention\"]/;",
                 models[i].window);
        snprintf(
            line, sizeof line,
            "cd '%s' && mkdir %s && cp '%s/llama/%s/model.safetensors' %s && "
            "sed '%s s/\\(max_position_embeddings\": \\)[0-9]*/\\1%d/' '%s/llama/%s/config.json' "
            "> %s/config.json",
            scratch, models[i].name, CVN_TEST_DATA, models[i].from, models[i].name,
            models[i].window ? window : "", CONTEXT, CVN_TEST_DATA, models[i].from, models[i].name);
        if (system(line))
            return -1;
    }
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_has_the_same_bits_however_it_is_cut),
        cmocka_unit_test(all_families_do),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
