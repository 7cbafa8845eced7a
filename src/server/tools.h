/*
 * Tools that an answer may call, and how the model writes a call. That is learnt from its chat template, which is shown a
 * conversation with calls and writes
 *
 *     <tool_call>\n{"name": "NAME", "arguments": ARGUMENTS}\n</tool_call>\n<tool_call>\n{"name": "NAME", …
 *     '------- before -----'    '-- between -'         '------ after ---'
 *                                                      '-------------- again -------------'
 *
 * What stands around names and arguments is given to the model, not drawn; a name is one of those that there are, and
 * arguments fulfil the tool's schema: a call that cannot be read does not come about. (choice.c has the phases.)
 */
#ifndef CVN_SERVER_TOOLS_H
#define CVN_SERVER_TOOLS_H

#include "server/ask.h"
#include "text/chat_template.h"

/* How calls are written; texts are owned. */
typedef struct CallSyntax {
    bool known;
    bool plain;                     /* no template writes them: plain_calls.h does */
    bool system;                    /* the template has a place for system messages */
    char *before, *between, *after; /* of a call */
    char *again; /* between two calls, from the arguments to the next name; NULL: one only */
    /* By what a call begins in an answer: `mark`, a token of its own, or text that may stand anywhere; where both are missing,
       `before` at the beginning of the answer, but for white space. */
    int32_t mark_token; /* or -1 */
    char *mark;         /* or NULL */
} CallSyntax;

void call_syntax_learn(CallSyntax *syntax, const ChatTemplate *chat, const Tokenizer *tokenizer,
                       const int32_t *stops, size_t n_stops);
void call_syntax_free(CallSyntax *syntax);

/* Fields, in the shapes of the three dialects; they fill Ask.tools and what belongs to it. */
int read_chat_tools(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_responses_tools(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_messages_tools(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_tool_choice(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_messages_tool_choice(Ask *ask, const char *name, const json_t *value, Refusal *why);

/* What an answer must be. */
int read_response_format(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_structured_outputs(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_responses_text(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_output_config(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_output_format(Ask *ask, const char *name, const json_t *value, Refusal *why);

/* When all fields are read: that tools and choice go together, and what calls are constrained by. */
int tools_finish(Ask *ask, const CallSyntax *syntax, Refusal *why);

#endif
