/*
 * Tools that an answer may call. What stands around names and arguments (text/call_syntax.h) is given to the model, not
 * drawn; a name is one of those that there are, and arguments fulfil the tool's schema: a call that cannot be read does not
 * come about. (choice.c has the phases.)
 */
#ifndef CVN_SERVER_TOOLS_H
#define CVN_SERVER_TOOLS_H

#include "server/ask.h"
#include "text/call_syntax.h"

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
