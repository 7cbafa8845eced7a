#include "serve/pace.h"

#include "base/num.h"

#include <math.h>

/* Of the time that slots may wait, what is kept for writing tokens and for threads that begin late. */
static const double SPARE = 1 / 16.0;
/* How fast what was slow is forgotten, by runs. */
static const double FORGET = 1 / 16.0;

bool pace_decodes(const cvn_engine *e)
{
    bool any = false;
    for (int slot = 0; slot < e->options.slots; slot++)
        any = any || e->slots.length[slot];
    return any;
}

/* Up at once, down slowly. */
static double worst(double lately, double now)
{
    return now > lately ? now : lately + (now - lately) * FORGET;
}

static double further(const StallPace *p, const EngineStep *s, int64_t start)
{
    return p->position * (double)(s->slots * s->seq * start);
}

/* What nobody has measured takes too long. */
static double expected(const StallPace *p, const EngineStep *s, int64_t start)
{
    return s->seconds > 0 ? (s->seconds + further(p, s, start)) * p->late : INFINITY;
}

void pace_note(StallPace *p, EngineStep *s, int64_t start, double seconds)
{
    double begin = seconds - further(p, s, start);
    if (start == 0 && (begin < s->seconds || !(s->seconds > 0)))
        s->seconds = begin; /* something else ran when it was measured, or nobody has */
    if (s->seconds > 0)
        p->late = fmax(1, worst(p->late, seconds / (s->seconds + further(p, s, start))));
}

void pace_decoded(StallPace *p, double begin)
{
    p->since = p->clock();
    p->decode = worst(p->decode, p->since - begin);
}

static double left(const cvn_engine *e)
{
    const StallPace *p = &e->pace;
    double own = pace_decodes(e) ? p->since : p->beside;
    double since = p->beside > 0 ? fmin(own, p->beside) : own;
    return e->options.max_stall * (1 - SPARE) - p->decode - (p->clock() - since);
}

/* The longest that fits, as all shorter ones do; -1: none. */
static int longest(const cvn_engine *e, const EngineStep *step, int64_t start, double seconds)
{
    int b = 0;
    while (b < e->options.n_buckets && expected(&e->pace, &step[b], start) <= seconds)
        b++;
    return b - 1;
}

int pace_choose(cvn_engine *e, int64_t start, bool least, bool *any, cvn_err *err)
{
    int choice[2] = {e->options.n_buckets - 1, e->options.n_buckets - 1};
    *any = true;
    if (e->options.max_stall > 0 && (pace_decodes(e) || e->pace.beside > 0)) {
        double seconds = left(e);
        choice[0] = longest(e, e->prefill[0], start, seconds);
        choice[1] = longest(e, e->batch[0], start, seconds);
        TRY(cluster_share(e->options.cluster, choice, sizeof choice, err));
        *any = choice[0] >= 0 || least;
    }
    e->longest = choice[0] < 0 ? 0 : choice[0];
    e->longest_batch = choice[1];
    return CVN_OK;
}

/* The shorter of two runs, the first of which has pages to find: a chunk behind `start` positions of n slots' texts. */
static int measure(cvn_engine *e, int b, int n, int64_t start, const int32_t *tokens,
                   double *seconds, cvn_err *err)
{
    const cvn_request request = {.prompt = tokens, .n_prompt = start + e->options.bucket[b]};
    SlotPrompt prompt[CHUNK_BATCH];
    *seconds = INFINITY;
    e->longest = e->longest_batch = b;
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < n; i++) {
            prompt[i] = (SlotPrompt){.slot = i, .request = &request};
            engine_set_filled(e, i, start);
        }
        double begin = e->pace.clock();
        TRY(engine_prefill(e, prompt, n, err));
        *seconds = fmin(*seconds, e->pace.clock() - begin);
    }
    return cluster_share(e->options.cluster, seconds, sizeof *seconds, err);
}

static int measure_chunks(cvn_engine *e, const int32_t *tokens, int64_t far, cvn_err *err)
{
    const cvn_engine_options *o = &e->options;
    double most = o->max_stall, seconds = 0;
    for (int b = 0; b < o->n_buckets && seconds <= most; b++) { /* and one that is too long */
        TRY(measure(e, b, 1, 0, tokens, &seconds, err));
        e->prefill[0][b].seconds = seconds;
    }
    seconds = 0;
    for (int b = 0; b < o->n_buckets && e->batch[0][b].slots && seconds <= most; b++) {
        TRY(measure(e, b, CHUNK_BATCH, 0, tokens, &seconds, err));
        e->batch[0][b].seconds = seconds;
    }
    const EngineStep *shortest = &e->prefill[0][0];
    if (far > 0) {
        TRY(measure(e, 0, 1, far, tokens, &seconds, err));
        e->pace.position =
            fmax(0, seconds - shortest->seconds) / (double)(far * shortest->seq * shortest->slots);
    }
    return CVN_OK;
}

int engine_measure_pace(cvn_engine *e, cvn_err *err)
{
    enum { FAR = 2048 };
    const cvn_engine_options *o = &e->options;
    const cvn_engine_stats stats = e->stats;
    StallPace *p = &e->pace;
    int64_t largest = o->bucket[o->n_buckets - 1], far = num_min(FAR, o->context - largest);
    SCOPED(scoped_free) int32_t *tokens = calloc((size_t)(FAR + largest), sizeof *tokens);
    if (!tokens)
        return err_set(err, CVN_EMEM, "no memory for a prompt of %d tokens", FAR);
    p->late = 1;
    for (int turn = 0; turn < 2; turn++) {
        for (int slot = 0; slot < o->slots; slot++) {
            engine_set_filled(e, slot, 0);
            engine_set_active(e, slot, true);
        }
        double begin = p->clock();
        TRY(engine_decode(e, err));
        p->decode = p->clock() - begin;
    }
    for (int slot = 0; slot < o->slots; slot++)
        engine_set_active(e, slot, false);
    TRY(measure_chunks(e, tokens, far, err));
    for (int slot = 0; slot < o->slots; slot++) {
        engine_reset_slot(e, slot);
        engine_release_slot(e, slot);
    }
    e->longest = e->longest_batch = o->n_buckets - 1;
    e->stats = stats;
    double shortest = expected(p, &e->prefill[0][0], 0);
    if (p->decode + shortest > o->max_stall * (1 - SPARE))
        strbuf_printf(&e->warnings,
                      "stalls may exceed %.0f ms: a decode step takes %.0f ms here, and the "
                      "smallest prefill chunk, of %lld tokens, another %.0f ms\n",
                      o->max_stall * 1e3, p->decode * 1e3, (long long)o->bucket[0], shortest * 1e3);
    return CVN_OK;
}
