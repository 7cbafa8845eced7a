/*
 * The transport over TCP: processes that no launcher started, on machines that know one address, rank 0's.
 *
 *     CARAVAN_COORDINATOR=node1:7000 CARAVAN_PROCESSES=2 CARAVAN_PROCESS=0 caravan score … --mesh model=2     on node1
 *     CARAVAN_COORDINATOR=node1:7000 CARAVAN_PROCESSES=2 CARAVAN_PROCESS=1 caravan score … --mesh model=2     on node2
 *
 * Rank 0 listens at that address. The others listen at a port of their own, connect to rank 0 and tell it that port; when all are
 * there, rank 0 sends everyone the addresses of all, and each connects to those of smaller rank. Afterwards nobody listens, and
 * each pair of processes has one connection, on which messages are
 *
 *     tag (4 bytes) | 0 (4) | bytes (8) | the bytes
 *
 * in the order of this machine, which all have (base/bytes.h is for those of files). Whoever calls `test` moves everything along: writes
 * what sockets take, reads what they have. A message that nobody has asked for yet is kept until somebody does. One that is of
 * tag ENDS ends this process: another one has said why.
 *
 * A connection that ends early is silence: the watchdog (cluster.h) finds it. What is sent is neither encrypted nor authenticated, as
 * with MPI: networks of clusters are their own.
 */
#include "comm/transport.h"

#include "base/threads.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ENDS = INT_MAX, AT_ONCE = 8 << 20 /* bytes of a connection in one call */ };
static const uint32_t greeting = 0x3c76a501; /* and the version of what follows */
static const double start_seconds = 120;     /* for all to be there */
static const int64_t close_ns = 5000000000;  /* for all to leave */
static const int64_t abort_ns = 500000000;   /* for the others to be told */

typedef struct Header {
    int32_t tag;
    uint32_t zero;
    uint64_t bytes;
} Header;

typedef struct Message {
    Header header;
    char *data;     /* a caller's; of one that nobody has asked for owned */
    uint64_t moved; /* bytes of header and data, or of data alone where it is received */
    bool ended;
    struct Message *next;
} Message;

typedef struct Queue {
    Message *first, **last;
} Queue;

/* The connection to another process. */
typedef struct Peer {
    int fd;                      /* -1: there is none, or no more */
    Queue sending, asked, early; /* in order; early: that came before they were asked for */
    Header header;               /* of what is being received, so many bytes of it */
    size_t n_header;
    Message *receiving; /* of asked or early */
} Peer;

typedef struct Tcp {
    Transport transport; /* first, so that the one is the other */
    pthread_mutex_t lock;
    Peer *peer; /* [n_ranks] */
} Tcp;

/* What a process says of itself when it connects; and what rank 0 says of all. */
typedef struct Hello {
    uint32_t greeting;
    int32_t rank, n_ranks;
    uint32_t bytes; /* of address */
    struct sockaddr_storage address;
} Hello;

/* ---- queues ---- */

static void put(Queue *q, Message *m)
{
    if (!q->first)
        q->last = &q->first;
    m->next = NULL;
    *q->last = m;
    q->last = &m->next;
}

/* Takes the first message with a tag, or any, out of a queue; NULL: there is none. */
static Message *take(Queue *q, const int32_t *tag)
{
    for (Message **at = &q->first; *at; at = &(*at)->next) {
        Message *m = *at;
        if (tag && m->header.tag != *tag)
            continue;
        *at = m->next;
        if (q->last == &m->next)
            q->last = at;
        return m;
    }
    return NULL;
}

/* ---- moving along ---- */

static void drop(Peer *p)
{
    close(p->fd);
    p->fd = -1;
}

