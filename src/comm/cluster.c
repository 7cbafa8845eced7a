/*
 * Messages between the watchdogs are notes of one size. Rank 0 has a note
 * to and from every other rank under way, the others one to and from rank
 * 0: a star, so that each rank costs rank 0 two small messages a second.
 */
#include "comm/cluster.h"

#include "base/threads.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Gathers have two tags, there and back, and so has each of their channels. */
enum { TAG_NOTE = TAG_CLUSTER, TAG_SHARE, TAG_CARD, TAG_GATHER = TAG_CARD + 2 };
enum { TICK_NS = 10000000, TICK_BUSY_NS = 200000 };
static const int64_t beat_ns = 500000000;      /* between two signs of life */
static const int64_t ending_ns = 400000000;    /* for answers when all are told to end */
static const int64_t telling_ns = 300000000;   /* for the others to hear that all is said */
static const int64_t woken_ns = 10000000000;   /* who was stopped finds others gone so long */
static const double start_seconds = 120;       /* for all ranks to be there */
static const double agree_seconds = 24 * 3600; /* the watchdog ends it before, if need be */

typedef enum NoteKind {
    NOTE_BEAT,   /* I live */
    NOTE_FAILED, /* text says why */
    NOTE_ENDING, /* I was told to end, and live */
    NOTE_TOLD,   /* I have said what happened: say no more */
    NOTE_BYE     /* I am done; the last note */
} NoteKind;

typedef struct Note {
    int64_t kind, step;
    char text[512];
} Note;

/* What rank 0 knows of a rank, or a rank of rank 0. */
typedef struct Peer {
    Note out, in;
    Transfer sending, receiving;
    int64_t heard_ns; /* when its last note came */
    int64_t step;     /* its last known one */
    bool ending, bye; /* it said so */
    bool told;        /* it was sent NOTE_TOLD */
} Peer;

typedef struct ProcessInfo {
    char host[64];
    int64_t pid;
    char settings[440];
} ProcessInfo;

struct cvn_cluster {
    Transport *t;              /* owned */
    struct cvn_cluster *whole; /* of a part: what it is a part of, borrowed; else NULL */
    ClusterOptions options;
    ProcessInfo *card; /* owned [n_ranks] */
    Peer *peer;        /* owned [n_ranks]; of those that this rank talks to */
    int first, end;    /* those: all others of rank 0, which alone they talk to */
    _Atomic int64_t step;
    pthread_mutex_t lock;  /* of comm */
    Comm *comm;            /* borrowed, or NULL */
    atomic_int exchanging; /* see cluster_exchanging */
    atomic_bool leaving;   /* this rank is done */
    atomic_bool failing;   /* failure holds what to tell rank 0 */
    atomic_bool reported;  /* somebody here has spoken, or is about to */
    cvn_err failure;
    pthread_t watchdog;
    bool watching; /* the watchdog runs */
};

int cluster_rank(const Cluster *cluster)
{
    return cluster ? cluster->t->rank : 0;
}

int cluster_size(const Cluster *cluster)
{
    return cluster ? cluster->t->n_ranks : 1;
}

Transport *cluster_transport(const Cluster *cluster)
{
    return cluster->t;
}

const char *cluster_host(const Cluster *cluster, int rank)
{
    return cluster->card[rank].host;
}

void cluster_set_step(Cluster *cluster, int64_t step)
{
    if (cluster)
        atomic_store(&cluster->step, step);
}

void cluster_set_comm(Cluster *cluster, Comm *comm)
{
    cluster = cluster->whole ? cluster->whole : cluster;
    pthread_mutex_lock(&cluster->lock);
    cluster->comm = comm;
    pthread_mutex_unlock(&cluster->lock);
}

void cluster_exchanging(Cluster *cluster, bool more)
{
    atomic_fetch_add(&cluster->exchanging, more ? 1 : -1);
}

/* ---- the watchdog ---- */

bool cluster_claim(Cluster *c)
{
    return !atomic_exchange(&c->reported, true);
}

/* Whether nothing is under way to a rank. */
static bool has_left(Cluster *c, int rank)
{
    Peer *peer = &c->peer[rank];
    bool done = true;
    return !peer->sending.request || (!c->t->test(c->t, &peer->sending, 1, &done, NULL) && done);
}

