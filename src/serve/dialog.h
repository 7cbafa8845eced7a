/*
 * A conversation: its messages, and the ids a model is given to answer it.
 *
 * An answer keeps the ids it was generated as. The prompt of the next turn repeats them, so that it
 * begins with what the KV cache holds and only the new turn is computed.
 * (Encoding the answer's text again may give other ids for the same text.)
 * Formats that think are the exception: their thoughts leave the conversation
 * with the next turn, as their templates want, and an answer is encoded anew.
 *
 * As a file it is JSON:
 *
 *     {"format": "llama3", "messages": [{"role": "system", "content": "Be brief."},
 *                                       {"role": "user", "content": "Hello"},
 *                                       {"role": "assistant", "content": "Hi.", "thinking": "…"}]}
 */
#ifndef CVN_SERVE_DIALOG_H
#define CVN_SERVE_DIALOG_H

#include "text/chat.h"

typedef enum DialogRole { DIALOG_SYSTEM, DIALOG_USER, DIALOG_ASSISTANT } DialogRole;

typedef struct DialogMessage {
    DialogRole role;
    StrBuf text;
    StrBuf thought; /* assistant: what it thought before it answered */
    TokenIds ids;   /* assistant: what it generated, without the end token; empty for loaded ones */
} DialogMessage;

typedef struct Dialog {
    ChatFormat format;
    const Tokenizer *tokenizer; /* borrowed */
    DialogMessage *message;     /* [n] owned; a system message is only ever the first */
    size_t n;
} Dialog;

void dialog_init(Dialog *dialog, ChatFormat format, const Tokenizer *tokenizer);
void dialog_free(Dialog *dialog);

/* Appends a message; the caller may fill in `thought` and `ids` of dialog->message[n - 1]. */
int dialog_add(Dialog *dialog, DialogRole role, const char *text, size_t n, cvn_err *err);

/* Takes the last message back. */
void dialog_pop(Dialog *dialog);

/* Sets the system message; "" takes it away. */
int dialog_set_system(Dialog *dialog, const char *text, cvn_err *err);

/* Drops everything but the system message. */
void dialog_reset(Dialog *dialog);

/* Drops the oldest user message and what follows it up to the next; false when there is none. */
bool dialog_drop_oldest(Dialog *dialog);

/* Appends the ids of the whole conversation, whose last message is a user's, and of the header
 * after which the assistant speaks. */
int dialog_prompt(const Dialog *dialog, TokenIds *ids, cvn_err *err);

/* Written beside and renamed. */
int dialog_save(const Dialog *dialog, const char *path, cvn_err *err);

/* Replaces the messages by those of a file; after an error they are as they were. */
int dialog_load(Dialog *dialog, const char *path, cvn_err *err);

#endif
