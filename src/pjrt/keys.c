/* A message is the sizes of key and value, and then both; sizes of 0 are the last one of a process. */
#include "pjrt/keys.h"

#include "base/threads.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TAG_KEYS = TAG_CLUSTER - 1, KEY_MOST = 1 << 24 };
static const double send_seconds = 60, end_seconds = 10;

typedef struct Entry {
    char *key, *value; /* owned: value is behind key, in one piece */
    size_t n_key, n_value;
    struct Entry *next;
} Entry;

/* What is received from one other process. */
typedef struct Peer {
    uint64_t size[2]; /* of the message that comes next */
    char *body;       /* owned: its key and value, while they come; NULL: the sizes do */
    Transfer transfer;
    bool ended;
} Peer;

struct Keys {
    Transport *t;
    Entry *first; /* the newest */
    Peer *peer;   /* [ranks] */
    pthread_mutex_t lock, sending;
    pthread_cond_t came;
    pthread_t listener;
    bool listens;
    atomic_bool closing;
};

/* ---- the table of keys ---- */

/* key holds n_key + n_value bytes, and is the entry's from now on. */
static void note(Keys *k, char *key, size_t n_key, size_t n_value)
{
    Entry *e = malloc(sizeof *e);
    if (!e) {
        free(key);
        return;
    }
    pthread_mutex_lock(&k->lock);
    *e = (Entry){key, key + n_key, n_key, n_value, k->first};
    k->first = e;
    pthread_cond_broadcast(&k->came);
    pthread_mutex_unlock(&k->lock);
}

/* Copies the value and says its size. False: the key is still missing at the time `until`. */
static bool find(Keys *k, const char *key, size_t n_key, const struct timespec *until, char **value,
                 size_t *n)
{
    bool late = false;
    *value = NULL;
    pthread_mutex_lock(&k->lock);
    for (;;) {
        const Entry *e = k->first;
        while (e && (e->n_key != n_key || memcmp(e->key, key, n_key) != 0))
            e = e->next;
        if (e && (*value = malloc(e->n_value + 1)))
            memcpy(*value, e->value, *n = e->n_value);
        if (e || late || !until)
            break;
        late = pthread_cond_timedwait(&k->came, &k->lock, until) != 0;
    }
    pthread_mutex_unlock(&k->lock);
    return *value;
}

/* ---- listening ---- */

/* Receives what a process has sent so far. */
static int listen_to(Keys *k, int rank, cvn_err *err)
{
    Peer *p = &k->peer[rank];
    bool done = true;
    if (p->transfer.request)
        TRY(k->t->test(k->t, &p->transfer, 1, &done, err));
    else /* the first time */
        return k->t->receive(k->t, rank, TAG_KEYS, p->size, sizeof p->size, &p->transfer, err);
    if (!done)
        return CVN_OK;
    size_t n_key = p->size[0], n_value = p->size[1];
    if (p->body) {
        note(k, p->body, n_key, n_value);
        p->body = NULL;
    } else if (n_key == 0) {
        p->ended = true;
        return CVN_OK;
    } else {
        if (n_key > KEY_MOST || n_value > KEY_MOST || !(p->body = malloc(n_key + n_value)))
            return err_set(err, CVN_EMEM, "no memory for a key of rank %d", rank);
        return k->t->receive(k->t, rank, TAG_KEYS, p->body, n_key + n_value, &p->transfer, err);
    }
    return k->t->receive(k->t, rank, TAG_KEYS, p->size, sizeof p->size, &p->transfer, err);
}