static void send_note(Cluster *c, int rank, NoteKind kind, const char *text)
{
    Peer *peer = &c->peer[rank];
    if (!has_left(c, rank))
        return; /* still busy with the last one; there will be another */
    peer->told |= kind == NOTE_TOLD;
    peer->out = (Note){.kind = kind, .step = atomic_load(&c->step)};
    snprintf(peer->out.text, sizeof peer->out.text, "%s", text);
    c->t->send(c->t, rank, TAG_NOTE, &peer->out, sizeof peer->out, &peer->sending, NULL);
}

static void send_notes(Cluster *c, NoteKind kind, const char *text)
{
    for (int rank = c->first; rank < c->end; rank++)
        if (!(c->t->rank == 0 && c->peer[rank].bye && kind == NOTE_BEAT))
            send_note(c, rank, kind, text);
}

/* Before this process ends all others: they are told that it has said why, and hear it, if they can. */
static void tell_others(Cluster *c)
{
    int64_t begin = clock_ns();
    bool arrived = false;
    while (!arrived && clock_ns() - begin < telling_ns) {
        arrived = true;
        for (int rank = c->first; rank < c->end; rank++) {
            if (!c->peer[rank].told)
                send_note(c, rank, NOTE_TOLD, "");
            arrived = c->peer[rank].told && has_left(c, rank) && arrived;
        }
        nanosleep(&(struct timespec){.tv_nsec = 2 * TICK_NS}, NULL);
    }
}

/* Devices stop waiting, and the callback ends the process. */
static void lose(Cluster *c, const cvn_err *err, bool speaks)
{
    speaks = cluster_claim(c) && speaks;
    if (speaks) /* while devices still wait: who finds the loss himself ends the process */
        tell_others(c);
    pthread_mutex_lock(&c->lock);
    if (c->comm)
        comm_fail(c->comm, err);
    pthread_mutex_unlock(&c->lock);
    if (!speaks) /* whoever does is to come first */
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    if (c->options.lost)
        c->options.lost(c->options.context, c, err, speaks);
}

static void lose_rank(Cluster *c, int rank, const char *how)
{
    cvn_err err = {0};
    err_set(&err, CVN_EIO, "rank %d on %s %s (last known at step %lld); all ranks stop", rank,
            c->card[rank].host, how, (long long)c->peer[rank].step);
    lose(c, &err, c->t->rank == (rank == 0 ? 1 : 0));
}

static void hear_note(Cluster *c, int rank)
{
    Peer *peer = &c->peer[rank];
    peer->heard_ns = clock_ns();
    peer->step = peer->in.step;
    peer->in.text[sizeof peer->in.text - 1] = 0;
    if (peer->in.kind == NOTE_FAILED) {
        char how[600];
        snprintf(how, sizeof how, "failed: %s", peer->in.text);
        lose_rank(c, rank, how);
    }
    if (peer->in.kind == NOTE_TOLD)
        cluster_claim(c);
    peer->ending |= peer->in.kind == NOTE_ENDING;
    peer->bye |= peer->in.kind == NOTE_BYE;
}

static void receive_notes(Cluster *c)
{
    for (int rank = c->first; rank < c->end; rank++) {
        Peer *peer = &c->peer[rank];
        bool done = false;
        if (peer->bye)
            continue;
        if (peer->receiving.request &&
            (c->t->test(c->t, &peer->receiving, 1, &done, NULL) || !done))
            continue;
        if (done)
            hear_note(c, rank);
        if (!peer->bye)
            c->t->receive(c->t, rank, TAG_NOTE, &peer->in, sizeof peer->in, &peer->receiving, NULL);
    }
}

/* The state of a process of this machine as /proc has it: 'T' is stopped, 'Z' and 'X' have
   ended; 0: unknown. */
static char state_of(const Cluster *c, int rank)
{
    char path[64], line[256];
    if (rank == c->t->rank || strcmp(c->card[rank].host, c->card[c->t->rank].host) != 0)
        return 0;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)c->card[rank].pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT ? 'X' : 0;
    size_t n = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[n] = 0;
    const char *name_end = strrchr(line, ')');
    return name_end && name_end[1] ? name_end[2] : 0;
}

/* A launcher ends all ranks when one has died: of this machine one that is gone, or else one that
   does not say within a moment that it lives. */
