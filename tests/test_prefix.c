/* What rows hold is used again, and changes no text: with the same requests, engines that keep it and that do not agree. */
#include "answer.h"
#include "serve/pages.h"
#include "splitmix.h"

#include <math.h>

enum { CONTEXT = 200, REQUESTS = 40, MOST = 24, VOCAB = 259 };

/* A request, and what came of it. */
typedef struct Turn {
    int32_t prompt[CONTEXT];
    int64_t n_prompt;
    cvn_request request;
    Answer is;
} Turn;

static cvn_engine *new_engine(const cvn_model *model, int rows, const char *mesh, const char *kv,
                              bool reuse, uint64_t kv_memory)
{
    cvn_err err = {0};
    cvn_engine *e = NULL;
    const cvn_engine_options options = {.slots = rows,
                                        .context = CONTEXT,
                                        .threads = 1,
                                        .sampling = true,
                                        .penalties = true,
                                        .reuse = reuse,
                                        .n_buckets = 2,
                                        .bucket = {16, 48},
                                        .kv_cache = kv,
                                        .kv_memory = kv_memory,
                                        .mesh = mesh,
                                        .layout = "tp"};
    must(cvn_engine_new(model, &options, &e, &err), &err);
    return e;
}

/* Prompts that go on from earlier ones and their answers, that begin as they do, or that are new. */
static void make_prompt(Turn *turn, int i, uint64_t *random)
{
    Turn *t = &turn[i];
    const Turn *old = &turn[i ? splitmix(random) % (uint64_t)i : 0];
    int64_t keep = i ? (int64_t)(splitmix(random) % (uint64_t)(old->n_prompt + 1)) : 0;
    if (i && splitmix(random) % 2)
        keep = old->n_prompt;
    memcpy(t->prompt, old->prompt, (size_t)keep * sizeof *t->prompt);
    t->n_prompt = keep;
    if (i && keep == old->n_prompt)
        for (int k = 0; k < old->is.n && t->n_prompt < CONTEXT - MOST; k++)
            t->prompt[t->n_prompt++] = old->is.token[k];
    int64_t more = 1 + (int64_t)(splitmix(random) % 60);
    while (more-- && t->n_prompt < CONTEXT - MOST)
        t->prompt[t->n_prompt++] = (int32_t)(splitmix(random) % VOCAB);
    t->request = (cvn_request){.prompt = t->prompt,
                               .n_prompt = t->n_prompt,
                               .max_tokens = 1 + (int64_t)(splitmix(random) % MOST),
                               .ignore_eos = true,
                               .sampling = {.temperature = i % 3 ? 1.f : 0,
                                            .top_p = 1,
                                            .top_k = i % 4 ? 0 : 40,
                                            .repeat_penalty = i % 5 ? 1 : 1.2f,
                                            .seed = splitmix(random)},
                               .cache_salt = i % 7 == 6};
}

