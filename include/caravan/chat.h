/*
 * Talking with a model: a conversation becomes token ids by the model's chat template, and an answer becomes a message again.
 *
 *     cvn_chat *chat;
 *     cvn_chat_input input = {.messages = "[{\"role\": \"user\", \"content\": \"Hello\"}]"};
 *     cvn_request request = {.max_tokens = 256};
 *     int32_t *ids;
 *     if (cvn_chat_new(model, NULL, &chat, &err) ||
 *         cvn_chat_encode(chat, &input, &ids, &request.n_prompt, &err))
 *         puts(err.message);
 *     request.prompt = ids;
 *     request.end = cvn_chat_ends(chat, &request.n_end);
 *     … cvn_engine_generate …                                            answer: [n] ids
 *     cvn_chat_read(chat, ids, request.n_prompt, answer, n, &message, &err)
 *
 *     message  {"role": "assistant", "content": "Hello!"}                to be appended to the messages
 *
 * Messages and tools are JSON in the shape of OpenAI's chat completions. No message can forge a marker of the template: what
 * it says is text.
 */
#ifndef CARAVAN_CHAT_H
#define CARAVAN_CHAT_H

#include "caravan/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cvn_chat cvn_chat;

/* How conversations with a model are written. chat_template: a file, or the name of one that is built in (docs/CHAT.md);
   NULL: the model's own, else one built in that suits its tokenizer. The model is borrowed. *out is the caller's to free; NULL
   on an error: CVN_EUNSUPPORTED where there is no template, CVN_EFORMAT for one that cannot be read, CVN_EINVAL. It does not
   change: threads may share it. */
int cvn_chat_new(const cvn_model *model, const char *chat_template, cvn_chat **out, cvn_err *err);
/* NULL is allowed. */
void cvn_chat_free(cvn_chat *chat);

typedef struct cvn_chat_input {
    /* JSON, at least one: [{"role": "user", "content": "…"}, …]; of the assistant also "reasoning_content" and "tool_calls",
       whose arguments may be an object or a string; what came of a call: {"role": "tool", "content": "…"}. */
    const char *messages;
    /* JSON: [{"type": "function", "function": {"name", "description", "parameters"}}], or NULL. */
    const char *tools;
    /* JSON object of what else the template knows ("enable_thinking"), or NULL. */
    const char *variables;
    bool complete; /* without the header behind which the assistant answers */
    bool go_on;    /* the answer goes on in the last message, which is the assistant's */
    int64_t now;   /* seconds since 1970 that a template takes for now; 0: now */
} cvn_chat_input;

/* The ids of a conversation, malloc'ed: the caller frees them. CVN_EFORMAT for what is no JSON of that shape; CVN_EINVAL for
   what the template refuses, with its words. A template without a place for tools has them told as text. */
int cvn_chat_encode(const cvn_chat *chat, const cvn_chat_input *input, int32_t **ids,
                    int64_t *n_ids, cvn_err *err);

/* [*n] ids that end an answer, for cvn_request.end; the chat's. */
const int32_t *cvn_chat_ends(const cvn_chat *chat, int64_t *n);

/* An answer of n ids to a prompt as a message in JSON, malloc'ed: {"role": "assistant", "content": "…"}, with
   "reasoning_content" where it thought and "tool_calls" where it calls tools, arguments being objects. What looks like a call
   and cannot be read stays in the content. */
int cvn_chat_read(const cvn_chat *chat, const int32_t *prompt, int64_t n_prompt, const int32_t *ids,
                  int64_t n, char **message, cvn_err *err);

/* The same while an answer comes:
 *
 *     cvn_answer_new(chat, prompt, n_prompt, &answer, &err);
 *     cvn_answer_push(answer, &token, 1, &delta, &err);                  {"content": "Hel"}, for each token, or several
 *     cvn_answer_end(answer, &delta, &message, &err);                    {"content": "lo!"}, and the message, whole
 *
 * A delta is a JSON object of what "content" and "reasoning_content" go on with, "{}" where nothing is known yet. What may be
 * the beginning of a call is held back until it is known whether it is one: calls stand in the message alone. Strings are
 * malloc'ed, the caller's to free. */
typedef struct cvn_answer cvn_answer;

/* The prompt is needed during the call; the chat until the answer is freed. */
int cvn_answer_new(const cvn_chat *chat, const int32_t *prompt, int64_t n_prompt, cvn_answer **out,
                   cvn_err *err);
int cvn_answer_push(cvn_answer *answer, const int32_t *ids, int64_t n, char **delta, cvn_err *err);
/* Either may be NULL: not wanted. Called once; nothing is pushed behind it. */
int cvn_answer_end(cvn_answer *answer, char **delta, char **message, cvn_err *err);
/* NULL is allowed. */
void cvn_answer_free(cvn_answer *answer);

#ifdef __cplusplus
}
#endif
#endif
