/*
 * The slots: what each holds, and the runs of programs that go on from there. A slot's state, its fill and its token, advances
 * after a run that succeeded and not before, so that a run which was interrupted is as if it had not been: what it
 * left in caches lies beyond their fill and is written again.
 */
#include "base/num.h"
#include "serve/list.h"
#include "serve/logits.h"
#include "serve/pages.h"
#include "serve/prefix.h"
#include "serve/scheduler.h"
#include "serve/speculate.h"
#include "serve/windows.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void engine_add_seen(cvn_engine *e, int slot, const int32_t *tokens, int64_t n)
{
    size_t vocab = (size_t)model_vocab(e->model->io.desc);
    for (int64_t i = 0; e->slots.seen && i < n; i++)
        e->slots.seen[(size_t)slot * vocab + (size_t)tokens[i]] = 1;
}

static void set_seen(cvn_engine *e, int slot, const int32_t *tokens, int64_t n)
{
    size_t vocab = (size_t)model_vocab(e->model->io.desc);
    if (e->slots.seen)
        memset(e->slots.seen + (size_t)slot * vocab, 0, vocab);
    engine_add_seen(e, slot, tokens, n);
}

void engine_set_filled(cvn_engine *e, int slot, int64_t n)
{
    e->filled[slot] = n;
    e->slots.start[slot] = (int32_t)n;
    windows_fill(e, slot, n);
}

void engine_reset_slot(cvn_engine *e, int slot)
{
    engine_set_filled(e, slot, 0);
    pages_cut(e, slot, 0);
    e->slots.tokens[slot] = 0;
    e->slots.length[slot] = 0;
    e->slots.temperature[slot] = 0;
    e->slots.top_p[slot] = 1;
    e->slots.penalty[slot] = 1;
    set_seen(e, slot, NULL, 0);
}

static void set_adapter(cvn_engine *e, int slot, int which)
{
    if (e->adapters.n)
        adapters_select(&e->adapters, which, e->slots.select + slot * e->adapters.ranks);
}

void engine_copy_sampling(const cvn_engine *e, Inputs *in, int64_t at, int slot)
{
    const Inputs *from = &e->slots;
    in->temperature[at] = from->temperature[slot];
    in->top_k[at] = from->top_k[slot];
    in->top_p[at] = from->top_p[slot];
    in->min_p[at] = from->min_p[slot];
    in->penalty[at] = from->penalty[slot];
    memcpy(in->key + 2 * at, from->key + 2 * slot, 2 * sizeof *in->key);
}

static int check_tokens(const cvn_engine *e, const int32_t *tokens, int64_t n, cvn_err *err)
{
    int64_t context = e->options.context, vocab = model_vocab(e->model->io.desc);
    if (n > context)
        return err_set(err, CVN_EINVAL,
                       "%" PRId64 " tokens do not fit in a context of %" PRId64
                       "; shorten the prompt or raise --context",
                       n, context);
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab)
            return err_set(err, CVN_EINVAL,
                           "token %d at position %" PRId64 " is not in the vocabulary of %" PRId64,
                           (int)tokens[i], i, vocab);
    return CVN_OK;
}

static int check_sampling(const cvn_engine *e, const cvn_sampling *s, cvn_err *err)
{
    if (!(s->temperature >= 0) || isinf(s->temperature) ||
        (s->temperature > 0 && s->temperature < 1e-3f))
        return err_set(err, CVN_EINVAL, "temperature is %g; give 0, or 0.001 or more",
                       (double)s->temperature);
    if (s->temperature > 0 && !(s->top_p > 0))
        return err_set(err, CVN_EINVAL, "top-p is %g; give more than 0, at most 1",
                       (double)s->top_p);
    if (s->top_k < 0 || isnan(s->top_p) || s->top_p < 0 || !(s->min_p >= 0) || s->min_p > 1)
        return err_set(
            err, CVN_EINVAL,
            "top-k %d, top-p %g, min-p %g: expected top-k >= 0, top-p >= 0, min-p in 0 to 1",
            (int)s->top_k, (double)s->top_p, (double)s->min_p);
    if (!(s->repeat_penalty >= 0) || isinf(s->repeat_penalty))
        return err_set(err, CVN_EINVAL, "repeat penalty is %g; give a positive number",
                       (double)s->repeat_penalty);
    if (s->temperature > 0 && !e->options.sampling && !e->options.logits_processors)
        return err_set(
            err, CVN_EINVAL,
            "the request samples with a temperature; create the engine with options.sampling");
    if (s->repeat_penalty > 0 && s->repeat_penalty != 1 && !e->options.penalties)
        return err_set(
            err, CVN_EINVAL,
            "the request has a repeat penalty; create the engine with options.penalties");
    return CVN_OK;
}

