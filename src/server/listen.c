#include "server/listen.h"

#include "base/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 512 };

bool listen_is_local_name(const char *host)
{
    if (!host)
        return true;
    size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    char name[64];
    struct in_addr v4;
    if (n >= sizeof name)
        return false;
    memcpy(name, host, n);
    name[n] = '\0';
    if (strcasecmp(name, "localhost") == 0 || strcmp(name, "[::1]") == 0)
        return true;
    return inet_pton(AF_INET, name, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127;
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static int open_path(const char *path, cvn_err *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat was;
    if (strlen(path) >= sizeof address.sun_path) {
        err_set(err, CVN_EINVAL, "--socket %s is longer than the path of a Unix socket may be",
                path);
        return -1;
    }
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    /* One that a server left behind; nothing else is ever removed. */
    if (lstat(path, &was) == 0 && S_ISSOCK(was.st_mode))
        unlink(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t mask = umask(0077);
    bool bound = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    umask(mask);
    if (bound && listen(fd, BACKLOG) == 0)
        return fd;
    err_set(err, CVN_EIO, "cannot listen on %s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return -1;
}

static int open_address(const struct addrinfo *info, int *port)
{
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;
    struct sockaddr_storage got;
    socklen_t n = sizeof got;
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0 &&
        getsockname(fd, (struct sockaddr *)&got, &n) == 0) {
        *port = ntohs(got.ss_family == AF_INET ? ((struct sockaddr_in *)&got)->sin_port
                                               : ((struct sockaddr_in6 *)&got)->sin6_port);
        return fd;
    }
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

int listen_open(const ServerOptions *o, int *port, bool *loopback, cvn_err *err)
{
    *port = 0;
    *loopback = true;
    if (o->socket_path)
        return open_path(o->socket_path, err);
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found;
    char service[16];
    snprintf(service, sizeof service, "%d", o->port);
    int code = getaddrinfo(o->host, service, &hints, &found);
    if (code) {
        err_set(err, CVN_EINVAL, "--host %s is not an address: %s", o->host, gai_strerror(code));
        return -1;
    }
    *loopback = is_loopback(found->ai_addr);
    int fd = open_address(found, port);
    if (fd < 0)
        err_set(err, CVN_EIO, "cannot listen on %s port %d: %s", o->host, o->port, strerror(errno));
    freeaddrinfo(found);
    return fd;
}
