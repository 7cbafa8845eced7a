/*
 * How long a compiled graph takes on a chip: its steps in their order, each by what it computes, reads and sends (sim/cost.h).
 *
 *     device   dot dot [wait] norm dot dot …          a collective that was started goes on beside what is computed;
 *     links       all_gather   reduce_scatter …       waiting for it is what is exposed
 *
 * Collectives go one after the other: links are one resource. A group's members are as far apart as their numbers.
 */
#ifndef CVN_SIM_TIMING_H
#define CVN_SIM_TIMING_H

#include "compile/plan.h"
#include "sim/cost.h"

/* Measures steps on this machine, where they are not estimated. */
typedef struct StepClock {
    /* Seconds of each step of a plan [n_steps] by itself; `at`: whole numbers among what it reads, 0: small ones. */
    int (*seconds)(void *context, const Plan *plan, int32_t at, double *seconds, cvn_err *err);
    void *context;
} StepClock;

/* The chip for which a graph is timed. */
typedef struct TimedFor {
    CostModel model;
    const StepClock *clock; /* borrowed; NULL: by what the chip's fit says */
    int32_t at;             /* for the clock */
    int64_t first, last;    /* positions of a text at which its queries are */
    bool spans;             /* what was when is wanted */
} TimedFor;

/* A step, or a collective under way. */
typedef struct TimedSpan {
    const char *name; /* kind of operation */
    double begin, seconds;
    bool link;
} TimedSpan;

typedef struct Timed {
    double seconds;
    double exposed; /* of these the device waited for links */
    /* Of all its steps; of collectives only what is waited for counts in spent. */
    Cost cost;
    double in_flight; /* seconds that links were busy */
    TimedSpan *span;  /* [n_spans], when they were wanted */
    int64_t n_spans;
} Timed;

/* Spans go into the arena. Fails only where a clock does. */
int timing_of_plan(const TimedFor *chip, const Plan *plan, Arena *arena, Timed *out, cvn_err *err);

#endif
