#include "train/schedule.h"

#include <inttypes.h>
#include <math.h>

const char *const schedule_names[SCHEDULE_COUNT] = {
    [SCHEDULE_COSINE] = "cosine",
    [SCHEDULE_LINEAR] = "linear",
    [SCHEDULE_CONSTANT] = "constant",
    [SCHEDULE_WSD] = "wsd",
};

int schedule_check(const Schedule *s, cvn_err *err)
{
    if (s->steps < 1)
        return err_set(err, CVN_EINVAL, "a run has at least 1 step, not %" PRId64, s->steps);
    if (s->warmup < 0 || s->warmup > s->steps)
        return err_set(err, CVN_EINVAL,
                       "a warm-up of %" PRId64 " steps does not fit in %" PRId64
                       " steps; shorten it",
                       s->warmup, s->steps);
    if (s->kind == SCHEDULE_WSD && (s->decay < 0 || s->decay > s->steps - s->warmup))
        return err_set(err, CVN_EINVAL,
                       "a warm-up of %" PRId64 " and a decay of %" PRId64
                       " steps do not fit in %" PRId64 " steps; shorten them",
                       s->warmup, s->decay, s->steps);
    if (!(s->final >= 0 && s->final <= 1))
        return err_set(err, CVN_EINVAL, "the final learning rate factor is %g; give 0 to 1",
                       s->final);
    return CVN_OK;
}

/* How much of the fall is behind step t: 0 at t = begin, 1 at t = begin + length. */
static double progress(int64_t t, int64_t begin, int64_t length)
{
    if (t <= begin)
        return 0;
    return t >= begin + length ? 1 : (double)(t - begin) / (double)length;
}

double schedule_factor(const Schedule *s, int64_t t)
{
    if (t <= s->warmup)
        return (double)t / (double)s->warmup;
    double done = progress(t, s->warmup, s->steps - s->warmup);
    switch (s->kind) {
    case SCHEDULE_COSINE:
        return s->final + (1 - s->final) * (1 + cos(acos(-1.0) * done)) / 2;
    case SCHEDULE_LINEAR:
        return s->final + (1 - s->final) * (1 - done);
    case SCHEDULE_WSD:
        return 1 - (1 - s->final) * progress(t, s->steps - s->decay, s->decay);
    case SCHEDULE_CONSTANT:
    case SCHEDULE_COUNT:
        break;
    }
    return 1;
}