/* Whether there is nothing now, and might be later. */
static bool later(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static void send_more(Peer *p)
{
    for (Message *m; p->fd >= 0 && (m = p->sending.first);) {
        const uint64_t head = sizeof m->header;
        const uint64_t in_head = m->moved < head ? m->moved : head, in_data = m->moved - in_head;
        struct iovec part[2] = {
            {(char *)&m->header + in_head, head - in_head},
            {m->data + in_data, m->header.bytes - in_data},
        };
        struct msghdr message = {.msg_iov = part, .msg_iovlen = 2};
        ssize_t n = m->moved < head + m->header.bytes ? sendmsg(p->fd, &message, MSG_NOSIGNAL) : 0;
        if (n < 0 && !later())
            drop(p);
        if (n < 0)
            return;
        m->moved += (uint64_t)n;
        if (m->moved < head + m->header.bytes)
            continue;
        take(&p->sending, NULL);
        m->ended = true;
    }
}

/* A message begins to come: into what was asked for, or into memory of its own. */
static void begin_message(Peer *p)
{
    if (p->header.tag == ENDS)
        _exit(p->header.zero ? (int)p->header.zero : 1);
    Message *m = p->asked.first;
    while (m && (m->header.tag != p->header.tag || m->moved || m->ended))
        m = m->next;
    if (p->header.zero || (m && m->header.bytes != p->header.bytes)) {
        drop(p); /* a bug of ours, or no process of ours */
        return;
    }
    if (!m) {
        m = calloc(1, sizeof *m);
        if (m)
            m->data = malloc(p->header.bytes ? (size_t)p->header.bytes : 1);
        if (!m || !m->data) {
            free(m);
            drop(p);
            return;
        }
        m->header = p->header;
        put(&p->early, m);
    }
    p->receiving = m;
}

/* Reads up to n bytes; 0: nothing is there. */
static size_t read_some(Peer *p, void *to, size_t n)
{
    ssize_t got = n ? recv(p->fd, to, n, 0) : 0;
    if ((got < 0 && !later()) || (got == 0 && n))
        drop(p);
    return got > 0 ? (size_t)got : 0;
}

static void receive_more(Peer *p)
{
    for (size_t all = 0; p->fd >= 0 && all < AT_ONCE;) {
        Message *m = p->receiving;
        size_t got = 0;
        if (!m) {
            got = read_some(p, (char *)&p->header + p->n_header, sizeof p->header - p->n_header);
            p->n_header += got;
            if (p->fd >= 0 && p->n_header == sizeof p->header)
                begin_message(p);
        } else {
            got = read_some(p, m->data + m->moved, (size_t)(m->header.bytes - m->moved));
            m->moved += got;
        }
        m = p->receiving;
        if (m && m->moved == m->header.bytes) {
            m->ended = true;
            p->receiving = NULL;
            p->n_header = 0;
        } else if (!got) {
            return;
        }
        all += got;
    }
}

static void move_along(Tcp *t)
{
    for (int r = 0; r < t->transport.n_ranks; r++)
        if (t->peer[r].fd >= 0) {
            send_more(&t->peer[r]);
            if (t->peer[r].fd >= 0)
                receive_more(&t->peer[r]);
        }
}

/* ---- the transport ---- */

static int no_memory(cvn_err *err)
{
    return err_set(err, CVN_EMEM, "no memory for a message to another process");
}

static int tcp_send(Transport *transport, int to, int tag, const void *data, size_t bytes,
                    Transfer *transfer, cvn_err *err)
{
    Tcp *t = (Tcp *)transport;
    Message *m = calloc(1, sizeof *m);
    if (!m)
        return no_memory(err);
    m->header = (Header){.tag = tag, .bytes = bytes};
    m->data = (char *)(uintptr_t)data;
    pthread_mutex_lock(&t->lock);
    put(&t->peer[to].sending, m);
    send_more(&t->peer[to]);
    pthread_mutex_unlock(&t->lock);
    transfer->request = m;
    return CVN_OK;
}

static int tcp_receive(Transport *transport, int from, int tag, void *data, size_t bytes,
                       Transfer *transfer, cvn_err *err)
{
    Tcp *t = (Tcp *)transport;
    const int32_t wanted = tag;
    Message *m = calloc(1, sizeof *m), *early = NULL;
    if (!m)
        return no_memory(err);
    pthread_mutex_lock(&t->lock);
    Peer *p = &t->peer[from];
    m->header = (Header){.tag = tag, .bytes = bytes};
    m->data = data;
    for (Message *e = p->early.first; e && !early; e = e->next)
        early = e->header.tag == tag ? e : NULL;
    bool fits = !early || early->header.bytes == bytes;
    if (early && fits) { /* the rest of it comes into the caller's memory */
        take(&p->early, &wanted);
        if (early->moved)
            memcpy(data, early->data, (size_t)early->moved);
        m->moved = early->moved;
        m->ended = early->ended;
        if (p->receiving == early)
            p->receiving = m;
        free(early->data);
        free(early);
    }
    if (fits)
        put(&p->asked, m);
    else
        free(m);
    pthread_mutex_unlock(&t->lock);
    if (!fits)
        return err_set(err, CVN_EIO, "rank %d sent a message of another size", from);
    transfer->request = m;
    return CVN_OK;
}

/* Which queue of asked messages has it, if any, no longer does. */
static void forget(Tcp *t, Message *m)
{
    for (int r = 0; r < t->transport.n_ranks; r++) {
        Queue *q = &t->peer[r].asked;
        for (Message **at = &q->first; *at; at = &(*at)->next)
            if (*at == m) {
                *at = m->next;
                if (q->last == &m->next)
                    q->last = at;
                return;
            }
    }
}

static int tcp_test(Transport *transport, Transfer *transfer, int n, bool *done, cvn_err *err)
{
    Tcp *t = (Tcp *)transport;
    (void)err;
    *done = false;
    if (pthread_mutex_trylock(&t->lock)) /* who holds it moves all along */
        return CVN_OK;
    move_along(t);
    *done = true;
    for (int i = 0; i < n; i++) {
        Message *m = transfer[i].request;
        if (m && !m->ended)
            *done = false;
        if (!m || !m->ended)
            continue;
        forget(t, m);
        free(m);
        transfer[i].request = NULL;
    }
    pthread_mutex_unlock(&t->lock);
    return CVN_OK;
}

static void free_tcp(Tcp *t)
{
    for (int r = 0; t->peer && r < t->transport.n_ranks; r++) {
        Peer *p = &t->peer[r];
        if (p->fd >= 0)
            close(p->fd);
        for (Message *m; (m = take(&p->early, NULL));) {
            free(m->data);
            free(m);
        }
    }
    pthread_mutex_destroy(&t->lock);
    free(t->peer);
    free(t);
}

/* All have agreed to leave: what is under way is sent, and the ends of the others are awaited. */
static void tcp_close(Transport *transport)
{
    Tcp *t = (Tcp *)transport;
    pthread_mutex_lock(&t->lock);
    for (int64_t begin = clock_ns(); clock_ns() - begin < close_ns;) {
        bool open = false;
        move_along(t);
        for (int r = 0; r < transport->n_ranks; r++) {
            Peer *p = &t->peer[r];
            if (p->fd >= 0 && !p->sending.first)
                shutdown(p->fd, SHUT_WR);
            open |= p->fd >= 0;
        }
        if (!open)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    pthread_mutex_unlock(&t->lock);
    free_tcp(t);
}

static void tcp_abort(Transport *transport, int status)
{
    Tcp *t = (Tcp *)transport;
    const Header ends = {.tag = ENDS, .zero = (uint32_t)status};
    bool locked = false;
    for (int64_t begin = clock_ns(); !locked && clock_ns() - begin < abort_ns;)
        locked = pthread_mutex_trylock(&t->lock) == 0;
    if (!locked) /* the others find that this one is silent */
        _exit(status);
    for (int r = 0; r < transport->n_ranks; r++) {
        Peer *p = &t->peer[r];
        Message *m = p->fd >= 0 ? calloc(1, sizeof *m) : NULL;
        if (!m)
            continue;
        m->header = ends;
        put(&p->sending, m);
    }
    for (int64_t begin = clock_ns(); clock_ns() - begin < abort_ns;) {
        bool waits = false;
        for (int r = 0; r < transport->n_ranks; r++) {
            if (t->peer[r].fd >= 0)
                send_more(&t->peer[r]);
            waits |= t->peer[r].fd >= 0 && t->peer[r].sending.first;
        }
        if (!waits)
            break;
    }
    _exit(status);
}

/* ---- meeting ---- */

static int failed(cvn_err *err, const char *what, const char *address)
{
    return err_set(err, CVN_EIO, "cannot %s %s: %s", what, address, strerror(errno));
}

/* Waits for a socket until the time is over; what poll says. */
static int await(int fd, short events, int64_t until)
{
    for (;;) {
        const int64_t left = (until - clock_ns()) / 1000000;
        struct pollfd ready = {.fd = fd, .events = events};
        const int is = left > 0 ? poll(&ready, 1, (int)left) : 0;
        if (is >= 0 || errno != EINTR)
            return is;
    }
}

/* All of n bytes, before the time is over. */
static int whole(int fd, bool sends, void *data, size_t n, int64_t until, cvn_err *err)
{
    for (char *at = data; n;) {
        const int is = await(fd, sends ? POLLOUT : POLLIN, until);
        ssize_t got = is > 0 ? (sends ? send(fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT)
                                      : recv(fd, at, n, MSG_DONTWAIT))
                             : -1;
        if (is == 0 || got == 0)
            return err_set(err, CVN_EIO, "another process %s while they met; check its output",
                           is ? "ended" : "did not respond");
        if (got < 0 && (is < 0 || !later()))
            return failed(err, "meet", "another process");
        at += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return CVN_OK;
}

/* A socket that listens at an address; at any of this machine's if it is to, or has not got that one, as behind a translation. */
static int listen_at(const struct sockaddr *address, socklen_t n, bool at_any)
{
    struct sockaddr_storage any;
    const int on = 1;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(&any, address, n);
    if (any.ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)&any)->sin_addr.s_addr = htonl(INADDR_ANY);
    else
        ((struct sockaddr_in6 *)(void *)&any)->sin6_addr = in6addr_any;
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool bound = !at_any && bind(fd, address, n) == 0;
    if (!bound && (at_any || errno == EADDRNOTAVAIL))
        bound = bind(fd, (struct sockaddr *)&any, n) == 0;
    if (bound && listen(fd, SOMAXCONN) == 0)
        return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

/* Tries until there is somebody, or the time is over. */
static int connect_to(const struct sockaddr *address, socklen_t n, int64_t until)
{
    for (;;) {
        const int64_t left = until - clock_ns();
        int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        /* Which bounds connect, too, where nothing answers; later the socket does not block. */
        const struct timeval most = {.tv_sec = left > 0 ? left / 1000000000 + 1 : 1};
        if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most) == 0 &&
            connect(fd, address, n) == 0)
            return fd;
        const int why = errno == EINPROGRESS ? ETIMEDOUT : errno;
        if (fd >= 0)
            close(fd);
        errno = why;
        if (fd < 0 || clock_ns() > until)
            return -1;
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
}

static int accept_one(int listener, int64_t until, cvn_err *err, int *out)
{
    const int is = await(listener, POLLIN, until);
    if (is == 0)
        return err_set(
            err, CVN_EIO,
            "not all processes have come within %.0f s; check that each was started, with "
            "the same CARAVAN_COORDINATOR and CARAVAN_PROCESSES",
            start_seconds);
    *out = is > 0 ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
    /* Whoever has gone again was nobody. */
    return *out >= 0 || later() || errno == ECONNABORTED ? CVN_OK
                                                         : failed(err, "accept", "another process");
}

/* Takes the connections of n others; hello [n_ranks]. Whoever is none of ours is turned away. */
static int accept_all(Tcp *t, int listener, int n, Hello *hello, int64_t until, cvn_err *err)
{
    const int n_ranks = t->transport.n_ranks;
    while (n > 0) {
        int fd = -1;
        Hello h;
        TRY(accept_one(listener, until, err, &fd));
        if (fd < 0)
            continue;
        const int64_t soon = clock_ns() + 5000000000;
        if (whole(fd, false, &h, sizeof h, soon < until ? soon : until, NULL) ||
            h.greeting != greeting || h.bytes > sizeof h.address) {
            close(fd);
            continue;
        }
        const bool fits = h.n_ranks == n_ranks && h.rank > t->transport.rank && h.rank < n_ranks &&
                          t->peer[h.rank].fd < 0;
        if (!fits) {
            close(fd);
            return err_set(err, CVN_EINVAL,
                           "a process came as number %d of %d where there are %d, from 0 to %d, "
                           "each once; correct CARAVAN_PROCESS or CARAVAN_PROCESSES",
                           h.rank, h.n_ranks, n_ranks, n_ranks - 1);
        }
        /* Its port is the one that it says, its machine the one that it comes from. */
        struct sockaddr_storage from = {0};
        socklen_t bytes = sizeof from;
        if (getpeername(fd, (struct sockaddr *)&from, &bytes)) {
            close(fd);
            return failed(err, "meet", "another process");
        }
        if (from.ss_family == AF_INET)
            ((struct sockaddr_in *)(void *)&from)->sin_port =
                ((struct sockaddr_in *)(void *)&h.address)->sin_port;
        else
            ((struct sockaddr_in6 *)(void *)&from)->sin6_port =
                ((struct sockaddr_in6 *)(void *)&h.address)->sin6_port;
        h.address = from;
        h.bytes = (uint32_t)bytes;
        hello[h.rank] = h;
        t->peer[h.rank].fd = fd;
        n--;
    }
    return CVN_OK;
}

/* Whether an address is this machine's alone, as Debian has it for a machine's own name (127.0.1.1). */
static bool is_loopback(const struct sockaddr *a)
{
    const void *at = a;
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)at)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)at)->sin6_addr);
}

