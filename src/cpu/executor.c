/* Places become addresses once per run; then threads walk the steps. */
#include "cpu/device.h"

#include "base/helper.h"
#include "base/threads.h"
#include "comm/account.h"
#include "cpu/profile.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters ---- */

typedef struct Extent {
    uintptr_t begin, end;
    int parameter;
} Extent;

static int by_begin(const void *left, const void *right)
{
    const Extent *a = left, *b = right;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* Donated parameters are written: nothing else may lie there. */
static int check_overlap(const Plan *plan, void *const *parameters, cvn_err *err)
{
    SCOPED(scoped_free) Extent *extent = malloc(((size_t)plan->n_parameters + 1) * sizeof *extent);
    if (!extent)
        return err_set(err, CVN_EMEM, "no memory to run '%s'", plan->name);
    int n = 0;
    for (int i = 0; i < plan->n_parameters; i++) {
        uintptr_t begin = (uintptr_t)parameters[i];
        if (plan->parameter[i].bytes)
            extent[n++] = (Extent){begin, begin + plan->parameter[i].bytes, i};
    }
    qsort(extent, (size_t)n, sizeof *extent, by_begin);
    uintptr_t end = 0, donated_end = 0; /* of those before; of the donated ones among them */
    int last = 0, last_donated = 0;     /* the parameters that reach there */
    for (int i = 0; i < n; i++) {
        bool donated = plan->parameter[extent[i].parameter].donated;
        bool clash = donated ? extent[i].begin < end : extent[i].begin < donated_end;
        if (clash)
            return err_set(err, CVN_EINVAL,
                           "parameters '%s' and '%s' of '%s' overlap, and one of them is written",
                           plan->parameter[donated ? last : last_donated].name,
                           plan->parameter[extent[i].parameter].name, plan->name);
        if (extent[i].end > end) {
            end = extent[i].end;
            last = extent[i].parameter;
        }
        if (donated && extent[i].end > donated_end) {
            donated_end = extent[i].end;
            last_donated = extent[i].parameter;
        }
    }
    return CVN_OK;
}

/* Checks the parameters, unless they are the very ones of the last run. */
static int check_parameters(Device *device, const Plan *plan, void *const *parameters, cvn_err *err)
{
    size_t n = (size_t)plan->n_parameters;
    if (n == 0)
        return CVN_OK;
    if (device->checked.plan == plan && device->checked.made == plan->made &&
        device->checked.n == n &&
        memcmp(device->checked.parameter, parameters, n * sizeof *parameters) == 0)
        return CVN_OK;
    device->checked.plan = NULL;
    device->checked.resolved_arena = NULL;
    for (int i = 0; i < plan->n_parameters; i++) {
        const PlanParameter *parameter = &plan->parameter[i];
        int bits = cvn_dtype_bits(parameter->type.dtype);
        size_t align = bits < 8 ? 1 : (size_t)bits / 8;
        if (!parameters[i] && parameter->bytes)
            return err_set(err, CVN_EINVAL, "parameter '%s' of '%s' was not given", parameter->name,
                           plan->name);
        if ((uintptr_t)parameters[i] % align)
            return err_set(err, CVN_EINVAL,
                           "parameter '%s' of '%s' is not aligned to %zu bytes, as %s must be",
                           parameter->name, plan->name, align,
                           cvn_dtype_name(parameter->type.dtype));
    }
    TRY(check_overlap(plan, parameters, err));
    void **more = realloc(device->checked.parameter, n * sizeof *more);
    if (!more)
        return err_set(err, CVN_EMEM, "no memory to run '%s'", plan->name);
    memcpy(more, parameters, n * sizeof *more);
    device->checked.parameter = more;
    device->checked.n = n;
    device->checked.plan = plan;
    device->checked.made = plan->made;
    return CVN_OK;
}

/* ---- addresses ---- */

static void *address(const Device *device, const Plan *plan, void *const *parameters,
                     const BufferRef *ref)
{
    switch (ref->space) {
    case SPACE_PARAMETER:
        return ref->bytes ? (char *)parameters[ref->parameter] + ref->offset
                          : parameters[ref->parameter];
    case SPACE_CONSTANT:
        return (char *)(uintptr_t)plan->constants + ref->offset; /* kernels do not write operands */
    default:
        return device->arena + ref->offset;
    }
}

/* For each step: its operands, its results, its scratch. They are still there when the last run was of the same plan
   with the same parameters. */
static int resolve(Device *device, const Plan *plan, void *const *parameters, cvn_err *err)
{
    bool same = device->checked.plan == plan && device->checked.made == plan->made;
    if (same && device->checked.resolved_arena == device->arena)
        return CVN_OK;
    if ((size_t)plan->n_refs > device->checked.n_pointers) {
        void **more = realloc(device->checked.pointer, (size_t)plan->n_refs * sizeof *more);
        if (!more)
            return err_set(err, CVN_EMEM, "no memory to run '%s'", plan->name);
        device->checked.pointer = more;
        device->checked.n_pointers = (size_t)plan->n_refs;
    }
    void **to = device->checked.pointer;
    for (int i = 0; i < plan->n_steps; i++) {
        const Step *step = &plan->step[i];
        for (int k = 0; k < step->op->n_operands; k++)
            *to++ = address(device, plan, parameters, &step->in[k]);
        for (int k = 0; k < step->op->n_results; k++)
            *to++ = address(device, plan, parameters, &step->out[k]);
        *to++ = step->scratch.bytes ? address(device, plan, parameters, &step->scratch) : NULL;
    }
    device->checked.resolved_arena = same ? device->arena : NULL;
    return CVN_OK;
}

/* ---- the walk ---- */

typedef struct Run {
    Device *device;
    const Plan *plan;
    int first, last; /* steps [first, last) */
    int pending;     /* the first step that reads what another thread may still write; or -1 */
    void **at;       /* pointers of step `first` */
    uint64_t turn;   /* of step 0 */
    /* Thread 0 has seen that the run is cancelled: set before the threads meet, so that all of them leave out the same
       steps, but for shares of steps in which they do not meet, of which nothing is used. */
    atomic_bool stops;
    bool agrees; /* as the device's, while somebody watches */
} Run;

static void walk(void *context, int thread, int n_threads)
{
    Run *run = context;
    const Plan *plan = run->plan;
    const volatile int *cancelled = run->device->interrupt;
    Profile *profile = run->device->profile;
    Barrier *barrier = pool_barrier(run->device->pool);
    void **at = run->at;
    double since = run->device->links.agree_seconds;
    bool stops = false;
    for (int i = run->first; i < run->last; i++) {
        const Step *step = &plan->step[i];
        int n_in = step->op->n_operands, n_out = step->op->n_results;
        KernelArgs args = {.op = step->op,
                           .in = (const void *const *)at,
                           .out = at + n_in,
                           .scratch = at[n_in + n_out],
                           .barrier = barrier,
                           .thread = thread,
                           .n_threads = step->single ? 1 : n_threads,
                           .comm = run->device->links.comm,
                           .device = run->device->links.index,
                           .tail = run->device->tail,
                           .turn = run->turn + (uint64_t)i,
                           .cancelled = run->agrees ? NULL : cancelled,
                           .isa = step->isa};
        at += n_in + n_out + 1;
        if (i == run->pending)
            helper_wait(run->device->pending.by);
        int64_t ready = profile ? clock_ns() : 0;
        if (run->agrees && !stops && since >= run->device->links.agree_seconds) {
            args.n_threads = n_threads;
            stops = comm_any(&args, thread == 0 && flag_is_set(cancelled));
            args.n_threads = step->single ? 1 : n_threads;
            since = 0;
            if (stops && thread == 0)
                atomic_store_explicit(&run->stops, true, memory_order_relaxed);
        }
        /* About how long it takes, at rates that every machine reaches: the same on all devices. */
        since += step->flops / 5e10 + (double)step->bytes / 1e10;
        if (step->sync) {
            if (thread == 0 && !run->agrees && flag_is_set(cancelled))
                atomic_store_explicit(&run->stops, true, memory_order_relaxed);
            barrier_wait(barrier);
        }
        bool arrives = run->agrees && step->phase == STEP_DONE; /* from other processes */
        if (arrives && stops)
            barrier_wait(barrier);
        if (step->single && thread != 0)
            continue;
        stops = stops || atomic_load_explicit(&run->stops, memory_order_relaxed);
        if (stops && !(arrives && comm_is_open(args.comm, args.device, step->op)))
            continue;
        int64_t start = profile ? clock_ns() : 0;
        step->run(&args);
        if (thread == 0 && args.comm)
            comm_after_step(args.comm, args.device, step->op);
        if (profile)
            profile_add(profile, thread, plan, i, ready, start, clock_ns());
    }
}

int executor_run(Device *device, const Plan *plan, void *const *parameters, void **outputs,
                 cvn_err *err)
{
    bool agrees = device->links.agrees && device->interrupt;
    if (!agrees && flag_is_set(device->interrupt))
        return err_set(err, CVN_EINTERRUPTED, "interrupted before a run of '%s'", plan->name);
    if (plan->n_threads != device_threads(device))
        return err_set(err, CVN_EINVAL, "'%s' was compiled for %d threads, but the device has %d",
                       plan->name, plan->n_threads, device_threads(device));
    if (plan->n_devices > 1 && !device->links.comm)
        return err_set(err, CVN_EINVAL,
                       "'%s' runs on a mesh of %d devices, but this device is alone", plan->name,
                       plan->n_devices);
    TRY(check_parameters(device, plan, parameters, err));
    TRY(device_reserve(device, plan->arena_bytes, err));
    TRY(resolve(device, plan, parameters, err));
    if (device->links.comm)
        comm_watch(device->links.comm, device->links.index,
                   device->profile ? &device->profile->watch : NULL);
    Run run = {.device = device,
               .plan = plan,
               .last = plan->op_by_op ? 0 : plan->n_steps,
               .pending = -1,
               .at = device->checked.pointer,
               .turn = device->turn + 1,
               .agrees = agrees};
    for (int i = 0; device->pending.by && run.pending < 0 && i < plan->n_steps; i++)
        for (int k = 0; k < plan->step[i].op->n_operands; k++)
            if (plan->step[i].in[k].space == SPACE_PARAMETER &&
                plan->step[i].in[k].parameter == device->pending.index)
                run.pending = i;
    device->turn += (uint64_t)plan->n_steps;
    if (!plan->op_by_op) { /* the whole plan, on as many threads as make it faster */
        Pace *pace = device_pace(device, plan);
        int threads = pace_threads(pace);
        int64_t begin = clock_ns(), slept = pool_slept(device->pool);
        pool_run_on(device->pool, threads, walk, &run);
        if (!flag_is_set(device->interrupt)) /* a part of a run says nothing */
            pace_add(pace, clock_ns() - begin, (pool_slept(device->pool) - slept) / threads);
    }
    while (run.last < plan->n_steps) {
        run.first = run.last++;
        pool_run(device->pool, walk, &run);
        const Op *op = plan->step[run.first].op;
        run.at += op->n_operands + op->n_results + 1;
    }
    if (agrees ? atomic_load(&run.stops) : flag_is_set(device->interrupt))
        return err_set(err, CVN_EINTERRUPTED, "interrupted in a run of '%s'", plan->name);
    for (int i = 0; outputs && i < plan->n_outputs; i++)
        outputs[i] = address(device, plan, parameters, &plan->output[i].ref);
    return CVN_OK;
}
