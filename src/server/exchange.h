/*
 * An exchange: a request for texts, and what has been generated for it. Two hold it, the connection and the engine's thread,
 * and it is freed when both are done. What the engine's thread writes and connections read is guarded by the server's lock.
 */
#ifndef CVN_SERVER_EXCHANGE_H
#define CVN_SERVER_EXCHANGE_H

#include "serve/stops.h"
#include "server/ask.h"

#include <stdatomic.h>

struct Server;
struct Dialect;

/* How likely a token was, by the model's own logits, and which were the likeliest. */
typedef struct Likely {
    float logprob;
    int rank; /* 1: the likeliest; of equals all have the same */
    int n_top;
    cvn_logprob top[ASK_MAX_TOP_LOGPROBS];
} Likely;

/* A text is generated in phases, each a request to the engine that goes on where the one before it ended:
 *
 *     TEXT        an answer, until it ends, or what was thought ends, or a call begins
 *     NAME        which tool is called           what stands around it is given (CallSyntax)
 *     ARGUMENTS   under its schema
 *     AGAIN       whether another call follows
 */
typedef enum Phase { PHASE_TEXT, PHASE_NAME, PHASE_ARGUMENTS, PHASE_AGAIN } Phase;

/* Why it ends before its texts do. */
typedef enum Ending { ENDING_NOT, ENDING_GONE, ENDING_LATE } Ending;

/* A call of a tool. */
typedef struct Call {
    char id[12]; /* letters and digits, 9 of them: what the strictest template takes */
    const Tool *tool;
    StrBuf arguments; /* as far as they are known */
    size_t sent;      /* of a stream */
    bool opened;      /* in a stream */
} Call;

/* One text. */
typedef struct Choice {
    struct Exchange *x; /* borrowed */
    int index, prompt;  /* its number; that of its prompt */
    int id;             /* the engine's; 0: not submitted */
    Decoder decoder;
    Stops stops;
    Thinking thinking;
    StrBuf piece; /* of one token */
    Phase phase;
    bool waits;      /* for the end of what is thought, behind which something else begins */
    bool next;       /* what this phase waited for has come */
    StrBuf head;     /* the beginning of the answer, while it may be that of a call */
    bool head_done;  /* it is known which */
    StrBuf picked;   /* of NAME and AGAIN */
    Call *call;      /* [ask.max_tool_calls] owned */
    int n_calls;     /* with the one that is being written (choice_calls) */
    TokenIds joined; /* the prompt and what came since: what the next phase goes on from */
    double seconds,
        begun;      /* that earlier phases took; that the first token took; 0: there were none */
    int64_t reused; /* tokens of the prompt that were in caches when the first phase began */
    StrBuf thought, text;
    TokenIds tokens; /* all that were generated, those that were given among them */
    int64_t n_drawn; /* in all phases */
    Likely *likely;  /* [capacity] owned, of each token; NULL where nobody asked */
    size_t n_likely, likely_capacity;
    size_t thought_sent, text_sent, tokens_sent; /* of a stream */
    const char *met;                             /* the stop text that ended it, or NULL */
    bool met_id;                                 /* a token did that ends an answer here */
    bool ended, end_sent;
    cvn_result result;
} Choice;

typedef struct Exchange {
    struct Server *server;          /* borrowed */
    const struct Dialect *dialect;  /* borrowed */
    struct Exchange *before, *next; /* among those that the engine has, or is to get */
    Ask ask;
    Choice *choice; /* [n_choices] owned */
    Likely **seen;  /* [ask.n_prompts] owned: of each token of a prompt; NULL where nobody asked */
    float **
        embedding; /* [ask.n_prompts] owned, of each the model's width; NULL where texts are asked for */
    int n_seen; /* prompts for which one of these is known */
    int n_choices, n_ended;
    int refs;                  /* who holds it */
    int64_t number;            /* among those that all processes know of; 0: they do not yet */
    json_t *order;             /* owned: what other processes are told of it; or NULL */
    Ending ending;             /* that they know of, and act upon */
    atomic_bool cancelled;     /* nobody waits for it any more */
    bool submitted;            /* the engine has it */
    bool late;                 /* its deadline has passed */
    void *connection;          /* while there is one */
    int fd;                    /* of the connection; -1: it is gone */
    bool suspended;            /* it waits for something to send */
    Refusal failed;            /* of the engine */
    double begin, first, last; /* seconds of clock_seconds: it came; the first and the last token */
    int64_t created;           /* seconds since 1970 */
    char id[32];               /* without the prefix that dialects want */
    StrBuf out;                /* of a stream: what is being sent … */
    size_t out_sent;           /* … and how much of it was */
    int stage;                 /* of a stream: what has been written; 0: nothing */
    int item, item_index;      /* the part of the answer that is open in it, and its number */
    int sequence;              /* of its next event */
} Exchange;

/* Takes the Ask over, also after an error; its prompts are token ids. */
Exchange *exchange_new(struct Server *server, const struct Dialect *dialect, Ask *ask);
void exchange_free(Exchange *x);

/* What the engine is asked for next. It borrows from the choice. */
cvn_request choice_request(Choice *c, uint64_t seed);
/* A phase has ended: whether another follows, which choice_request then says. */
bool choice_next(Choice *c, const cvn_result *result);

/* A token of a choice, from the engine's thread; false: it ends here. */
bool choice_push(Choice *c, int32_t token);
/* What logits [vocab] say of a token, and the n_top likeliest. */
Likely likely_of(const float *logits, int64_t vocab, int32_t token, int n_top);
/* The logits [vocab] that the next token was drawn from. */
void choice_see(Choice *c, const float *logits, int64_t vocab, int32_t token);
void choice_end(Choice *c, const cvn_result *result);
/* How many calls there are to tell of. A call that equals one before ends the answer and is no part of it, so that one that
   may still become such is not told of yet. */
int choice_calls(const Choice *c);

/* Tokens of all prompts; of all texts; of prompts that were in caches. */
typedef struct Usage {
    int64_t prompt, completion, cached;
} Usage;
Usage exchange_usage(const Exchange *x);
/* Prompts, as the model reads them, and texts: members of a JSON object, a comma in front. */
void exchange_put_texts(const Exchange *x, StrBuf *out);

#endif