static void end_with_others(Cluster *c, bool woken)
{
    cvn_err err = {0};
    err_set(&err, CVN_EINTERRUPTED, "was told to stop");
    /* Long before rank 0 was gone something held it up, and it has said what. */
    double silence = (double)(clock_ns() - c->peer[0].heard_ns) * 1e-9;
    woken |= c->t->rank > 0 && !c->peer[0].bye && silence > c->options.timeout * 0.25;
    if (woken) /* this one could not move; the others did not wait, and have said why */
        lose(c, &err, false);
    receive_notes(c);
    for (int rank = 0; rank < c->t->n_ranks; rank++) {
        char state = state_of(c, rank);
        if (!c->peer[rank].bye && (state == 'X' || state == 'Z'))
            lose_rank(c, rank, "died");
    }
    for (int64_t begin = clock_ns(); clock_ns() - begin < ending_ns;) {
        send_notes(c, NOTE_ENDING, "");
        receive_notes(c);
        nanosleep(&(struct timespec){.tv_nsec = TICK_NS}, NULL);
    }
    for (int rank = c->first; rank < c->end; rank++)
        if (!c->peer[rank].ending && !c->peer[rank].bye)
            lose_rank(c, rank, "died");
    lose(c, &err, false);
}

static void look_for_silence(Cluster *c, int64_t now)
{
    /* The others give rank 0 the time to speak, and then rank 1, and to end them. */
    double patience = c->options.timeout + (c->t->rank > 1 ? 4 : c->t->rank == 1 ? 2 : 0);
    for (int rank = c->first; rank < c->end; rank++) {
        const Peer *peer = &c->peer[rank];
        double silence = (double)(now - peer->heard_ns) * 1e-9;
        if (peer->bye || silence < patience)
            continue;
        /* When all are silent it may be one that holds up the others, inside MPI: one that is stopped is the cause. */
        char how[96];
        snprintf(how, sizeof how, "is stopped and has blocked the others for %.0f s", silence);
        for (int other = 0; other < c->t->n_ranks; other++) {
            char state = state_of(c, other);
            if (state == 'T' || state == 'Z' || state == 'X')
                lose_rank(c, other, state == 'T' ? how : "died");
        }
        snprintf(how, sizeof how, "has not responded for %.0f s", silence);
        lose_rank(c, rank, how);
    }
}

static bool all_said_bye(const Cluster *c)
{
    for (int rank = c->first; rank < c->end; rank++)
        if (!c->peer[rank].bye)
            return false;
    return true;
}

/* Rank 0 says goodbye when all others have; they wait for that. */
static bool left(Cluster *c)
{
    if (c->t->rank == 0 && !all_said_bye(c))
        return false;
    for (int rank = c->first; rank < c->end; rank++) {
        Peer *peer = &c->peer[rank];
        bool done = true;
        if (peer->sending.request)
            c->t->test(c->t, &peer->sending, 1, &done, NULL);
        if (!done)
            return false;
        if (peer->out.kind != NOTE_BYE) {
            send_note(c, rank, NOTE_BYE, "");
            return false;
        }
    }
    return all_said_bye(c);
}

static void *watch(void *argument)
{
    Cluster *c = argument;
    int64_t last = clock_ns(), beat = 0, woken = 0;
    for (;;) {
        int64_t now = clock_ns();
        if ((double)(now - last) > c->options.timeout * 0.25e9) { /* this process was stopped */
            for (int rank = 0; rank < c->t->n_ranks; rank++)
                c->peer[rank].heard_ns = now;
            woken = now;
        }
        last = now;
        receive_notes(c);
        if (atomic_load(&c->leaving)) {
            if (left(c))
                return NULL;
        } else if (atomic_load(&c->failing)) {
            send_notes(c, NOTE_FAILED, c->failure.message);
        }
        if (now - beat > beat_ns) {
            if (!(atomic_load(&c->leaving) && c->t->rank > 0))
                send_notes(c, NOTE_BEAT, "");
            beat = now;
        }
        if ((double)(clock_ns() - now) > c->options.timeout * 0.25e9) /* or was kept inside MPI */
            woken = now;
        if (c->options.ending && *c->options.ending)
            end_with_others(c, woken && clock_ns() - woken < woken_ns);
        look_for_silence(c, now);
        pthread_mutex_lock(&c->lock);
        bool busy = (c->comm && comm_busy(c->comm)) || atomic_load(&c->exchanging) > 0;
        pthread_mutex_unlock(&c->lock);
        nanosleep(&(struct timespec){.tv_nsec = busy ? TICK_BUSY_NS : TICK_NS}, NULL);
    }
}

/* ---- agreement ---- */

/* A block between rank 0 and each of the others, one way: rank 0 has that of rank r at block + r * stride, the others
   have theirs at block. */
