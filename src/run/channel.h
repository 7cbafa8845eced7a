/*
 * What goes from the devices of one runtime to those of another one, over and over: a tensor that lies alike on both, shard by shard, as
 * activations do between the stages of a model.
 *
 *     stage 0, 2 devices    leaves  [shard 0] [shard 1]
 *                                       |         |         one message each
 *     stage 1, 2 devices    enters  [shard 0] [shard 1]
 *
 * Both runtimes are in this process, or one of them is in other ranks of a cluster, whose devices are reached by messages: the ranks of a
 * runtime are a row, and device d of one is on the rank at the same place in the row of the other.
 *
 * A tensor waits in the channel until it is received: channel_send returns as soon as the one before is gone, and channel_receive when one has
 * come. Where `more` are to come the next one may travel from then on, while the receiver does other things. Each is called by one thread. All channels of a process share a gate, by which who waits is woken, and told where somebody has failed.
 */
#ifndef CVN_RUN_CHANNEL_H
#define CVN_RUN_CHANNEL_H

#include "run/runtime.h"

#include <pthread.h>

typedef struct ChannelGate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    cvn_err failed; /* the first failure; code 0: none yet */
    int generation; /* how often one was forgotten */
} ChannelGate;

void channel_gate_init(ChannelGate *gate);
void channel_gate_free(ChannelGate *gate);
/* Nobody waits any more, and all that wait return this error. */
void channel_fail(ChannelGate *gate, const cvn_err *err);
/* Nobody sends or receives any more: the error, if somebody failed, which is then forgotten with what was under way within the process. */
int channel_gate_end(ChannelGate *gate, cvn_err *err);

/* One end: a buffer of a runtime that is here; {NULL}: it is elsewhere. */
typedef struct ChannelEnd {
    Runtime *rt;
    Buffer *buffer;
} ChannelEnd;

typedef struct Channel {
    ChannelGate *gate;   /* borrowed */
    ChannelEnd from, to; /* one of them may be elsewhere … */
    Cluster *cluster;    /* … and is reached by this; borrowed, or NULL */
    int rank, tag;  /* of the other end; of the first device's messages, those of others follow */
    int n;          /* devices at each end */
    size_t bytes;   /* of a shard */
    char **waiting; /* owned [n]: shards under way */
    Transfer *transfer; /* owned [n] */
    bool full;          /* something is under way … */
    int64_t sent;       /* tensors, so far; of the sender's thread */
    int64_t waited;     /* ns that the receiver has waited for them; of its thread */
    int generation;     /* … since the gate has forgotten a failure so often */
} Channel;

/* Shards of a buffer have memory by now. `rank` and `tag` are of the other end where that is elsewhere. The channel may be closed after an
   error, and {0} may be. */
int channel_open(Channel *channel, ChannelGate *gate, ChannelEnd from, ChannelEnd to,
                 Cluster *cluster, int rank, int tag, cvn_err *err);
void channel_close(Channel *channel);

int channel_send(Channel *channel, cvn_err *err);
int channel_receive(Channel *channel, bool more, cvn_err *err);

#endif
