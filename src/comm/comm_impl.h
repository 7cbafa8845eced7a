/* The inside of a Comm, shared by the files of this folder:
   one collective of one device, and what it moves. */
#ifndef CVN_COMM_COMM_IMPL_H
#define CVN_COMM_COMM_IMPL_H

#include "comm/comm.h"
#include "comm/table.h"
#include "comm/transport.h"
#include "graph/strides.h"

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

/* A number that only grows, and threads that wait for it to. */
typedef struct Milestone {
    alignas(64)
        atomic_uint value; /* compared as signed differences, so that it may wrap; the futex word */
    atomic_uint sleepers;  /* threads that sleep, or are about to */
} Milestone;

/* Where a box of elements, whose dtype and sizes are a type, lies: its element 0 is element `at` of `base`, and
   neighbours in dimension d are stride[d] elements apart. */
typedef struct StridedBox {
    const void *base;
    int64_t at;
    int64_t stride[CVN_MAX_RANK];
} StridedBox;

/* With whom a device exchanges in a collective. */
typedef struct CollectiveGroup {
    /* [size] whom this device takes from, in order; for a permutation its source */
    const int64_t *member;
    int64_t size;   /* of the group; 0 when nobody sends here */
    int64_t self;   /* which of the members this device is; 0 for a permutation */
    int64_t target; /* of a permutation: who takes from this device, or -1 */
    bool ok;        /* all members are here, and agree */
} CollectiveGroup;

/* What goes to other processes and comes from them. */
typedef struct CollectiveRemote {
    char *stage;  /* owned: what they send; grows */
    char *packed; /* owned: what is sent to them, where it does not lie dense; grows */
    size_t stage_bytes, packed_bytes; /* room there */
    Transfer *transfer; /* owned [2 * Collective.cap_members]: sends and receives under way */
    int n_transfers;
} CollectiveRemote;

/* By comm_now. */
typedef struct CollectiveTimes {
    int64_t begun;          /* its start was called */
    int64_t started_in;     /* ns that the start took */
    int64_t arrived;        /* all that it needs was seen to be there; -1: not yet */
    _Atomic int64_t leaves; /* the link has sent it; 0 without a link */
} CollectiveTimes;

/* One collective of one device. */
typedef struct Collective {
    Milestone started; /* 1 + number of the collective whose fields below are valid */
    /* 1 + number of the collective in which this device touches no peer any more. */
    Milestone finished;
    unsigned number;
    int64_t id;     /* of the device */
    const Op *op;   /* of the device's own plan */
    const void *in; /* operand */
    void *out;      /* result */
    CollectiveGroup group;
    StridedBox *source;  /* owned [cap_members]: what each member gives to this device */
    int64_t cap_members; /* room there */
    CollectiveRemote remote;
    CollectiveTimes times;
    bool open; /* started and not done; thread 0's */
} Collective;

/* The names of the groups that collectives run in. */
typedef struct CommNames {
    struct CommName {
        int64_t *groups; /* owned [n]: as the attribute of the operation has them */
        int64_t n, size; /* of all groups together; of one */
        char axes[COMM_AXES_SIZE];
    } * name; /* owned [n] */
    int n;
} CommNames;

typedef struct CommDevice {
    Collective collective[COMM_IN_FLIGHT]; /* number modulo COMM_IN_FLIGHT */
    Collective *current; /* that comm_done works on; written by thread 0 between barriers */
    atomic_uint open;    /* collectives under way */
    unsigned next;       /* number of the next collective; its starting thread's */
    int64_t link_free;   /* comm_now at which its link has sent all that was started; thread 0's */
    int64_t clock;       /* ns, with comm_set_clock; thread 0's */
    CommTable account;   /* of this device's collectives, added up; its thread 0's */
    unsigned looked;     /* number of the first collective that account_look has not seen arrive */
    const struct CommWatch *watch; /* borrowed: who is told of each collective, or NULL */
    int32_t wish, any;             /* of comm_any: this device's answer, and all of theirs */
} CommDevice;