static int star(Cluster *c, bool to_rank_0, int tag, void *block, size_t stride, size_t bytes,
                double seconds, cvn_err *err)
{
    Transport *t = c->t;
    bool sends = to_rank_0 == (t->rank > 0);
    SCOPED(scoped_free) Transfer *transfer = calloc((size_t)c->end, sizeof *transfer);
    if (!transfer)
        return err_set(err, CVN_EMEM, "no memory for messages to other ranks");
    for (int rank = c->first; rank < c->end; rank++)
        TRY(transport_begin(t, sends, rank, tag, (char *)block + (size_t)rank * stride, bytes,
                            &transfer[rank], seconds, err));
    return transport_wait(t, transfer, c->end, seconds, err);
}

/* One block from every rank to all, [n_ranks * bytes], by way of rank 0. */
static int gather(Cluster *c, int tag, const void *own, void *all, size_t bytes, double seconds,
                  cvn_err *err)
{
    memcpy(all, own, bytes); /* the others get it again, in its place */
    TRY(star(c, true, tag, all, bytes, bytes, seconds, err));
    return star(c, false, tag + 1, all, 0, bytes * (size_t)c->t->n_ranks, seconds, err);
}

static int compare_cards(Cluster *c, cvn_err *err)
{
    ProcessInfo own = {0};
    snprintf(own.host, sizeof own.host, "%s", c->t->host);
    own.pid = getpid();
    snprintf(own.settings, sizeof own.settings, "%s",
             c->options.settings ? c->options.settings : "");
    TRY(gather(c, TAG_CARD, &own, c->card, sizeof own, start_seconds, err));
    for (int rank = 1; rank < c->t->n_ranks; rank++)
        if (memcmp(c->card[rank].settings, c->card[0].settings, sizeof own.settings) != 0)
            return err_set(err, CVN_EINVAL,
                           "rank %d on %s runs '%s', but rank 0 on %s runs '%s'; give all ranks "
                           "the same program and options, and on different processors the same "
                           "kernels, as with CARAVAN_CPU=avx2",
                           rank, c->card[rank].host, c->card[rank].settings, c->card[0].host,
                           c->card[0].settings);
    return CVN_OK;
}

int cluster_agree(Cluster *c, const char *what, uint64_t hash, cvn_err *err)
{
    if (!c)
        return CVN_OK;
    uint64_t own[2] = {hash, (uint64_t)atomic_load(&c->step)};
    SCOPED(scoped_free) uint64_t(*all)[2] = calloc((size_t)c->t->n_ranks, sizeof own);
    if (!all)
        return err_set(err, CVN_EMEM, "no memory for messages to other ranks");
    TRY(cluster_gather(c, CLUSTER_AGREES, own, all, sizeof own, err));
    for (int rank = 1; rank < c->t->n_ranks; rank++)
        if (all[rank][0] != all[0][0])
            return err_set(err, CVN_EINVAL,
                           "rank %d on %s disagrees with rank 0 on %s about %s, at step %lld", rank,
                           c->card[rank].host, c->card[0].host, what, (long long)all[0][1]);
    return CVN_OK;
}

int cluster_gather(Cluster *c, ClusterChannel channel, const void *own, void *all, size_t bytes,
                   cvn_err *err)
{
    if (c)
        return gather(c, TAG_GATHER + 2 * (int)channel, own, all, bytes, agree_seconds, err);
    memcpy(all, own, bytes);
    return CVN_OK;
}

int cluster_together(Cluster *c, ClusterChannel channel, int code, cvn_err *err)
{
    if (!c)
        return code;
    size_t n = (size_t)c->t->n_ranks;
    cvn_err own = code ? *err : (cvn_err){0};
    SCOPED(scoped_free) cvn_err *all = calloc(n, sizeof *all);
    own.code = code;
    if (!all)
        return err_set(err, CVN_EMEM, "no memory for messages to other ranks");
    TRY(cluster_gather(c, channel, &own, all, sizeof own, err));
    for (size_t rank = 0; rank < n; rank++) {
        const cvn_err *its = &all[rank];
        if (its->code && rank == 0)
            return err_set(err, its->code, "%s", its->message);
        if (its->code)
            return err_set(err, its->code, "rank %zu on %s: %s", rank, c->card[rank].host,
                           its->message);
    }
    return CVN_OK;
}

int cluster_share(Cluster *c, void *data, size_t bytes, cvn_err *err)
{
    return c ? star(c, false, TAG_SHARE, data, 0, bytes, agree_seconds, err) : CVN_OK;
}

