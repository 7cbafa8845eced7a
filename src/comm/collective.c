/*
 * The collective operations.
 *
 * A reduction is divided among the members of a group: member p reduces the p-th part of the
 * elements, over all members in order, with all its threads. An all_reduce then writes that part
 * into the results of all members of this process: each element is read and written by one thread
 * only, which is why its result may lie over its operand. Everything else is pulled: a member
 * copies what the others give it into its own result.
 */
#include "comm/comm_impl.h"

#include "base/num.h"
#include "graph/interp/interp.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- start ---- */

/* Finds the device's place in the operation. */
static void find_members(Collective *e, const Op *op, int device)
{
    const Ints *groups = &op->attr.groups;
    e->group.member = NULL;
    e->group.size = e->group.self = 0;
    e->group.target = -1;
    if (op->kind == OP_COLLECTIVE_PERMUTE) {
        for (int i = 0; i + 1 < groups->n; i += 2) {
            if (groups->v[i] == device)
                e->group.target = groups->v[i + 1];
            if (groups->v[i + 1] == device) {
                e->group.member = &groups->v[i];
                e->group.size = 1;
            }
        }
        return;
    }
    for (int i = 0; i < groups->n; i++) {
        if (groups->v[i] == device) {
            e->group.size = op->attr.group_size;
            e->group.self = i % op->attr.group_size;
            e->group.member = &groups->v[i - e->group.self];
        }
    }
}

static int make_room(Collective *e, cvn_err *err)
{
    int64_t n = e->group.size + 1;
    if (n <= e->cap_members)
        return CVN_OK;
    free(e->source);
    free(e->remote.transfer);
    e->source = calloc((size_t)n, sizeof *e->source);
    e->remote.transfer = calloc(2 * (size_t)n, sizeof *e->remote.transfer);
    e->cap_members = e->source && e->remote.transfer ? n : 0;
    return e->cap_members
               ? CVN_OK
               : err_set(err, CVN_EMEM, "no memory for a collective between %lld devices",
                         (long long)n);
}

unsigned comm_start(Comm *comm, int device, const Op *op, const void *in, void *out)
{
    CommDevice *own = comm_device(comm, device);
    unsigned number = own->next++;
    atomic_fetch_add(&own->open, 1);
    Collective *e = &own->collective[number % COMM_IN_FLIGHT];
    e->times.begun = comm_now(comm, own);
    e->times.arrived = -1;
    e->number = number;
    e->id = device;
    e->op = op;
    e->in = in;
    e->out = out;
    e->remote.n_transfers = 0;
    e->open = true;
    find_members(e, op, device);
    link_send(comm, own, e);
    cvn_err err = {0};
    if (make_room(e, &err) || (comm->transport && remote_start(comm, e, &err)))
        comm_fail(comm, &err);
    milestone_reach(&e->started, number + 1);
    e->times.started_in = comm_now(comm, own) - e->times.begun;
    return number;
}

/* ---- done ---- */

static int check_agreement(const Collective *e, int64_t id, const Collective *peer, cvn_err *err)
{
    const Op *a = e->op, *b = peer->op;
    if (a == b || (a->kind == b->kind && attr_equal(a->kind, &a->attr, &b->attr) &&
                   cvn_type_equal(&a->operand[0]->type, &b->operand[0]->type)))
        return CVN_OK;
    return err_set(err, CVN_EINVAL,
                   "devices disagree on collective %u: device %lld runs %s, another of its group "
                   "%s, or other shapes",
                   e->number, (long long)id, op_info[b->kind].name, op_info[a->kind].name);
}

/* Waits for all members, and finds out where to read what each gives to this device. */
static int gather_sources(Comm *comm, Collective *e, cvn_err *err)
{
    for (int64_t j = 0; j < e->group.size; j++) {
        if (!comm_is_local(comm, e->group.member[j]))
            continue;
        Collective *peer = comm_peer(comm, e, e->group.member[j]);
        if (!milestone_wait(comm, &peer->started, e->number + 1))
            return comm_failed(comm, err);
        TRY(check_agreement(e, e->group.member[j], peer, err));
        cvn_type box;
        StridedBox to;
        piece_of(e->op, e->group.size, j, e->group.self, &box, &e->source[j], &to);
        e->source[j].base = peer->in;
    }
    TRY(comm->transport ? remote_done(comm, e, err) : CVN_OK);
    return link_wait(comm, e, err);
}