static int check_adapter(const cvn_engine *e, int which, cvn_err *err)
{
    int n = e->adapters.n;
    if (which >= -1 && (which < n || which == 0))
        return CVN_OK;
    return err_set(err, CVN_EINVAL, "there is no adapter %d; the engine has %d, counted from 0",
                   which, n);
}

int engine_check_request(const cvn_engine *e, const cvn_request *r, int i, cvn_err *err)
{
    if (e->options.no_generation)
        return err_set(err, CVN_EINVAL,
                       "the engine cannot generate; create it without options.no_generation");
    if (!r->prompt || r->n_prompt < 1)
        return err_set(err, CVN_EINVAL, "prompt %d has no tokens", i);
    TRY(check_tokens(e, r->prompt, r->n_prompt, err));
    TRY(check_sampling(e, &r->sampling, err));
    TRY(check_adapter(e, r->adapter, err));
    return logits_check(e, r, err);
}

bool engine_ends(const cvn_engine *e, const cvn_request *r, int32_t token)
{
    const SpecialIds *eos = model_ends(e->model->io.desc);
    bool ends = false;
    for (int i = 0; i < eos->n; i++)
        ends = ends || eos->id[i] == token;
    for (int64_t i = 0; i < r->n_end; i++)
        ends = ends || r->end[i] == token;
    return ends && (r->constraint || !r->ignore_eos);
}

void engine_begin_slot(cvn_engine *e, int slot, const cvn_request *request, int64_t drawn,
                       int64_t keep)
{
    if (keep == 0)
        engine_reset_slot(e, slot);
    pages_cut(e, slot, keep);
    engine_set_filled(e, slot, keep);
    windows_begin(e, slot, request->n_prompt, keep);
    set_adapter(e, slot, request->adapter);
    const cvn_sampling *s = &request->sampling;
    Inputs *in = &e->slots;
    in->temperature[slot] = s->temperature;
    in->top_k[slot] = s->top_k;
    in->top_p[slot] = s->top_p > 0 ? s->top_p : 1; /* 0: of a greedy request */
    in->min_p[slot] = s->min_p;
    in->penalty[slot] = s->repeat_penalty > 0 ? s->repeat_penalty : 1;
    in->key[2 * slot] = (uint32_t)s->seed;
    in->key[2 * slot + 1] = (uint32_t)(s->seed >> 32);
    set_seen(e, slot, request->prompt, request->n_prompt);
    if (e->speculation)
        speculate_begin(e, slot, request);
    if (e->logits)
        logits_begin(e, slot, request, drawn);
}

int engine_free_slot(cvn_engine *e, int shard)
{
    const Pages *p = e->pages;
    int best = -1;
    memset(e->load, 0, (size_t)e->shards * sizeof *e->load);
    for (int i = 0; i < e->options.slots; i++)
        e->load[p->shard[i]] += 2 * (e->job[i] != NULL);
    for (int i = 0, least = 0; i < e->options.slots; i++) {
        int load = e->load[p->shard[i]] + (p->held[i] > 0);
        if (e->job[i] || (shard >= 0 && p->shard[i] != shard) || (best >= 0 && load >= least))
            continue;
        best = i;
        least = load;
    }
    return best;
}

int engine_decodes_beside(const cvn_engine *e)
{
    int n = 0;
    for (int slot = 0; slot < e->options.slots; slot++)
        n += e->slots.length[slot];
    return e->chunk_invariant && 2 * n <= e->budget ? n : 0;
}

/* How much of so many tokens that are left of a prompt is read beside `others`: all, what there is room for, or less, where two runs
   of fitting sizes take less than one with much padding. A run has a time that it takes however short it is, as one of LEAST tokens. */