static void reuse_changes_no_text(const char *variant, cvn_dtype dtype, const char *mesh,
                                  const char *kv, int rows, int64_t positions)
{
    static Turn kept[REQUESTS];
    static Answer plain[REQUESTS];
    cvn_model *model = open_variant(variant, dtype, NULL);
    assert_true(cvn_model_vocab(model) >= VOCAB);
    uint64_t memory = (uint64_t)kv_cache_bytes(model->io.desc, 1, positions, dtype);
    cvn_engine *with = new_engine(model, rows, mesh, kv, true, memory);
    cvn_engine *without = new_engine(model, 1, mesh, kv, false, 0);
    uint64_t random = 7 + (uint64_t)rows;
    int64_t reused = 0, prompts = 0;
    memset(kept, 0, sizeof kept);
    memset(plain, 0, sizeof plain);
    for (int i = 0; i < REQUESTS; i++) {
        int left = 1;
        make_prompt(kept, i, &random);
        const int id = answer_submit(with, &kept[i].request, &kept[i].is);
        /* some run beside others, and some are cancelled; those after them need what they said */
        for (int steps = 0; left && (i % 4 != 1 || steps < 2); steps++)
            left = engine_step(with);
        if (i % 9 == 8)
            cvn_engine_cancel(with, id, NULL);
        if (i % 4 == 2)
            while (left)
                left = engine_step(with);
    }
    while (engine_step(with))
        ;
    for (int i = 0; i < REQUESTS; i++) {
        answer_submit(without, &kept[i].request, &plain[i]);
        while (engine_step(without))
            ;
        if (kept[i].is.result.finish != CVN_FINISH_CANCELLED)
            assert_int_equal(kept[i].is.n, plain[i].n);
        for (int k = 0; k < kept[i].is.n; k++)
            if (kept[i].is.token[k] != plain[i].token[k])
                fail_msg("%s, %s, %d rows, request %d of %lld tokens, %lld reused: token %d is %d, "
                         "not %d",
                         variant, cvn_dtype_name(dtype), rows, i, (long long)kept[i].n_prompt,
                         (long long)kept[i].is.result.reused, k, kept[i].is.token[k],
                         plain[i].token[k]);
        reused += kept[i].is.result.reused;
        prompts += kept[i].n_prompt;
        if (kept[i].is.result.finish != CVN_FINISH_CANCELLED)
            assert_int_equal(kept[i].is.result.reused + kept[i].is.result.computed,
                             kept[i].n_prompt);
    }
    assert_true(reused * (rows < 3 || positions ? 50 : 5) > prompts);
    cvn_engine_free(with, NULL);
    cvn_engine_free(without, NULL);
    cvn_model_free(model);
}

static void in_f32(void **state)
{
    reuse_changes_no_text("gqa", CVN_F32, NULL, NULL, 1, 0);
    reuse_changes_no_text("gqa", CVN_F32, NULL, NULL, 4, 0);
    reuse_changes_no_text("mha", CVN_F32, NULL, NULL, 3, 0);
}

static void in_bf16(void **state)
{
    reuse_changes_no_text("gqa", CVN_BF16, NULL, NULL, 4, 0);
    reuse_changes_no_text("llama3_rope", CVN_BF16, NULL, NULL, 2, 0);
}

static void with_a_cache_of_8_bits(void **state)
{
    reuse_changes_no_text("gqa", CVN_BF16, NULL, "int8", 4, 0);
}

static void on_a_mesh(void **state)
{
    reuse_changes_no_text("gqa", CVN_F32, "model=2", NULL, 4, 0);
}

/* Pages for a text or two of four slots: who does not fit waits, and kept texts are given up. */
static void in_little_memory(void **state)
{
    reuse_changes_no_text("gqa", CVN_F32, NULL, NULL, 4, 256);
    reuse_changes_no_text("gqa", CVN_BF16, NULL, NULL, 4, 448);
}

static void memory_for_less_than_a_text_is_refused(void **state)
{
    cvn_model *model = open_variant("gqa", CVN_F32, NULL);
    cvn_engine *e = NULL;
    cvn_err err = {0};
    const cvn_engine_options options = {
        .slots = 2,
        .context = CONTEXT,
        .threads = 1,
        .kv_memory = (uint64_t)kv_cache_bytes(model->io.desc, 1, 255, CVN_F32)};
    assert_int_equal(cvn_engine_new(model, &options, &e, &err), CVN_EMEM);
    assert_non_null(strstr(err.message, "raise --kv-memory or lower --context"));
    cvn_model_free(model);
}