/* Waits until nobody touches this device's operand and result any more. */
static int wait_for_peers(Comm *comm, Collective *e, cvn_err *err)
{
    milestone_reach(&e->finished, e->number + 1);
    bool there = true;
    if (e->op->kind == OP_COLLECTIVE_PERMUTE) {
        if (e->group.target >= 0 && comm_is_local(comm, e->group.target))
            there =
                milestone_wait(comm, &comm_peer(comm, e, e->group.target)->finished, e->number + 1);
    } else {
        for (int64_t j = 0; there && j < e->group.size; j++)
            if (comm_is_local(comm, e->group.member[j]))
                there = milestone_wait(comm, &comm_peer(comm, e, e->group.member[j])->finished,
                                       e->number + 1);
    }
    return there ? CVN_OK : comm_failed(comm, err);
}

/* The part of this device, by one of its threads,
   into the results of all members in this process. */
static void reduce_to_all(const KernelArgs *args, const Collective *e)
{
    enum { CHUNK = 4096 };
    cvn_type box;
    StridedBox in, out;
    piece_of(e->op, e->group.size, e->group.self, e->group.self, &box, &in, &out);
    int64_t begin, end;
    kernel_share(box.dim[0], 64, args->thread, args->n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i += CHUNK) {
        int64_t n = num_min(end - i, CHUNK), at = out.at + i;
        fold_run(box.dtype, e->op->attr.reduce, e->source, e->group.size, 0, i, n, e->out, at);
        for (int64_t j = 0; j < e->group.size; j++)
            if (j != e->group.self && comm_is_local(args->comm, e->group.member[j]))
                memcpy(at_element(box.dtype, comm_peer(args->comm, e, e->group.member[j])->out, at),
                       at_element(box.dtype, e->out, at), cvn_dtype_bytes(box.dtype, n));
    }
}

/* Lines of the box are spread over the threads; one long line is cut. */
static void reduce_own_part(const KernelArgs *args, const Collective *e)
{
    cvn_type box;
    StridedBox in, out;
    piece_of(e->op, e->group.size, e->group.self, e->group.self, &box, &in, &out);
    int64_t line = box.dim[1], begin, end;
    kernel_share(cvn_type_elements(&box), 64, args->thread, args->n_threads, &begin, &end);
    for (int64_t i = begin; i < end;) {
        int64_t n = num_min(line - i % line, end - i);
        fold_run(box.dtype, e->op->attr.reduce, e->source, e->group.size, i / line, i % line, n,
                 e->out, i);
        i += n;
    }
}

static void move_pieces(const KernelArgs *args, const Collective *e)
{
    if (e->group.size == 0) { /* a permutation that sends nothing here */
        int64_t begin, end, n = (int64_t)cvn_type_bytes(&e->op->result[0]->type);
        kernel_share(n, 64, args->thread, args->n_threads, &begin, &end);
        memset((char *)e->out + begin, 0, (size_t)(end - begin));
        return;
    }
    for (int64_t j = 0; j < e->group.size; j++) {
        cvn_type box;
        StridedBox in, out;
        int64_t begin, end;
        piece_of(e->op, e->group.size, j, e->group.self, &box, &in, &out);
        bool nibbles = box.dtype == CVN_I4;
        if (nibbles && args->thread > 0)
            continue;
        kernel_share(cvn_type_elements(&box), 64, args->thread, nibbles ? 1 : args->n_threads,
                     &begin, &end);
        if (e->source[j].base)
            strided_copy(&box, &e->source[j], e->out, out.at, out.stride, begin, end);
    }
}