static void *listen_all(void *of)
{
    Keys *k = of;
    double closed = 0;
    for (bool all = false; !all;) {
        all = true;
        for (int r = 0; r < k->t->n_ranks; r++) {
            Peer *p = &k->peer[r];
            cvn_err err = {0};
            if (r == k->t->rank || p->ended)
                continue;
            int code = listen_to(k, r, &err);
            p->ended |= code && code != CVN_EINTERRUPTED; /* whose watchdog says why */
            all &= p->ended;
        }
        if (atomic_load(&k->closing) && closed <= 0)
            closed = clock_seconds();
        if (closed > 0 && clock_seconds() - closed > end_seconds)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return NULL;
}

/* ---- sending ---- */

/* Sends the sizes and then the body to all other processes. */
static int tell(Keys *k, char *body, uint64_t n_key, uint64_t n_value, cvn_err *err)
{
    uint64_t size[] = {n_key, n_value};
    int code = CVN_OK;
    pthread_mutex_lock(&k->sending);
    for (int r = 0; r < k->t->n_ranks && !code; r++) {
        Transfer sent[2] = {{NULL}};
        if (r == k->t->rank)
            continue;
        code = transport_begin(k->t, true, r, TAG_KEYS, size, sizeof size, &sent[0], send_seconds,
                               err);
        if (code == CVN_OK && n_key)
            code = transport_begin(k->t, true, r, TAG_KEYS, body, n_key + n_value, &sent[1],
                                   send_seconds, err);
        if (code == CVN_OK)
            code = transport_wait(k->t, sent, n_key ? 2 : 1, send_seconds, err);
    }
    pthread_mutex_unlock(&k->sending);
    return code;
}

static PjrtError *refuse(PjrtCallbackError *make, int code, const char *what, const char *key,
                         size_t n_key)
{
    char text[200];
    int n = snprintf(text, sizeof text, "%s '%.*s'", what, (int)(n_key < 100 ? n_key : 100), key);
    return (*make)(code, text, (size_t)n);
}

PjrtError *keys_put(PjrtKeyPutArgs *args)
{
    Keys *k = args->context;
    cvn_err err = {0};
    char *both = args->n_key ? malloc(args->n_key + args->n_value) : NULL;
    if (!both)
        return refuse(args->error, PJRT_RESOURCE_EXHAUSTED, "no memory for the key", args->key,
                      args->n_key);
    memcpy(both, args->key, args->n_key);
    memcpy(both + args->n_key, args->value, args->n_value);
    int code = tell(k, both, args->n_key, args->n_value, &err);
    if (code) {
        free(both);
        return (*args->error)(PJRT_UNAVAILABLE, err.message, strlen(err.message));
    }
    note(k, both, args->n_key, args->n_value);
    return NULL;
}

static void delete_value(char *value)
{
    free(value);
}

PjrtError *keys_get(PjrtKeyGetArgs *args)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += args->milliseconds / 1000;
    until.tv_nsec += args->milliseconds % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    args->free_value = delete_value;
    if (find(args->context, args->key, args->n_key, &until, &args->value, &args->n_value))
        return NULL;
    return refuse(args->error, PJRT_DEADLINE_EXCEEDED, "timeout waiting for another process to set",
                  args->key, args->n_key);
}

PjrtError *keys_try_get(PjrtKeyTryGetArgs *args)
{
    args->free_value = delete_value;
    if (find(args->context, args->key, args->n_key, NULL, &args->value, &args->n_value))
        return NULL;
    return refuse(args->error, PJRT_NOT_FOUND, "no process has set", args->key, args->n_key);
}

/* ---- begin and end ---- */

int keys_open(Transport *t, Keys **out, cvn_err *err)
{
    Keys *k = *out = calloc(1, sizeof *k);
    if (k)
        k->peer = calloc((size_t)t->n_ranks, sizeof *k->peer);
    if (!k || !k->peer) {
        free(k);
        *out = NULL;
        return err_set(err, CVN_EMEM, "no memory for messages to other processes");
    }
    k->t = t;
    pthread_mutex_init(&k->lock, NULL);
    pthread_mutex_init(&k->sending, NULL);
    pthread_cond_init(&k->came, NULL);
    k->listens = pthread_create(&k->listener, NULL, listen_all, k) == 0;
    return k->listens
               ? CVN_OK
               : err_set(err, CVN_EMEM, "cannot start the thread that listens to other processes");
}

void keys_close(Keys *k)
{
    if (!k)
        return;
    tell(k, NULL, 0, 0, NULL);
    atomic_store(&k->closing, true);
    if (k->listens)
        pthread_join(k->listener, NULL);
    for (Entry *e = k->first, *next; e; e = next) {
        next = e->next;
        free(e->key);
        free(e);
    }
    bool awaited = false;
    for (int r = 0; r < k->t->n_ranks; r++)
        awaited |= k->peer[r].transfer.request != NULL;
    pthread_cond_destroy(&k->came);
    pthread_mutex_destroy(&k->sending);
    pthread_mutex_destroy(&k->lock);
    if (awaited) /* from a process that is gone: what may still come is written there */
        return;
    for (int r = 0; r < k->t->n_ranks; r++)
        free(k->peer[r].body);
    free(k->peer);
    free(k);
}
