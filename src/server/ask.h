/*
 * The contents of a request, in whatever dialect it is written. A dialect is tables of fields (fields.h), by which the body is
 * parsed into an Ask; nothing after that reads JSON.
 */
#ifndef CVN_SERVER_ASK_H
#define CVN_SERVER_ASK_H

#include "caravan/constrain.h"
#include "caravan/engine.h"
#include "serve/tool_set.h"
#include "server/refusal.h"

#include <jansson.h>

enum {
    ASK_MAX_DEPTH = 64,        /* of arrays and objects in a body */
    ASK_MAX_STOPS = 64,        /* texts */
    ASK_MAX_STOP_BYTES = 1024, /* of one of them */
    ASK_MAX_PROMPTS = 1024,
    ASK_MAX_MESSAGES = 1 << 14,
    ASK_MAX_TOP_LOGPROBS = 20,
    ASK_MAX_BIAS = 1024, /* tokens */
};

typedef enum ToolChoice {
    TOOLS_AUTO,
    TOOLS_NONE,
    TOOLS_REQUIRED, /* the answer must be tool calls */
    TOOLS_NAMED,
} ToolChoice;

/* What is continued: a conversation, or prompts. Invariant: prompt is made of messages or prompts by the dialect's finish, and then
   n_prompts is at least 1. */
typedef struct AskInput {
    json_t *messages;      /* owned array, as templates want them (conversation.c); or NULL */
    bool anthropic;        /* they came in blocks of Anthropic's kinds */
    size_t n_messages;     /* once there is a prompt; 0: of no conversation */
    const json_t *prompts; /* of completions, as they were given */
    TokenIds *prompt;      /* [n_prompts] owned */
    int n_prompts;
    bool add_generation_prompt, continue_final_message;
    const json_t *template_variables; /* object in the body, or NULL */
    /* reasoning effort and the field that set it, in the body; or NULL */
    const char *effort, *effort_field;
    int64_t now; /* time of the request for templates: seconds since 1970; 0: unknown */
} AskInput;

/* Sampling settings, as they were given. */
typedef struct AskSampling {
    int64_t n;          /* texts per prompt */
    int64_t max_tokens; /* -1: not given */
    int64_t min_tokens;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k; /* 0 and -1: off */
    int64_t seed;
    bool has_seed, ignore_eos;
    cvn_bias *bias; /* [n_bias] owned */
    int n_bias;
} AskSampling;

/* Stop sequences, and tokens that end a text and are no part of it. */
typedef struct AskStops {
    const char **text; /* [n] owned, the strings lie in the body */
    size_t n;
    TokenIds ids;
} AskStops;

/* The place in the queue, and with whom caches are shared. */
typedef struct AskQueue {
    int key;                /* number of the API key, for round-robin; -1: none */
    int64_t priority;       /* lower goes first */
    const char *cache_salt; /* only requests with the same share prefixes; or NULL */
} AskQueue;

/* Tools that may be called (tools.h). */
typedef struct AskCalls {
    ToolSet set;
    ToolChoice choice;
    const char *named_tool; /* in the body */
    bool parallel_tool_calls;
    int64_t max_tool_calls; /* of an answer */
} AskCalls;

/* What the answer contains. */
typedef struct AskOutput {
    bool stream, include_usage, continuous_usage;
    bool skip_special_tokens;
    bool echo;               /* the prompt is part of the text */
    bool logprobs;           /* of each token … */
    int64_t top_logprobs;    /* … and of so many of the most likely */
    int64_t prompt_logprobs; /* the same for the tokens of prompts; -1: none */
    bool return_token_ids;
    bool receipt;                               /* of each text (serve/receipt.h) */
    bool add_special_tokens, return_token_strs; /* of /tokenize */
    int64_t dimensions;                         /* of embeddings; 0: not given */
    bool base64;                                /* embeddings are bytes of f32, in base64 */
} AskOutput;

typedef struct Ask {
    json_t *body;             /* owned: strings lie in it */
    const char *model;        /* NULL: the only one */
    const char *adapter_name; /* NULL: none, or the model is one */
    struct Served *served;    /* borrowed, once it is found (find_model); … */
    int adapter;              /* … and of its adapters which, or -1 */
    AskInput input;
    AskSampling sampling;
    AskStops stops;
    cvn_constraint *constraint;   /* owned: of the answer, or NULL; … */
    const char *constraint_field; /* … and the field that set it */
    AskQueue queue;
    AskCalls calls;
    AskOutput output;
    StrBuf ignored; /* owned: unknown fields that --lenient let pass, "a, b" */
} Ask;

/* The defaults that all dialects share. */
void ask_init(Ask *ask);
void ask_free(Ask *ask);

/* Frees what the prompts were made of, which is not needed any more. */
void ask_forget_text(Ask *ask);

/* The body of a request, n bytes of JSON that must be an object: *out is the caller's. Returns 0 or a status. */
int ask_parse(const char *text, size_t n, json_t **out, Refusal *why);

/* The number of most likely tokens requested for each token of a prompt; -1: no log-probabilities of prompts. */
int ask_prompt_top(const Ask *ask);

/* The engine's request for text number `index`, of which there are n per prompt. It borrows from the Ask. */
cvn_request ask_request(const Ask *ask, int index, uint64_t seed);

#endif
