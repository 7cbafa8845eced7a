#include "serve/guess.h"

#include "base/num.h"
#include "serve/adjust.h"

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

int guess_make(cvn_engine *e, bool looks_up, cvn_err *err)
{
    const cvn_engine_options *o = &e->options;
    size_t rows = (size_t)o->rows;
    Guesser *g = e->guesser = arena_array(&e->arena, 1, sizeof *g);
    g->looks_up = looks_up;
    g->place = arena_array(&e->arena, rows, sizeof *g->place);
    g->row = arena_array(&e->arena, rows, sizeof *g->row);
    for (size_t i = 0; i < rows; i++) {
        g->row[i].text = arena_array(&e->arena, (size_t)o->context + 2, sizeof(int32_t));
        for (int k = 0; k < GUESS_KINDS; k++)
            g->row[i].rate[k] = k == GUESS_FORCED ? 1 : 0.5f;
    }
    engine_make_inputs(e, &g->in, GUESS_TOKENS, 1);
    for (int alone = 0; alone < 2; alone++)
        for (int64_t seq = 4; seq <= GUESS_MOST + 1; seq *= 2) {
            ModelStep step = steps_section(&e->steps, alone ? 1 : o->rows, seq);
            if (step.batch * seq > GUESS_TOKENS || seq > o->bucket[o->n_buckets - 1] ||
                (alone && (e->parts != 1 || o->rows == 1)))
                continue;
            step.every = true;
            for (int m = looks_up ? 0 : (int)e->most; m <= (int)e->most; m++) {
                step.sample = (SampleMode)m;
                TRY(engine_make_step(e, &g->step[m][g->n_steps], &step, &g->in, err));
            }
            g->n_steps++;
        }
    g->text = arena_array(&e->arena, rows, sizeof *g->text);
    g->guess = arena_array(&e->arena, rows, sizeof *g->guess);
    g->n = arena_array(&e->arena, rows, sizeof *g->n);
    g->n_guess = arena_array(&e->arena, rows, sizeof *g->n_guess);
    return o->draft ? draft_open(&g->draft, e, err) : CVN_OK;
}

void guess_free(cvn_engine *e)
{
    for (int m = 0; e->guesser && m < SAMPLE_MODE_COUNT; m++)
        for (int i = 0; i < GUESS_STEPS; i++)
            engine_free_step(&e->guesser->step[m][i]);
    if (e->guesser)
        draft_close(&e->guesser->draft);
}

/* ---- guesses ---- */

void guess_begin(cvn_engine *e, int row, const cvn_request *request)
{
    RowGuess *g = &e->guesser->row[row];
    memcpy(g->text, request->prompt, (size_t)request->n_prompt * sizeof *g->text);
    g->n = request->n_prompt;
    g->n_guess = g->stood = 0;
}

void guess_add(cvn_engine *e, int row, int32_t token)
{
    RowGuess *g = &e->guesser->row[row];
    if (g->stood < g->n_guess) {
        bool stands = g->guess[g->stood] == token;
        g->rate[g->kind] += LATELY * ((float)stands - g->rate[g->kind]);
        g->n_guess = stands ? g->n_guess : 0;
        g->stood += stands;
    }
    if (g->n <= e->options.context)
        g->text[g->n++] = token;
}

void guess_look_up(RowGuess *g)
{
    int64_t best = 0, from = 0, last = num_max(1, g->n - WINDOW);
    for (int64_t at = g->n - 1; at >= last && best < MATCH_MOST; at--) {
        int64_t most = num_min(at, MATCH_MOST), n = 0; /* tokens before it as before the end */
        while (n < most && g->text[at - 1 - n] == g->text[g->n - 1 - n])
            n++;
        from = n > best ? at : from;
        best = num_max(n, best);
    }
    g->n_guess = 0;
    if (best < MATCH_FEWEST)
        return;
    g->kind = best < 3 ? 0 : best < 5 ? 1 : best < MATCH_MOST ? 2 : 3;
    for (int i = 0; i < GUESS_MOST; i++) {
        int64_t at = from + i;
        g->guess[i] = at < g->n ? g->text[at] : g->guess[at - g->n];
    }
    g->n_guess = GUESS_MOST;
}