struct Comm {
    Transport *transport; /* borrowed, or NULL */
    int size, first, n_local;
    unsigned spins;
    CommDevice *device; /* owned [n_local] */
    Link link;          /* see comm_set_link */
    StepSeconds *clock; /* see comm_set_clock */
    CommNames names;    /* owned */
    struct CommAny {    /* comm_any's all_reduce of i32[1] over all devices, as if a graph had it */
        Op op;
        cvn_value value, *values;
        int64_t *member; /* owned [size] */
    } any;
    atomic_bool failed;
    pthread_mutex_t lock; /* of error */
    cvn_err error;        /* the first, once failed */
};

/* ---- comm.c ---- */

CommDevice *comm_device(const Comm *comm, int64_t id);
bool comm_is_local(const Comm *comm, int64_t id);
/* The same collective of a member that is here. */
static inline Collective *comm_peer(const Comm *comm, const Collective *e, int64_t id)
{
    return &comm_device(comm, id)->collective[e->number % COMM_IN_FLIGHT];
}

/* Waits until it has reached `target`; false when the Comm failed first. */
bool milestone_wait(const Comm *comm, Milestone *milestone, unsigned target);
bool milestone_reached(Milestone *milestone, unsigned target);
void milestone_reach(Milestone *milestone, unsigned target);

/* ---- link.c ---- */

/* ns, by the device's clock or the wall's. */
int64_t comm_now(const Comm *comm, const CommDevice *own);
/* The artificial link takes the collective after what it has to send already. */
void link_send(const Comm *comm, CommDevice *own, Collective *e);
/* Until the artificial links of all members here have sent what they give, and a latency more. */
int link_wait(Comm *comm, const Collective *e, cvn_err *err);
bool link_is_done(const Comm *comm, const Collective *e);

/* ---- account.c ---- */

/* Looks which of the device's collectives have what they need; between two steps, so that what
   arrives while it computes is seen to. The transport gets to work on the way. */
void account_look(Comm *comm, CommDevice *own);

/* A collective has ended: comm_done was called at `asked` and leaves now. */
void account_add(const Comm *comm, CommDevice *own, const Collective *e, int64_t asked);

/* ---- piece.c ---- */

/* Where element `at` lies; of I4 an even one. */
static inline void *at_element(cvn_dtype dtype, const void *base, int64_t at)
{
    return (char *)(uintptr_t)base + cvn_dtype_bytes(dtype, at);
}

/* What member `from` of a group of `size` gives to member `to`: the
   box, where it lies in the operand of `from` (its base is left alone),
   and, where it is moved and not reduced, in the result of `to`. */
void piece_of(const Op *op, int64_t size, int64_t from, int64_t to, cvn_type *box, StridedBox *in,
              StridedBox *out);

/* True when these are the strides of a box that lies dense. */
bool strided_is_dense(const cvn_type *box, const int64_t *stride);
/* Copies elements [begin, end) of the box, in row-major order, from one place to another. */
void strided_copy(const cvn_type *box, const StridedBox *from, void *to, int64_t to_at,
                  const int64_t *to_stride, int64_t begin, int64_t end);

/* ---- remote.c ---- */

/* Begins to send what members in other processes need of
   this device, and to receive what it needs of them. */
int remote_start(Comm *comm, Collective *e, cvn_err *err);
/* Waits for that; the sources of those members are set. */
int remote_done(Comm *comm, Collective *e, cvn_err *err);
/* The same without waiting: false while transfers of the
   collective are under way. Moves along all of the process. */
bool remote_is_done(Comm *comm, Collective *e);
/* The second half of an all_reduce: each member's reduced part to all others in other processes. */
int remote_share(Comm *comm, Collective *e, cvn_err *err);

/* ---- fold.c ---- */

/* to[to_at … + n) = the reduction over j, in the order of j, of the n
   elements from `column` on in row `row` of from[j]: rows are stride[0]
   apart. `to` may be one of the sources, at the same place. */
void fold_run(cvn_dtype dtype, cvn_reduce kind, const StridedBox *from, int64_t n_from, int64_t row,
              int64_t column, int64_t n, void *to, int64_t to_at);

#endif
