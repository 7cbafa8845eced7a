#include "serve/list.h"

#include "base/num.h"
#include "serve/logits.h"
#include "serve/pages.h"
#include "serve/prefix.h"

#include <assert.h>
#include <string.h>

/* ---- programs ---- */

static bool gives(const Lists *l, int output, int size)
{
    return l->step[output][size].executable;
}

/* Puts a size among the others, in their order, unless it is there; returns where. */
static int add_size(Lists *l, int64_t tokens, int64_t row)
{
    int at = 0;
    while (at < l->n &&
           (l->size[at].tokens < tokens || (l->size[at].tokens == tokens && l->size[at].row < row)))
        at++;
    if (at < l->n && l->size[at].tokens == tokens && l->size[at].row == row)
        return at;
    for (int i = l->n++; i > at; i--) {
        l->size[i] = l->size[i - 1];
        for (int m = 0; m < LIST_PROGRAMS; m++)
            l->step[m][i] = l->step[m][i - 1];
    }
    l->size[at] = (ListSize){.tokens = tokens, .row = row};
    for (int m = 0; m < LIST_PROGRAMS; m++)
        l->step[m][at] = (Program){0};
    return at;
}

/* One of chunks of so many tokens of each shard. */
static ListSize *add_chunks(cvn_engine *e, int64_t tokens)
{
    int at = add_size(e->lists, tokens * e->shards, e->chunk_invariant ? 1 : tokens);
    e->lists->size[at].chunks = true;
    return &e->lists->size[at];
}

/* The programs of a size, but those that there are. */
static int make_size(cvn_engine *e, int at, cvn_err *err)
{
    const cvn_engine_options *o = &e->options;
    Lists *l = e->lists;
    const ListSize *s = &l->size[at];
    const bool general = o->sampling || o->penalties || o->logits_processors;
    for (int i = 0; i < (e->adapters.n ? LIST_PROGRAMS : LIST_OUTPUTS); i++) {
        const int m = i % LIST_OUTPUTS;
        bool made = m == LIST_SCORE   ? s->scores && o->scoring
                    : m == LIST_STATE ? s->scores && o->pooling
                                      : !o->no_generation && (m == SAMPLE_GREEDY || general);
        ModelStep step =
            s->apart ? steps_decode(&e->steps) : steps_chunk(&e->steps, s->tokens / s->row, s->row);
        step.output = m == LIST_SCORE ? STEP_SCORE : m == LIST_STATE ? STEP_STATE : STEP_SAMPLE;
        step.keep_logits = m == LIST_SCORE && o->logits_processors;
        step.sample = m < LIST_SCORE ? (SampleMode)m : SAMPLE_GREEDY;
        step.wanted = m < LIST_SCORE ? s->wanted : 0;
        step.penalty = m == SAMPLE_GENERAL && o->penalties;
        step.adjusts = m == SAMPLE_GENERAL && o->logits_processors;
        step.ranks = i == m ? step.ranks : 0;
        if (made && !gives(l, i, at))
            TRY(engine_make_program(e, &l->step[i][at], &step, &l->in, err));
    }
    return CVN_OK;
}

int lists_make(cvn_engine *e, bool drafts, const int64_t *score, int n_score, cvn_err *err)
{
    const cvn_engine_options *o = &e->options;
    const size_t slots = (size_t)o->slots;
    const int64_t drawn = num_max(o->slots, LIST_DRAFTS), largest = o->bucket[o->n_buckets - 1];
    Lists *l = e->lists = arena_array(&e->arena, 1, sizeof *l);
    l->part = arena_array(&e->arena, slots, sizeof *l->part);
    l->token = arena_array(&e->arena, slots, sizeof *l->token);
    l->n_draft = arena_array(&e->arena, slots, sizeof *l->n_draft);
    l->adjusted = arena_array(&e->arena, (size_t)drawn, sizeof *l->adjusted);
    engine_make_inputs(e, &l->in, num_max(largest * (o->mesh ? o->slots : 1), drawn), drawn);
    if (!o->no_generation) { /* first: it has a token of each slot, and so says how caches lie */
        l->size[add_size(l, o->slots, 1)].apart = e->steps.apart && !drafts;
        TRY(make_size(e, 0, err));
    }
    e->shards = steps_shards(&e->rt);
    int64_t most = num_max(o->slots, drafts ? LIST_DRAFTS / e->shards * e->shards : 0);
    for (int64_t tokens = e->shards; !o->no_generation; tokens = num_min(2 * tokens, most)) {
        add_size(l, tokens, 1);
        if (tokens == most)
            break;
    }
    for (int i = 0; i < o->n_buckets && !o->no_generation; i++)
        add_chunks(e, o->bucket[i]);
    for (int i = 0; i < n_score; i++)
        add_chunks(e, score[i])->scores = true;
    for (int i = 0; i < l->n; i++) {
        l->size[i].chunks = l->size[i].chunks || e->chunk_invariant;
        if (e->chunk_invariant && l->size[i].tokens > most)
            l->size[i].wanted = o->slots;
        TRY(make_size(e, i, err));
    }
    return CVN_OK;
}

