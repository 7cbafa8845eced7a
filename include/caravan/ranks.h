/*
 * Meshes over several processes ("ranks"), which mpirun or srun started with the same program: they find each other, run the
 * same program on one mesh, and end together.
 *
 *     cvn_cluster *ranks;
 *     if (cvn_ranks_join(&(cvn_ranks_options){.settings = "my program"}, &ranks, &err)) …
 *     cvn_engine_options options = {.mesh = "data=2,model=2", .cluster = ranks};
 *     …
 *     cvn_ranks_leave(ranks);
 *
 * All ranks make the same calls of the library in the same order, and have the same results; each computes its share of the
 * devices. NULL is a process alone, rank 0 of 1. What talks to the other processes, libcaravan-mpi.so, is loaded when they
 * are joined: from the file that CARAVAN_MPI names, beside the library, beside the program, or where the loader looks. Without MPI
 * processes meet at CARAVAN_COORDINATOR, a host and a port, as number CARAVAN_PROCESS of CARAVAN_PROCESSES.
 */
#ifndef CARAVAN_RANKS_H
#define CARAVAN_RANKS_H

#include "caravan/error.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cvn_cluster cvn_cluster;

typedef struct cvn_ranks_options {
    /* What must be the same in all of them, such as the command line. The library's version and kernels are compared, too.
       Borrowed while they are joined; NULL: nothing else. */
    const char *settings;
    /* Called at most once, on a thread of the library, in the one process that is to tell the user that a rank was lost or
       failed. All processes are ended when it returns. NULL: they are ended without a word. */
    void (*lost)(void *context, const char *sentence);
    void *context;
    /* Set by a handler of SIGTERM, which launchers send when a rank has died, so that its loss is told; or NULL. */
    const volatile sig_atomic_t *ending;
} cvn_ranks_options;

/* Whether a launcher started this process as one of several. */
bool cvn_ranks_launched(void);

/* Joins the other processes, once; *out is NULL where this one is alone. CARAVAN_RANK_TIMEOUT: seconds without a sign of life
   until a rank is lost, 20 where it is not set. On an error all ranks have it. */
int cvn_ranks_join(const cvn_ranks_options *options, cvn_cluster **out, cvn_err *err);

int cvn_ranks_rank(const cvn_cluster *ranks);
int cvn_ranks_size(const cvn_cluster *ranks);

/* Called by all ranks: what rank 0 has in `data` is on all of them afterwards. */
int cvn_ranks_share(cvn_cluster *ranks, void *data, size_t bytes, cvn_err *err);

/* This rank cannot go on, and says why: all processes are ended with an exit status that is not 0. Returns where ranks is
   NULL only. The sentence is given to `lost` of the rank that is to tell the user. */
void cvn_ranks_fail(cvn_cluster *ranks, const char *sentence);

/* Waits until all ranks leave. Engines, meshes, programs and arrays that use them must have been freed, or are not used
   any more. */
void cvn_ranks_leave(cvn_cluster *ranks);

#ifdef __cplusplus
}
#endif
#endif
