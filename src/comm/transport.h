/*
 * What carries bytes between processes: their number, and messages that are started now and end
 * later. Messages from one process to another that have the same tag arrive in the order in which
 * they were sent. Any thread may call any of these functions.
 *
 * Open MPI is behind this interface in an object of its own, libcaravan-mpi.so
 * (src/comm/mpi/plugin.c), so that the program runs where no MPI is installed, and so that the
 * handles of the MPI it was compiled for stay in there. Without MPI processes meet at an address (comm/tcp.c).
 */
#ifndef CVN_COMM_TRANSPORT_H
#define CVN_COMM_TRANSPORT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Transport Transport;

/* A message under way; {NULL} when there is none. */
typedef struct Transfer {
    void *request; /* the transport's */
} Transfer;

struct Transport {
    int rank, n_ranks;
    char host[64]; /* the name of this process's machine */
    /* Begin to send or receive; the memory is to be left alone until the transfer has ended.
       CVN_EINTERRUPTED when another thread is in the transport and does not come back: try again,
       or see whether the others live. */
    int (*send)(Transport *t, int to, int tag, const void *data, size_t bytes, Transfer *transfer,
                cvn_err *err);
    int (*receive)(Transport *t, int from, int tag, void *data, size_t bytes, Transfer *transfer,
                   cvn_err *err);
    /* Sets *done when all n transfers have ended, and them to {NULL}. Moves everything along. */
    int (*test)(Transport *t, Transfer *transfer, int n, bool *done, cvn_err *err);
    /* Leaves the other processes, in agreement with them, and frees the transport. */
    void (*close)(Transport *t);
    /* Ends all processes, this one too, with an exit status that is not 0. */
    void (*abort)(Transport *t, int status);
};

/* Tags of messages: those of collectives (comm/remote.c), those of channels (run/channel.h) above them, and those of the cluster
   (comm/cluster.c). */
enum { TAG_COLLECTIVE = 0, TAG_CHANNEL = 1 << 21, TAG_CLUSTER = 1 << 22 };

/* What a plug-in exports, under the name caravan_transport. */
enum { TRANSPORT_ABI = 3 };
typedef struct TransportPlugin {
    uint32_t abi; /* TRANSPORT_ABI of the headers it was compiled with */
    Transport *(*open)(cvn_err *err);
    void (*describe)(char *text, size_t size); /* "Open MPI v4.1.4", without joining anything */
} TransportPlugin;

/* True when a launcher (mpirun, srun) says, in the environment, that this process is one of several; or CARAVAN_COORDINATOR. */
bool transport_launched(void);

/* The number of this process as the environment has it, before it has joined the others; -1: it does not say. */
int transport_number(void);

/* Whether processes meet at CARAVAN_COORDINATOR (comm/tcp.c), for which no launcher is needed. */
bool transport_meets(void);

/* Joins the other processes: at CARAVAN_COORDINATOR, or else through the plug-in, which is looked for where CARAVAN_MPI says, beside
   the library and the program, in ../lib/caravan from there, and where the loader looks. Once per process. */
Transport *transport_open(cvn_err *err);

enum { TRANSPORT_MOST_RANKS = 4096 };

/* Joins n_ranks processes over TCP (tcp.c), of which this is number `rank`. address: "host:port", where rank 0 listens until all have
   come, for two minutes at most; NULL on an error. */
Transport *transport_tcp(const char *address, int rank, int n_ranks, cvn_err *err);

/* Whether there is a plug-in that could be loaded, for people to read: the name and version of its MPI and where it
   lies, or why there is none. */
bool transport_describe(char *text, size_t size);

/* As t->send or t->receive, tried again while the transport is busy, for at most `seconds`. */
int transport_begin(Transport *t, bool sends, int rank, int tag, void *data, size_t bytes,
                    Transfer *transfer, double seconds, cvn_err *err);

/* Waits for transfers, at most `seconds`; CVN_EIO when they have not ended by then. */
int transport_wait(Transport *t, Transfer *transfer, int n, double seconds, cvn_err *err);

#endif