void lists_free(cvn_engine *e)
{
    for (int m = 0; e->lists && m < LIST_PROGRAMS; m++)
        for (int i = 0; i < LIST_SIZES; i++)
            program_free(&e->lists->step[m][i]);
}

/* ---- sizes ---- */

int64_t list_tokens(const cvn_engine *e, int size)
{
    return e->lists->size[size].tokens / e->shards;
}

int64_t list_chunk(const cvn_engine *e, int output, int64_t n, int64_t most)
{
    int64_t best = 0;
    for (int i = 0; i < e->lists->n; i++)
        if (gives(e->lists, output, i) && e->lists->size[i].chunks &&
            (!best || (best < n && list_tokens(e, i) <= most)))
            best = list_tokens(e, i);
    return best;
}

static bool takes(const cvn_engine *e, int size)
{
    const Lists *l = e->lists;
    const ListSize *s = &l->size[size];
    int64_t room = list_tokens(e, size), most = 0, drawn = 0;
    bool chunks = false;
    memset(e->load, 0, (size_t)e->shards * sizeof *e->load);
    for (int slot = 0; slot < e->options.slots; slot++) {
        const ListPart *p = &l->part[slot];
        int *load = &e->load[e->pages->shard[slot]];
        if (!p->n)
            continue;
        *load += (int)num_round_up(p->n, s->row);
        if (s->apart && p->n > 1)
            return false;
        most = num_max(most, *load);
        drawn += p->drawn;
        chunks = chunks || p->chunk;
    }
    return most <= room && (!s->wanted || drawn <= s->wanted) && (chunks ? s->chunks : s->row == 1);
}

int list_fit(const cvn_engine *e, int output)
{
    int size = 0;
    while (size < e->lists->n && !(gives(e->lists, output, size) && takes(e, size)))
        size++;
    return size < e->lists->n ? size : -1;
}

/* ---- runs ---- */

void list_clear(cvn_engine *e)
{
    for (int slot = 0; slot < e->options.slots; slot++)
        e->lists->part[slot].n = 0;
}

/* Tokens of nobody, which go nowhere. */
static void clear(const cvn_engine *e, const ListSize *s)
{
    Inputs *in = &e->lists->in;
    int64_t rows = s->tokens / s->row, drawn = s->wanted ? s->wanted : rows;
    memset(in->tokens, 0, (size_t)s->tokens * sizeof *in->tokens);
    for (int64_t i = 0; i < s->tokens; i++)
        in->targets[i] = -1;
    for (int64_t i = 0; i < rows; i++) {
        in->start[i] = s->apart ? (int32_t)e->steps.positions : 0;
        in->length[i] = 0;
        in->slot[i] = -1;
    }
    for (int64_t i = 0; i < num_min(drawn, in->drawn); i++) {
        in->wanted[i] = 0;
        in->temperature[i] = 0;
        in->top_p[i] = in->penalty[i] = 1;
    }
}

