/*
 * A conversation by the chat template that belongs to a model, a program in Jinja (text/jinja/jinja.h), as transformers'
 * apply_chat_template makes it: to the byte, and with its ids. It is the only way in which a conversation becomes ids:
 * for answers and for training, and for models without a template of their own by one that is built in (chat_built_in).
 *
 *     ChatTemplate *template;
 *     chat_template_open(tokenizer, NULL, &template, err)
 *     json_t *messages = json_loads("[{\"role\": \"user\", \"content\": \"Hi\"}]", 0, NULL);
 *     struct tm now;
 *     TokenIds ids = {0};
 *     StrBuf text = {0};
 *     ChatInput input = {.messages = messages, .generation_prompt = true, .now = &now};
 *     chat_template_encode(template, tokenizer, &input, &ids, &text, err)
 *
 *     text  <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n
 *     ids   1 4093 198 ... 2 198 1 520 9531 198
 *
 * No message can forge a marker. The renderer marks each byte by where it came from (a literal of the template, or the
 * messages, tools, documents and variables), and a special token becomes its id only where all its bytes are the
 * template's own. Message text that spells "<|im_end|>", whole or in part, in front of a marker or split by one, is
 * encoded as plain text; templates that cut, trim or put together strings change nothing in that. The one part of
 * a message that counts as the template's own is a role of the usual names (CHAT_ROLES), as some templates make
 * markers of them: '<|' + message.role + '|>'.
 */
#ifndef CVN_TEXT_CHAT_TEMPLATE_H
#define CVN_TEXT_CHAT_TEMPLATE_H

#include "text/jinja/jinja.h"
#include "text/tokenizer.h"

#include <jansson.h>
#include <time.h>

typedef struct ChatTemplate ChatTemplate;

/* A template that is built in, for models that have none. */
typedef struct ChatBuiltIn {
    const char *name;
    const char *token[2]; /* special tokens that it writes */
    bool found;           /* a tokenizer with both tokens and no template of its own gets it */
    /* Jinja; its byte 0x1E is not written, and parts what is encoded by itself. */
    const char *source;
} ChatBuiltIn;

extern const ChatBuiltIn chat_built_in[]; /* ended by one without a name */

/*
 * The template by which conversations with a model are written. `choice`: the name of one that is built in, or a file with
 * one; NULL: that of the tokenizer's folder or file (tokenizer_chat_template), and that for tools, where there is one; where
 * there is none, the first one built in whose tokens the tokenizer has. CVN_EUNSUPPORTED where there is none at all, or it
 * has what is not known; CVN_EFORMAT where it is no Jinja; CVN_EINVAL for a choice that is neither, or whose tokens are
 * missing. It does not change afterwards: threads may share it.
 */
int chat_template_open(const Tokenizer *tokenizer, const char *choice, ChatTemplate **out,
                       cvn_err *err);
void chat_template_free(ChatTemplate *chat);

/* The name of one that is built in, the path of a file, or "of the model". */
const char *chat_template_name(const ChatTemplate *chat);

/* Its text, as a model's folder has it; for models to be saved with. */
const char *chat_template_source(const ChatTemplate *chat);

/* What a template is given, all borrowed. Members of a message that are null are left out; its reasoning is there as
 * "reasoning_content" and "thinking", whichever of these or "reasoning" it came as. */
typedef struct ChatInput {
    const json_t *messages;  /* array of objects, at least one */
    const json_t *tools;     /* array of objects, or NULL */
    const json_t *documents; /* array of objects, or NULL */
    const json_t *variables; /* object of further variables ("enable_thinking"), or NULL */
    bool generation_prompt;  /* ends with the header of the assistant, who is to answer */
    /* A member of the last message ("content") with whose text all ends, for the model to go on in it; or NULL. */
    const char *continues;
    const struct tm *now; /* what the template takes for now; NULL: it may not ask */
} ChatInput;

/* Appends the ids and, unless they are NULL, the text. What the template itself says of input that it does not take
 * (raise_exception) is the message, with CVN_EINVAL. After an error nothing was appended. */
int chat_template_encode(const ChatTemplate *chat, const Tokenizer *tokenizer,
                         const ChatInput *input, TokenIds *ids, StrBuf *text, cvn_err *err);

/* The same in two steps: the text with its marks into *out, which is empty, and the ids of its first n bytes. */
int chat_template_render(const ChatTemplate *chat, const Tokenizer *tokenizer,
                         const ChatInput *input, JinjaText *out, cvn_err *err);
int chat_template_ids(const ChatTemplate *chat, const Tokenizer *tokenizer, const JinjaText *text,
                      size_t n, TokenIds *ids, cvn_err *err);

/* The ids that end an answer, at most 4; their number. That of the tokenizer, and what the template puts behind an
 * assistant's message and right behind a call of a tool. */
size_t chat_template_stops(const ChatTemplate *chat, const Tokenizer *tokenizer, int32_t stops[4]);

#endif
