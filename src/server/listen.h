/* Where a server listens. */
#ifndef CVN_SERVER_LISTEN_H
#define CVN_SERVER_LISTEN_H

#include "server/server.h"

/* A socket that listens, or -1. *port: the one it got; *loopback: only this machine can reach it. */
int listen_open(const ServerOptions *options, int *port, bool *loopback, cvn_err *err);

/* Whether a header Host names this machine by a name that means it everywhere: localhost, 127.x, [::1]; NULL: true. */
bool listen_is_local_name(const char *host);

#endif
