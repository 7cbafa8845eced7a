/*
 * What operations cost, by estimates: of constants, the shapes and the link, the same on every device, because all
 * devices must start the same collectives in the same order.
 */
#ifndef CVN_COMPILE_SCHEDULE_COST_H
#define CVN_COMPILE_SCHEDULE_COST_H

#include "graph/graph.h"

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

#endif
