#include "cpu/profile.h"

#include "base/threads.h"

#include <stdlib.h>

static void add_collective(void *context, const CommEvent *event)
{
    Profile *profile = context;
    if (profile->n_collectives == profile->capacity)
        profile->dropped++;
    else
        profile->collective[profile->n_collectives++] = *event;
}

Profile *profile_new(int n_threads, size_t events, cvn_err *err)
{
    size_t n = (size_t)n_threads;
    Profile *profile = calloc(1, sizeof *profile);
    ProfileTrack *track = aligned_alloc(64, n * sizeof *track);
    if (!profile || !track) {
        free(profile);
        free(track);
        err_set(err, CVN_EMEM, "no memory for a profile");
        return NULL;
    }
    *profile = (Profile){.n_threads = n_threads,
                         .capacity = events ? events : PROFILE_EVENTS,
                         .origin = clock_ns(),
                         .track = track};
    profile->watch = (CommWatch){add_collective, profile};
    profile->collective = calloc(profile->capacity, sizeof *profile->collective);
    bool ok = profile->collective != NULL;
    for (size_t i = 0; i < n; i++) {
        track[i] = (ProfileTrack){.event = calloc(profile->capacity, sizeof(ProfileEvent))};
        ok = ok && track[i].event;
    }
    if (!ok) {
        profile_free(profile);
        err_set(err, CVN_EMEM, "no memory for a profile of %zu events per thread", events);
        return NULL;
    }
    return profile;
}

void profile_free(Profile *profile)
{
    if (!profile)
        return;
    for (int i = 0; i < profile->n_threads; i++)
        free(profile->track[i].event);
    free(profile->track);
    free(profile->collective);
    free(profile);
}

void profile_add(Profile *profile, int thread, const Plan *plan, int step, int64_t ready,
                 int64_t start, int64_t end)
{
    ProfileTrack *track = &profile->track[thread];
    if (track->n == profile->capacity) {
        track->dropped++;
        return;
    }
    track->event[track->n++] = (ProfileEvent){plan, step, ready, start, end};
}

void profile_clear(Profile *profile)
{
    for (int i = 0; i < profile->n_threads; i++)
        profile->track[i].n = profile->track[i].dropped = 0;
    profile->n_collectives = profile->dropped = 0;
}

int64_t profile_sum(const Profile *profile, int thread, bool (*counts)(const Step *step))
{
    const ProfileTrack *track = &profile->track[thread];
    int64_t sum = 0;
    for (size_t i = 0; i < track->n; i++) {
        const ProfileEvent *event = &track->event[i];
        if (counts(&event->plan->step[event->step]))
            sum += event->end - event->start;
    }
    return sum;
}

size_t profile_dropped(const Profile *profile)
{
    size_t n = profile->dropped;
    for (int i = 0; i < profile->n_threads; i++)
        n += profile->track[i].dropped;
    return n;
}

static int by_beginning(const void *left, const void *right)
{
    const CommEvent *a = left, *b = right;
    return (a->begun > b->begun) - (a->begun < b->begun);
}

const CommEvent *profile_collectives(Profile *profile, size_t *n)
{
    *n = profile->n_collectives;
    qsort(profile->collective, *n, sizeof *profile->collective, by_beginning);
    return profile->collective;
}
