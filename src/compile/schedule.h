/*
 * When collectives start and end: communication behind computation.
 *
 * What is computed stays in the order of the graph. A collective is split in two steps, its start and its end, and
 * these are moved apart, so that what lies between them is computed while bytes travel:
 *
 *     w1 = all_gather shard1                       w1 = all_gather shard1
 *     y1 = dot x, w1                               start w2 = all_gather shard2
 *     w2 = all_gather shard2            becomes    y1 = dot x, w1
 *     y2 = dot y1, w2                              done w2
 *                                                  y2 = dot y1, w2
 *
 * Two kinds are told apart by where their operand comes from. One that is there long before (a weight to gather) is
 * started just in time: as late as its bytes, on a link that carries one collective after the other, would be there
 * when they are needed, and it ends before its first use. One whose operand was just computed (a gradient to
 * reduce) starts at once, and ends when its bytes should be there: what it reads may then be forgotten.
 *
 * Times are estimates, of constants, the shapes and `link`: the same on every device, because all devices must start
 * the same collectives in the same order.
 */
#ifndef CVN_COMPILE_SCHEDULE_H
#define CVN_COMPILE_SCHEDULE_H

#include "compile/kernel.h"

/* Between two devices. */
typedef struct Link {
    double latency;   /* seconds */
    double bandwidth; /* bytes a second, each way */
} Link;

typedef struct ScheduleOptions {
    Link link;           /* zeros: a network of 50 us and 2 GB/s */
    size_t memory_limit; /* bytes; 0: none is given */
} ScheduleOptions;

/* Collectives that a device may have under way: the k-th to start, only once the one this many before it is done. */
enum { COLLECTIVES_IN_FLIGHT = 16 };

/* What the order of a graph's steps is estimated to cost. */
typedef struct ScheduleCost {
    double compute; /* seconds of computing */
    double link;    /* seconds that the link is busy, and latencies */
    double exposed; /* of these, that the device has nothing to compute */
    double peak;    /* most bytes alive, outputs and temporaries, rounded as nothing is */
} ScheduleCost;

ScheduleCost schedule_cost(const cvn_graph *g, Link link);

/* Splits the collectives of g that `backend` can split, and reorders. Where the peak would exceed the old one by more
   than an eighth and two of the largest collectives, or the memory limit, less is fetched ahead, at last nothing.
   Fails with CVN_EMEM. */
int schedule_graph(cvn_graph *g, const Backend *backend, const ScheduleOptions *options,
                   cvn_err *err);

#endif
