/*
 * When each thread did what, written as a Chrome trace that https://ui.perfetto.dev opens.
 *
 * Every step of a run makes one event per thread, into memory that was allocated before; when that is full,
 * events are counted and dropped. A thread's waiting for the others shows as slices of its own.
 */
#ifndef CVN_CPU_PROFILE_H
#define CVN_CPU_PROFILE_H

#include "compile/plan.h"

typedef struct Profile Profile;

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

/* Writes what was recorded. All plans that ran must still be there. */
int profile_write(const Profile *profile, const char *path, cvn_err *err);

#endif
