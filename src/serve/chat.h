/* How conversations with a model are written (caravan/chat.h), for the files that implement it. */
#ifndef CVN_SERVE_CHAT_H
#define CVN_SERVE_CHAT_H

#include "caravan/chat.h"
#include "text/call_syntax.h"

struct cvn_chat {
    const Tokenizer *tokenizer; /* borrowed */
    ChatTemplate *template;     /* owned */
    CallSyntax calls;           /* owned */
    int32_t ends[4];            /* [n_ends] */
    size_t n_ends;
};

/* Whether a token ends an answer. */
bool chat_ends(const cvn_chat *chat, int32_t id);

/* A text as JSON, NULL for NULL; CVN_EFORMAT names it by `what`. */
int chat_read_json(const char *what, const char *text, json_t **out, cvn_err *err);

#endif
