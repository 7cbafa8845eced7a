/*
 * The order of steps: communication behind computation.
 *
 * A collective is split in two steps, its start and its end, and these are moved apart, so that what lies between
 * them is computed while bytes travel:
 *
 *     w1 = all_gather shard1                       w1 = all_gather shard1
 *     y1 = dot x, w1                               start w2 = all_gather shard2
 *     w2 = all_gather shard2            becomes    y1 = dot x, w1
 *     y2 = dot y1, w2                              done w2
 *                                                  y2 = dot y1, w2
 *
 * It is list scheduling on two machines, the device and its link. The link carries what is due first: a weight that
 * is used soon, a sum that is waited for, and behind these gradients, which nobody needs before the step ends. A
 * weight is fetched ahead only shortly before its use, and only so many bytes of them. The device computes in the
 * order of the graph, but where the next operation would wait for the link it takes a later one, and of those that
 * are ready the one with most communication behind it: the gradient that goes on to the next layer before that of
 * the weight, which is then computed while the sum of the first travels. How far it looks is a window of a few of
 * the longest operations, so that what is alive stays nearly what it was; where it does not, windows and bytes
 * fetched ahead get smaller until it does.
 *
 * Times are estimates, of constants, the shapes and `link`: the same on every device, because all devices must start
 * the same collectives in the same order.
 */
#ifndef CVN_COMPILE_SCHEDULE_H
#define CVN_COMPILE_SCHEDULE_H

#include "compile/kernel.h"

/* ---- what operations cost (schedule_cost.c) ---- */

/* Between two devices. */
typedef struct Link {
    double latency;   /* seconds */
    double bandwidth; /* bytes a second, each way */
} Link;

/* The given link, or the one that is assumed when there is none. */
Link link_or_default(Link link);

/* Seconds that a device computes an operation; 0 for collectives and what is no step. */
double compute_seconds(const Op *op);

/* Seconds that a collective takes on the link, without the latency. */
double link_seconds(const Op *op, Link link);

/* A collective that moves bytes between devices. */
bool op_is_exchange(const Op *op);

/* Most bytes of results alive, in the order of the graph. */
int graph_peak(const cvn_graph *g, double *peak, cvn_err *err);

/* ---- the order ---- */

/* Collectives that a device may have under way: the k-th to start, only once the one this many before it is done. */
enum { COLLECTIVES_IN_FLIGHT = 64 };

/* Splits the collectives of g that `backend` can split, and reorders. Where the peak would exceed the old one by more
   than an eighth and two of the largest collectives, less is fetched ahead, at last nothing. A link of zeros: a network of
   50 us and 2 GB/s. Fails with CVN_EMEM. */
int schedule_graph(cvn_graph *g, const KernelSet *backend, Link link, cvn_err *err);

#endif
