#include "run/channel.h"

#include "base/num.h"
#include "base/threads.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void channel_gate_init(ChannelGate *gate)
{
    *gate = (ChannelGate){0};
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->changed, NULL);
}

void channel_gate_free(ChannelGate *gate)
{
    pthread_mutex_destroy(&gate->lock);
    pthread_cond_destroy(&gate->changed);
}

void channel_fail(ChannelGate *gate, const cvn_err *err)
{
    pthread_mutex_lock(&gate->lock);
    if (!gate->failed.code)
        gate->failed = *err;
    pthread_cond_broadcast(&gate->changed);
    pthread_mutex_unlock(&gate->lock);
}

int channel_gate_end(ChannelGate *gate, cvn_err *err)
{
    int code = gate->failed.code;
    if (code)
        *err = gate->failed;
    gate->generation += code != 0;
    gate->failed = (cvn_err){0};
    return code;
}

static int gate_failed(ChannelGate *gate, cvn_err *err)
{
    pthread_mutex_lock(&gate->lock);
    int code = gate->failed.code;
    if (code)
        *err = gate->failed;
    pthread_mutex_unlock(&gate->lock);
    return code;
}

/* The buffer at the end that is here, that of the sender where both are. */
static const ChannelEnd *here(const Channel *c)
{
    return c->from.rt ? &c->from : &c->to;
}

int channel_open(Channel *c, ChannelGate *gate, ChannelEnd from, ChannelEnd to, Cluster *cluster,
                 int rank, int tag, cvn_err *err)
{
    *c = (Channel){
        .gate = gate, .from = from, .to = to, .cluster = cluster, .rank = rank, .tag = tag};
    const ChannelEnd *end = here(c);
    if (from.rt && to.rt &&
        !(cvn_type_equal(&from.buffer->local, &to.buffer->local) &&
          sharding_same(&from.buffer->sharding, &to.buffer->sharding)))
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s' does not lie as '%s' of the next stage does; use another layout",
                       from.buffer->name, to.buffer->name);
    c->n = end->rt->info.n_local;
    c->bytes = cvn_type_bytes(&end->buffer->local);
    c->waiting = calloc((size_t)c->n, sizeof *c->waiting);
    c->transfer = calloc((size_t)c->n, sizeof *c->transfer);
    for (int d = 0; c->waiting && d < c->n; d++) {
        c->waiting[d] = aligned_alloc(64, num_padded(c->bytes + 1, 64));
        if (!buffer_address(end->rt, end->buffer, d))
            return err_set(err, CVN_EUNSUPPORTED,
                           "stages need devices whose memory the host can address; leave out the "
                           "axis of stages, or --device");
        if (!c->waiting[d])
            return err_set(err, CVN_EMEM, "no memory for what stages send each other");
    }
    return c->waiting && c->transfer
               ? CVN_OK
               : err_set(err, CVN_EMEM, "no memory for what stages send each other");
}

/* Within a process: until the channel is full, or empty. */
static int wait_until(Channel *c, bool full, cvn_err *err)
{
    ChannelGate *gate = c->gate;
    pthread_mutex_lock(&gate->lock);
    while ((c->full && c->generation == gate->generation) != full && !gate->failed.code)
        pthread_cond_wait(&gate->changed, &gate->lock);
    int code = gate->failed.code;
    if (code)
        *err = gate->failed;
    pthread_mutex_unlock(&gate->lock);
    return code;
}

static void set_full(Channel *c, bool full)
{
    pthread_mutex_lock(&c->gate->lock);
    c->full = full;
    c->generation = c->gate->generation;
    pthread_cond_broadcast(&c->gate->changed);
    pthread_mutex_unlock(&c->gate->lock);
}

/* Messages are under way, or not; while they are, somebody moves them along. */
static void set_exchanging(Channel *c, bool is)
{
    if (c->full != is)
        cluster_exchanging(c->cluster, is);
    c->full = is;
}

/* Whether messages were under way that have not ended: their memory is theirs. */
static bool is_left(Channel *c)
{
    bool remote = !c->from.rt || !c->to.rt, done = true;
    Transport *t = remote && c->full ? cluster_transport(c->cluster) : NULL;
    if (t && (t->test(t, c->transfer, c->n, &done, NULL) || !done))
        return true;
    if (t)
        set_exchanging(c, false);
    return false;
}

void channel_close(Channel *c)
{
    bool left = is_left(c);
    for (int d = 0; c->waiting && d < c->n && !left; d++)
        free(c->waiting[d]);
    free(c->waiting);
    free(c->transfer);
    *c = (Channel){0};
}

/* Until the messages under way have ended. */
static int wait_for_transfers(Channel *c, cvn_err *err)
{
    Transport *t = cluster_transport(c->cluster);
    for (int64_t i = 0; c->full; i++) {
        bool done = false;
        TRY(t->test(t, c->transfer, c->n, &done, err));
        TRY(gate_failed(c->gate, err));
        if (done)
            set_exchanging(c, false);
        else if (i < 2000)
            sched_yield();
        else /* a long wait: leave the processor to others */
            nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return CVN_OK;
}

static int begin_transfers(Channel *c, bool sends, cvn_err *err)
{
    Transport *t = cluster_transport(c->cluster);
    for (int d = 0; d < c->n; d++) {
        int code;
        do
            code = transport_begin(t, sends, c->rank, c->tag + d, c->waiting[d], c->bytes,
                                   &c->transfer[d], 1, err);
        while (code == CVN_EINTERRUPTED && !gate_failed(c->gate, err));
        if (code)
            return code;
    }
    set_exchanging(c, true);
    return CVN_OK;
}

int channel_send(Channel *c, cvn_err *err)
{
    TRY(c->to.rt ? wait_until(c, false, err) : wait_for_transfers(c, err));
    c->sent++;
    for (int d = 0; d < c->n; d++)
        memcpy(c->waiting[d], buffer_address(c->from.rt, c->from.buffer, d), c->bytes);
    if (!c->to.rt)
        return begin_transfers(c, true, err);
    set_full(c, true);
    return CVN_OK;
}

int channel_receive(Channel *c, bool more, cvn_err *err)
{
    int64_t begin = clock_ns();
    if (c->from.rt) {
        TRY(wait_until(c, true, err));
    } else {
        TRY(c->full ? CVN_OK : begin_transfers(c, false, err));
        TRY(wait_for_transfers(c, err));
    }
    c->waited += clock_ns() - begin;
    for (int d = 0; d < c->n; d++)
        memcpy(buffer_address(c->to.rt, c->to.buffer, d), c->waiting[d], c->bytes);
    if (c->from.rt)
        set_full(c, false);
    return more && !c->from.rt ? begin_transfers(c, false, err) : CVN_OK;
}
