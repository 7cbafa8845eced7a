#include "train/straggler.h"

#include <stdlib.h>

static int by_size(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

SlowestRank slowest_rank(double *busy, int n)
{
    SlowestRank found = {.rank = 0};
    for (int i = 1; i < n; i++)
        if (busy[i] > busy[found.rank])
            found.rank = i;
    found.busy = busy[found.rank];
    qsort(busy, (size_t)n, sizeof *busy, by_size);
    int others = n - 1; /* all but the last */
    found.others = (busy[(others - 1) / 2] + busy[others / 2]) / 2;
    return found;
}

bool straggler_add(Straggler *straggler, SlowestRank now)
{
    bool slow = now.busy > 1.25 * now.others;
    if (straggler->count == 0)
        *straggler = (Straggler){.rank = now.rank};
    if (slow && straggler->rank == now.rank)
        straggler->count += straggler->count < STRAGGLER_STEPS;
    else
        straggler->count -= straggler->count > 0;
    bool due = straggler->count == STRAGGLER_STEPS && !straggler->warned;
    straggler->warned = straggler->warned || due;
    return due;
}
