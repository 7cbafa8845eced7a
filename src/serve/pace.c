#include "serve/pace.h"

#include "base/num.h"
#include "serve/list.h"

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

static double further(const cvn_engine *e, int size, int64_t start)
{
    return e->pace.position * (double)(e->lists->size[size].tokens * start);
}

static double *seconds_of(cvn_engine *e, int size)
{
    return &e->lists->step[SAMPLE_GREEDY][size].seconds;
}

/* What nobody has measured takes too long. */
static double expected(cvn_engine *e, int size, int64_t start)
{
    double seconds = *seconds_of(e, size);
    return seconds > 0 ? (seconds + further(e, size, start)) * e->pace.late : INFINITY;
}

void pace_note(cvn_engine *e, int size, int64_t start, double seconds)
{
    StallPace *p = &e->pace;
    double *known = seconds_of(e, size), begin = seconds - further(e, size, start);
    if (start == 0 && (begin < *known || !(*known > 0)))
        *known = begin; /* something else ran when it was measured, or nobody has */
    if (*known > 0)
        p->late = fmax(1, worst(p->late, seconds / (*known + further(e, size, start))));
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
    return e->options.max_stall * (1 - SPARE) - (p->clock() - since);
}

/* The next size of chunks behind `size`, as long as a bucket; -1: there is none. */
static int next_size(const cvn_engine *e, int size)
{
    const cvn_engine_options *o = &e->options;
    while (++size < e->lists->n)
        if (e->lists->size[size].chunks && list_tokens(e, size) >= o->bucket[0] &&
            list_tokens(e, size) <= o->bucket[o->n_buckets - 1])
            return size;
    return -1;
}

int pace_choose(cvn_engine *e, int64_t start, bool least, bool *any, cvn_err *err)
{
    const cvn_engine_options *o = &e->options;
    int64_t choice = o->bucket[o->n_buckets - 1];
    *any = true;
    if (o->max_stall > 0 && (pace_decodes(e) || e->pace.beside > 0)) {
        double seconds = left(e);
        choice = 0;
        for (int i = next_size(e, -1); i >= 0; i = next_size(e, i)) {
            e->budget = list_tokens(e, i);
            double then = engine_decodes_beside(e) ? 0 : e->pace.decode;
            if (expected(e, i, start) + then <= seconds)
                choice = e->budget;
        }
        TRY(cluster_share(o->cluster, &choice, sizeof choice, err));
        *any = choice > 0 || least;
    }
    e->budget = choice > 0 ? choice : o->bucket[0];
    return CVN_OK;
}

/* The shorter of two runs, the first of which has pages to find: a chunk of so many tokens behind `start` positions. */
static int measure(cvn_engine *e, int64_t n, int64_t start, const int32_t *tokens, double *seconds,
                   cvn_err *err)
{
    const cvn_request request = {.prompt = tokens, .n_prompt = start + n};
    SlotPrompt prompt = {.slot = 0, .request = &request};
    *seconds = INFINITY;
    e->budget = n;
    for (int turn = 0; turn < 2; turn++) {
        engine_set_filled(e, 0, start);
        double begin = e->pace.clock();
        TRY(engine_prefill(e, &prompt, 1, NULL, err));
        *seconds = fmin(*seconds, e->pace.clock() - begin);
    }
    return cluster_share(e->options.cluster, seconds, sizeof *seconds, err);
}

static int measure_chunks(cvn_engine *e, const int32_t *tokens, int64_t far, cvn_err *err)
{
    double seconds = 0;
    int shortest = next_size(e, -1);
    for (int i = shortest; i >= 0 && seconds <= e->options.max_stall; i = next_size(e, i)) {
        TRY(measure(e, list_tokens(e, i), 0, tokens, &seconds, err)); /* and one that is too long */
        *seconds_of(e, i) = seconds;
    }
    if (far > 0) {
        TRY(measure(e, list_tokens(e, shortest), far, tokens, &seconds, err));
        e->pace.position = fmax(0, seconds - *seconds_of(e, shortest)) /
                           (double)(far * e->lists->size[shortest].tokens);
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
    e->budget = largest;
    e->stats = stats;
    double shortest = expected(e, next_size(e, -1), 0);
    if (p->decode + shortest > o->max_stall * (1 - SPARE))
        strbuf_printf(&e->warnings,
                      "stalls may exceed %.0f ms: a decode step takes %.0f ms here, and the "
                      "smallest prefill chunk, of %lld tokens, another %.0f ms\n",
                      o->max_stall * 1e3, p->decode * 1e3, (long long)o->bucket[0], shortest * 1e3);
    return CVN_OK;
}
