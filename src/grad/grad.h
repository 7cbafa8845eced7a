/*
 * Reverse-mode differentiation of a graph.
 *
 * graph_gradient walks the operations from the loss back to the first and, for each one that lies
 * between a value asked for and the loss, builds operations that turn the gradient of its result
 * into gradients of its operands. Everything is appended to the same graph, so that the forward and
 * the backward pass are simplified, sharded and planned together. An example, y = tanh(x w):
 *
 *     %0 = dot_general %x, %w            %dy = … , the gradient of y
 *     %y = tanh %0                       %2 = multiply %y, %y            rule of tanh
 *                                        %3 = subtract splat 1, %2
 *                                        %d0 = multiply %dy, %3
 *                                        %dx = dot_general %d0, %w       rule of dot_general
 *                                        %dw = dot_general %d0, %x
 *
 * The gradient of a value has its type: f32 for f32, bf16 for bf16. Where a value is used more than
 * once its gradients are added, those of later uses first; the order depends on the graph alone.
 *
 * Choices where mathematics leaves one:
 *   - maximum, minimum, and reductions by them: equal elements share the gradient equally;
 *   - clamp: x has the gradient where low <= x <= high; then low where x < low <= high; else high;
 *   - abs at 0, and power's base at 0 under an exponent of 0, its exponent at a base of 0: 0;
 *   - sign, floor, conversions to integers and comparisons are flat: their gradient is zero;
 *   - what goes through integers, bools and random bits has no gradient;
 *   - what is quantized on the way is no such choice: it is refused.
 *
 * A collective is differentiated as a linear map over all devices, with the loss being the sum of
 * the devices' losses.
 */
#ifndef CVN_GRAD_GRAD_H
#define CVN_GRAD_GRAD_H

#include "graph/graph.h"

/* Gradients of `loss`, a scalar of floats, with respect to n values of floats (parameters or
   others): grad_out[i] has the type of wrt[i], and is a splat of 0 where the loss does not depend
   on it. Fails, naming the operation, where one on the way cannot be differentiated; the graph then
   keeps the error. */
int graph_gradient(cvn_graph *g, cvn_value *loss, int n, cvn_value *const *wrt,
                   cvn_value **grad_out, cvn_err *err);

#endif
