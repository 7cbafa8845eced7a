/*
 * When each value is needed, on the order in which operations run.
 *
 * A view (a reshape, a dense slice) has no memory of its own: it is some bytes of its root, the value that an
 * operation really computes, and a use of the view is a use of the root. So only roots have lifetimes:
 *
 *     step 0   %a = add …            a: written in 0, last read in 2 (through %b)
 *              %b = reshape %a       root a, offset 0; not a step
 *     step 1   %c = multiply …
 *     step 2   %d = add %b, %c
 */
#ifndef CVN_COMPILE_LIVENESS_H
#define CVN_COMPILE_LIVENESS_H

#include "compile/plan.h"

/* A value's own or borrowed memory. */
typedef struct Alias {
    cvn_value *root; /* the value itself, unless it is a view */
    size_t offset;   /* of the value in its root, in bytes */
} Alias;

/* Indexed by value id. What is said of roots is undefined for views. Lives in an arena, never freed alone. */
typedef struct Liveness {
    Op **step;        /* [n_steps] operations that do something, in order */
    StepPhase *phase; /* [n_steps] what of them: a split collective is two steps */
    int n_steps;
    Alias *alias; /* [n_values] */
    /* [n_values] of roots: the first step that writes it; -1: there before the first step. */
    int *def;
    /* [n_values] of roots: the step after which it is there; def, but for split collectives. */
    int *done;
    /* [n_values] of roots: the last step that reads it, n_steps for outputs; def when unused. */
    int *last;
} Liveness;

/* Constants up to this many bytes are kept with the plan; larger ones that hold one value everywhere are
   filled in by a step, so that they take memory only while they are needed. */
enum { CONSTANT_KEPT_BYTES = 1 << 20 };

/* True when the operation is a step of its own: not a parameter, a kept constant or a view, and with a
   result that has bytes. */
bool op_is_step(const Op *op);

void liveness_find(const cvn_graph *g, Arena *arena, Liveness *out);

/* True when v is the whole of its root. */
bool covers_root(const Liveness *live, const cvn_value *v);

#endif
