/*
 * A device: some threads, a backend's kernels, and one arena that all plans run on it share, one at a time.
 *
 * The arena is address space until it is touched. It grows to the largest plan that has run; between runs its
 * contents are nobody's, except the outputs of the last run, which stay until the next one.
 *
 * In a run (executor.c) every thread of the device walks the whole plan and does its part of each step; they meet only where the
 * plan says sync. Nothing is allocated, chosen or searched on the way.
 *
 * The devices of this process that run one plan together, as they would on a mesh, are a group (group.c): each has its own
 * threads, arena and parameters, and they meet in the plan's collectives, through a Comm, which also reaches the devices of other
 * processes where there are any.
 *
 *     Comm *comm = comm_new(4, NULL, &err);                     four devices, all here
 *     DeviceGroup *group = group_new(comm, 1, NULL, &err);      one thread each
 *     group_run(group, plan, parameters, outputs, &err);        parameters[d * plan->n_parameters + i]
 */
#ifndef CVN_CPU_DEVICE_H
#define CVN_CPU_DEVICE_H

#include "base/threads.h"
#include "comm/comm.h"
#include "compile/plan.h"
#include "cpu/pace.h"

typedef struct Profile Profile; /* cpu/profile.h */

enum { DEVICE_PACES = 64 };

/* How many threads a plan runs on. */
typedef struct PlanPace {
    const Plan *plan; /* compared, never followed; NULL: free */
    Pace pace;
} PlanPace;

/* What was found out about a plan and its parameters, so that the next run with them need not. */
typedef struct CheckedPlan {
    const Plan *plan; /* compared, never followed */
    int64_t made;     /* Plan.made of that */
    void **parameter; /* owned: [n] parameters that were found good for it */
    size_t n;
    void **pointer; /* owned: [n_pointers] its places as addresses */
    size_t n_pointers;
    /* Where the arena lay when `pointer` was filled; NULL: it is not. */
    const char *resolved_arena;
} CheckedPlan;

/* A helper thread that may still be writing one parameter of the plan that runs (base/helper.h). */
typedef struct PendingParameter {
    struct HelperThread *by; /* borrowed, or NULL */
    int index;
} PendingParameter;

/* Other devices that take part in runs. */
typedef struct DeviceLinks {
    Comm *comm;  /* borrowed: what connects it with them, or NULL: it is alone */
    int index;   /* its number there */
    bool agrees; /* other processes take part: all devices agree before a run is ended … */
    double agree_seconds; /* … and ask each other about so often, which costs a small all_reduce */
} DeviceLinks;

typedef struct Device {
    const KernelSet *backend; /* borrowed */
    Pool *pool;               /* owned */
    char *arena;              /* owned mapping of arena_bytes, page aligned; never NULL */
    size_t arena_bytes;
    CheckedPlan checked;
    KernelTail *tail;            /* owned: [threads] */
    uint64_t turn;               /* of the last step that ran */
    PlanPace pace[DEVICE_PACES]; /* by a hash of the plan's address; the last to come stays */
    DeviceLinks links;
    Profile *profile; /* borrowed: where runs are recorded, or NULL */
    PendingParameter pending;
    const volatile int *interrupt; /* borrowed: nonzero ends the run, and stops the next; or NULL */
} Device;

/* n_threads = 0 takes what the machine allows; backend NULL takes the best of this machine. */
Device *device_new(int n_threads, const KernelSet *backend, cvn_err *err);
void device_free(Device *device);

int device_threads(const Device *device);

/* The pace of a plan's runs on this device. */
Pace *device_pace(Device *device, const Plan *plan);

/* Makes the arena at least this large. Its address changes when it grows, so outputs of the last run are
   lost; who wants one address from the start asks for the largest plan's bytes first. */
int device_reserve(Device *device, size_t bytes, cvn_err *err);

/* Runs a plan that was made for this device's number of threads.
   parameters [plan->n_parameters]: where each lies, dense and packed, aligned for its element type; the plan
   reads them in place, and writes only those that it says are donated, which no other parameter may overlap.
   outputs [plan->n_outputs]: set to where each result lies, which is its parameter if it was declared to go into
   one; else it stays until the next run on this device. May be NULL.
   Fails before anything has run, with CVN_EINVAL for parameters that cannot be, with CVN_EMEM when the arena cannot
   grow; or with CVN_EINTERRUPTED when the device's interrupt flag is set before the run or while it lasts: the rest of the
   run is left out, within a step too where its kernel looks (kernel_cancelled), and what it writes (outputs, donated
   parameters) has no meaning. */
int executor_run(Device *device, const Plan *plan, void *const *parameters, void **outputs,
                 cvn_err *err);

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
