/*
 * What a Comm needs of whatever carries bytes between processes: the processes' number, and messages that are
 * started now and finished later. Messages between two processes with the same tag arrive in the order in which
 * they were sent. All functions but `test` and `wait` are called with the transport's own lock held inside, so any
 * thread may call any of them.
 */
#ifndef CVN_COMM_TRANSPORT_H
#define CVN_COMM_TRANSPORT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Transport Transport;

/* A message under way, or {0}. */
typedef struct Transfer {
    void *request; /* the transport's */
} Transfer;

struct Transport {
    int rank, n_ranks;
    /* Begin to send or receive; the memory is the transport's until the transfer has ended. */
    int (*send)(Transport *, int to, int tag, const void *data, size_t bytes, Transfer *,
                cvn_err *);
    int (*receive)(Transport *, int from, int tag, void *data, size_t bytes, Transfer *, cvn_err *);
    /* True when all of them have ended; moves them along. Ended ones become {0}. */
    int (*test)(Transport *, Transfer *, int n, bool *done, cvn_err *);
};

#endif
