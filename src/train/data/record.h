/*
 * A record of training data in JSON, in any of the shapes that people have, becomes one of three:
 *
 *     {"text": …}                                  learnt whole                            {"text"}
 *     {"prompt": …, "completion": …}               of texts the completion is learnt       {"text", "completion"}
 *     {"messages": [{"role", "content"}]}          the answers are learnt                  {"messages", "tools"?}
 *     {"conversations": [{"from", "value"}]}       the same, of ShareGPT                   the same
 *     {"instruction", "input"?, "output"}          a question and its answer, of Alpaca    the same
 *     {"prompt": […], "completion": […]}           messages, of which the latter's answers are learnt
 *     [{"role", "content"}, …]                     a conversation
 *
 * and, where pairs are wanted, one alone:
 *
 *     {"prompt", "chosen", "rejected"}             texts or messages; without a prompt, what both begin with is it
 *
 * A content may be a list of parts of text; it may be null where the assistant calls a function ("tool_calls"); "weight": 0
 * keeps an answer from being learnt. What cannot be carried out is refused by name: nothing is left out in silence.
 */
#ifndef CVN_TRAIN_DATA_RECORD_H
#define CVN_TRAIN_DATA_RECORD_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

/* Whether it has one of these shapes. */
bool record_is(const json_t *value);

/* The record as one of the three, or, where pairs are wanted, {"chosen", "rejected"}, each the prompt and an answer as one
 * of the three; a new reference, or NULL with an error. Messages there have the strings "role" and
 * "content", all else that they had ("tool_calls" with "arguments" as objects, "reasoning_content", …), and "mute" where
 * they are not learnt. */
json_t *record_read(json_t *value, bool pairs, cvn_err *err);

/* The bytes of the JSON value that begins at text, which is not white space; n where it does not end. */
size_t record_extent(const char *text, size_t n);

#endif
