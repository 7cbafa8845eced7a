/*
 * What the rules of differentiation share. A rule gets an operation of which at least one result
 * has a gradient; it builds the gradients of those operands that are wanted and gives each to
 * grad_add.
 */
#ifndef CVN_GRAD_RULE_H
#define CVN_GRAD_RULE_H

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

typedef void GradRule(Grad *d, const Op *op);

/* Must operand i get a gradient? */
static inline bool grad_wants(const Grad *d, const Op *op, int i)
{
    return d->wanted[op->operand[i]->id];
}

/* The gradient of result i; zeros where the loss does not depend on it. */
cvn_value *grad_of(Grad *d, const Op *op, int i);

/* Adds v, of the operand's type, to the gradient of operand i, if it is wanted. */
void grad_add(Grad *d, const Op *op, int i, cvn_value *v);

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

/* rule_element.c */
GradRule grad_negate, grad_abs, grad_exponential, grad_exponential_minus_one, grad_log,
    grad_log_plus_one, grad_sqrt, grad_rsqrt, grad_tanh, grad_logistic, grad_sine, grad_cosine,
    grad_convert;
GradRule grad_add_rule, grad_subtract, grad_multiply, grad_divide, grad_extremum, grad_power,
    grad_remainder, grad_select, grad_clamp;
/* rule_shape.c */
GradRule grad_broadcast_in_dim, grad_reshape, grad_transpose, grad_slice, grad_concatenate,
    grad_pad, grad_reverse, grad_barrier;
/* rule_index.c */
GradRule grad_dynamic_slice, grad_dynamic_update_slice, grad_gather, grad_scatter, grad_sort;
/* rule_reduce.c */
GradRule grad_reduce, grad_cumsum, grad_dot_general;
/* rule_collective.c */
GradRule grad_reducing_collective, grad_all_gather, grad_all_to_all, grad_collective_permute;
/* rule_composite.c */
GradRule grad_rms_norm, grad_rope, grad_attention, grad_cache_update, grad_softmax_cross_entropy,
    grad_keep_likeliest;

#endif