/* The program that promises most tokens per second; -1: decoding does. */
static int choose(const cvn_engine *e, int active, bool drafts)
{
    const Guesser *g = e->guesser;
    int best = -1;
    bool forced = active > 0; /* in all rows: then one by one is slower, whatever was measured */
    for (int row = 0; row < e->options.rows; row++)
        if (e->rows.length[row])
            forced = forced && g->row[row].n_guess && g->row[row].kind == GUESS_FORCED;
    double most = g->from || forced ? 0 : active / g->decode;
    for (int i = 0; i < g->n_steps; i++) {
        const EngineStep *step = &g->step[e->most][i];
        double sum = 0, seconds = g->seconds[i] > 0 ? g->seconds[i] : g->decode;
        seconds += drafts ? g->drafted * (double)(step->seq - 1) : 0;
        if (step->rows < e->options.rows && active > 1)
            continue;
        for (int row = 0; row < e->options.rows; row++) { /* tokens that it may expect */
            const RowGuess *r = &g->row[row];
            double tokens = 1, all = 1;
            for (int64_t k = 0; k < r->n_guess && k < step->seq - 1; k++)
                tokens += all *= (double)r->rate[r->kind];
            sum += e->rows.length[row] ? tokens : 0;
        }
        if (sum > active && (g->from || sum / seconds > most)) {
            most = sum / seconds;
            best = i;
        }
    }
    return best;
}

/* ---- runs ---- */

/* A row's tokens, and all that drawing after each of them needs. */
static void stage(cvn_engine *e, int row, int64_t place, int64_t seq)
{
    RowGuess *g = &e->guesser->row[row];
    Inputs *in = &e->guesser->in;
    const Inputs *own = &e->rows;
    size_t vocab = vocab_of(e), first = (size_t)(place * seq), n = (size_t)seq;
    g->n_guess = (int)num_min(g->n_guess, seq - 1);
    if (in->bias)
        g->n_guess = adjust_ahead(e, row, g->guess, g->n_guess, in->bias + first * vocab,
                                  in->mask + first * vocab);
    in->start[place] = own->start[row];
    in->length[place] = own->length[row] ? 1 + g->n_guess : 0;
    engine_copy_select(e, in, place, row);
    memset(in->tokens + first, 0, n * sizeof *in->tokens);
    in->tokens[first] = own->tokens[row];
    memcpy(in->tokens + first + 1, g->guess, (size_t)g->n_guess * sizeof *in->tokens);
    for (size_t i = first; i < first + n; i++) {
        engine_copy_sampling(e, in, (int64_t)i, row);
        if (!in->seen || i > first + (size_t)g->n_guess)
            continue;
        const uint8_t *seen =
            i == first ? own->seen + (size_t)row * vocab : in->seen + (i - 1) * vocab;
        memcpy(in->seen + i * vocab, seen, vocab);
        in->seen[i * vocab + (size_t)in->tokens[i]] = 1;
    }
}

static int run(cvn_engine *e, int which, cvn_err *err)
{
    Guesser *g = e->guesser;
    SampleMode mode = engine_mode(e);
    EngineStep *step = &g->step[mode][which];
    int64_t alone = -1;
    for (int row = 0; row < e->options.rows; row++) {
        bool active = e->rows.length[row] != 0;
        g->place[row] = step->rows == e->options.rows ? row : active ? 0 : -1;
        if (active)
            alone = row;
        else
            g->row[row].n_guess = 0;
        if (g->place[row] >= 0)
            stage(e, row, g->place[row], step->seq);
    }
    double begin = clock_seconds();
    TRY(engine_run(e, step, &g->in, step->rows < e->options.rows ? &alone : NULL, err));
    double seconds = clock_seconds() - begin;
    TRY(cluster_share(e->options.cluster, &seconds, sizeof seconds, err));
    g->seconds[which] += g->seconds[which] > 0 ? (seconds - g->seconds[which]) * 0.2 : seconds;
    g->next = engine_output(step, ROLE_NEXT);
    g->logits = mode == SAMPLE_ADJUSTED ? engine_output(step, ROLE_LOGITS) : NULL;
    g->seq = step->seq;
    e->stats.verifies++;
    e->stats.decode_seconds += seconds;
    return CVN_OK;
}