void comm_done(const KernelArgs *args, unsigned number)
{
    Comm *comm = args->comm;
    CommDevice *own = comm_device(comm, args->device);
    cvn_err err = {0};
    int64_t asked = 0;
    if (args->thread == 0) {
        asked = comm_now(comm, own);
        own->current = &own->collective[number % COMM_IN_FLIGHT];
        /* Until all members are here, and what they give has arrived. */
        Collective *e = own->current;
        int code = comm_failed(comm, &err) ? err.code : gather_sources(comm, e, &err);
        if (code)
            comm_fail(comm, &err);
        e->group.ok = code == CVN_OK;
        e->times.arrived = e->times.arrived >= 0 ? e->times.arrived : comm_now(comm, own);
    }
    kernel_sync(args);
    Collective *e = own->current;
    if (e->group.ok) {
        if (e->op->kind == OP_ALL_REDUCE)
            reduce_to_all(args, e);
        else if (e->op->kind == OP_REDUCE_SCATTER)
            reduce_own_part(args, e);
        else
            move_pieces(args, e);
    }
    kernel_sync(args);
    if (args->thread == 0 && e->group.ok) {
        int code = CVN_OK;
        if (comm->transport && e->op->kind == OP_ALL_REDUCE)
            code = remote_share(comm, e, &err);
        if (!code)
            code = wait_for_peers(comm, e, &err);
        if (code)
            comm_fail(comm, &err);
        /* After an odd number of i4 the last nibble is zero. */
        const cvn_type *type = &e->op->result[0]->type;
        if (type->dtype == CVN_I4 && cvn_type_elements(type) % 2)
            element_set(CVN_I4, e->out, cvn_type_elements(type), 0);
        if (e->op != &comm->any.op)
            account_add(comm, own, e, asked);
    }
    if (args->thread == 0) {
        own->current->open = false;
        atomic_fetch_sub(&own->open, 1);
    }
}

bool comm_any(const KernelArgs *args, bool wish)
{
    CommDevice *own = comm_device(args->comm, args->device);
    unsigned number = 0;
    if (args->thread == 0) {
        own->wish = wish;
        number = comm_start(args->comm, args->device, &args->comm->any.op, &own->wish, &own->any);
    }
    comm_done(args, number);
    kernel_sync(args);
    bool any = own->any != 0;
    kernel_sync(args); /* others write it once the next one has begun */
    return any;
}

/* The collective that an operation of the device began and has not ended, so that it is one of the last; or NULL. */
static const Collective *open_collective(const Comm *comm, int device, const Op *op)
{
    const CommDevice *own = comm_device(comm, device);
    for (int i = 0; i < COMM_IN_FLIGHT; i++)
        if (own->collective[i].open && own->collective[i].op == op)
            return &own->collective[i];
    return NULL;
}

bool comm_is_open(Comm *comm, int device, const Op *op)
{
    return open_collective(comm, device, op) != NULL;
}

void comm_after_step(Comm *comm, int device, const Op *op)
{
    CommDevice *own = comm_device(comm, device);
    if (comm->clock)
        own->clock += (int64_t)(comm->clock(op) * 1e9);
    account_look(comm, own);
}

/* ---- kernels ---- */

/* A device that is alone does not exchange anything: what it does it does at the end. */
static void start_collective(const KernelArgs *args)
{
    if (args->comm)
        comm_start(args->comm, args->device, args->op, args->in[0], args->out[0]);
}

static void done_collective(const KernelArgs *args)
{
    if (args->comm) {
        const Collective *e =
            args->thread == 0 ? open_collective(args->comm, args->device, args->op) : NULL;
        assert((e || args->thread > 0) && "a collective ends that has started");
        comm_done(args, e ? e->number : 0);
    } else if (args->thread == 0) {
        interp_op(args->op, args->in, args->out);
    }
}

static void run_collective(const KernelArgs *args)
{
    if (args->thread == 0)
        start_collective(args);
    done_collective(args);
}

static void run_partition_id(const KernelArgs *args)
{
    *(uint32_t *)args->out[0] = args->comm ? (uint32_t)args->device : 0;
}

/* A collective may be one step, or two with others between them. */
#define COLLECTIVE .run = run_collective, .start = start_collective, .done = done_collective

const Kernel collective_kernels[] = {
    {.name = "all_reduce", .kind = OP_ALL_REDUCE, COLLECTIVE, .in_place = 1},
    {.name = "all_gather", .kind = OP_ALL_GATHER, COLLECTIVE},
    {.name = "reduce_scatter", .kind = OP_REDUCE_SCATTER, COLLECTIVE},
    {.name = "all_to_all", .kind = OP_ALL_TO_ALL, COLLECTIVE},
    {.name = "collective_permute", .kind = OP_COLLECTIVE_PERMUTE, COLLECTIVE},
    {.name = "partition_id", .kind = OP_PARTITION_ID, .run = run_partition_id, .single = true},
    {0},
};