static int meet_as_first(Tcp *t, const struct addrinfo *at, const char *address, Hello *hello,
                         int64_t until, cvn_err *err)
{
    const int n = t->transport.n_ranks;
    const bool own_name = is_loopback(at->ai_addr) && !strchr("1234567890[", *address) &&
                          strncmp(address, "localhost:", 10) != 0;
    const int listener = listen_at(at->ai_addr, at->ai_addrlen, own_name);
    if (listener < 0)
        return failed(err, "listen at", address);
    int code = accept_all(t, listener, n - 1, hello, until, err);
    close(listener);
    for (int r = 1; r < n && !code; r++)
        code = whole(t->peer[r].fd, true, hello, (size_t)n * sizeof *hello, until, err);
    return code;
}

static int meet_as_other(Tcp *t, const struct addrinfo *at, const char *address, Hello *hello,
                         int64_t until, cvn_err *err)
{
    const int n = t->transport.n_ranks, rank = t->transport.rank;
    Hello own = {.greeting = greeting, .rank = rank, .n_ranks = n};
    socklen_t bytes = sizeof own.address;
    t->peer[0].fd = connect_to(at->ai_addr, at->ai_addrlen, until);
    if (t->peer[0].fd < 0)
        return failed(err, "connect to rank 0 at", address);
    /* At the address by which rank 0 is reached, at any port. */
    struct sockaddr *name = (struct sockaddr *)&own.address;
    if (getsockname(t->peer[0].fd, name, &bytes))
        return failed(err, "meet", "rank 0");
    if (name->sa_family == AF_INET)
        ((struct sockaddr_in *)(void *)name)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)(void *)name)->sin6_port = 0;
    const int listener = listen_at(name, bytes, false);
    if (listener < 0 || getsockname(listener, name, &bytes)) {
        if (listener >= 0)
            close(listener);
        return failed(err, "listen", "for other processes");
    }
    own.bytes = (uint32_t)bytes;
    int code = whole(t->peer[0].fd, true, &own, sizeof own, until, err);
    code = code ? code : whole(t->peer[0].fd, false, hello, (size_t)n * sizeof *hello, until, err);
    for (int r = 1; r < n && !code; r++)
        if (hello[r].greeting != greeting || hello[r].bytes > sizeof hello[r].address)
            code = err_set(err, CVN_EIO,
                           "rank 0 is not at %s: what answers there is another program", address);
    for (int r = 1; r < rank && !code; r++) {
        t->peer[r].fd = connect_to((struct sockaddr *)&hello[r].address, hello[r].bytes, until);
        code = t->peer[r].fd < 0 ? failed(err, "connect to", "another process")
                                 : whole(t->peer[r].fd, true, &own, sizeof own, until, err);
    }
    code = code ? code : accept_all(t, listener, n - 1 - rank, hello, until, err);
    close(listener);
    return code;
}

