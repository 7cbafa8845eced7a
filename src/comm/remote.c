/*
 * What a collective sends to other processes, and receives
 * from them: pieces (comm/piece.c), each as one message.
 * A piece that does not lie dense is packed before it is sent. One that is moved to where it lies
 * dense is received there; others, and all that are to be reduced, into memory of the collective.
 *
 * The tag of a message says which collective it belongs to, between which devices of the two
 * processes, and for an all_reduce which of its two halves:
 *
 *     bit 0       the second half
 *     bits 1-6    receiving device, of those in its process
 *     bits 7-12   sending device, of those in its process
 *     bits 13-20  number of the collective
 *
 * Messages travel while kernels run, but MPI takes a message's next step only when somebody calls
 * it, for whatever message. Two do: each device's thread 0 between steps, when it looks what has
 * arrived (account_look), which is soon enough for what was started just now; and in the midst of a
 * long kernel the watchdog of comm/cluster.c, a thread that is there anyway, every 0.2 ms while
 * something is under way. A thread of our own that never sleeps would take a core from the kernels.
 */
#include "comm/comm_impl.h"

#include "base/num.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

static int tag_of(const Comm *comm, const Collective *e, int64_t from, int64_t to, int half)
{
    int64_t n = comm->n_local;
    return TAG_COLLECTIVE + (int)((e->number & 255) << 13 | from % n << 7 | to % n << 1 | half);
}

static size_t padded_bytes(const cvn_type *box)
{
    return num_padded(cvn_dtype_bytes(box->dtype, cvn_type_elements(box)), CACHE_LINE);
}

static int room(char **memory, size_t *have, size_t need, cvn_err *err)
{
    if (need <= *have)
        return CVN_OK;
    free(*memory);
    *memory = aligned_alloc(64, need);
    *have = *memory ? need : 0;
    return *memory
               ? CVN_OK
               : err_set(err, CVN_EMEM, "no memory to exchange %zu bytes with other ranks", need);
}

/* A piece is read or written where it lies. I4 may begin in the middle of a byte. */
static bool in_place(const cvn_type *box, const StridedBox *place)
{
    return strided_is_dense(box, place->stride) && box->dtype != CVN_I4;
}

/* A piece received where it belongs; NULL: it goes through the stage. */
static void *direct(const Collective *e, const cvn_type *box, const StridedBox *out)
{
    bool reduces = e->op->kind == OP_ALL_REDUCE || e->op->kind == OP_REDUCE_SCATTER;
    return reduces || !in_place(box, out) ? NULL : at_element(box->dtype, e->out, out->at);
}

/* Begins a transfer of the collective with a device elsewhere; the Comm fails when the others do. */
static int begin(Comm *comm, Collective *e, bool sends, int64_t id, int tag, void *data,
                 size_t bytes, cvn_err *err)
{
    for (;;) {
        int code = transport_begin(comm->transport, sends, (int)(id / comm->n_local), tag, data,
                                   bytes, &e->remote.transfer[e->remote.n_transfers], 1, err);
        e->remote.n_transfers += code == CVN_OK;
        if (code != CVN_EINTERRUPTED || comm_failed(comm, NULL))
            return code;
    }
}

static int begin_send(Comm *comm, Collective *e, int64_t j, int64_t id, size_t *at, cvn_err *err)
{
    cvn_type box;
    StridedBox in, out;
    piece_of(e->op, e->group.size, e->group.self, j, &box, &in, &out);
    void *data = at_element(box.dtype, e->in, in.at);
    if (!in_place(&box, &in)) {
        int64_t dense[CVN_MAX_RANK];
        type_strides(&box, dense);
        in.base = e->in;
        data = e->remote.packed + *at;
        strided_copy(&box, &in, e->remote.packed + *at, 0, dense, 0, cvn_type_elements(&box));
        *at += padded_bytes(&box);
    }
    return begin(comm, e, true, id, tag_of(comm, e, e->id, id, 0), data,
                 cvn_dtype_bytes(box.dtype, cvn_type_elements(&box)), err);
}

