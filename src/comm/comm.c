/* The devices of this process: where each of them is,
   waiting for each other, and failing together. */
#include "comm/comm_impl.h"

#include "base/threads.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    RANK_DEVICES_MAX = 64, /* of one process of several: what a tag has room for */
    SPINS = 4000,          /* looks before sleeping, where every device has a processor */
    SPINS_CROWDED = 20,    /* where not, who spins is in the way */
    LOOK_NS = 20000000     /* a sleeper looks this often whether the others have failed */
};

Comm *comm_new(int n_local, Transport *transport, cvn_err *err)
{
    int most = transport ? RANK_DEVICES_MAX : THREADS_MAX;
    if (n_local < 1 || n_local > most) {
        err_set(err, CVN_EINVAL, "%d devices per process were requested; give 1 to %d", n_local,
                most);
        return NULL;
    }
    int n_ranks = transport ? transport->n_ranks : 1, rank = transport ? transport->rank : 0;
    int size = n_local * n_ranks;
    size_t bytes = sizeof(CommDevice) * (size_t)n_local;
    Comm *comm = calloc(1, sizeof *comm);
    CommDevice *device = aligned_alloc(64, bytes);
    int64_t *member = calloc((size_t)size, sizeof *member);
    if (!comm || !device || !member) {
        free(comm);
        free(device);
        free(member);
        err_set(err, CVN_EMEM, "no memory for %d devices", n_local);
        return NULL;
    }
    memset(device, 0, bytes);
    comm->transport = transport;
    comm->size = size;
    comm->first = n_local * rank;
    comm->n_local = n_local;
    comm->device = device;
    comm->spins = n_local <= threads_available() ? SPINS : SPINS_CROWDED;
    pthread_mutex_init(&comm->lock, NULL);
    struct CommAny *any = &comm->any;
    for (int i = 0; i < size; i++)
        member[i] = i;
    any->member = member;
    any->value.type = (cvn_type){.dtype = CVN_I32, .rank = 1, .dim = {1}};
    any->values = &any->value;
    any->op =
        (Op){.kind = OP_ALL_REDUCE,
             .n_operands = 1,
             .n_results = 1,
             .operand = &any->values,
             .result = &any->values,
             .attr = {.groups = {.n = size, .v = member}, .group_size = size, .reduce = CVN_MAX}};
    return comm;
}

void comm_free(Comm *comm)
{
    if (!comm)
        return;
    for (int d = 0; d < comm->n_local; d++) {
        for (int i = 0; i < COMM_IN_FLIGHT; i++) {
            Collective *e = &comm->device[d].collective[i];
            free(e->source);
            free(e->remote.stage);
            free(e->remote.packed);
            free(e->remote.transfer);
        }
    }
    pthread_mutex_destroy(&comm->lock);
    for (int i = 0; i < comm->names.n; i++)
        free(comm->names.name[i].groups);
    free(comm->names.name);
    free(comm->any.member);
    free(comm->device);
    free(comm);
}

int comm_size(const Comm *comm)
{
    return comm->size;
}

int comm_first(const Comm *comm)
{
    return comm->first;
}

int comm_local(const Comm *comm)
{
    return comm->n_local;
}

CommDevice *comm_device(const Comm *comm, int64_t id)
{
    return &comm->device[id - comm->first];
}

bool comm_is_local(const Comm *comm, int64_t id)
{
    return id >= comm->first && id < comm->first + comm->n_local;
}

void comm_fail(Comm *comm, const cvn_err *err)
{
    pthread_mutex_lock(&comm->lock);
    if (!atomic_load(&comm->failed))
        comm->error = *err;
    atomic_store(&comm->failed, true);
    pthread_mutex_unlock(&comm->lock);
}

int comm_failed(const Comm *comm, cvn_err *err)
{
    if (!atomic_load(&comm->failed))
        return CVN_OK;
    Comm *locked = (Comm *)(uintptr_t)comm;
    pthread_mutex_lock(&locked->lock);
    int code = comm->error.code;
    if (err)
        *err = comm->error;
    pthread_mutex_unlock(&locked->lock);
    return code;
}

void comm_reset(Comm *comm)
{
    if (!atomic_load(&comm->failed) || comm->transport)
        return;
    for (int d = 0; d < comm->n_local; d++) {
        comm->device[d].next = comm->device[d].looked = 0;
        comm->device[d].clock = 0;
        if (comm->clock)
            comm->device[d].link_free = 0;
        atomic_store(&comm->device[d].open, 0);
        for (int i = 0; i < COMM_IN_FLIGHT; i++) {
            atomic_store(&comm->device[d].collective[i].started.value, 0);
            atomic_store(&comm->device[d].collective[i].finished.value, 0);
            comm->device[d].collective[i].open = false;
        }
    }
    comm->error = (cvn_err){0};
    atomic_store(&comm->failed, false);
}

void comm_set_link(Comm *comm, Link link)
{
    comm->link = link;
}

void comm_set_clock(Comm *comm, StepSeconds *seconds)
{
    comm->clock = seconds;
    for (int d = 0; d < comm->n_local; d++)
        comm->device[d].clock = comm->device[d].link_free = 0;
}

bool comm_busy(const Comm *comm)
{
    for (int d = 0; comm->transport && d < comm->n_local; d++)
        if (atomic_load(&comm->device[d].open))
            return true;
    return false;
}

/* ---- waiting ---- */

bool milestone_reached(Milestone *milestone, unsigned target)
{
    return (int)(atomic_load(&milestone->value) - target) >= 0;
}

bool milestone_wait(const Comm *comm, Milestone *milestone, unsigned target)
{
    for (unsigned i = 0; i < comm->spins; i++) {
        if (milestone_reached(milestone, target))
            return true;
        threads_relax();
    }
    /* The kernel compares the word with what we saw before it puts us to sleep, and who changes it
       looks for sleepers afterwards: no change is missed. */
    atomic_fetch_add(&milestone->sleepers, 1);
    for (;;) {
        unsigned seen = atomic_load(&milestone->value);
        bool there = (int)(seen - target) >= 0;
        if (there || atomic_load(&comm->failed)) {
            atomic_fetch_sub(&milestone->sleepers, 1);
            return there;
        }
        struct timespec look = {.tv_nsec = LOOK_NS};
        syscall(SYS_futex, &milestone->value, FUTEX_WAIT_PRIVATE, seen, &look, NULL, 0);
    }
}

void milestone_reach(Milestone *milestone, unsigned target)
{
    atomic_store(&milestone->value, target);
    if (atomic_load(&milestone->sleepers))
        syscall(SYS_futex, &milestone->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
