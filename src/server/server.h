/*
 * The server: HTTP in front of the scheduler (serve/scheduler.h), in the dialects that clients speak.
 *
 *     connections       epoll threads of libmicrohttpd     read requests, write answers; wait for nothing
 *         |  exchanges: a request and what has been generated for it, under one lock
 *     the engine        the thread that called server_run   submits, steps, cancels
 *
 * A request is read whole and checked (fields.h), becomes token ids, and is put where the engine's thread finds it before
 * its next step. Tokens become text on the engine's thread, because a stop sequence ends a slot's request; they become JSON on the
 * threads of connections. A connection that has nothing to send is suspended, and costs nothing until there is something.
 */
#ifndef CVN_SERVER_SERVER_H
#define CVN_SERVER_SERVER_H

#include "caravan/engine.h"

#include <stdbool.h>

typedef struct Server Server;

/* Writes a line, given without its line end, to a log. Called by several threads at once. */
typedef void ServerLog(void *context, const char *line);

/* A model that is served. */
typedef struct ServerModel {
    const char *name; /* its name for clients */
    const char *path; /* where it is */
    /* [n_adapters] what they call those of its engine's options; no two names are the same */
    const char *const *adapter;
    int n_adapters;
} ServerModel;

typedef struct ServerOptions {
    const char *host;               /* address to listen at, "127.0.0.1" */
    int port;                       /* 0: one that is free */
    const char *socket_path;        /* listen there instead; or NULL */
    const ServerModel *model;       /* [n_models] */
    int n_models;                   /* at least 1 */
    const char *chat_template;      /* file or name (text/chat_template.h), or NULL: the model's */
    const char *key_file;           /* API keys, one per line, or NULL: no authentication */
    const char *tls_cert, *tls_key; /* PEM files, the chain and its key; or NULL: no TLS */
    bool follows;     /* rank 0 listens: this process follows its messages (broadcast.c) */
    bool open;        /* serves other machines without authentication */
    const char *cors; /* an allowed origin of CORS requests, or NULL */
    bool lenient;     /* unknown fields are named in a header, not refused */
    int max_waiting;  /* sequences that may wait for a slot; further requests are refused */
    int64_t max_body; /* bytes of a request */
    int max_connections;
    int deadline_seconds;         /* request timeout; 0: none */
    void (*ready)(void *context); /* called once requests are answered; or NULL */
    void *ready_context;
    int idle_seconds;  /* idle timeout of connections */
    bool log_text;     /* with prompts and answers */
    ServerLog *access; /* a JSON line for each request; or NULL */
    void *access_context;
} ServerOptions;

/* Listens, and answers that it is loading. Strings are borrowed until the server is freed. */
int server_new(const ServerOptions *options, Server **out, cvn_err *err);

/* What /health says of loading: which model of options.model, and bytes of its weights; all: 0: of none yet. */
void server_progress(Server *server, int model, uint64_t done, uint64_t all);

/* The port it listens at; 0 at a path. */
int server_port(const Server *server);

/* Answers requests until server_drain and its end, or server_abort: 0, or an engine's error. The engines, one for each
   model and made for all kinds of sampling, are this thread's meanwhile. */
int server_run(Server *server, cvn_engine *const *engine, cvn_err *err);

/* From other threads. What runs is finished, what is new is refused; once more: nothing is finished. False: it has not begun
   to run. */
bool server_drain(Server *server);
void server_abort(Server *server);
/* Reads the files of keys and certificates again; after an error what was read before stays. Connections go on with the
   certificate that they began with. */
int server_reload(Server *server, cvn_err *err);

/* Closes all connections. NULL is allowed. */
void server_free(Server *server);

#endif
