/*
 * A mesh and those of its devices that are in this process: what training and serving on several devices share.
 *
 *     mesh data=2,model=2, two processes:      rank 0 has the devices 0 and 1, rank 1 the devices 2 and 3
 *
 * A step's graph on whole shapes is marked by whoever knows what it means, cut here, compiled once, and run on all
 * devices by `group`.
 */
#ifndef CVN_CPU_MESH_DEVICES_H
#define CVN_CPU_MESH_DEVICES_H

#include "comm/cluster.h"
#include "cpu/group.h"
#include "shard/partition.h"

typedef struct MeshDevices {
    Mesh mesh;
    Cluster *cluster;   /* borrowed; NULL: all devices are here */
    Comm *comm;         /* owned; NULL: nothing is run */
    DeviceGroup *group; /* owned: the devices of this process */
    int n_local, first; /* how many these are, and the number of the first */
} MeshDevices;

/* spec: "data=2,model=2"; its order of devices goes into the arena. threads: per device, 0: this machine's, divided
   among them. With a cluster the devices are divided among its ranks, which must come out even. */
int mesh_devices_open(MeshDevices *m, const char *spec, Arena *arena, Cluster *cluster, int threads,
                      cvn_err *err);

/* A mesh of which nothing is run, to see how things would lie on it: n_local is all of it. */
int mesh_devices_describe(MeshDevices *m, const char *spec, Arena *arena, cvn_err *err);

/* The error of several processes that were given no mesh. */
int mesh_devices_missing(cvn_err *err);

/* Safe on {0}, and after a failure. */
void mesh_devices_close(MeshDevices *m);

/* The graph of one device from a marked one on whole shapes: checked, propagated, partitioned; what its collectives
   come to is told by the axes they run along. After a failure *local and *report are empty. */
int mesh_devices_cut(MeshDevices *m, const cvn_graph *g, cvn_graph **local, PartitionReport *report,
                     cvn_err *err);

/* Of a graph that was cut: the axes, a bit for each, by which a parameter is divided. */
uint32_t mesh_devices_used(const PartitionReport *report);
/* The first axis of more than one device that is not among them, whose devices all do the same; -1: there is none. */
int mesh_devices_idle(const MeshDevices *m, uint32_t used);

#endif