/* What is to be guessed by a draft model is, no more than a program takes. */
static int draft(cvn_engine *e, int which, cvn_err *err)
{
    Guesser *g = e->guesser;
    int most = (int)g->step[e->most][which].seq - 1;
    for (int row = 0; row < e->options.rows; row++) {
        RowGuess *r = &g->row[row];
        bool wanted = e->rows.length[row] && r->kind == GUESS_DRAFT && r->n_guess;
        g->text[row] = wanted ? r->text : NULL;
        g->guess[row] = r->guess;
        g->n[row] = r->n;
        g->n_guess[row] = 0;
    }
    double begin = clock_seconds();
    TRY(draft_guess(&g->draft, e, g->text, g->n, most, g->guess, g->n_guess, err));
    double seconds = (clock_seconds() - begin) / most;
    g->drafted += g->drafted > 0 ? (seconds - g->drafted) * 0.2 : seconds;
    for (int row = 0; row < e->options.rows; row++)
        if (g->text[row])
            g->row[row].n_guess = (int)num_min(g->n_guess[row], g->row[row].n_guess);
    return CVN_OK;
}

/* Guesses, or, for the draft model, that there will be some; returns whether there will. */
static bool guess(cvn_engine *e, int row)
{
    Guesser *g = e->guesser;
    RowGuess *r = &g->row[row];
    r->stood = 0;
    if (g->from)
        r->n_guess = g->from(g->context, row, r->guess);
    else if (e->adjust && (r->n_guess = adjust_forced(e, row, r->guess, GUESS_MOST)))
        r->kind = GUESS_FORCED;
    else if (g->looks_up)
        guess_look_up(r);
    if (r->n_guess || !g->draft.e || g->from)
        return false;
    r->kind = GUESS_DRAFT;
    r->n_guess = GUESS_MOST;
    return true;
}

int guess_run(cvn_engine *e, const int64_t *most, bool *ran, cvn_err *err)
{
    Guesser *g = e->guesser;
    int active = 0;
    bool drafts = false;
    *ran = false;
    for (int row = 0; row < e->options.rows; row++) {
        if (!e->rows.length[row])
            continue;
        active++;
        drafts = guess(e, row) || drafts;
        g->row[row].n_guess = (int)num_min(g->row[row].n_guess, most[row] - 1);
    }
    int which = active && (g->decode > 0 || g->from) ? choose(e, active, drafts) : -1;
    for (int row = 0; row < e->options.rows && which < 0 && drafts; row++)
        if (g->row[row].kind == GUESS_DRAFT) { /* was not asked, and may be again one day */
            g->row[row].n_guess = 0;
            g->row[row].rate[GUESS_DRAFT] += (1 - g->row[row].rate[GUESS_DRAFT]) * AGAIN;
        }
    if (which < 0)
        return CVN_OK;
    *ran = true;
    if (drafts)
        TRY(draft(e, which, err));
    TRY(run(e, which, err));
    for (int row = 0; row < e->options.rows; row++)
        e->stats.guessed_tokens += e->rows.length[row] ? g->row[row].n_guess : 0;
    return CVN_OK;
}

int32_t guess_take(cvn_engine *e, int row, int i)
{
    const Guesser *g = e->guesser;
    int64_t at = g->place[row] * g->seq + i;
    engine_set_filled(e, row, e->filled[row] + 1);
    e->stats.decoded_tokens++;
    e->stats.accepted_tokens += i > 0;
    engine_draw(e, row, g->next[at], g->logits ? g->logits + (size_t)at * vocab_of(e) : NULL);
    return e->rows.tokens[row];
}

int guess_timed(cvn_engine *e, double seconds, cvn_err *err)
{
    Guesser *g = e->guesser;
    TRY(cluster_share(e->options.cluster, &seconds, sizeof seconds, err));
    g->decode += g->decode > 0 ? (seconds - g->decode) * 0.2 : seconds;
    return CVN_OK;
}
