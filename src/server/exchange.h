/*
 * An exchange: a request, and what has been generated for it. The connection and the engine's thread have a reference each, and it
 * is freed when both have dropped theirs. What the engine's thread writes and connections read is guarded by the server's lock.
 */
#ifndef CVN_SERVER_EXCHANGE_H
#define CVN_SERVER_EXCHANGE_H

#include "serve/call_writer.h"
#include "serve/receipt.h"
#include "serve/stops.h"
#include "server/ask.h"

#include <stdatomic.h>

struct Server;
struct Dialect;

/* The log-probability of a token by the model's own logits, and the most likely ones. */
typedef struct Likely {
    float logprob;
    int rank; /* 1: the likeliest; of equals all have the same */
    int n_top;
    cvn_logprob top[ASK_MAX_TOP_LOGPROBS];
} Likely;

/* Why an exchange ends before its texts do: the client is gone, or it timed out. */
typedef enum Ending { ENDING_NOT, ENDING_GONE, ENDING_LATE } Ending;

/* ---- a choice: one of the texts that an exchange generates ---- */

/* A text is generated in phases, each a request to the engine that continues where the one before it ended: an answer, until it
   ends, or its thinking text does, or a call begins; then those of calls (serve/call_writer.h). This is the one that a choice is
   in, and what earlier ones took. */
typedef struct ChoicePhase {
    bool waits; /* for the end of the thinking text, after which the answer or a tool call begins */
    bool next;  /* what this phase waited for has come */
    Decoder decoder; /* as it was before the first token */
    TokenIds joined; /* the prompt and all tokens since: the prompt of the next phase */
    double seconds;  /* that earlier phases took */
    double begun;    /* that the first token took; 0: there were no earlier phases */
    int64_t reused;  /* tokens of the prompt that the first phase found in the prefix cache */
} ChoicePhase;

/* Log-probabilities of the tokens of a choice. Invariant: n <= capacity; n is that of the tokens, or 0 where none were
   requested (token is NULL then). */
typedef struct ChoiceLikely {
    Likely *token; /* [capacity] owned */
    size_t n, capacity;
} ChoiceLikely;

/* How much of a choice a stream has sent. Invariant: no more than there is of each. */
typedef struct ChoiceSent {
    size_t thought, text, tokens; /* bytes, bytes, tokens */
    bool end;                     /* and that it has ended; then all of them are sent */
} ChoiceSent;

/* How a choice has ended. Invariant: result is valid once `ended` is true. */
typedef struct ChoiceEnd {
    bool ended;
    const char *met; /* the stop sequence that ended it, or NULL */
    bool met_id;     /* a token id that ends answers did */
    cvn_result result;
} ChoiceEnd;

typedef struct Choice {
    struct Exchange *x; /* borrowed */
    int index, prompt;  /* its number; that of its prompt */
    int id;             /* the engine's; 0: not submitted */
    Decoder decoder;
    Stops stops;
    Answer answer;
    AnswerTexts texts; /* what was thought; what is said passes through the stop texts */
    StrBuf piece;      /* of one token */
    StrBuf text;
    TokenIds tokens; /* all that were generated, those that were given among them */
    int64_t n_drawn; /* in all phases */
    ChoicePhase phase;
    CallWriter calls; /* zero where none can be called */
    ChoiceLikely likely;
    Receipt receipt; /* where one is asked for */
    ChoiceSent sent;
    ChoiceEnd end;
} Choice;

/* ---- an exchange ---- */

/* Results of prompts: log-probabilities of their tokens, or embeddings. Invariant: the first n_done prompts have theirs. */
typedef struct ExchangePrompts {
    /* [ask.input.n_prompts] owned: of each token of a prompt. NULL where none were requested. */
    Likely **seen;
    /* [ask.input.n_prompts] owned: as many numbers as the model is wide. NULL where texts are generated. */
    float **embedding;
    int n_done;
} ExchangePrompts;

/* What ends an exchange before its texts do. `cancelled` is written by the connection, all else by the engine's thread. */
typedef struct ExchangeEnd {
    Ending ending;         /* that all processes know of, and act upon */
    atomic_bool cancelled; /* the client is gone */
    bool late;             /* its deadline has passed */
    Refusal failed;        /* of the engine */
} ExchangeEnd;

/* The connection that waits for the answer. Invariant: fd is -1 once the connection is gone. */
typedef struct ExchangeLink {
    void *connection;
    int fd;
    bool suspended; /* until there is something to send (http_wake) */
} ExchangeLink;

/* Times, of clock_seconds but for the last. Invariant: begin <= first <= last, where first is not 0. */
typedef struct ExchangeTime {
    double begin, first, last; /* it came; its first and its last token */
    int64_t created;           /* seconds since 1970 */
} ExchangeTime;

/* The events of a stream. Invariant: sent <= out.length. */
typedef struct ExchangeEvents {
    StrBuf out;           /* what is being sent … */
    size_t sent;          /* … and how much of it was */
    int stage;            /* what has been written; 0: nothing */
    int item, item_index; /* the part of the answer that is open, and its number */
    int sequence;         /* of the next event */
} ExchangeEvents;

typedef struct Exchange {
    struct Server *server;          /* borrowed */
    const struct Dialect *dialect;  /* borrowed */
    struct Exchange *before, *next; /* in the server's queue */
    int refs;                       /* of the connection and the engine's thread */
    int64_t number;                 /* among those that all processes know of; 0: they do not yet */
    json_t *order;                  /* owned: what other processes are told of it; or NULL */
    bool submitted;                 /* the engine has it */
    char id[32];                    /* without the prefix that dialects add */
    Ask ask;
    Choice *choice; /* [n_choices] owned */
    int n_choices, n_ended;
    ExchangePrompts prompts;
    ExchangeEnd end;
    ExchangeLink link;
    ExchangeTime time;
    ExchangeEvents events;
} Exchange;

/* Takes the Ask over, also after an error; its prompts are token ids. */
Exchange *exchange_new(struct Server *server, const struct Dialect *dialect, Ask *ask);
void exchange_free(Exchange *x);

/* The engine's request for the next phase. It borrows from the choice. */
cvn_request choice_request(Choice *c, uint64_t seed);
/* A phase has ended: whether another follows, which choice_request then says. */
bool choice_next(Choice *c, const cvn_result *result);

/* A token of a choice, from the engine's thread; false: it ends here. */
bool choice_push(Choice *c, int32_t token);
/* The log-probability of a token by logits [vocab], and the n_top most likely ones. */
Likely likely_of(const float *logits, int64_t vocab, int32_t token, int n_top);
/* Takes the logits [vocab] that the next token was sampled from. */
void choice_see(Choice *c, const float *logits, int64_t vocab, int32_t token);
void choice_end(Choice *c, const cvn_result *result);
/* How many tool calls may be shown (call_writer_count). */
int choice_calls(const Choice *c);

/* Tokens of all prompts; of all texts; of prompts that were in caches. */
typedef struct Usage {
    int64_t prompt, completion, cached;
} Usage;
Usage exchange_usage(const Exchange *x);
/* Prompts, as the model reads them, and texts: members of a JSON object, a comma in front. */
void exchange_put_texts(const Exchange *x, StrBuf *out);

#endif
