/* How conversations with a model are written (caravan/chat.h), for the files that implement it. */
#ifndef CVN_SERVE_CHAT_H
#define CVN_SERVE_CHAT_H

#include "caravan/chat.h"
#include "text/answer.h"

struct cvn_chat {
    const Tokenizer *tokenizer; /* borrowed */
    ChatTemplate *template;     /* owned */
    AnswerKind kind;            /* owned */
};

/* A text as JSON, NULL for NULL; CVN_EFORMAT names it by `what`. */
int chat_read_json(const char *what, const char *text, json_t **out, cvn_err *err);

#endif
