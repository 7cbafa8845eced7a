/*
 * What a user types, turn by turn. On a terminal with libedit: line editing, history (kept in a file),
 * Tab to complete words, Alt-Enter for a line end within a turn, and pasted text that stays one turn whatever lines it
 * has. What is typed while no turn is being read is not shown, and is there for the next one. Elsewhere a turn is a line. In both, a line that ends in \ goes on with the next, and lines
 * between """ and """ are one turn.
 */
#ifndef CVN_CLI_CHAT_INPUT_H
#define CVN_CLI_CHAT_INPUT_H

#include "base/strbuf.h"

typedef struct ChatInput ChatInput;

typedef enum ChatTyped {
    CHAT_TEXT,        /* a turn */
    CHAT_END,         /* Ctrl-D, or the end of the file */
    CHAT_INTERRUPTED, /* Ctrl-C: what was typed is dropped */
    CHAT_NO_MEMORY
} ChatTyped;

/* The i-th word that what is typed may end in, NULL past the last; *n is how much of its beginning is there. */
typedef const char *(*ChatWord)(const char *typed, size_t i, size_t *n);

/* history: file to keep typed turns in, or NULL. `interrupt` is what Ctrl-C sets; it is cleared when
 * CHAT_INTERRUPTED is returned. NULL when memory ran out. */
ChatInput *chat_input_new(const char *history, volatile int *interrupt, ChatWord word);
void chat_input_free(ChatInput *input);

/* Whether a person is typing. */
bool chat_input_is_terminal(const ChatInput *input);

/* Reads the next turn into *out, in place of what was there. */
ChatTyped chat_input_read(ChatInput *input, StrBuf *out);

#endif
