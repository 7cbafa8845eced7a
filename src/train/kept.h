/*
 * What a stage of a model keeps of a micro-batch between its forward and its backward pass, which other micro-batches run between.
 *
 * Both are built together, as anywhere else, rematerialization too, and then cut: what the backward pass reads of the forward pass are
 * tensors of ROLE_KEPT, which one graph writes and the other one reads.
 *
 *     built together      x -> a -> b -> y     backward: reads a, b, c and x        c of the weights, or where documents begin
 *     TRAIN_FORWARD       x -> a -> b -> y     a, b are written
 *     TRAIN_GRADIENT                           backward: a, b are read, x is what entered, and c is made again
 *
 * Only what depends on the texts is kept; and of what is made of something smaller by a conversion or a change of shape, that.
 */
#ifndef CVN_TRAIN_KEPT_H
#define CVN_TRAIN_KEPT_H

#include "grad/remat.h"

/* Which policy of rematerialization a tensor of ROLE_KEPT is of, by its index. */
RematPolicy kept_policy(int index);

/* Cuts a graph in which the forward pass ends with `last`; text is the parameter that what is kept depends on. Of TRAIN_FORWARD what is kept
   becomes outputs, of the other graph parameters. */
int kept_cut(cvn_graph *g, const Op *last, const cvn_value *text, RematPolicy policy, bool forward,
             cvn_err *err);

#endif
