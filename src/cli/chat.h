/* What the files of `caravan chat` share: the conversation and what answers it. */
#ifndef CVN_CLI_CHAT_H
#define CVN_CLI_CHAT_H

#include "caravan/session.h"
#include "cli/run_model.h"
#include "serve/dialog.h"
#include "serve/receipt.h"
#include "text/answer.h"

typedef struct Chat {
    RunModel run;           /* owned */
    cvn_session *session;   /* owned */
    ChatTemplate *template; /* owned */
    AnswerKind kind;        /* owned: how answers are written */
    Dialog dialog;          /* owned */
    cvn_request request;    /* sampling, ignore_eos and max_tokens (0: what fits) of every answer */
    int again;    /* how often the last turn has been answered anew, each time with another seed */
    bool answers; /* the last message, a user's, is to be answered now */
    volatile int *interrupt;
    bool once;              /* there is one turn, of --prompt and --file */
    bool terminal;          /* a person types and reads */
    bool colors;            /* thoughts, and what is not said by the model, are dimmed */
    bool shows_thoughts;    /* else they are left out */
    cvn_session_result was; /* the last answer's */
    int refused;            /* turns that were refused */
    bool shifts;            /* the oldest turns make room in a full context */
    bool shifted;           /* they have, and that was said */
    bool leaves;            /* no more turns are wanted */
    const char *receipts;   /* file of a line for each answer, or NULL */
    StrBuf receipt_lines;   /* owned: those so far */
    json_t *receipt_model;  /* owned: what they have in common */
} Chat;

/* Answers the dialog's last message, which is a user's, and adds the answer to the dialog. A turn that
 * cannot be answered is taken back: 0, after saying why. Nonzero is the end, CVN_EINTERRUPTED only when
 * no person is there to go on. */
int chat_answer(Chat *chat, cvn_err *err);

/* Says a sentence that is about the conversation. */
void chat_say(const Chat *chat, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says a sentence on standard error and counts a turn as refused. */
void chat_refuse(Chat *chat, const char *format, ...) __attribute__((format(printf, 2, 3)));

extern const Command command_chat;

/* Whether a text is a command: "/word" alone or before a space. */
bool chat_is_command(const char *text);

/* Takes what FILE.cache of a conversation in `path` holds, if there is one; says why not, if not. */
void chat_load_cache(Chat *chat, const char *path);

/* Runs it. */
void chat_command(Chat *chat, const char *text);

/* A command, or what may stand behind one (chat_input.h). */
const char *chat_word(const char *typed, size_t i, size_t *n);

#endif
