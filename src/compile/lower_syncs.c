/*
 * Where threads must meet. Walking the steps, what has been read and written since the last sync is
 * remembered; a step that would read what was written, or write what was read or written, gets a sync before
 * it, and the memory starts anew.
 *
 * Operands and results of one step may overlap (in place): that is the kernel's own affair.
 */
#include "compile/lower.h"

/* A place that a step since the last sync touched. */
typedef struct Touch {
    BufferRef ref;
    bool write;
    bool single; /* by thread 0 alone */
} Touch;

typedef struct Touched {
    Touch *touch; /* [n] */
    int n;
} Touched;

static bool conflicts(const Touched *since, const BufferRef *ref, bool write, bool single)
{
    for (int i = 0; i < since->n; i++) {
        const Touch *touch = &since->touch[i];
        if ((write || touch->write) && !(single && touch->single) && ref_overlap(&touch->ref, ref))
            return true;
    }
    return false;
}

static bool step_conflicts(const Touched *since, const Step *step)
{
    for (int i = 0; i < step->op->n_operands; i++)
        if (conflicts(since, &step->in[i], false, step->single))
            return true;
    for (int i = 0; i < step->op->n_results; i++)
        if (conflicts(since, &step->out[i], true, step->single))
            return true;
    return conflicts(since, &step->scratch, true, step->single);
}

static void add(Touched *since, const BufferRef *ref, bool write, bool single)
{
    if (ref->bytes && ref->space != SPACE_CONSTANT)
        since->touch[since->n++] = (Touch){*ref, write, single};
}

void lower_syncs(Plan *plan, Arena *scratch)
{
    Touched since = {.touch = arena_array(scratch, (size_t)plan->n_refs + 1, sizeof *since.touch)};
    plan->n_syncs = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        Step *step = &plan->step[i];
        step->sync = step_conflicts(&since, step);
        if (step->sync) {
            since.n = 0;
            plan->n_syncs++;
        }
        for (int k = 0; k < step->op->n_operands; k++)
            add(&since, &step->in[k], false, step->single);
        for (int k = 0; k < step->op->n_results; k++)
            add(&since, &step->out[k], true, step->single);
        add(&since, &step->scratch, true, step->single);
    }
}
