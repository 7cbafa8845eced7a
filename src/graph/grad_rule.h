/*
 * What the gradients of operations are written with. grad_NAME (record.h) gets an operation of which at least one result
 * has a gradient; it builds the gradients of those operands that are wanted and gives each to
 * grad_give.
 */
#ifndef CVN_GRAPH_GRAD_RULE_H
#define CVN_GRAPH_GRAD_RULE_H

#include "graph/record.h"
#include "graph/steps.h"

typedef struct Grad {
    cvn_graph *g;
    cvn_value **gradient; /* [n_values] by id: the sum so far, or NULL */
    const bool *wanted;   /* [n_values] by id: depends on a value that the user asked for */
    /* [n_values] by id: of what is made of values asked for alone (grad.c says how), the one of the widest type of these;
       or NULL. */
    const cvn_value **weight;
    uint32_t n_values; /* of the forward pass */
} Grad;

/* Must operand i get a gradient? */
static inline bool grad_wants(const Grad *d, const Op *op, int i)
{
    return d->wanted[op->operand[i]->id];
}

/* The gradient of result i; zeros where the loss does not depend on it. */
cvn_value *grad_of(Grad *d, const Op *op, int i);

/* Adds v, of the operand's type, to the gradient of operand i, if it is wanted. */
void grad_give(Grad *d, const Op *op, int i, cvn_value *v);

/* Refuses: "<operation> has no gradient <why>". */
void grad_refuse(Grad *d, const Op *op, const char *why);

/* The sum of all elements. */
cvn_value *grad_sum_all(cvn_graph *g, cvn_value *x);

/* Undoes a reduction: v, which lacks the dimensions `reduced`, repeated along them to this shape (in
   v's own dtype). */
cvn_value *grad_repeat(cvn_graph *g, cvn_value *v, const cvn_type *shape, const Ints *reduced);

/* x transposed so that dimension place[i] of the result is dimension i of x; x itself where nothing
   moves. */
cvn_value *grad_place(cvn_graph *g, cvn_value *x, const int *place);

/* Elements of x at the places that a scatter with op's dimension numbers and indices would write to,
   in the type of its updates; 0 where a place is outside. op is a SCATTER of x's shape. */
cvn_value *grad_gather_updates(cvn_graph *g, const Op *op, cvn_value *x);

#endif
