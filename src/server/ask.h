/*
 * What a request asks for, whatever dialect it is written in. A dialect is tables of fields (fields.h): what reads them
 * fills an Ask, and nothing after that knows JSON.
 */
#ifndef CVN_SERVER_ASK_H
#define CVN_SERVER_ASK_H

#include "caravan/constrain.h"
#include "caravan/engine.h"
#include "server/refusal.h"
#include "text/thinking.h"

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
    TOOLS_REQUIRED, /* and those above are called, whatever else */
    TOOLS_NAMED,
} ToolChoice;

typedef struct Tool {
    const char *name;          /* in Ask.tools */
    cvn_constraint *arguments; /* owned: what they are */
} Tool;

typedef struct Ask {
    json_t *body;             /* owned: strings below lie in it */
    const char *model;        /* NULL: the only one */
    const char *adapter_name; /* NULL: none, or the model is one */
    struct Served *served;    /* borrowed, once it is found (find_model); … */
    int adapter;              /* … and of its adapters which, or -1 */

    /* What to go on from: messages, or prompts. */
    json_t *messages;  /* owned array, as templates want them (conversation.c); or NULL */
    bool anthropic;    /* they came in blocks of Anthropic's kinds */
    size_t n_messages; /* once there is a prompt; 0: of no conversation */
    TokenIds *prompt;  /* [n_prompts] owned */
    int n_prompts;
    const json_t *prompts; /* of completions, as they were given */
    bool add_generation_prompt, continue_final_message;
    const json_t *template_variables; /* object in the body, or NULL */
    const char *effort,
        *effort_field; /* how much to think, in the body, and who said so; or NULL */

    /* How to go on; numbers as they were given. */
    int64_t n;          /* texts per prompt */
    int64_t max_tokens; /* -1: not said */
    int64_t min_tokens;
    double temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
    int64_t top_k; /* 0 and -1: all */
    int64_t seed;
    bool has_seed, ignore_eos, skip_special_tokens;
    const char **stop; /* [n_stops] owned, the texts lie in the body */
    size_t n_stops;
    TokenIds stop_ids; /* tokens that end a text, and are no part of it */
    cvn_bias *bias;    /* [n_bias] owned */
    int n_bias;
    cvn_constraint *constraint;   /* owned: what the answer is, or NULL; … */
    const char *constraint_field; /* … and who said so */
    int64_t now;                  /* when it came, for templates: seconds since 1970; 0: not said */
    int key;                      /* number of the API key that asks: they take turns */
    int64_t priority;             /* lower goes first */
    const char *cache_salt; /* caches are shared with those only that have the same; or NULL */

    /* What may be called (tools.h). */
    json_t *tools; /* owned array, as templates want them; or NULL */
    Tool *tool;    /* [n_tools] owned */
    int n_tools;
    ToolChoice tool_choice;
    const char *named_tool; /* in the body */
    bool parallel_tool_calls;
    int64_t max_tool_calls; /* of an answer */
    int only_tool;          /* the one that can be called, or -1 */
    cvn_constraint *names;  /* owned: of the tools; NULL: nothing is called */
    cvn_constraint *again;  /* owned: what comes behind a call, another or the end, … */
    size_t same_end; /* … but for so many bytes that both begin with; NULL: one call only */

    /* How to answer. */
    bool stream, include_usage, continuous_usage;
    bool echo;               /* the prompt is part of the text */
    bool logprobs;           /* of each token … */
    int64_t top_logprobs;    /* … and of so many of the likeliest */
    int64_t prompt_logprobs; /* the same of each token of the prompts; -1: not */
    bool return_token_ids;
    bool add_special_tokens, return_token_strs; /* of /tokenize */

    int64_t dimensions; /* of embeddings; 0: not said */
    bool base64;        /* embeddings are bytes of f32, in base64 */

    StrBuf ignored; /* owned: unknown fields that --lenient let pass, "a, b" */
} Ask;

/* The defaults that all dialects share. */
void ask_init(Ask *ask);
void ask_free(Ask *ask);

/* What the prompts were made of is not needed any more: its memory goes. */
void ask_forget_text(Ask *ask);

/* The body of a request, n bytes of JSON that must be an object: *out is the caller's. Returns 0 or a status. */
int ask_parse(const char *text, size_t n, json_t **out, Refusal *why);

/* How many of the likeliest tokens are wanted at each place of a prompt; -1: nothing is said of prompts. */
int ask_prompt_top(const Ask *ask);

/* What the engine is asked for text number `index`, of which there are n per prompt. It borrows from the Ask. */
cvn_request ask_request(const Ask *ask, int index, uint64_t seed);

#endif
