#include "serve/speculate.h"

#include "base/num.h"
#include "serve/logits.h"

#include <string.h>

enum {
    MATCH_MOST = 12,  /* tokens compared before a place of the text */
    MATCH_FEWEST = 2, /* fewer say nothing */
    WINDOW = 1 << 15  /* tokens behind which nobody looks */
};

static const float LATELY = 0.1f;  /* how much a new observation counts */
static const float AGAIN = 0.003f; /* how much trust in a draft comes back with each token */

static size_t vocab_of(const cvn_engine *e)
{
    return (size_t)model_vocab(e->model->io.desc);
}

/* ---- programs ---- */

int speculate_make(cvn_engine *e, bool looks_up, cvn_err *err)
{
    const cvn_engine_options *o = &e->options;
    size_t slots = (size_t)o->slots;
    Speculation *g = e->speculation = arena_array(&e->arena, 1, sizeof *g);
    g->looks_up = looks_up;
    g->place = arena_array(&e->arena, slots, sizeof *g->place);
    g->slot = arena_array(&e->arena, slots, sizeof *g->slot);
    for (size_t i = 0; i < slots; i++) {
        g->slot[i].text = arena_array(&e->arena, (size_t)o->context + 2, sizeof(int32_t));
        for (int k = 0; k < DRAFT_KINDS; k++)
            g->slot[i].rate[k] = k == DRAFT_FORCED ? 1 : 0.5f;
    }
    engine_make_inputs(e, &g->in, SPECULATE_TOKENS, 1);
    for (int alone = 0; alone < 2; alone++)
        for (int64_t seq = 4; seq <= DRAFT_MOST + 1; seq *= 2) {
            ModelStep step = steps_chunk(&e->steps, alone ? 1 : o->slots, seq);
            if (step.batch * seq > SPECULATE_TOKENS || seq > o->bucket[o->n_buckets - 1] ||
                (alone && (e->shards != 1 || o->slots == 1)))
                continue;
            step.every = true;
            for (int m = looks_up ? 0 : (int)e->most; m <= (int)e->most; m++) {
                step.sample = (SampleMode)m;
                TRY(engine_make_step(e, &g->step[m][g->n_steps], &step, &g->in, err));
            }
            g->n_steps++;
        }
    g->text = arena_array(&e->arena, slots, sizeof *g->text);
    g->draft = arena_array(&e->arena, slots, sizeof *g->draft);
    g->n = arena_array(&e->arena, slots, sizeof *g->n);
    g->n_draft = arena_array(&e->arena, slots, sizeof *g->n_draft);
    return o->draft ? draft_model_open(&g->model, e, err) : CVN_OK;
}

void speculate_free(cvn_engine *e)
{
    for (int m = 0; e->speculation && m < SAMPLE_MODE_COUNT; m++)
        for (int i = 0; i < SPECULATE_STEPS; i++)
            engine_free_step(&e->speculation->step[m][i]);
    if (e->speculation)
        draft_model_close(&e->speculation->model);
}

/* ---- drafts ---- */

void speculate_begin(cvn_engine *e, int slot, const cvn_request *request)
{
    SlotDraft *g = &e->speculation->slot[slot];
    memcpy(g->text, request->prompt, (size_t)request->n_prompt * sizeof *g->text);
    g->n = request->n_prompt;
    g->n_draft = g->stood = 0;
}

void speculate_add(cvn_engine *e, int slot, int32_t token)
{
    SlotDraft *g = &e->speculation->slot[slot];
    if (g->stood < g->n_draft) {
        bool stands = g->draft[g->stood] == token;
        g->rate[g->kind] += LATELY * ((float)stands - g->rate[g->kind]);
        g->n_draft = stands ? g->n_draft : 0;
        g->stood += stands;
    }
    if (g->n <= e->options.context)
        g->text[g->n++] = token;
}

void speculate_look_up(SlotDraft *g)
{
    int64_t best = 0, from = 0, last = num_max(1, g->n - WINDOW);
    for (int64_t at = g->n - 1; at >= last && best < MATCH_MOST; at--) {
        int64_t most = num_min(at, MATCH_MOST), n = 0; /* tokens before it as before the end */
        while (n < most && g->text[at - 1 - n] == g->text[g->n - 1 - n])
            n++;
        from = n > best ? at : from;
        best = num_max(n, best);
    }
    g->n_draft = 0;
    if (best < MATCH_FEWEST)
        return;
    g->kind = best < 3 ? 0 : best < 5 ? 1 : best < MATCH_MOST ? 2 : 3;
    for (int i = 0; i < DRAFT_MOST; i++) {
        int64_t at = from + i;
        g->draft[i] = at < g->n ? g->text[at] : g->draft[at - g->n];
    }
    g->n_draft = DRAFT_MOST;
}

