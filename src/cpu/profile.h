/*
 * When each thread of a device did what, and what the device communicated.
 *
 * Every step of a run makes one event per thread, and every collective one more, into memory that was allocated
 * before; when that is full, events are counted and dropped. cpu/trace.h writes them.
 */
#ifndef CVN_CPU_PROFILE_H
#define CVN_CPU_PROFILE_H

#include "comm/account.h"
#include "compile/plan.h"

#include <stdalign.h>

/* A step, by one thread. */
typedef struct ProfileEvent {
    const Plan *plan;
    int step;
    int64_t ready, start, end; /* clock_ns, as given to profile_add */
} ProfileEvent;

/* What a thread has done, in order; a line of its own in the cache for each thread. */
typedef struct ProfileTrack {
    alignas(64) ProfileEvent *event; /* owned: [capacity] */
    size_t n;
    size_t dropped;
} ProfileTrack;

typedef struct Profile {
    int n_threads;
    size_t capacity;       /* events per thread */
    int64_t origin;        /* clock_ns when it was made: time 0 of the trace */
    ProfileTrack *track;   /* [n_threads] */
    CommWatch watch;       /* to be told of the device's collectives, for comm_watch */
    CommEvent *collective; /* owned: [capacity], thread 0's */
    size_t n_collectives, dropped;
} Profile;

enum { PROFILE_EVENTS = 1 << 18 }; /* per thread by default: 10 MiB */

/* Room for `events` per thread; 0 takes PROFILE_EVENTS. */
Profile *profile_new(int n_threads, size_t events, cvn_err *err);
void profile_free(Profile *profile);

/* A thread came to a step at `ready`, began it at `start` (after waiting, if it had to) and was done at `end`,
   all by clock_ns. Threads may call this at the same time, each for itself. */
void profile_add(Profile *profile, int thread, const Plan *plan, int step, int64_t ready,
                 int64_t start, int64_t end);

/* Forgets all events. */
void profile_clear(Profile *profile);

/* Nanoseconds that a thread spent in those steps that `counts` says yes to, waiting not included. */
int64_t profile_sum(const Profile *profile, int thread, bool (*counts)(const Step *step));

/* Events that did not fit. */
size_t profile_dropped(const Profile *profile);

/* The device's collectives, in the order of their beginning: *n of them. Sorts them. */
const CommEvent *profile_collectives(Profile *profile, size_t *n);

#endif
