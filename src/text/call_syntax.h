/*
 * How a model writes calls of tools. That is learnt from its chat template, which is shown a conversation with calls and
 * writes
 *
 *     <tool_call>\n{"name": "NAME", "arguments": ARGUMENTS}\n</tool_call>\n<tool_call>\n{"name": "NAME", …
 *     '------- before -----'    '-- between -'         '------ after ---'
 *                                                      '-------------- again -------------'
 *
 * An empty thought in front of it is no part of it.
 */
#ifndef CVN_TEXT_CALL_SYNTAX_H
#define CVN_TEXT_CALL_SYNTAX_H

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

#endif