/* What is said of single tokens behind a part's last ones: of slots that say nothing, what changes no bit, unless it is there. */
static void stage_adjusting(cvn_engine *e, int slot, ListPart *p)
{
    Lists *l = e->lists;
    size_t vocab = (size_t)model_vocab(e->model->io.desc);
    float *bias = l->in.bias + (size_t)p->place * vocab;
    uint8_t *mask = l->in.mask + (size_t)p->place * vocab;
    const bool asks = e->logits[slot].request;
    for (int64_t i = 0; i < p->drawn; i++) {
        bool *adjusted = &l->adjusted[p->place + i];
        if (*adjusted && !asks) {
            memset(bias + (size_t)i * vocab, 0, vocab * sizeof *bias);
            memset(mask + (size_t)i * vocab, 1, vocab);
        }
        *adjusted = asks;
    }
    if (asks && p->drawn > 1)
        p->n = p->drawn = 1 + logits_ahead(e, slot, p->token + 1, (int)p->drawn - 1, bias, mask);
    else if (asks)
        logits_copy(e, slot, bias, mask);
}

/* What drawing behind a part's last tokens needs, from its place on. */
static void stage_drawing(cvn_engine *e, int slot, ListPart *p, bool general)
{
    Inputs *in = &e->lists->in;
    size_t vocab = (size_t)model_vocab(e->model->io.desc);
    if (general && in->bias)
        stage_adjusting(e, slot, p);
    for (int64_t i = 0; i < p->drawn; i++) {
        int64_t at = p->place + i, token = p->n - p->drawn + i;
        in->wanted[at] = (int32_t)(p->at + token);
        engine_copy_sampling(e, in, at, slot);
        if (!general || !in->seen || in->penalty[at] == 1)
            continue;
        uint8_t *seen = in->seen + (size_t)at * vocab;
        memcpy(seen, i ? seen - vocab : e->slots.seen + (size_t)slot * vocab, vocab);
        seen[p->token[token]] = 1;
    }
}

static void stage(cvn_engine *e, int slot, ListPart *p, const ListSize *s)
{
    Inputs *in = &e->lists->in;
    const int64_t ranks = e->adapters.ranks;
    memcpy(in->tokens + p->at, p->token, (size_t)p->n * sizeof *in->tokens);
    for (int64_t i = 0; i < p->n; i += s->row) {
        int64_t row = (p->at + i) / s->row;
        in->slot[row] = slot;
        in->start[row] = e->slots.start[slot] + (int32_t)i;
        in->length[row] = (int32_t)num_min(s->row, p->n - i);
        if (ranks)
            memcpy(in->select + row * ranks, e->slots.select + slot * ranks,
                   (size_t)ranks * sizeof *in->select);
    }
    for (int64_t i = 0; i < p->n && (i + 1 < p->n || p->more); i++)
        in->targets[p->at + i] = p->token[i + 1];
}

static void stage_all(cvn_engine *e, const ListSize *s, int output)
{
    Lists *l = e->lists;
    int64_t wanted = 0, room = s->tokens / e->shards;
    clear(e, s);
    for (int shard = 0; shard < e->shards; shard++)
        e->load[shard] = (int)(shard * room);
    for (int slot = 0; slot < e->options.slots; slot++) {
        ListPart *p = &l->part[slot];
        int *to = &e->load[e->pages->shard[slot]];
        if (!p->n)
            continue;
        p->at = s->apart ? e->pages->table[0].page[slot * e->pages->each] : *to;
        p->place = s->wanted ? wanted : s->row > 1 ? p->at / s->row : p->at + p->n - p->drawn;
        if (output < LIST_SCORE && p->drawn)
            stage_drawing(e, slot, p, output == SAMPLE_GENERAL);
        stage(e, slot, p, s);
        *to += (int)num_round_up(p->n, s->row);
        wanted += p->drawn;
    }
}

/* The program of an output that the parts take: of those that draw the general one, if one of them asks for it. */
static int choose_program(const cvn_engine *e, int output)
{
    const int64_t ranks = e->adapters.ranks;
    bool adapted = !e->adapters.n, general = false;
    for (int slot = 0; slot < e->options.slots; slot++) {
        const ListPart *p = &e->lists->part[slot];
        bool greedy = e->slots.temperature[slot] <= 0 &&
                      e->slots.penalty[slot] == 1 && /* which stands for none, exactly */
                      !(e->logits && e->logits[slot].request);
        general = general || (p->n && p->drawn && !greedy);
        for (int64_t i = 0; p->n && i < ranks; i++)
            adapted = adapted || e->slots.select[slot * ranks + i] != 0;
    }
    output = output == SAMPLE_GREEDY && general ? SAMPLE_GENERAL : output;
    return output + (adapted ? 0 : LIST_OUTPUTS);
}