static int64_t next_chunk(const cvn_engine *e, int64_t rest, int64_t others)
{
    enum { LEAST = 32 };
    int64_t n = num_min(rest, num_max(e->budget - others, 1)), all = n + others;
    int64_t size = list_chunk(e, SAMPLE_GREEDY, all, e->budget);
    if (!e->chunk_invariant || n < rest || !others)
        return num_min(n, size);
    for (int i = e->lists->n - 1; i >= 0; i--) {
        int64_t less = list_tokens(e, i);
        if (less >= all || less <= others)
            continue;
        int64_t then = list_chunk(e, SAMPLE_GREEDY, all - less, e->budget);
        return less + num_max(then, LEAST) < size ? less - others : n;
    }
    return n;
}

static void add_chunk(cvn_engine *e, SlotPrompt *p, int64_t n)
{
    int64_t filled = e->filled[p->slot], rest = p->request->n_prompt - filled;
    p->computed = n;
    e->lists->part[p->slot] =
        (ListPart){.token = p->request->prompt + filled, .n = n, .drawn = n == rest, .chunk = true};
}

/* Chunks of n prompts, beside so many tokens that are decoded. */
static void choose_chunks(cvn_engine *e, SlotPrompt *prompt, int n, int64_t decoding)
{
    enum { JOINED = 128 }; /* a longer list takes longer, by what is added to it */
    int64_t first =
        next_chunk(e, prompt[0].request->n_prompt - e->filled[prompt[0].slot], decoding);
    int64_t size = list_chunk(e, SAMPLE_GREEDY, first + decoding, e->budget);
    int64_t room = e->chunk_invariant ? num_max(size, num_min(JOINED, e->budget)) : size;
    memset(e->load, 0, (size_t)e->shards * sizeof *e->load);
    e->load[0] = (int)decoding; /* else there are no shards */
    for (int i = 0; i < n; i++) {
        int *load = &e->load[e->pages->shard[prompt[i].slot]];
        int64_t rest = prompt[i].request->n_prompt - e->filled[prompt[i].slot];
        int64_t whole = e->chunk_invariant ? rest : num_min(rest, e->budget);
        prompt[i].computed = 0;
        if (i && (*load + whole > room || (*load && !e->chunk_invariant) ||
                  !prefix_hold(e, prompt[i].slot, e->filled[prompt[i].slot] + whole)))
            continue;
        add_chunk(e, &prompt[i], i ? whole : first);
        *load += (int)prompt[i].computed;
    }
}

/* Runs the list, whose chunks are then in the caches. */
static int run_chunks(cvn_engine *e, int output, cvn_err *err)
{
    double begin = clock_seconds();
    TRY(list_run(e, output, err));
    e->stats.prefills++;
    e->stats.prefill_seconds += clock_seconds() - begin;
    for (int slot = 0; slot < e->options.slots; slot++) {
        const ListPart *p = &e->lists->part[slot];
        int64_t n = p->chunk ? p->n : 0;
        if (n)
            engine_set_filled(e, slot, e->filled[slot] + n);
        e->stats.prefill_tokens += n;
    }
    return CVN_OK;
}

int engine_prefill(cvn_engine *e, SlotPrompt *prompt, int n, bool *decoded, cvn_err *err)
{
    int decoding = engine_decodes_beside(e);
    if (decoding)
        list_decoding(e, 0);
    else
        list_clear(e);
    choose_chunks(e, prompt, n, decoding);
    TRY(run_chunks(e, SAMPLE_GREEDY, err));
    for (int i = 0; i < n; i++)
        if (prompt[i].computed && e->lists->part[prompt[i].slot].drawn)
            list_draw(e, prompt[i].slot, 0);
    for (int slot = 0; slot < e->options.slots && decoding; slot++)
        if (e->slots.length[slot])
            decode_take(e, slot, 0);
    if (decoded)
        *decoded = decoding > 0;
    return CVN_OK;
}

/* What is wanted of a text that is read whole: some of these. */
typedef struct Score {
    float *logprob;
    int32_t *argmax;
    cvn_logits_fn *on_logits;
    void *context;
    int adapter;
} Score;

