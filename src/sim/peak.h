/*
 * What fills the arena of a plan where it is fullest: the values alive at that step, the largest first.
 *
 *     at attention_backward, step 8212 of 31877, 9.31 GiB are alive
 *       10.0 GiB  80 × f32[16,1024,2048]   add                  until optimization_barrier
 *        448 MiB   1 × bf16[28672,8192]    all_gather of gate   until dot_general
 *
 * A value that is computed over an operand takes that operand's place, so that bytes are counted once. Values
 * alike, of one type, made by one kind of operation and last used by one kind, are one row.
 */
#ifndef CVN_SIM_PEAK_H
#define CVN_SIM_PEAK_H

#include "base/strbuf.h"
#include "compile/plan.h"

typedef struct PeakRow {
    const char *of; /* its name, or that of the weight it was made from, less the layer; or "" */
    cvn_type type;  /* on one device */
    const char *made, *end; /* kinds of operation: that made it, and that needs it last */
    int first, last;        /* steps, of the first of them: when it is made and needed last */
    int64_t count;
    double bytes; /* of all of them */
} PeakRow;

typedef struct Peak {
    int step;        /* where most is alive */
    const char *at;  /* kind of its operation */
    double bytes;    /* alive there */
    double gathered; /* most bytes of weights alive at a time, here or elsewhere, that are gathered
                        from other devices */
    PeakRow *row;    /* [n], largest first */
    int n;
} Peak;

/* Strings and rows go into `arena`. */
void peak_find(const Plan *plan, Arena *arena, Peak *peak);

#endif
