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
 *     cvn_chat_read(chat, ids, request.n_prompt, NULL, answer, n, &message, &err)
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
   and cannot be read stays in the content. tools: those of the prompt, as in cvn_chat_input, by which arguments that are not
   written as JSON get their types; or NULL: 7 is a number then, whatever was asked for. */
int cvn_chat_read(const cvn_chat *chat, const int32_t *prompt, int64_t n_prompt, const char *tools,
                  const int32_t *ids, int64_t n, char **message, cvn_err *err);

/* The same while an answer comes:
 *
 *     cvn_answer_new(chat, prompt, n_prompt, tools, &answer, &err);
 *     cvn_answer_push(answer, &token, 1, &delta, &err);                  {"content": "Hel"}, for each token, or several
 *     cvn_answer_end(answer, &delta, &message, &err);                    {"content": "lo!"}, and the message, whole
 *
 * A delta is a JSON object of what "content" and "reasoning_content" go on with, "{}" where nothing is known yet. What may be
 * the beginning of a call is held back until it is known whether it is one: calls stand in the message alone. Strings are
 * malloc'ed, the caller's to free. */
typedef struct cvn_answer cvn_answer;

/* The prompt is needed during the call; the chat until the answer is freed. */
int cvn_answer_new(const cvn_chat *chat, const int32_t *prompt, int64_t n_prompt, const char *tools,
                   cvn_answer **out, cvn_err *err);
int cvn_answer_push(cvn_answer *answer, const int32_t *ids, int64_t n, char **delta, cvn_err *err);
/* Either may be NULL: not wanted. Called once; nothing is pushed behind it. */
int cvn_answer_end(cvn_answer *answer, char **delta, char **message, cvn_err *err);
/* NULL is allowed. */
void cvn_answer_free(cvn_answer *answer);

/* An answer that must be tool calls, each of which can be read: several requests, in which names are those of tools and
 * arguments what their schemas allow. What stands around them is given to the model.
 *
 *     cvn_request request = {.max_tokens = 256};
 *     cvn_calls_options options = {.tools = tools};
 *     cvn_calls_new(chat, &options, ids, n, &calls, &err);               ids: the prompt, of cvn_chat_encode with these tools
 *     while (cvn_calls_next(calls, &request)) {
 *         … cvn_engine_submit …                                          each token: cvn_calls_push; false: the request ends
 *         if (finish is neither CVN_FINISH_EOS nor CVN_FINISH_STOPPED)
 *             break;
 *     }
 *     cvn_calls_message(calls, &message, &err);
 */
typedef struct cvn_calls cvn_calls;

typedef struct cvn_calls_options {
    const char *tools; /* JSON, as in cvn_chat_input; 1 to 256 */
    const char *name;  /* the tool that must be called, once; NULL: any */
    int64_t most;      /* calls of an answer; 0: 16 */
} cvn_calls_options;

/* The chat is needed until the calls are freed. CVN_EINVAL for tools that cannot be called; CVN_EFORMAT. A schema that is not
   supported is taken for that of any object, unless its function is "strict". The engine has options.logits_processors. */
int cvn_calls_new(const cvn_chat *chat, const cvn_calls_options *options, const int32_t *prompt,
                  int64_t n_prompt, cvn_calls **out, cvn_err *err);
/* Sets the prompt, constraint and ends of the next request, which are needed until it has ended, and takes what was generated
   and given off its max_tokens. false: the answer has ended. */
bool cvn_calls_next(cvn_calls *calls, cvn_request *request);
/* A token of the request; false: it ends here. */
bool cvn_calls_push(cvn_calls *calls, int32_t token);
/* [*n] tokens of the answer, those that were given among them; the calls'. */
const int32_t *cvn_calls_tokens(const cvn_calls *calls, int64_t *n);
/* The message, as cvn_chat_read has it, of the calls that are complete. */
int cvn_calls_message(const cvn_calls *calls, char **message, cvn_err *err);
/* NULL is allowed. */
void cvn_calls_free(cvn_calls *calls);

#ifdef __cplusplus
}
#endif
#endif
