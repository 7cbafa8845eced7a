/* The inside of the server, shared by its files. */
#ifndef CVN_SERVER_INTERNAL_H
#define CVN_SERVER_INTERNAL_H

#include "serve/engine.h"
#include "server/exchange.h"
#include "server/fields.h"
#include "server/keys.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/tools.h"
#include "text/chat_template.h"

#include <pthread.h>
#include <string.h>

typedef enum ServerState {
    SERVER_LOADING,
    SERVER_READY,
    SERVER_DRAINING, /* new requests are refused */
    SERVER_ENDED,
} ServerState;

/* How conversations of a model are rendered and parsed. */
typedef struct ChatKind {
    ChatTemplate *template; /* owned; NULL: there is none … */
    AnswerKind answers;     /* owned: how answers are written, and tools called */
    cvn_err why;            /* … and this is the reason */
} ChatKind;

/* What a model that is served does, under the server's lock. Invariant: running <= Served.slots. */
typedef struct ServedNow {
    int n_choices;          /* sequences that have not ended */
    int running;            /* sequences that had a slot after the last step */
    double cache_share;     /* of the pages of the KV cache: pages_used after it */
    cvn_engine_stats stats; /* after it */
    ServerMetrics metrics;
} ServedNow;

/* A model that is served. What follows `now` is known once the server is ready, and not changed then. */
typedef struct Served {
    const ServerModel *is; /* borrowed */
    ServedNow now;
    const cvn_model *model;
    cvn_engine *engine;         /* used by its thread; others only check requests with it */
    const Tokenizer *tokenizer; /* or NULL */
    int64_t context;
    int slots;
    ChatKind chat;
    char fingerprint[24]; /* of weights, adapters, tokenizer and program */
    /* Owned: what all receipts begin with, made by the engine's thread for the first one; or NULL. */
    json_t *receipt;
} Served;

/* Exchanges that engines have, or are to get. Invariant: first and last are NULL together; numbers grow from first to last. */
typedef struct ExchangeQueue {
    Exchange *first, *last;
    int64_t last_number; /* that an exchange was given (broadcast.c) */
} ExchangeQueue;

/* How far loading has come. Invariant: bytes <= of, where of is known. */
typedef struct ServerLoad {
    int model; /* the number of the model that is being loaded */
    uint64_t bytes, of;
} ServerLoad;

/* Where the server listens; known before it loads, and not changed. */
typedef struct ServerListen {
    struct Http *http;
    int port;
    bool loopback; /* only this machine can reach it */
} ServerListen;

struct Server {
    ServerOptions options;
    pthread_mutex_t lock; /* of all below, and of exchanges */
    pthread_cond_t wake;  /* of the engines' thread */
    ServerState state;
    volatile int aborting; /* what the engines watch */
    bool several;          /* processes serve the model together; known once it is ready */
    ExchangeQueue queue;
    Keys keys;
    uint64_t refused;   /* requests that were answered with an error */
    double started;     /* by clock_seconds */
    json_int_t created; /* the same, in seconds since 1970 */
    double looked;      /* when connections were last checked */
    ServerLoad load;
    Served *served; /* [options.n_models] owned */
    ServerListen listen;
};

/* ---- dialects ---- */

/* How a request for texts is read, and how its answer is written. */
typedef struct Dialect {
    const char *path;
    const Fields *fields;
    const char *name; /* in logs */
    /* Checks what concerns several fields, and makes prompts. */
    int (*finish)(Server *s, Ask *ask, Refusal *why);
    /* The answer in one piece. */
    json_t *(*whole)(const Exchange *x);
    /* What a stream has to say now: events into x->events.out. Called while the lock is held. */
    void (*stream)(Exchange *x);
} Dialect;

extern const Dialect dialect_chat, dialect_completions, dialect_responses, dialect_messages,
    dialect_embeddings;

/* An error in the shape that clients of this path expect. */
json_t *dialect_error(const char *path, const Refusal *why);

/* ---- prompts.c ---- */

int prompt_of_messages(Server *s, Ask *ask, Refusal *why);
/* Texts and ids; field: what they are called in the request. */
int prompts_of_texts(Server *s, Ask *ask, const char *field, Refusal *why);
int prompts_of_completion(Server *s, Ask *ask, Refusal *why);
/* Which model is asked for, and with which adapter. */
int find_model(Server *s, Ask *ask, Refusal *why);
int find_chat_template(const Server *s, Served *m, cvn_err *err);
/* The name that clients know the answering model or adapter by. */
const char *answers_as(const Exchange *x);

/* ---- writing ---- */

/* A JSON string of bytes; what is no UTF-8 becomes U+FFFD. */
json_t *json_text_of(const char *text, size_t n);
/* "data: {…}\n\n", with "event: NAME\n" in front unless it is NULL. Takes the reference. */
void put_event(StrBuf *out, const char *name, json_t *json);
/* "stop", "length" or "abort". */
const char *finish_reason(const Choice *c);
/* Whether it ends with tool calls. */
bool ends_in_calls(const Choice *c);

/* ---- broadcast.c ---- */

/* Makes an exchange of a request's body; takes the Ask over. NULL: it is refused. */
Exchange *exchange_read(Server *s, const Dialect *dialect, Ask *ask, Refusal *why);
/* Before each step: tells all processes which requests are new and which have ended, and whether the server continues. */
int broadcast_requests(Server *s, bool *more, cvn_err *err);
/* Another process listens. */
static inline bool server_follows(const Server *s)
{
    return s->options.follows;
}

/* ---- worker.c ---- */

/* Adds it to the queue of the engine's thread; returns a status where it is refused. */
int worker_add(Server *s, Exchange *x, Refusal *why);
/* Adds a reference of the engine's thread. The lock is held. */
void worker_link(Server *s, Exchange *x);
/* Drops a reference. The lock is held. */
void exchange_drop(Exchange *x);
/* Whether there is something to send. The lock is held. */
bool choice_has_news(const Choice *c);
bool exchange_has_news(const Exchange *x);
/* Resumes the connection. The lock is held. */
void http_wake(Exchange *x);

#endif
