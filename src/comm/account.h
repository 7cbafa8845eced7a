/*
 * What communication came to: for each kind of collective and the
 * axes that it ran along, how often, how many bytes, how long it was
 * under way, and for how long it kept its device from computing.
 *
 *     all_gather      data     9 times   1.1 MiB   in flight 0.8 ms   exposed 0.8 ms
 *     reduce_scatter  data     9 times   0.5 MiB   in flight 0.9 ms   exposed 0.9 ms
 *
 * Bytes are those that a device sends around a ring (op_ring_bytes), as
 * `caravan plan` counts them, not what a transport makes of it. A collective
 * has a start and an end, two calls between which a device computes:
 *
 *     start |===|.............................|=====| end
 *               in flight until it has arrived,        exposed: the two calls, that is sending,
 *               seen between two steps                 waiting for others, moving or adding up
 *                                                      what arrived
 *
 * In flight is the time from the start until all that the device needs has
 * arrived, and the end from there on. What is in flight and not exposed was
 * hidden behind computation; of a collective that is one step, nothing.
 */
#ifndef CVN_COMM_ACCOUNT_H
#define CVN_COMM_ACCOUNT_H

#include "comm/comm.h"
#include "comm/table.h"

/* From now on collectives in these groups (an operation's attribute: all
   groups, one after the other, of `size` members) are said to run along
   the axes; what was said first holds. No device may be running. */
int comm_name_axes(Comm *comm, const Ints *groups, int64_t size, const char *axes, cvn_err *err);

/* What collectives came to since the Comm was made: counts of one device, bytes and times as means
   over those of this process. No device may be running. */
void comm_table(const Comm *comm, CommTable *out);

/* One collective that has ended. Times in ns by the wall's clock, or by that of comm_set_clock. */
typedef struct CommEvent {
    const Op *op;     /* of the device's plan */
    const char *axes; /* the Comm's */
    double bytes;     /* that the device sends */
    int64_t begun;    /* when its start was called */
    int64_t arrived;  /* when all that it needs was seen to be there */
    int64_t asked;    /* when its end was called */
    int64_t ended;    /* when that returned */
    int64_t exposed;  /* ns in both calls */
} CommEvent;

/* Who wants to know of a device's collectives: called on its thread 0. */
typedef struct CommWatch {
    void (*ended)(void *context, const CommEvent *event);
    void *context;
} CommWatch;

/* Borrowed while it is set; NULL: nobody. The device may not be running. */
void comm_watch(Comm *comm, int device, const CommWatch *watch);

#endif
