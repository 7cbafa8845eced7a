/* Best fit in a few orders. Quadratic in the number of buffers, which is small. */
#include "compile/memory.h"

#include "base/num.h"

#include <assert.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static size_t rounded(size_t bytes)
{
    return num_padded(bytes, MEMORY_ALIGN);
}

/* Bytes, both multiplied, or steps: what is hardest to place goes first, and there is more than one way to be
   hard. Ties fall to the longer lifetime, then to the earlier buffer. */
typedef enum Order { BY_BYTES, BY_AREA, BY_STEPS, ORDERS } Order;

static double weight_of(const Lifetime *buffer, Order order)
{
    double steps = (double)(buffer->last - buffer->first) + 1, bytes = (double)buffer->bytes;
    return order == BY_BYTES ? bytes : order == BY_AREA ? bytes * steps : buffer->bytes ? steps : 0;
}

/* A buffer with its weight in the order being tried. */
typedef struct Item {
    Lifetime *buffer;
    double weight;
} Item;

static int by_weight(const void *left, const void *right)
{
    const Item *a = left, *b = right;
    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    int steps_a = a->buffer->last - a->buffer->first, steps_b = b->buffer->last - b->buffer->first;
    if (steps_a != steps_b)
        return steps_a > steps_b ? -1 : 1;
    return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
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

/* Memory for one attempt at placing n buffers. */
typedef struct Work {
    Item *item;        /* [n] in the order being tried */
    Lifetime **placed; /* [n] sorted by offset */
} Work;

/* Places all buffers in one order; returns the size of the arena. */
static size_t attempt(Lifetime *buffer, int n, Order order, const Work *work)
{
    size_t total = 0;
    for (int i = 0; i < n; i++)
        work->item[i] = (Item){&buffer[i], weight_of(&buffer[i], order)};
    qsort(work->item, (size_t)n, sizeof *work->item, by_weight);
    int n_placed = 0;
    for (int i = 0; i < n; i++) {
        Lifetime *next = work->item[i].buffer;
        next->offset = 0;
        if (next->bytes == 0)
            continue;
        next->offset = best_gap(next, work->placed, n_placed);
        int at = n_placed++; /* they stay sorted; of those with one offset it is the last */
        for (; at > 0 && work->placed[at - 1]->offset > next->offset; at--)
            work->placed[at] = work->placed[at - 1];
        work->placed[at] = next;
        size_t end = next->offset + rounded(next->bytes);
        total = end > total ? end : total;
    }
    return total;
}

int memory_plan(Lifetime *buffer, int n, MemoryPlan *out, cvn_err *err)
{
    *out = (MemoryPlan){0};
    if (n <= 0)
        return CVN_OK;
    size_t left = SIZE_MAX / 2;
    for (int i = 0; i < n; i++) {
        assert(buffer[i].first <= buffer[i].last && buffer[i].last < INT_MAX);
        if (buffer[i].bytes > left - MEMORY_ALIGN)
            return err_set(err, CVN_EMEM,
                           "the %d buffers of the plan do not fit an address space together", n);
        left -= rounded(buffer[i].bytes);
    }
    SCOPED(scoped_free) Item *item = malloc((size_t)n * sizeof *item);
    SCOPED(scoped_free) Lifetime **placed = malloc((size_t)n * sizeof *placed);
    SCOPED(scoped_free) Change *change = malloc((size_t)n * 2 * sizeof *change);
    SCOPED(scoped_free) size_t *best = malloc((size_t)n * sizeof *best);
    if (!item || !placed || !change || !best)
        return err_set(err, CVN_EMEM, "no memory to plan %d buffers", n);
    out->lower_bound = peak_alive(buffer, n, change);
    out->total = SIZE_MAX;
    /* The orders until one reaches the bound; the best of them. */
    for (Order order = 0; order < ORDERS && out->total != out->lower_bound; order++) {
        size_t total = attempt(buffer, n, order, &(Work){item, placed});
        if (total >= out->total)
            continue;
        out->total = total;
        for (int i = 0; i < n; i++)
            best[i] = buffer[i].offset;
    }
    for (int i = 0; i < n; i++)
        buffer[i].offset = best[i];
    return CVN_OK;
}
