/*
 * Where threads must meet. Walking the steps, what has been read and written since the last sync is
 * remembered; a step that would read what was written, or write what was read or written, gets a sync before
 * it, and the memory starts anew.
 *
 * Operands and results of one step may overlap (in place): that is the kernel's own affair.
 */
#include "compile/lower.h"

#include <string.h>

/* A place that a step since the last sync touched. */
typedef struct Touch {
    BufferRef ref;
    bool write;
    bool single; /* by thread 0 alone */
} Touch;

static bool conflict(const Touch *a, const Touch *b)
{
    return (a->write || b->write) && !(a->single && b->single) && ref_overlap(&a->ref, &b->ref);
}

static void add(Touch *touch, int *n, const BufferRef *ref, bool write, bool single)
{
    if (ref->bytes && ref->space != SPACE_CONSTANT)
        touch[(*n)++] = (Touch){*ref, write, single};
}

void lower_syncs(Plan *plan, Arena *scratch)
{
    /* Those since the last sync, [n], and behind them those of the step at hand. */
    Touch *touch = arena_array(scratch, (size_t)plan->n_refs + 1, sizeof *touch);
    int n = 0;
    plan->report.n_syncs = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        Step *step = &plan->step[i];
        int end = n;
        for (int k = 0; k < step->op->n_operands; k++)
            add(touch, &end, &step->in[k], false, step->single);
        for (int k = 0; k < step->op->n_results; k++)
            add(touch, &end, &step->out[k], true, step->single);
        add(touch, &end, &step->scratch, true, step->single);
        step->sync = false;
        for (int a = n; a < end && !step->sync; a++)
            for (int b = 0; b < n && !step->sync; b++)
                step->sync = conflict(&touch[a], &touch[b]);
        if (step->sync) {
            memmove(touch, touch + n, (size_t)(end - n) * sizeof *touch);
            plan->report.n_syncs++;
        }
        n = step->sync ? end - n : end;
    }
}
