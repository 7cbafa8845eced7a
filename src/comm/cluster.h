/*
 * The processes ("ranks") of a mesh that spans several, as mpirun or srun started them: who they
 * are, that they agree, and that all end when one of them does.
 *
 * A thread of each rank, the watchdog, tells rank 0 twice a second that it lives and how far it is,
 * and rank 0 tells them. A rank that is not heard of for `timeout` seconds, fails, or dies is
 * reported once, in a sentence with its number, machine and step, on rank 0 (or on rank 1 when it
 * is rank 0 that is gone); the callback `lost` then ends the process, and with cluster_abort all
 * others. Nothing here listens on a socket: all goes through the Transport.
 *
 * NULL is a process alone: rank 0 of 1, which agrees with itself. Functions that take it say so.
 */
#ifndef CVN_COMM_CLUSTER_H
#define CVN_COMM_CLUSTER_H

#include "comm/comm.h"
#include "comm/transport.h"

#include <signal.h>

typedef struct cvn_cluster Cluster;

typedef struct ClusterOptions {
    double timeout; /* seconds without a sign of life; 0: 20 */
    /* What must be the same on all ranks, in words: the version, the command. */
    const char *settings;
    /* Called on the watchdog's thread, at most once: another rank is
       lost, or told us to end. `speaks` says that it is this rank that
       tells the user. Should not return to normal work: cluster_abort. */
    void (*lost)(void *context, Cluster *cluster, const cvn_err *err, bool speaks);
    void *context;
    /* Set by a handler of SIGTERM: launchers send it when a rank has died. */
    const volatile sig_atomic_t *ending;
} ClusterOptions;

/* Joins the other ranks and compares the settings. On an
   error all ranks have it, with the same sentence. */
int cluster_open(const ClusterOptions *options, Cluster **out, cvn_err *err);

/* NULL is allowed for rank and size. */
int cluster_rank(const Cluster *cluster);
int cluster_size(const Cluster *cluster);
Transport *cluster_transport(const Cluster *cluster);
const char *cluster_host(const Cluster *cluster, int rank);

/* What failures are to say about this rank's progress (NULL is allowed); and the Comm whose devices
   shall stop waiting when one comes (may be NULL). */
void cluster_set_step(Cluster *cluster, int64_t step);
void cluster_set_comm(Cluster *cluster, Comm *comm);
/* Messages that are no collectives of a Comm are under way, one kind more or less: they are moved along more often while there are. */
void cluster_exchanging(Cluster *cluster, bool more);

/* The four that follow may be given NULL.

   Called by all ranks, in the same order: fails on all of them, with the same sentence, when `hash`
   is not what it is on rank 0. `what` is a noun in words: "the training data". */
int cluster_agree(Cluster *cluster, const char *what, uint64_t hash, cvn_err *err);

/* What is gathered for different ends, by different
   threads, goes its own way: one thread each at a time. */
typedef enum ClusterChannel { CLUSTER_STEPS, CLUSTER_SAVES, CLUSTER_AGREES } ClusterChannel;

/* Called by all ranks, in the same order on a channel: every one gets the blocks of all, all
   [n_ranks * bytes], in the order of ranks. Waits for all of them. */
int cluster_gather(Cluster *cluster, ClusterChannel channel, const void *own, void *all,
                   size_t bytes, cvn_err *err);

/* The same error on all ranks, where any has one: that of the first, in *err of all. Returns its
   code. `code` and *err are this rank's. */
int cluster_together(Cluster *cluster, ClusterChannel channel, int code, cvn_err *err);

/* Called by all ranks, in the same order: what rank
   0 has in `data` is on all of them afterwards. */
int cluster_share(Cluster *cluster, void *data, size_t bytes, cvn_err *err);

/* The ranks first … first + n - 1 as a cluster of their own, of which this one is a member: numbered from 0, for the devices of a part of
   the mesh. The whole cluster still watches them. */
int cluster_part(Cluster *whole, int first, int n, Cluster **out, cvn_err *err);
/* NULL is allowed. */
void cluster_part_free(Cluster *part);

/* True the first time in this process: whoever has
   an error to tell asks, so that it is told once. */
bool cluster_claim(Cluster *cluster);

/* This rank cannot go on: rank 0 is told, which ends everything. Returns true on the one rank that
   should tell the user, with its own words. The caller then calls cluster_abort. */
bool cluster_fail(Cluster *cluster, const cvn_err *err);

/* Ends all ranks now. Does not return. */
void cluster_abort(Cluster *cluster, int status) __attribute__((noreturn));

/* Waits for the others to be done too, and leaves. NULL is allowed. */
void cluster_close(Cluster *cluster);

#endif
