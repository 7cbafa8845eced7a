/* A thread per device, each of which runs the plan on its own device with that device's threads. */
#include "cpu/device.h"

#include "graph/interp/interp.h"

#include <stdatomic.h>
#include <stdlib.h>

DeviceGroup *group_new(Comm *comm, int n_threads, const KernelSet *backend, cvn_err *err)
{
    DeviceGroup *group = calloc(1, sizeof *group);
    if (group)
        group->device = calloc((size_t)comm_local(comm), sizeof(Device *));
    if (!group || !group->device) {
        free(group);
        err_set(err, CVN_EMEM, "no memory for a group of devices");
        return NULL;
    }
    group->comm = comm;
    if (n_threads == 0) {
        n_threads = threads_available() / comm_local(comm);
        n_threads = n_threads < 1 ? 1 : n_threads;
    }
    Device *device;
    while (group->n < comm_local(comm) && (device = device_new(n_threads, backend, err))) {
        device->links.comm = comm_size(comm) > 1 ? comm : NULL;
        device->links.index = comm_first(comm) + group->n;
        device->links.agrees = comm_size(comm) > comm_local(comm);
        device->links.agree_seconds = 0.02;
        group->device[group->n++] = device;
    }
    group->pool = group->n == comm_local(comm) ? pool_new(group->n, err) : NULL;
    if (group->pool)
        return group;
    group_free(group);
    return NULL;
}

void group_free(DeviceGroup *group)
{
    if (!group)
        return;
    pool_free(group->pool);
    for (int d = 0; d < group->n; d++)
        device_free(group->device[d]);
    free(group->device);
    free(group);
}

typedef struct GroupRun {
    const DeviceGroup *group;
    const Plan *plan;
    void *const *parameters;
    void **outputs;
    atomic_bool interrupted; /* as all devices of all processes agreed: no failure */
} GroupRun;

/* On one thread per device. A device that cannot begin says so to the others, which may be waiting for it. */
static void run_device(void *context, int d, int n)
{
    GroupRun *run = context;
    Device *device = run->group->device[d];
    (void)n;
    cvn_err err = {0};
    void **outputs = run->outputs ? run->outputs + (size_t)d * (size_t)run->plan->n_outputs : NULL;
    int code =
        executor_run(device, run->plan,
                     run->parameters + (size_t)d * (size_t)run->plan->n_parameters, outputs, &err);
    if (code == CVN_EINTERRUPTED && device->links.agrees)
        atomic_store(&run->interrupted, true);
    else if (code)
        comm_fail(run->group->comm, &err);
}

int group_run(DeviceGroup *group, const Plan *plan, void *const *parameters, void **outputs,
              cvn_err *err)
{
    if (group->checked != plan) {
        TRY(interp_check_devices(plan->graph, comm_size(group->comm), err));
        group->checked = plan;
    }
    comm_reset(group->comm);
    GroupRun run = {.group = group, .plan = plan, .parameters = parameters, .outputs = outputs};
    pool_run(group->pool, run_device, &run);
    int code = comm_failed(group->comm, err);
    if (!code && atomic_load(&run.interrupted))
        code = err_set(err, CVN_EINTERRUPTED, "interrupted in a run of '%s'", plan->name);
    return code;
}