/* The program that promises most tokens per second; -1: decoding does. */
static int choose(const cvn_engine *e, int active, bool drafts)
{
    const Speculation *g = e->speculation;
    int best = -1;
    bool forced = active > 0; /* in all slots: then one by one is slower, whatever was measured */
    for (int slot = 0; slot < e->options.slots; slot++)
        if (e->slots.length[slot])
            forced = forced && g->slot[slot].n_draft && g->slot[slot].kind == DRAFT_FORCED;
    double most = g->from || forced ? 0 : active / g->decode;
    for (int i = 0; i < g->n_steps; i++) {
        const EngineStep *step = &g->step[e->most][i];
        double sum = 0, seconds = g->seconds[i] > 0 ? g->seconds[i] : g->decode;
        seconds += drafts ? g->draft_seconds * (double)(step->seq - 1) : 0;
        if (step->slots < e->options.slots && active > 1)
            continue;
        for (int slot = 0; slot < e->options.slots; slot++) { /* tokens that it may expect */
            const SlotDraft *r = &g->slot[slot];
            double tokens = 1, all = 1;
            for (int64_t k = 0; k < r->n_draft && k < step->seq - 1; k++)
                tokens += all *= (double)r->rate[r->kind];
            sum += e->slots.length[slot] ? tokens : 0;
        }
        if (sum > active && (g->from || sum / seconds > most)) {
            most = sum / seconds;
            best = i;
        }
    }
    return best;
}

/* ---- runs ---- */

/* A slot's tokens, and all that drawing after each of them needs. */
static void stage(cvn_engine *e, int slot, int64_t place, int64_t seq)
{
    SlotDraft *g = &e->speculation->slot[slot];
    Inputs *in = &e->speculation->in;
    const Inputs *own = &e->slots;
    size_t vocab = vocab_of(e), first = (size_t)(place * seq), n = (size_t)seq;
    g->n_draft = (int)num_min(g->n_draft, seq - 1);
    if (in->bias)
        g->n_draft = logits_ahead(e, slot, g->draft, g->n_draft, in->bias + first * vocab,
                                  in->mask + first * vocab);
    in->slot[place] = slot;
    in->start[place] = own->start[slot];
    in->length[place] = own->length[slot] ? 1 + g->n_draft : 0;
    engine_copy_select(e, in, place, slot);
    memset(in->tokens + first, 0, n * sizeof *in->tokens);
    in->tokens[first] = own->tokens[slot];
    memcpy(in->tokens + first + 1, g->draft, (size_t)g->n_draft * sizeof *in->tokens);
    for (size_t i = first; i < first + n; i++) {
        engine_copy_sampling(e, in, (int64_t)i, slot);
        if (!in->seen || i > first + (size_t)g->n_draft)
            continue;
        const uint8_t *seen =
            i == first ? own->seen + (size_t)slot * vocab : in->seen + (i - 1) * vocab;
        memcpy(in->seen + i * vocab, seen, vocab);
        in->seen[i * vocab + (size_t)in->tokens[i]] = 1;
    }
}

static int run(cvn_engine *e, int which, cvn_err *err)
{
    Speculation *g = e->speculation;
    SampleMode mode = engine_mode(e);
    EngineStep *step = &g->step[mode][which];
    for (int slot = 0; slot < e->options.slots; slot++) {
        bool active = e->slots.length[slot] != 0;
        g->place[slot] = step->slots == e->options.slots ? slot : active ? 0 : -1;
        if (!active)
            g->slot[slot].n_draft = 0;
        if (g->place[slot] >= 0)
            stage(e, slot, g->place[slot], step->seq);
    }
    double begin = clock_seconds();
    TRY(engine_run(e, step, &g->in, err));
    double seconds = clock_seconds() - begin;
    TRY(cluster_share(e->options.cluster, &seconds, sizeof seconds, err));
    g->seconds[which] += g->seconds[which] > 0 ? (seconds - g->seconds[which]) * 0.2 : seconds;
    g->next = engine_output(step, ROLE_NEXT);
    g->logits = mode == SAMPLE_PROCESSED ? engine_output(step, ROLE_LOGITS) : NULL;
    g->seq = step->seq;
    e->stats.verifies++;
    e->stats.decode_seconds += seconds;
    return CVN_OK;
}

