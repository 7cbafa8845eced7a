#include "serve/pace.h"

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

void pace_note(cvn_engine *e, int size, double seconds)
{
    double *known = &e->lists->size[size].seconds;
    *known = *known > 0 ? fmin(*known, seconds) : seconds;
    e->pace.late = fmax(1, worst(e->pace.late, seconds / *known));
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

int pace_choose(cvn_engine *e, bool least, bool *any, cvn_err *err)
{
    const cvn_engine_options *o = &e->options;
    const int64_t shortest = o->bucket[0], largest = o->bucket[o->n_buckets - 1];
    int64_t choice = largest;
    *any = true;
    if (o->max_stall > 0 && (pace_decodes(e) || e->pace.beside > 0)) {
        double time = left(e), token = INFINITY; /* of the size below */
        choice = 0;
        for (int i = 0; i < e->lists->n; i++) {
            const ListSize *s = &e->lists->size[i];
            double seconds = s->seconds > 0 ? s->seconds : token * (double)s->tokens;
            e->budget = list_tokens(e, i);
            if (!s->chunks || e->budget < shortest || e->budget > largest)
                continue;
            double then = engine_decodes_beside(e) ? 0 : e->pace.decode;
            if (seconds * fmax(1, e->pace.late) + then <= time)
                choice = e->budget;
            token = s->seconds > 0 ? s->seconds / (double)s->tokens : token;
        }
        TRY(cluster_share(o->cluster, &choice, sizeof choice, err));
        *any = choice > 0 || least;
    }
    e->budget = choice > 0 ? choice : shortest;
    return CVN_OK;
}
