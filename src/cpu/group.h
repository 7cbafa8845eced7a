/*
 * The devices of this process that run one plan together, as they would on a mesh: each has its own threads, arena
 * and parameters, and they meet in the plan's collectives, through a Comm, which also reaches the devices of other
 * processes where there are any.
 *
 *     Comm *comm = comm_new(4, NULL, &err);                     four devices, all here
 *     DeviceGroup *group = group_new(comm, 1, NULL, &err);      one thread each
 *     group_run(group, plan, parameters, outputs, &err);        parameters[d * plan->n_parameters + i]
 */
#ifndef CVN_CPU_GROUP_H
#define CVN_CPU_GROUP_H

#include "comm/comm.h"
#include "cpu/device.h"

typedef struct DeviceGroup {
    Comm *comm;          /* borrowed */
    Device **device;     /* owned [n]; the d-th has the number comm_first + d on the mesh */
    int n;               /* devices in this process */
    Pool *pool;          /* owned: a thread per device */
    const Plan *checked; /* found to fit the mesh; compared, never followed */
} DeviceGroup;

/* n_threads per device, 0: this machine's, divided among the devices, at least 1 each. The Comm is borrowed and
   used by nobody else. */
DeviceGroup *group_new(Comm *comm, int n_threads, const KernelSet *backend, cvn_err *err);
void group_free(DeviceGroup *group);

/* Runs the plan on all devices of this process. parameters [devices here * plan->n_parameters] and outputs [devices
   here * plan->n_outputs] (may be NULL) are device-major; otherwise as executor_run. Returns the first error of any
   device of the mesh, after all devices here have stopped. */
int group_run(DeviceGroup *group, const Plan *plan, void *const *parameters, void **outputs,
              cvn_err *err);

#endif
