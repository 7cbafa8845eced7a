/*
 * Tools for models whose template says nothing of calls: the system message says which
 * there are and how they are called, and calls and what came of them stand in the conversation as text.
 *
 *     {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}
 *     {"role": "tool", "content": "2"}
 *
 * become
 *
 *     {"role": "assistant", "content": "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"}
 *     {"role": "user", "content": "<tool_response>\n2\n</tool_response>"}
 *
 * These marks are text: a message that says them looks like a call, which it is for no template that has tokens for it.
 */
#ifndef CVN_TEXT_PLAIN_CALLS_H
#define CVN_TEXT_PLAIN_CALLS_H

#include <jansson.h>
#include <stdbool.h>

/* What stands before a call's name, between it and the arguments, and behind them. */
#define PLAIN_CALL_MARK "<tool_call>"
#define PLAIN_CALL_BEGIN PLAIN_CALL_MARK "\n{\"name\": \""
#define PLAIN_CALL_MIDDLE "\", \"arguments\": "
#define PLAIN_CALL_END "}\n</tool_call>"

/* Messages, as templates want them, with calls as text; owned, or NULL: no memory. tools may be NULL. `system`: the model is
   told what tools there are by a system message, else by the first one. */
json_t *plain_messages(const json_t *messages, const json_t *tools, bool system);

#endif
