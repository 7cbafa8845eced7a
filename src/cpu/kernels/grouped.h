/*
 * Rows by group: what the kernels of grouped_dot, grouped_outer and grouped_linear begin with.
 *
 * Every thread sorts the slots by group for itself, by counting, which takes less time than a meeting would: stably, so that the
 * rows of a group are in one order, wherever they come from. Six slots, of four groups:
 *
 *     group    2 0 2 9 0 2        slot  1 4 0 2 5        active 0 2        first 0 2 5        (9 is no group: its result is 0)
 */
#ifndef CVN_CPU_KERNELS_GROUPED_H
#define CVN_CPU_KERNELS_GROUPED_H

#include "cpu/kernels/linear_loops.h"

typedef struct Groups {
    int64_t n, slots;            /* groups; slots of all rows */
    int64_t sorted;              /* slots that are of one of the groups */
    const int32_t *slot;         /* [sorted] by group */
    int64_t active;              /* groups that have slots */
    const int32_t *active_group; /* [active] */
    const int32_t *first;        /* [active + 1] the first sorted slot of each */
} Groups;

/* Bytes of scratch of one thread, and the groups of an operation's slots, sorted in it. */
size_t groups_bytes(const Op *op, int64_t n);
Groups groups_sort(const KernelArgs *args, int64_t n, void *scratch);

/* The next slot of this thread's share that is of no group, and whose sums are 0; -1: there is none. last: the one before, -1 at first. */
int64_t groups_none(const KernelArgs *args, int64_t n, int64_t last);

/* The next of n pieces of work, taken by whoever is free; -1: none is left. *last is the one taken before, -1 at first. */
int64_t groups_take(const KernelArgs *args, int64_t n, int64_t *last);

/* How many groups the weights of an operation are of. */
int64_t grouped_number(const Op *op);

/* Computes this thread's pieces of a grouped_linear, whose x is laid out by sorted slots. A function of linear.c fits the loops to
   the rows of a piece. */
void grouped_loops_run(LinearLoops *loops, const Groups *groups,
                       void (*fit)(LinearLoops *loops, int64_t rows));

#endif