int list_run(cvn_engine *e, int output, cvn_err *err)
{
    const int program = choose_program(e, output);
    output = program % LIST_OUTPUTS;
    Lists *l = e->lists;
    int size = list_fit(e, output);
    assert(size >= 0);
    for (int slot = 0; slot < e->options.slots; slot++)
        if (l->part[slot].n)
            if (!prefix_hold(e, slot, e->filled[slot] + l->part[slot].n))
                return err_set(err, CVN_EMEM,
                               "all pages of the KV cache are taken; raise --kv-memory");
    Program *step = &l->step[program][size];
    stage_all(e, &l->size[size], output);
    program_set_pending(step, ROLE_MASK, e->helper);
    cluster_set_step(e->options.cluster, e->rt.runs + 1);
    double begin = clock_seconds();
    logits_start(e);
    int code = program_run(step, err);
    logits_wait(e);
    e->failed = e->failed || (code && code != CVN_EINTERRUPTED);
    double seconds = clock_seconds() - begin;
    if (code)
        return code;
    if (e->speculation)
        TRY(cluster_share(e->options.cluster, &seconds, sizeof seconds, err));
    l->seconds[size] += l->seconds[size] > 0 ? (seconds - l->seconds[size]) * 0.2 : seconds;
    l->ran = size;
    l->step_ran = step;
    l->next = output < LIST_SCORE ? program_output(step, ROLE_NEXT, 0) : NULL;
    l->logits = output == SAMPLE_GENERAL && e->logits ? program_output(step, ROLE_LOGITS, 0) : NULL;
    return CVN_OK;
}

void list_draw(cvn_engine *e, int slot, int i)
{
    const Lists *l = e->lists;
    int64_t at = l->part[slot].place + i, vocab = model_vocab(e->model->io.desc);
    bool asks = e->logits && e->logits[slot].request;
    e->slots.tokens[slot] =
        asks ? logits_drawn(e, slot, l->next[at], l->logits + at * vocab) : l->next[at];
}

/* ---- decoding ---- */

void list_decoding(cvn_engine *e, int64_t drafts)
{
    Lists *l = e->lists;
    list_clear(e);
    for (int slot = 0; slot < e->options.slots; slot++) {
        int64_t n = 1 + num_min(l->n_draft[slot], drafts);
        if (!e->slots.length[slot])
            continue;
        l->token[slot][0] = e->slots.tokens[slot];
        l->part[slot] = (ListPart){.token = l->token[slot], .n = n, .drawn = n};
    }
}

int decode_run(cvn_engine *e, cvn_err *err)
{
    Lists *l = e->lists;
    list_decoding(e, DRAFT_MOST);
    double begin = clock_seconds();
    TRY(list_run(e, SAMPLE_GREEDY, err));
    e->stats.decode_seconds += clock_seconds() - begin;
    for (int slot = 0; slot < e->options.slots; slot++)
        if (l->part[slot].n)
            l->n_draft[slot] = (int)l->part[slot].n - 1;
    return CVN_OK;
}

int32_t decode_take(cvn_engine *e, int slot, int i)
{
    engine_set_filled(e, slot, e->filled[slot] + 1);
    e->stats.decoded_tokens++;
    engine_add_seen(e, slot, &e->slots.tokens[slot], 1);
    list_draw(e, slot, i);
    return e->slots.tokens[slot];
}

int engine_decode(cvn_engine *e, cvn_err *err)
{
    for (int i = 0; i < e->options.slots; i++) {
        e->lists->n_draft[i] = 0;
        assert(!e->slots.length[i] || e->filled[i] < e->options.context);
    }
    TRY(decode_run(e, err));
    for (int i = 0; i < e->options.slots; i++)
        if (e->slots.length[i])
            decode_take(e, i, 0);
    e->stats.decodes++;
    return CVN_OK;
}