/* Nine texts at once in the pages of one that is as long as the context; and all of them are free, or kept, then. */
static void memory_follows_what_texts_hold(void **state)
{
    enum { SLOTS = 9 };
    static Turn turn[SLOTS];
    cvn_model *model = open_variant("gqa", CVN_F32, NULL);
    uint64_t memory = (uint64_t)kv_cache_bytes(model->io.desc, 1, SLOTS * 64, CVN_F32);
    for (int reuse = 0; reuse < 2; reuse++) {
        cvn_engine *e = new_engine(model, SLOTS, NULL, NULL, reuse, memory);
        assert_int_equal(cvn_engine_get_stats(e).cache_bytes, memory);
        for (int i = 0; i < SLOTS; i++) {
            Turn *t = &turn[i];
            *t = (Turn){0};
            for (int k = 0; k < 40; k++)
                t->prompt[k] = (i + k) % VOCAB;
            t->request = (cvn_request){
                .prompt = t->prompt, .n_prompt = 40, .max_tokens = 24, .ignore_eos = true};
            answer_submit(e, &t->request, &t->is);
        }
        int most = 0;
        double used = 0;
        while (engine_step(e)) {
            most = e->queue.running > most ? e->queue.running : most;
            used = fmax(used, pages_used(e));
        }
        assert_int_equal(most, SLOTS);
        assert_true(used == 1 && pages_used(e) == 0);
        int64_t held = 0;
        for (int i = 0; i < e->pages->texts; i++)
            held += e->pages->held[i];
        assert_int_equal(held, reuse ? SLOTS : 0);
        cvn_engine_free(e, NULL);
    }
    cvn_model_free(model);
}

static bool goes_first(const Job *a, const Job *b)
{
    return a->request.priority != b->request.priority ? a->request.priority < b->request.priority
                                                      : a->id < b->id;
}

/* Five texts that grow in six pages: nobody who was preempted waits for one that goes after it, all are answered, and scoring, which
   waits for nobody, preempts, too. */
static void who_goes_last_is_preempted(void **state)
{
    enum { TEXTS = 5, FIRST = 50, NEW = 140 };
    static Turn turn[TEXTS];
    float logprob[CONTEXT];
    cvn_err err = {0};
    cvn_model *model = open_variant("gqa", CVN_F32, NULL);
    cvn_engine_options options = {.slots = TEXTS,
                                  .context = CONTEXT,
                                  .threads = 1,
                                  .scoring = true,
                                  .kv_memory =
                                      (uint64_t)kv_cache_bytes(model->io.desc, 1, 384, CVN_F32)};
    cvn_engine *e;
    must(cvn_engine_new(model, &options, &e, &err), &err);
    int waited = 0;
    for (int i = 0; i < TEXTS; i++) {
        Turn *t = &turn[i];
        for (int k = 0; k < CONTEXT; k++)
            t->prompt[k] = (i + k) % VOCAB;
        t->request = (cvn_request){.prompt = t->prompt,
                                   .n_prompt = FIRST,
                                   .max_tokens = NEW,
                                   .ignore_eos = true,
                                   .priority = i == 1   ? 1
                                               : i == 3 ? -1
                                                        : 0};
        answer_submit(e, &t->request, &t->is);
    }
    for (int step = 0; engine_step(e); step++) {
        for (const Job *a = e->queue.first; a; a = a->next)
            for (const Job *b = e->queue.first; b; b = b->next)
                if (a->slot < 0 && a->result.n_tokens && b->slot >= 0) {
                    assert_true(goes_first(b, a));
                    waited++;
                }
        if (step == 120) {
            int64_t before = cvn_engine_get_stats(e).preemptions;
            must(cvn_engine_score(e, turn[0].prompt, CONTEXT, logprob, NULL, &err), &err);
            assert_true(cvn_engine_get_stats(e).preemptions > before);
        }
    }
    assert_true(waited > 0 && cvn_engine_get_stats(e).preemptions >= TEXTS - 2);
    for (int i = 0; i < TEXTS; i++)
        assert_int_equal(turn[i].is.n, NEW);
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

/* In pages and, for devices that read no pages, in one piece; of a context that is shorter than a chunk, the chunk. */
static void caches_have_room_for_the_context(void **state)
{
    static const struct {
        int page;
        int64_t context, largest, size, pages; /* of three slots */
    } ways[] = {{0, 2048, 512, 2048, 3}, {0, 100, 128, 128, 3}, {64, 2000, 512, 64, 96}};
    cvn_err err = {0};
    cvn_model *model = open_variant("gqa", CVN_F32, NULL);
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        Runtime rt = {.mesh.n_devices = 1, .info.page = ways[i].page};
        Steps s = {.model.model = model->io.desc, .slots = 3, .context = ways[i].context};
        assert_int_equal(arena_init(&rt.arena, &err), CVN_OK);
        assert_int_equal(steps_room(&s, &rt, ways[i].largest, 0, &err), CVN_OK);
        assert_int_equal(s.page, ways[i].size);
        assert_int_equal(s.pages[0], ways[i].pages);
        arena_free(&rt.arena);
    }
    cvn_model_free(model);
}

