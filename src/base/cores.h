/*
 * The processor cores that this process may use, and binding a thread to one of them.
 *
 * What counts as usable, narrowest first: the affinity mask (taskset, cpusets, mpirun --bind-to), of which the
 * threads of one core count once (hwloc knows which belong together; where Caravan is built without it, each
 * counts for itself), and no more than the quota of the control group (cpu.max of cgroup v2, cpu.cfs_quota_us
 * of v1), rounded up.
 *
 *     taskset -c 0-7, 4 cores of 2 threads, cpu.max 250000 100000       3 cores, 8 processors
 */
#ifndef CVN_BASE_CORES_H
#define CVN_BASE_CORES_H

#include <stdbool.h>

enum { CORES_MAX = 1024 };

typedef struct Cores {
    int n;            /* threads worth starting: usable cores, quota applied; 1 … CORES_MAX */
    int n_cores;      /* in the affinity mask; 1 … CORES_MAX */
    int n_processors; /* in the affinity mask, hardware threads counted one by one */
    int n_nodes;      /* NUMA nodes that these lie on; 1 where nobody knows */
    /* [n_cores] first processor of each core, as the system numbers them; cores of a NUMA node lie together.
       Meaningful when `known`. */
    int cpu[CORES_MAX];
    bool known; /* the topology could be read: threads can be bound */
} Cores;

/* Asks the system anew at each call; takes a few milliseconds. */
void cores_find(Cores *cores);

/* Only Cores.n, without the topology where the mask alone says it. */
int cores_usable(void);

/* Binds the calling thread to one processor. False where the system does not want to. */
bool cores_bind(int cpu);

/* Moves the calling thread to a processor, without changing where it may run afterwards: the scheduler has no
   reason to take it away again while the others are busy. Cheap when it is there already. */
void cores_visit(int cpu);

#endif
