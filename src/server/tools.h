/*
 * Tools that an answer may call. The text around names and arguments (text/call_syntax.h) is given to the model, not sampled;
 * a name is constrained to the tools of the request, and arguments to the schema of the tool: a call can always be parsed.
 * (choice.c has the phases.)
 */
#ifndef CVN_SERVER_TOOLS_H
#define CVN_SERVER_TOOLS_H

#include "server/ask.h"
#include "text/call_syntax.h"

/* Fields, in the shapes of the three dialects; they fill Ask.calls. */
int read_chat_tools(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_responses_tools(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_messages_tools(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_tool_choice(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_messages_tool_choice(Ask *ask, const char *name, const json_t *value, Refusal *why);

/* Constraints of an answer. */
int read_response_format(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_structured_outputs(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_responses_text(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_output_config(Ask *ask, const char *name, const json_t *value, Refusal *why);
int read_output_format(Ask *ask, const char *name, const json_t *value, Refusal *why);

/* After all fields are read: checks tools and tool_choice, and makes the constraints of calls. */
int tools_finish(Ask *ask, const CallSyntax *syntax, Refusal *why);

#endif