/* What is to be drafted by a draft model is, no more than a program takes. */
static int propose_by_model(cvn_engine *e, int which, cvn_err *err)
{
    Speculation *g = e->speculation;
    int most = (int)g->step[e->most][which].seq - 1;
    for (int slot = 0; slot < e->options.slots; slot++) {
        SlotDraft *r = &g->slot[slot];
        bool wanted = e->slots.length[slot] && r->kind == DRAFT_MODEL && r->n_draft;
        g->text[slot] = wanted ? r->text : NULL;
        g->draft[slot] = r->draft;
        g->n[slot] = r->n;
        g->n_draft[slot] = 0;
    }
    double begin = clock_seconds();
    TRY(draft_model_propose(&g->model, e, g->text, g->n, most, g->draft, g->n_draft, err));
    double seconds = (clock_seconds() - begin) / most;
    g->draft_seconds += g->draft_seconds > 0 ? (seconds - g->draft_seconds) * 0.2 : seconds;
    for (int slot = 0; slot < e->options.slots; slot++)
        if (g->text[slot])
            g->slot[slot].n_draft = (int)num_min(g->n_draft[slot], g->slot[slot].n_draft);
    return CVN_OK;
}

/* Drafts, or, for the draft model, that there will be some; returns whether there will. */
static bool propose(cvn_engine *e, int slot)
{
    Speculation *g = e->speculation;
    SlotDraft *r = &g->slot[slot];
    r->stood = 0;
    if (g->from)
        r->n_draft = g->from(g->context, slot, r->draft);
    else if (e->logits && (r->n_draft = logits_forced(e, slot, r->draft, DRAFT_MOST)))
        r->kind = DRAFT_FORCED;
    else if (g->looks_up)
        speculate_look_up(r);
    if (r->n_draft || !g->model.e || g->from)
        return false;
    r->kind = DRAFT_MODEL;
    r->n_draft = DRAFT_MOST;
    return true;
}

int speculate_run(cvn_engine *e, const int64_t *most, bool *ran, cvn_err *err)
{
    Speculation *g = e->speculation;
    int active = 0;
    bool drafts = false;
    *ran = false;
    for (int slot = 0; slot < e->options.slots; slot++) {
        if (!e->slots.length[slot])
            continue;
        active++;
        drafts = propose(e, slot) || drafts;
        g->slot[slot].n_draft = (int)num_min(g->slot[slot].n_draft, most[slot] - 1);
    }
    int which = active && (g->decode > 0 || g->from) ? choose(e, active, drafts) : -1;
    for (int slot = 0; slot < e->options.slots && which < 0 && drafts; slot++)
        if (g->slot[slot].kind == DRAFT_MODEL) { /* was not asked, and may be again one day */
            g->slot[slot].n_draft = 0;
            g->slot[slot].rate[DRAFT_MODEL] += (1 - g->slot[slot].rate[DRAFT_MODEL]) * AGAIN;
        }
    if (which < 0)
        return CVN_OK;
    *ran = true;
    if (drafts)
        TRY(propose_by_model(e, which, err));
    TRY(run(e, which, err));
    for (int slot = 0; slot < e->options.slots; slot++)
        e->stats.drafted_tokens += e->slots.length[slot] ? g->slot[slot].n_draft : 0;
    return CVN_OK;
}

int32_t speculate_take(cvn_engine *e, int slot, int i)
{
    const Speculation *g = e->speculation;
    int64_t at = g->place[slot] * g->seq + i;
    engine_set_filled(e, slot, e->filled[slot] + 1);
    e->stats.decoded_tokens++;
    e->stats.accepted_tokens += i > 0;
    engine_draw(e, slot, g->next[at], g->logits ? g->logits + (size_t)at * vocab_of(e) : NULL);
    return e->slots.tokens[slot];
}

int speculate_timed(cvn_engine *e, double seconds, cvn_err *err)
{
    Speculation *g = e->speculation;
    TRY(cluster_share(e->options.cluster, &seconds, sizeof seconds, err));
    g->decode += g->decode > 0 ? (seconds - g->decode) * 0.2 : seconds;
    return CVN_OK;
}