/* Of tokens [done, done + here). */
static void take_scores(const cvn_engine *e, const ListPart *p, const int32_t *token, int64_t n,
                        int64_t done, const Score *want)
{
    size_t vocab = (size_t)model_vocab(e->model->io.desc);
    const Program *step = e->lists->step_ran;
    const float *got = program_output(step, ROLE_LOGPROB, 0);
    const int32_t *likeliest = program_output(step, ROLE_ARGMAX, 0);
    const float *logits = want->on_logits ? program_output(step, ROLE_LOGITS, 0) : NULL;
    for (int64_t i = 0; i < p->n && done + i + 1 < n; i++) {
        if (want->logprob)
            want->logprob[done + i + 1] = got[p->at + i];
        if (logits)
            want->on_logits(want->context, (int)(done + i + 1),
                            logits + (size_t)(p->at + i) * vocab, token[done + i + 1]);
    }
    if (want->argmax)
        memcpy(want->argmax + done, likeliest + p->at, (size_t)p->n * sizeof *likeliest);
}

/* The state of the last token, or the sum of all so far. */
static void take_states(const cvn_engine *e, const ListPart *p, double *hidden)
{
    int64_t dim = model_width(e->model->io.desc);
    const float *got = program_output(e->lists->step_ran, ROLE_HIDDEN, 0);
    bool last = strcmp(e->options.pooling, "last") == 0;
    for (int64_t t = last ? p->n - 1 : 0; t < p->n; t++)
        for (int64_t i = 0; i < dim; i++)
            hidden[i] = (last ? 0 : hidden[i]) + (double)got[(p->at + t) * dim + i];
}

/* A slot for a text that is read whole, which it is for until it is reset. */
static int take_slot(cvn_engine *e, int adapter, const int32_t *token, int64_t n, int *slot,
                     cvn_err *err)
{
    if (n < 1)
        return err_set(err, CVN_EINVAL, "the text has no tokens");
    TRY(check_tokens(e, token, n, err));
    TRY(check_adapter(e, adapter, err));
    *slot = engine_free_slot(e, -1);
    if (*slot < 0)
        return err_set(err, CVN_EINVAL,
                       "all %d slots are busy; score when a request has finished or was cancelled",
                       e->options.slots);
    engine_reset_slot(e, *slot);
    set_adapter(e, *slot, adapter);
    return CVN_OK;
}

/* Pages for its next n tokens. */
static int hold_text(cvn_engine *e, int slot, int64_t n, cvn_err *err)
{
    n += e->filled[slot];
    if (e->queue.busy ? prefix_hold(e, slot, n) : scheduler_hold(e, slot, n))
        return CVN_OK; /* who is called back takes no slot away */
    return err_set(err, CVN_EINVAL,
                   "requests that run hold the pages of the KV cache; score when one has finished, "
                   "or raise --kv-memory");
}

static int score_slot(cvn_engine *e, int slot, const int32_t *token, int64_t n, const Score *want,
                      cvn_err *err)
{
    for (int64_t done = 0; done < n;) {
        int64_t here = list_chunk(e, LIST_SCORE, n - done, INT64_MAX);
        here = num_min(n - done, here);
        TRY(scheduler_go_on(e, err));
        TRY(hold_text(e, slot, here, err));
        list_clear(e);
        ListPart *p = &e->lists->part[slot];
        *p = (ListPart){.token = token + done, .n = here, .chunk = true, .more = done + here < n};
        TRY(run_chunks(e, LIST_SCORE, err));
        take_scores(e, p, token, n, done, want);
        done += here;
    }
    return CVN_OK;
}

static int score(cvn_engine *e, const int32_t *token, int64_t n, const Score *want, cvn_err *err)
{
    cvn_err local = {0};
    int slot;
    err = err ? err : &local;
    if (!e->options.scoring)
        return err_set(err, CVN_EINVAL, "the engine cannot score; create it with options.scoring");
    TRY(take_slot(e, want->adapter, token, n, &slot, err));
    int code = score_slot(e, slot, token, n, want, err);
    engine_reset_slot(e, slot);
    return code;
}

int cvn_engine_score(cvn_engine *e, const int32_t *token, int64_t n, float *logprob,
                     int32_t *argmax, cvn_err *err)
{
    const Score want = {.logprob = logprob, .argmax = argmax};
    if (n > 0)
        logprob[0] = 0;
    return score(e, token, n, &want, err);
}

