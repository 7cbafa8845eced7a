/* Size-descending best fit. Quadratic in the number of buffers, which is small. */
#include "compile/memory.h"

#include <assert.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static size_t rounded(size_t bytes)
{
    return (bytes + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
}

static int by_size(const void *left, const void *right)
{
    const Lifetime *a = *(Lifetime *const *)left, *b = *(Lifetime *const *)right;
    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    int steps_a = a->last - a->first, steps_b = b->last - b->first;
    if (steps_a != steps_b)
        return steps_a > steps_b ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* The offset of the smallest gap that fits `buffer` between those of placed[n], sorted by offset,
   that live at the same time. The space above them all counts as a gap of infinite size. */
static size_t best_gap(const Lifetime *buffer, Lifetime *const *placed, int n)
{
    size_t need = rounded(buffer->bytes);
    size_t top = 0; /* end of the space known to be taken so far */
    size_t best = 0, best_size = SIZE_MAX;
    for (int i = 0; i < n; i++) {
        const Lifetime *other = placed[i];
        if (other->last < buffer->first || buffer->last < other->first)
            continue;
        if (other->offset > top) {
            size_t gap = other->offset - top;
            if (gap >= need && gap < best_size) {
                best = top;
                best_size = gap;
            }
        }
        size_t end = other->offset + rounded(other->bytes);
        if (end > top)
            top = end;
    }
    return best_size == SIZE_MAX ? top : best;
}

/* Inserts into placed[n], which stays sorted by offset. */
static void insert(Lifetime **placed, int n, Lifetime *buffer)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (placed[middle]->offset <= buffer->offset)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(placed + low + 1, placed + low, (size_t)(n - low) * sizeof *placed);
    placed[low] = buffer;
}

typedef struct Change {
    int step;
    bool ends; /* at one step, what begins is counted before what ended the step before */
    size_t bytes;
} Change;

static int by_step(const void *left, const void *right)
{
    const Change *a = left, *b = right;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return (int)b->ends - (int)a->ends;
}

static size_t peak_alive(const Lifetime *buffer, int n, Change *change)
{
    for (int i = 0; i < n; i++) {
        size_t bytes = rounded(buffer[i].bytes);
        change[2 * i] = (Change){buffer[i].first, false, bytes};
        change[2 * i + 1] = (Change){buffer[i].last + 1, true, bytes};
    }
    qsort(change, (size_t)n * 2, sizeof *change, by_step);
    size_t alive = 0, peak = 0;
    for (int i = 0; i < 2 * n; i++) {
        if (change[i].ends)
            alive -= change[i].bytes;
        else
            alive += change[i].bytes;
        if (alive > peak)
            peak = alive;
    }
    return peak;
}

static int check_sum(const Lifetime *buffer, int n, cvn_err *err)
{
    size_t left = SIZE_MAX / 2;
    for (int i = 0; i < n; i++) {
        assert(buffer[i].first <= buffer[i].last && buffer[i].last < INT_MAX);
        if (buffer[i].bytes > left - MEMORY_ALIGN)
            return err_set(err, CVN_EMEM,
                           "the %d buffers of the plan do not fit an address space together", n);
        left -= rounded(buffer[i].bytes);
    }
    return CVN_OK;
}

int memory_plan(Lifetime *buffer, int n, MemoryPlan *out, cvn_err *err)
{
    *out = (MemoryPlan){0};
    if (n <= 0)
        return CVN_OK;
    int rc = check_sum(buffer, n, err);
    if (rc)
        return rc;
    Lifetime **order = malloc((size_t)n * sizeof *order);
    Lifetime **placed = malloc((size_t)n * sizeof *placed);
    Change *change = malloc((size_t)n * 2 * sizeof *change);
    if (!order || !placed || !change) {
        rc = err_set(err, CVN_EMEM, "no memory to plan %d buffers", n);
        goto done;
    }
    for (int i = 0; i < n; i++)
        order[i] = &buffer[i];
    qsort(order, (size_t)n, sizeof *order, by_size);
    int n_placed = 0;
    for (int i = 0; i < n; i++) {
        order[i]->offset = 0;
        if (order[i]->bytes == 0)
            break; /* and all after it are as empty */
        order[i]->offset = best_gap(order[i], placed, n_placed);
        size_t end = order[i]->offset + rounded(order[i]->bytes);
        if (end > out->total)
            out->total = end;
        insert(placed, n_placed++, order[i]);
    }
    for (int i = n_placed; i < n; i++)
        order[i]->offset = 0;
    out->lower_bound = peak_alive(buffer, n, change);
done:
    free(order);
    free(placed);
    free(change);
    return rc;
}
