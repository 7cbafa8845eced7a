#include "cpu/kernels/share.h"

#include "graph/panels.h"

Share share_of(const KernelArgs *args, int64_t jobs, bool divided, int64_t round)
{
    return (Share){args, jobs, round, divided && args->tail && args->n_threads > 1, -1};
}

/* How a share is divided: so many pieces of so many panels are left to all. */
static int64_t pieces_of(int64_t panels, int64_t *size)
{
    enum { LEFT = 2, PIECES = 8 };
    *size = panels / LEFT / PIECES / SHARE_PANELS * SHARE_PANELS;
    *size = *size < SHARE_PANELS ? SHARE_PANELS : *size;
    return panels / LEFT / *size;
}

bool share_next(Share *share, int64_t *begin, int64_t *end)
{
    const KernelArgs *args = share->args;
    int n = args->n_threads, first = share->asked < 0;
    for (share->asked += first; share->asked < n; share->asked++) {
        int owner = (args->thread + share->asked) % n;
        panel_share(share->jobs, owner, n, begin, end);
        int64_t size = 0, piece = -1;
        int64_t pieces = share->divided ? pieces_of(*end - *begin, &size) : 0;
        int64_t left = *end - pieces * size, before = share->round * pieces;
        if (first) {
            *end = left;
            return true;
        }
        if (pieces)
            piece = kernel_take(args, owner, before + pieces);
        if (piece >= 0) {
            *begin = left + (piece - before) * size;
            *end = *begin + size;
            return true;
        }
    }
    return false;
}
