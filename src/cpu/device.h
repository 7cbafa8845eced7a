/*
 * A device: some threads, a backend's kernels, and one arena that all plans run on it share, one at a time.
 *
 * The arena is address space until it is touched. It grows to the largest plan that has run; between runs its
 * contents are nobody's, except the outputs of the last run, which stay until the next one.
 */
#ifndef CVN_CPU_DEVICE_H
#define CVN_CPU_DEVICE_H

#include "base/threads.h"
#include "compile/plan.h"
#include "cpu/pace.h"

typedef struct Profile Profile; /* cpu/profile.h */

enum { DEVICE_PACES = 64 };

/* How many threads a plan runs on. */
typedef struct PlanPace {
    const Plan *plan; /* compared, never followed; NULL: free */
    Pace pace;
} PlanPace;

typedef struct Device {
    const KernelSet *backend; /* borrowed */
    Pool *pool;               /* owned */
    char *arena;              /* owned mapping of arena_bytes, page aligned; never NULL */
    size_t arena_bytes;
    void **pointer; /* owned: [n_pointers] the places of the plan that runs, as addresses */
    size_t n_pointers;
    void **checked; /* owned: [n_checked] parameters that were found good for checked_plan */
    size_t n_checked;
    const Plan *checked_plan; /* compared, never followed */
    int64_t checked_made;     /* Plan.made of that */
    /* Where the arena lay when `pointer` was filled for checked_plan; NULL: it is not. */
    const char *resolved_arena;
    KernelTail *tail;            /* owned: [threads] */
    uint64_t turn;               /* of the last step that ran */
    PlanPace pace[DEVICE_PACES]; /* by a hash of the plan's address; the last to come stays */
    Comm *comm;       /* borrowed: what connects it with other devices, or NULL: it is alone */
    int comm_index;   /* its number there */
    Profile *profile; /* borrowed: where runs are recorded, or NULL */
    struct Spare *
        late; /* borrowed: still writes a parameter of the plan that runs (base/spare.h); or NULL */
    int late_parameter;
    const volatile int *interrupt; /* borrowed: nonzero ends the run, and stops the next; or NULL */
    bool agrees; /* other processes take part in runs: all devices agree before one is ended … */
    double agree_seconds; /* … and ask each other about so often, which costs a small all_reduce */
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

#endif
