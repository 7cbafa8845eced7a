/*
 * A conversation: its messages, and the ids a model is given to answer it.
 *
 * It is written by a chat template, which is given the whole conversation each time, answers as text and thoughts beside
 * them, and makes of them what it likes: the KV cache keeps what its ids have in common with those before.
 *
 * As a file it is JSON:
 *
 *     {"format": "llama3", "messages": [{"role": "system", "content": "Be brief."},
 *                                       {"role": "user", "content": "Hello"},
 *                                       {"role": "assistant", "content": "Hi.", "thinking": "…"}]}
 */
#ifndef CVN_SERVE_DIALOG_H
#define CVN_SERVE_DIALOG_H

#include "text/chat_template.h"

typedef enum DialogRole { DIALOG_SYSTEM, DIALOG_USER, DIALOG_ASSISTANT } DialogRole;

typedef struct DialogMessage {
    DialogRole role;
    StrBuf text;
    StrBuf thought; /* assistant: what it thought before it answered */
} DialogMessage;

typedef struct Dialog {
    const ChatTemplate *template; /* borrowed */
    struct tm now;                /* what the template takes for now: when the conversation began */
    const Tokenizer *tokenizer;   /* borrowed */
    DialogMessage *message;       /* [n] owned; a system message is only ever the first */
    size_t n;
} Dialog;

/* The caller may set `now`. */
void dialog_init(Dialog *dialog, const ChatTemplate *chat, const Tokenizer *tokenizer);
void dialog_free(Dialog *dialog);

/* Appends a message; the caller may fill in `thought` of dialog->message[n - 1]. */
int dialog_add(Dialog *dialog, DialogRole role, const char *text, size_t n, cvn_err *err);

/* Takes the last message back. */
void dialog_pop(Dialog *dialog);

/* Sets the system message; "" takes it away. */
int dialog_set_system(Dialog *dialog, const char *text, cvn_err *err);

/* Drops everything but the system message. */
void dialog_reset(Dialog *dialog);

/* Messages of the user. */
size_t dialog_turns(const Dialog *dialog);

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