/* "host:port" or "[address]:port", of which the parts are copied. */
static int resolve(const char *address, struct addrinfo **out, cvn_err *err)
{
    const char *colon = strrchr(address, ':');
    const bool bracket = *address == '[' && colon && colon > address + 1 && colon[-1] == ']';
    char host[256];
    const size_t n = colon ? (size_t)(colon - address) - (bracket ? 2 : 0) : 0;
    if (!colon || n < 1 || n >= sizeof host || !colon[1] ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return err_set(err, CVN_EINVAL,
                       "CARAVAN_COORDINATOR is '%.100s'; give a host and a port, as node1:7000",
                       address);
    snprintf(host, sizeof host, "%.*s", (int)n, address + bracket);
    const struct addrinfo like = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    const int code = getaddrinfo(host, colon + 1, &like, out);
    return code ? err_set(err, CVN_EIO, "cannot find the host of CARAVAN_COORDINATOR '%.100s': %s",
                          address, gai_strerror(code))
                : CVN_OK;
}

static int meet(Tcp *t, const char *address, cvn_err *err)
{
    const int n = t->transport.n_ranks, on = 1;
    const int64_t until = clock_ns() + (int64_t)(start_seconds * 1e9);
    struct addrinfo *at;
    TRY(resolve(address, &at, err));
    Hello *hello = calloc((size_t)n, sizeof *hello);
    int code = !hello                   ? no_memory(err)
               : t->transport.rank == 0 ? meet_as_first(t, at, address, hello, until, err)
                                        : meet_as_other(t, at, address, hello, until, err);
    free(hello);
    freeaddrinfo(at);
    for (int r = 0; r < n && !code; r++) {
        const int fd = t->peer[r].fd;
        if (fd < 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK))
            code = failed(err, "meet", "another process");
    }
    return code;
}

Transport *transport_tcp(const char *address, int rank, int n_ranks, cvn_err *err)
{
    Tcp *t = calloc(1, sizeof *t);
    if (t)
        t->peer = calloc((size_t)n_ranks, sizeof *t->peer);
    if (!t || !t->peer) {
        free(t);
        no_memory(err);
        return NULL;
    }
    t->transport = (Transport){.rank = rank,
                               .n_ranks = n_ranks,
                               .send = tcp_send,
                               .receive = tcp_receive,
                               .test = tcp_test,
                               .close = tcp_close,
                               .abort = tcp_abort};
    gethostname(t->transport.host, sizeof t->transport.host - 1);
    pthread_mutex_init(&t->lock, NULL);
    for (int r = 0; r < n_ranks; r++)
        t->peer[r].fd = -1;
    if (meet(t, address, err)) {
        free_tcp(t);
        return NULL;
    }
    return &t->transport;
}
