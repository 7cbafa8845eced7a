/* Fields that are conversations (conversation.c): they fill Ask.input.messages. */
#ifndef CVN_SERVER_CONVERSATION_H
#define CVN_SERVER_CONVERSATION_H

#include "server/ask.h"

int read_messages(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_anthropic_messages(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_system(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_responses_input(Ask *ask, const char *name, const json_t *value, Refusal *why);

#endif