static int begin_receive(Comm *comm, Collective *e, int64_t j, size_t *at, cvn_err *err)
{
    cvn_type box;
    StridedBox in, out, *source = &e->source[j];
    piece_of(e->op, e->group.size, j, e->group.self, &box, &in, &out);
    void *data = direct(e, &box, &out);
    *source = (StridedBox){0};
    if (!data) {
        data = e->remote.stage + *at;
        source->base = data;
        type_strides(&box, source->stride);
        *at += padded_bytes(&box);
    }
    return begin(comm, e, false, e->group.member[j], tag_of(comm, e, e->group.member[j], e->id, 0),
                 data, cvn_dtype_bytes(box.dtype, cvn_type_elements(&box)), err);
}

/* Whom this device sends to. */
static int64_t n_targets(const Collective *e)
{
    return e->op->kind == OP_COLLECTIVE_PERMUTE ? e->group.target >= 0 : e->group.size;
}

static int64_t target_of(const Collective *e, int64_t j)
{
    return e->op->kind == OP_COLLECTIVE_PERMUTE ? e->group.target : e->group.member[j];
}

int remote_start(Comm *comm, Collective *e, cvn_err *err)
{
    cvn_type box;
    StridedBox in, out;
    size_t stage = 0, packed = 0;
    for (int64_t j = 0; j < e->group.size; j++) {
        piece_of(e->op, e->group.size, j, e->group.self, &box, &in, &out);
        if (!comm_is_local(comm, e->group.member[j]) && !direct(e, &box, &out))
            stage += padded_bytes(&box);
    }
    for (int64_t j = 0; j < n_targets(e); j++) {
        piece_of(e->op, e->group.size, e->group.self, j, &box, &in, &out);
        if (!comm_is_local(comm, target_of(e, j)) && !in_place(&box, &in))
            packed += padded_bytes(&box);
    }
    TRY(room(&e->remote.stage, &e->remote.stage_bytes, stage, err));
    TRY(room(&e->remote.packed, &e->remote.packed_bytes, packed, err));
    stage = packed = 0;
    for (int64_t j = 0; j < e->group.size; j++)
        if (!comm_is_local(comm, e->group.member[j]))
            TRY(begin_receive(comm, e, j, &stage, err));
    for (int64_t j = 0; j < n_targets(e); j++)
        if (!comm_is_local(comm, target_of(e, j)))
            TRY(begin_send(comm, e, j, target_of(e, j), &packed, err));
    return CVN_OK;
}

/* Until all transfers have ended, or the Comm has failed. */
int remote_done(Comm *comm, Collective *e, cvn_err *err)
{
    Transport *t = comm->transport;
    for (int i = 0; e->remote.n_transfers; i++) {
        bool done = false;
        TRY(t->test(t, e->remote.transfer, e->remote.n_transfers, &done, err));
        TRY(comm_failed(comm, err));
        if (done)
            e->remote.n_transfers = 0;
        else if (i < 2000)
            sched_yield();
        else /* a long wait: leave the processor to others */
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return CVN_OK;
}

bool remote_is_done(Comm *comm, Collective *e)
{
    Transport *t = comm->transport;
    bool done = false;
    /* What fails is found again by who waits for it. */
    if (e->remote.n_transfers &&
        t->test(t, e->remote.transfer, e->remote.n_transfers, &done, NULL) == CVN_OK && done)
        e->remote.n_transfers = 0;
    return e->remote.n_transfers == 0;
}

int remote_share(Comm *comm, Collective *e, cvn_err *err)
{
    for (int64_t j = 0; j < e->group.size; j++) {
        if (comm_is_local(comm, e->group.member[j]))
            continue;
        cvn_type own, other;
        StridedBox in, from, to;
        piece_of(e->op, e->group.size, e->group.self, e->group.self, &own, &in, &from);
        piece_of(e->op, e->group.size, j, j, &other, &in, &to);
        int64_t id = e->group.member[j];
        TRY(begin(comm, e, false, id, tag_of(comm, e, id, e->id, 1),
                  at_element(other.dtype, e->out, to.at),
                  cvn_dtype_bytes(other.dtype, cvn_type_elements(&other)), err));
        TRY(begin(comm, e, true, id, tag_of(comm, e, e->id, id, 1),
                  at_element(own.dtype, e->out, from.at),
                  cvn_dtype_bytes(own.dtype, cvn_type_elements(&own)), err));
    }
    return remote_done(comm, e, err);
}
