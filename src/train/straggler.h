/*
 * Stragglers: a rank that the others wait for.
 *
 * Ranks meet in every step, so its wall time is about the same in all of them. What tells them apart is how long a rank was busy,
 * that is, the step without the communication that nothing was done beside: who waits for another has little of it.
 *
 *     busy seconds of ranks 0 to 3:  0.50  0.52  0.91  0.51   ->   rank 2, 0.91, and 0.51 in the median of the others
 *
 * A step in which a rank is slower than the others by a quarter counts one for it, any other step one against it. At
 * STRAGGLER_STEPS it is worth a warning, once until nothing is counted for it any more.
 */
#ifndef CVN_TRAIN_STRAGGLER_H
#define CVN_TRAIN_STRAGGLER_H

#include <stdbool.h>

enum { STRAGGLER_STEPS = 20 };

typedef struct SlowestRank {
    int rank;
    double busy, others; /* seconds: its own, and the median of the other ranks */
} SlowestRank;

/* What was seen up to now; {0} at the beginning. */
typedef struct Straggler {
    int rank, count; /* who was slower by a quarter, and in how many steps more than it was not */
    bool warned;     /* of that rank */
} Straggler;

/* Finds the slowest of n >= 2 ranks by the seconds that each was busy; of equals, the first. The array is sorted by it. */
SlowestRank slowest_rank(double *busy, int n);

/* Takes a step. True when it is time to warn of `now`. */
bool straggler_add(Straggler *straggler, SlowestRank now);

#endif
