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

int speculate_make(cvn_engine *e, bool looks_up, cvn_err *err)
{
    const cvn_engine_options *o = &e->options;
    size_t slots = (size_t)o->slots;
    Speculation *g = e->speculation = arena_array(&e->arena, 1, sizeof *g);
    g->looks_up = looks_up;
    g->slot = arena_array(&e->arena, slots, sizeof *g->slot);
    for (size_t i = 0; i < slots; i++)
        for (int k = 0; k < DRAFT_KINDS; k++)
            g->slot[i].rate[k] = k == DRAFT_FORCED ? 1 : 0.5f;
    return o->draft ? draft_model_open(&g->model, e, err) : CVN_OK;
}

void speculate_free(cvn_engine *e)
{
    if (e->speculation)
        cvn_engine_free(e->speculation->model.e, NULL);
}

/* ---- drafts ---- */

void speculate_begin(cvn_engine *e, int slot, const cvn_request *request)
{
    SlotDraft *g = &e->speculation->slot[slot];
    g->text = request->prompt;
    g->n = request->n_prompt;
    g->n_draft = g->stood = 0;
}

void speculate_add(cvn_engine *e, int slot)
{
    SlotDraft *g = &e->speculation->slot[slot];
    int32_t token = g->text[g->n++];
    if (g->stood < g->n_draft) {
        bool stands = g->draft[g->stood] == token;
        g->rate[g->kind] += LATELY * ((float)stands - g->rate[g->kind]);
        g->n_draft = stands ? g->n_draft : 0;
        g->stood += stands;
    }
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

/* The size that decodes with so many drafts of each slot; -1: there is none. */
static int decode_size(cvn_engine *e, int drafts)
{
    list_decoding(e, drafts);
    return list_fit(e, SAMPLE_GREEDY);
}

/* How many drafts of each slot promise most tokens per second; 0: none. */
static int choose(cvn_engine *e, int active, bool drafts)
{
    const Speculation *g = e->speculation;
    const double *known = e->lists->seconds;
    double alone = known[decode_size(e, 0)];
    int best = 0;
    bool forced = active > 0; /* in all slots: then one by one is slower, whatever was measured */
    for (int slot = 0; slot < e->options.slots; slot++)
        if (e->slots.length[slot])
            forced = forced && g->slot[slot].n_draft && g->slot[slot].kind == DRAFT_FORCED;
    double most = g->from || forced ? 0 : active / alone;
    for (int n = DRAFT_MOST / 2; n <= DRAFT_MOST && (alone > 0 || g->from); n += n + 1) {
        int size = decode_size(e, n);
        if (size < 0)
            continue;
        double sum = 0, seconds = known[size] > 0 ? known[size] : alone;
        seconds += drafts ? g->draft_seconds * n : 0;
        for (int slot = 0; slot < e->options.slots; slot++) { /* tokens that it may expect */
            const SlotDraft *r = &g->slot[slot];
            double tokens = 1, all = 1;
            for (int k = 0; k < r->n_draft && k < n; k++)
                tokens += all *= (double)r->rate[r->kind];
            sum += e->slots.length[slot] ? tokens : 0;
        }
        if (sum > active && (g->from || sum / seconds > most)) {
            most = sum / seconds;
            best = n;
        }
    }
    return best;
}

/* ---- runs ---- */

static int run(cvn_engine *e, int most, cvn_err *err)
{
    Speculation *g = e->speculation;
    Lists *l = e->lists;
    for (int slot = 0; slot < e->options.slots; slot++) {
        SlotDraft *r = &g->slot[slot];
        memcpy(l->token[slot] + 1, r->draft, sizeof r->draft);
        l->n_draft[slot] = e->slots.length[slot] ? (int)num_min(r->n_draft, most) : 0;
    }
    TRY(decode_run(e, err));
    for (int slot = 0; slot < e->options.slots; slot++) {
        g->slot[slot].n_draft = l->n_draft[slot];
        e->stats.drafted_tokens += l->n_draft[slot];
    }
    e->stats.verifies++;
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
    for (int slot = 0; slot < e->options.slots; slot++)
        e->lists->n_draft[slot] = 0;
    for (int slot = 0; slot < e->options.slots; slot++) {
        if (!e->slots.length[slot])
            continue;
        active++;
        drafts = propose(e, slot) || drafts;
        g->slot[slot].n_draft = (int)num_min(g->slot[slot].n_draft, most[slot] - 1);
        e->lists->n_draft[slot] = g->slot[slot].n_draft;
    }
    int n = active ? choose(e, active, drafts) : 0;
    for (int slot = 0; slot < e->options.slots && !n && drafts; slot++)
        if (g->slot[slot].kind == DRAFT_MODEL) { /* was not asked, and may be again one day */
            g->slot[slot].n_draft = 0;
            g->slot[slot].rate[DRAFT_MODEL] += (1 - g->slot[slot].rate[DRAFT_MODEL]) * AGAIN;
        }
    if (!n)
        return CVN_OK;
    *ran = true;
    double begin = clock_seconds();
    if (drafts) { /* and no more than a program takes */
        TRY(draft_model_propose(&g->model, e, n, err));
        double seconds = (clock_seconds() - begin) / n;
        g->draft_seconds += g->draft_seconds > 0 ? (seconds - g->draft_seconds) * 0.2 : seconds;
    }
    return run(e, n, err);
}