int cvn_engine_score_logits(cvn_engine *e, int adapter, const int32_t *token, int64_t n,
                            cvn_logits_fn *on_logits, void *context, cvn_err *err)
{
    const Score want = {.on_logits = on_logits, .context = context, .adapter = adapter};
    if (!e->options.logits_processors)
        return err_set(err, CVN_EINVAL,
                       "the engine does not return logits; create it with options.scoring and "
                       "options.logits_processors");
    return score(e, token, n, &want, err);
}

static void put_embedding(const double *sum, int64_t dim, float *out)
{
    double square = 0;
    for (int64_t i = 0; i < dim; i++)
        square += sum[i] * sum[i];
    for (int64_t i = 0; i < dim; i++)
        out[i] = (float)(sum[i] / (square > 0 ? sqrt(square) : 1));
}

/* Texts that one run reads beside the first, each whole and in a slot that no request has. */
static int join_texts(cvn_engine *e, int adapter, const TokenIds *text, int n, int64_t most,
                      int *slot)
{
    int64_t sum = (int64_t)text[0].n;
    int count = 1;
    for (int s = 0; s < e->options.slots && count < n && e->chunk_invariant; s++) {
        int64_t length = (int64_t)text[count].n;
        if (e->job[s] || s == slot[0])
            continue;
        if (sum + length > most || length < 1 || check_tokens(e, text[count].id, length, NULL))
            break; /* who is first will say why */
        engine_reset_slot(e, s);
        if (!prefix_hold(e, s, length)) {
            engine_reset_slot(e, s);
            break;
        }
        set_adapter(e, s, adapter);
        slot[count++] = s;
        sum += length;
    }
    return count;
}

/* Reads the texts, as many tokens of the first as there are, and adds up states [count, dim]. */
static int embed_texts(cvn_engine *e, const TokenIds *text, const int *slot, int count,
                       int64_t most, double *state, cvn_err *err)
{
    for (int64_t done = 0; done < (int64_t)text[0].n; done += most) {
        TRY(scheduler_go_on(e, err));
        TRY(hold_text(e, slot[0], num_min((int64_t)text[0].n - done, most), err));
        list_clear(e);
        for (int i = 0; i < count; i++)
            e->lists->part[slot[i]] = (ListPart){.token = text[i].id + done,
                                                 .n = num_min((int64_t)text[i].n - done, most),
                                                 .chunk = true};
        TRY(run_chunks(e, LIST_STATE, err));
        for (int i = 0; i < count; i++)
            take_states(e, &e->lists->part[slot[i]], state + i * model_width(e->model->io.desc));
    }
    return CVN_OK;
}

int engine_embed(cvn_engine *e, int adapter, const TokenIds *text, int n, float *const *out,
                 cvn_err *err)
{
    if (!e->options.pooling)
        return err_set(err, CVN_EINVAL, "the engine cannot embed; create it with options.pooling");
    int64_t most = list_chunk(e, LIST_STATE, INT64_MAX, INT64_MAX);
    int64_t dim = model_width(e->model->io.desc), room = num_min(n, e->options.slots);
    SCOPED(scoped_free) double *state = calloc((size_t)(room * dim), sizeof *state);
    SCOPED(scoped_free) int *slot = calloc((size_t)room, sizeof *slot);
    if (!state || !slot)
        return err_set(err, CVN_EMEM, "no memory for an embedding of %" PRId64 " numbers", dim);
    TRY(take_slot(e, adapter, text[0].id, (int64_t)text[0].n, &slot[0], err));
    int count = join_texts(e, adapter, text, (int)room, most, slot);
    int code = embed_texts(e, text, slot, count, most, state, err);
    for (int i = 0; i < count; i++) {
        if (code == CVN_OK)
            put_embedding(state + i * dim, dim, out[i]);
        engine_reset_slot(e, slot[i]);
    }
    return code ? code : count;
}

int cvn_engine_embed(cvn_engine *e, int adapter, const int32_t *token, int64_t n, float *out,
                     cvn_err *err)
{
    cvn_err local = {0};
    const TokenIds text = {.id = (int32_t *)(uintptr_t)token, .n = (size_t)num_max(n, 0)};
    int count = engine_embed(e, adapter, &text, 1, &out, err ? err : &local);
    return count < 0 ? count : CVN_OK;
}
