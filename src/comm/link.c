/*
 * Links that are not there: for seeing on one machine what communication costs on many. Every
 * device has one link, which sends one collective after the other; what a collective needs is there
 * when the links of all its members have sent it, and a latency more. The clock is the wall's, and
 * then waiting is sleeping; or that of comm_set_clock, and then nobody sleeps and nothing depends
 * on how fast or how busy the machine is.
 */
#include "base/num.h"
#include "base/threads.h"
#include "comm/comm_impl.h"
#include "compile/plan.h"

#include <time.h>

int64_t comm_now(const Comm *comm, const CommDevice *own)
{
    return comm->clock ? own->clock : clock_ns();
}

double comm_seconds(const Comm *comm, int device)
{
    return (double)comm_device(comm, device)->clock * 1e-9;
}

void link_send(const Comm *comm, CommDevice *own, Collective *e)
{
    const Link link = comm->link;
    atomic_store(&e->times.leaves, 0);
    if (link.latency <= 0 && link.bandwidth <= 0)
        return;
    double bytes = e->group.size > 1 || e->group.target >= 0 ? op_ring_bytes(e->op) : 0;
    int64_t busy = link.bandwidth > 0 ? (int64_t)(bytes / link.bandwidth * 1e9) : 0;
    own->link_free = (num_max(own->link_free, e->times.begun)) + busy;
    atomic_store(&e->times.leaves, own->link_free);
}

/* By comm_now; 0 without links. All members here have started. */
static int64_t arrival(const Comm *comm, const Collective *e)
{
    int64_t until = 0;
    for (int64_t j = 0; j < e->group.size; j++)
        if (e->group.member[j] != e->id && comm_is_local(comm, e->group.member[j]))
            until =
                num_max(until, atomic_load(&comm_peer(comm, e, e->group.member[j])->times.leaves));
    return until ? until + (int64_t)(comm->link.latency * 1e9) : 0;
}

bool link_is_done(const Comm *comm, const Collective *e)
{
    int64_t until = arrival(comm, e);
    return until == 0 || comm_now(comm, comm_device(comm, e->id)) >= until;
}

int link_wait(Comm *comm, const Collective *e, cvn_err *err)
{
    CommDevice *own = comm_device(comm, e->id);
    int64_t until = arrival(comm, e);
    if (until == 0)
        return CVN_OK;
    if (comm->clock) {
        own->clock = num_max(own->clock, until);
        return CVN_OK;
    }
    for (int64_t left; (left = until - clock_ns()) > 0;) {
        if (comm_failed(comm, NULL))
            return comm_failed(comm, err);
        int64_t nap = num_min(left, 10000000);
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
    }
    return CVN_OK;
}
