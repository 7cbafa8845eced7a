#include "comm/account.h"

#include "base/heap.h"
#include "comm/comm_impl.h"
#include "compile/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

static const struct CommName *find_name(const CommNames *names, const Ints *groups, int64_t size)
{
    for (int i = 0; i < names->n; i++) {
        const struct CommName *name = &names->name[i];
        if (name->n == groups->n && name->size == size &&
            memcmp(name->groups, groups->v, (size_t)groups->n * sizeof *groups->v) == 0)
            return name;
    }
    return NULL;
}

int comm_name_axes(Comm *comm, const Ints *groups, int64_t size, const char *axes, cvn_err *err)
{
    CommNames *names = &comm->names;
    if (groups->n == 0 || size == 0 || find_name(names, groups, size))
        return CVN_OK;
    size_t bytes = (size_t)groups->n * sizeof *groups->v;
    struct CommName *name = heap_more(names->name, (size_t)names->n, sizeof *name);
    names->name = name ? name : names->name;
    int64_t *copy = name ? malloc(bytes) : NULL;
    if (!copy)
        return err_set(err, CVN_EMEM, "no memory for the names of a mesh's axes");
    memcpy(copy, groups->v, bytes);
    name += names->n++;
    *name = (struct CommName){.groups = copy, .n = groups->n, .size = size};
    snprintf(name->axes, sizeof name->axes, "%s", axes);
    return CVN_OK;
}

/* ---- collectives ---- */

/* All that members in this process give. */
static bool is_there(Comm *comm, const Collective *e)
{
    for (int64_t j = 0; j < e->group.size; j++)
        if (comm_is_local(comm, e->group.member[j]) &&
            !milestone_reached(&comm_peer(comm, e, e->group.member[j])->started, e->number + 1))
            return false;
    return link_is_done(comm, e);
}

void account_look(Comm *comm, CommDevice *own)
{
    bool all = true;
    for (unsigned i = own->looked; i != own->next && !comm_failed(comm, NULL); i++) {
        Collective *e = &own->collective[i % COMM_IN_FLIGHT];
        bool seen = e->number != i || e->times.arrived >= 0; /* here, or by its end */
        if (!seen && comm->transport && !remote_is_done(comm, e))
            return; /* asking has let the transport work, and what was sent later comes later */
        if (!seen && is_there(comm, e)) {
            e->times.arrived = comm_now(comm, own);
            seen = true;
        }
        all = all && seen;
        own->looked += all;
    }
}

void account_add(const Comm *comm, CommDevice *own, const Collective *e, int64_t asked)
{
    const Op *op = e->op;
    const bool permutes = op->kind == OP_COLLECTIVE_PERMUTE;
    const struct CommName *name =
        permutes ? NULL : find_name(&comm->names, &op->attr.groups, op->attr.group_size);
    CommEvent event = {.op = op,
                       .axes = name ? name->axes : "_",
                       .bytes = op_ring_bytes(op),
                       .begun = e->times.begun,
                       .arrived = e->times.arrived,
                       .asked = asked,
                       .ended = comm_now(comm, own)};
    event.exposed = e->times.started_in + event.ended - asked;
    CommRow *row = comm_table_row(&own->account, op->kind, event.axes);
    row->count++;
    row->bytes += event.bytes;
    int64_t from = event.arrived > asked ? event.arrived : asked;
    row->seconds += (double)(event.arrived - event.begun + event.ended - from) * 1e-9;
    row->exposed += (double)event.exposed * 1e-9;
    if (own->watch)
        own->watch->ended(own->watch->context, &event);
}

void comm_watch(Comm *comm, int device, const CommWatch *watch)
{
    comm_device(comm, device)->watch = watch;
}

void comm_table(const Comm *comm, CommTable *out)
{
    *out = (CommTable){0};
    for (int d = 0; d < comm->n_local; d++)
        comm_table_add(out, &comm_device(comm, comm->first + d)->account);
    comm_table_divide(out, comm->n_local);
}
