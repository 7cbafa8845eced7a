/*
 * How many of a device's threads a plan runs on: as many as make it faster.
 *
 * What a run computes does not depend on the number of threads, so the number may change from run to run. All threads
 * are best on an idle machine and a large model. On a busy one a thread that lost its processor for a time slice
 * makes the others wait that long at every meeting; and a tiny model's steps are shorter than a meeting. Then fewer
 * threads are faster, often one.
 *
 * So runs are timed. After a window of runs, a window with half or twice as many threads is tried where there is
 * reason to (the threads below all of them are in use already, or much of the time went into waiting, or runs are
 * so short that trying costs nothing), and kept when it is faster. Tries that fail become rare, until the times
 * change: then something has happened to the machine.
 *
 *     threads    8 8 8 8  4 4 4 4  2 2 2 2  4 4 4 4 4 4 4 4 4 4 4 4  8 8 8 8  4 4 …
 *     ms/window  9 9 9 9  5 5 5 5  7 7 7 7  5 5 …                    9 9 9 9  5 5 …
 */
#ifndef CVN_CPU_PACE_H
#define CVN_CPU_PACE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Pace {
    int most;       /* threads there are */
    int threads;    /* that are best as far as is known */
    int trying;     /* another number in this window; 0: none */
    bool up;        /* where the next try goes */
    bool warm;      /* the first run, with its page faults, is over */
    int rest;       /* windows until the next try */
    int pause;      /* windows of rest after the next try that fails */
    int runs;       /* in this window */
    int64_t ns;     /* they took */
    int64_t waited; /* of these, how long thread 0 waited for others */
    double mean;    /* ns per run of the last window on `threads`; 0: none yet */
} Pace;

void pace_init(Pace *pace, int most);

/* Threads for the next run, 1 … most. */
int pace_threads(const Pace *pace);

/* The run took `ns`, of which thread 0 waited `waited`. */
void pace_add(Pace *pace, int64_t ns, int64_t waited);

#endif
