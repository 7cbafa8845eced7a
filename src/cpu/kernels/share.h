/*
 * Which panels of a product a thread computes. Cores are not equally fast, and neighbours disturb one of them only: so the first
 * half of a thread's share is its own, and the other half is taken in pieces, a sixteenth of the share each, by whoever is done:
 *
 *     thread 0    0 1 2 3 4 5 6 7 | 8 9 . . . . . .
 *     thread 1                      . . . . . . . .    0 1 2 3 4 5 6 7 | 8 9 …      . : left to all
 *
 * A core of a third of the others' speed holds up nobody then. Pieces are neighbours of what their owner read last, and who is
 * not disturbed takes all of his own, so that weights stay with the thread that wrote them first (graph/panels.h).
 */
#ifndef CVN_CPU_KERNELS_SHARE_H
#define CVN_CPU_KERNELS_SHARE_H

#include "compile/kernel.h"

enum { SHARE_PANELS = 4 }; /* of a piece, or a multiple: so many are computed at a time */

typedef struct Share {
    const KernelArgs *args;
    int64_t jobs; /* panels of all threads */
    /* how often panels were shared out in this step before; between two times all threads meet */
    int64_t round;
    bool divided; /* whether half of it is left to all */
    int asked;    /* threads whose half was found taken; -1: the share itself has yet to come */
} Share;

Share share_of(const KernelArgs *args, int64_t jobs, bool divided, int64_t round);

/* The next panels [*begin, *end), maybe none; false: there are no more. */
bool share_next(Share *share, int64_t *begin, int64_t *end);

#endif