/* ---- parts ---- */

/* The transport of a part: the whole one's, with other numbers. */
typedef struct PartTransport {
    Transport t;
    Transport *whole;
    int first;
} PartTransport;

static int part_send(Transport *t, int to, int tag, const void *data, size_t bytes,
                     Transfer *transfer, cvn_err *err)
{
    const PartTransport *p = (PartTransport *)t;
    return p->whole->send(p->whole, p->first + to, tag, data, bytes, transfer, err);
}

static int part_receive(Transport *t, int from, int tag, void *data, size_t bytes,
                        Transfer *transfer, cvn_err *err)
{
    const PartTransport *p = (PartTransport *)t;
    return p->whole->receive(p->whole, p->first + from, tag, data, bytes, transfer, err);
}

static int part_test(Transport *t, Transfer *transfer, int n, bool *done, cvn_err *err)
{
    const PartTransport *p = (PartTransport *)t;
    return p->whole->test(p->whole, transfer, n, done, err);
}

int cluster_part(Cluster *whole, int first, int n, Cluster **out, cvn_err *err)
{
    Cluster *c = *out = calloc(1, sizeof *c);
    PartTransport *p = calloc(1, sizeof *p);
    if (!c || !p) {
        free(c);
        free(p);
        *out = NULL;
        return err_set(err, CVN_EMEM, "no memory for a part of a cluster");
    }
    *p = (PartTransport){.t = {.rank = whole->t->rank - first,
                               .n_ranks = n,
                               .send = part_send,
                               .receive = part_receive,
                               .test = part_test},
                         .whole = whole->t,
                         .first = first};
    c->t = &p->t;
    c->whole = whole;
    c->card = whole->card + first;
    return CVN_OK;
}

void cluster_part_free(Cluster *part)
{
    if (!part)
        return;
    free(part->t);
    free(part);
}

/* ---- from start to end ---- */

int cluster_open(const ClusterOptions *options, Cluster **out, cvn_err *err)
{
    *out = NULL;
    Transport *t = transport_open(err);
    if (!t)
        return err ? err->code : CVN_EUNSUPPORTED;
    Cluster *c = calloc(1, sizeof *c);
    size_t n = (size_t)t->n_ranks;
    if (c) {
        c->card = calloc(n, sizeof *c->card);
        c->peer = calloc(n, sizeof *c->peer);
    }
    if (!c || !c->card || !c->peer) {
        err_set(err, CVN_EMEM, "no memory for a cluster of %d ranks", t->n_ranks);
        t->abort(t, 1); /* the others would wait for this rank; does not return */
        _exit(1);
    }
    pthread_mutex_init(&c->lock, NULL);
    c->t = t;
    c->first = t->rank == 0 ? 1 : 0;
    c->end = t->rank == 0 ? t->n_ranks : 1;
    c->options = *options;
    if (c->options.timeout <= 0)
        c->options.timeout = 20;
    *out = c;
    int rc = compare_cards(c, err);
    for (size_t rank = 0; rank < n; rank++)
        c->peer[rank].heard_ns = clock_ns();
    if (!rc && pthread_create(&c->watchdog, NULL, watch, c))
        rc = err_set(err, CVN_EMEM, "the system refused a thread that watches other ranks");
    c->watching = !rc;
    return rc;
}

bool cluster_fail(Cluster *c, const cvn_err *err)
{
    bool first = cluster_claim(c);
    if (c->t->rank == 0 || !c->watching)
        return c->t->rank == 0 && first;
    c->failure = *err;
    atomic_store(&c->failing, true);
    sleep(5); /* rank 0 ends this process meanwhile */
    return first;
}

/* The transport may hang too; the launcher ends the others when this process has ended. */
static void *abort_anyway(void *argument)
{
    nanosleep(&(struct timespec){.tv_sec = 4}, NULL);
    _exit(*(const int *)argument);
}

void cluster_abort(Cluster *c, int status)
{
    static int kept;
    pthread_t thread;
    kept = status;
    if (pthread_create(&thread, NULL, abort_anyway, &kept) == 0)
        pthread_detach(thread);
    c->t->abort(c->t, status);
    _exit(status);
}

void cluster_close(Cluster *c)
{
    if (!c)
        return;
    if (c->watching) {
        atomic_store(&c->leaving, true);
        pthread_join(c->watchdog, NULL);
    }
    c->t->close(c->t);
    pthread_mutex_destroy(&c->lock);
    free(c->card);
    free(c->peer);
    free(c);
}