/* The second of two that begin alike, at once, in slots of their own: what is full of its pages is shared. */
static void a_slot_that_works_shares_its_pages(void **state)
{
    static Turn turn[3];
    cvn_model *model = open_variant("gqa", CVN_F32, NULL);
    cvn_engine *e = new_engine(model, 2, NULL, NULL, true, 0);
    for (int i = 0; i < 3; i++) {
        Turn *t = &turn[i];
        for (int k = 0; k < 100; k++)
            t->prompt[k] = k;
        t->prompt[90] = i; /* they differ from here */
        t->request = (cvn_request){.prompt = t->prompt,
                                   .n_prompt = 100,
                                   .max_tokens = MOST,
                                   .ignore_eos = true,
                                   .cache_salt = i == 2};
        answer_submit(e, &t->request, &t->is);
        for (int k = 0; k < 4; k++)
            engine_step(e);
    }
    while (engine_step(e))
        ;
    assert_int_equal(turn[0].is.result.reused, 0);
    assert_int_equal(turn[1].is.result.reused, 64);
    assert_int_equal(turn[2].is.result.reused, 0); /* another salt */
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

/* The next turn of a conversation reads what is new: the last token of an answer, which no cache holds, and what follows. */
static void the_next_turn_reads_only_what_is_new(void **state)
{
    enum { FIRST = 70, SAID = 20, NEW = 9 };
    static Turn turn[2];
    cvn_model *model = open_variant("gqa", CVN_F32, NULL);
    cvn_engine *e = new_engine(model, 2, NULL, NULL, true, 0);
    for (int i = 0; i < 2; i++) {
        Turn *t = &turn[i];
        for (int k = 0; k < FIRST; k++)
            t->prompt[k] = k;
        t->n_prompt = FIRST;
        for (int k = 0; i && k < turn[0].is.n; k++)
            t->prompt[t->n_prompt++] = turn[0].is.token[k];
        for (int k = 0; i && k < NEW; k++)
            t->prompt[t->n_prompt++] = 200 + k;
        t->request = (cvn_request){
            .prompt = t->prompt, .n_prompt = t->n_prompt, .max_tokens = SAID, .ignore_eos = true};
        answer_submit(e, &t->request, &t->is);
        while (engine_step(e))
            ;
    }
    assert_int_equal(turn[1].is.result.reused, FIRST + (e->chunk_invariant ? SAID - 1 : 0));
    assert_int_equal(turn[1].is.result.reused + turn[1].is.result.computed, turn[1].n_prompt);
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_f32),
        cmocka_unit_test(in_bf16),
        cmocka_unit_test(with_a_cache_of_8_bits),
        cmocka_unit_test(on_a_mesh),
        cmocka_unit_test(in_little_memory),
        cmocka_unit_test(memory_for_less_than_a_text_is_refused),
        cmocka_unit_test(memory_follows_what_texts_hold),
        cmocka_unit_test(who_goes_last_is_preempted),
        cmocka_unit_test(caches_have_room_for_the_context),
        cmocka_unit_test(a_slot_that_works_shares_its_pages),
        cmocka_unit_test(the_next_turn_reads_only_what_is_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
