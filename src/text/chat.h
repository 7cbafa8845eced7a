/*
 * Chat formats: a conversation as the token ids a model was trained on, exact to the byte and the id.
 *
 *     llama2     <s>[INST] <<SYS>>\nsystem\n<</SYS>>\n\nuser [/INST] assistant </s><s>[INST] user [/INST]
 *     llama3     <|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\ntext<|eot_id|>
 *                <|start_header_id|>assistant<|end_header_id|>\n\n
 *     r1         <BOS>system<User>text<Assistant>text<EOS><User>text<Assistant><think>\n
 *
 * Markers are written as ids, the text of messages is encoded as plain text: a message that holds
 * "<|eot_id|>" holds eight tokens of ordinary text and cannot end itself or open another role's. Llama 2's
 * [INST] and <<SYS>> are ordinary text, so there a message that holds them is refused, as Meta's code does.
 *
 * Sources: meta-llama/llama llama/generation.py; meta-llama/llama-models models/llama3/chat_format.py and
 * models/llama3_*\/prompt_format.md; the chat templates published with the models.
 */
#ifndef CVN_TEXT_CHAT_H
#define CVN_TEXT_CHAT_H

#include "text/tokenizer.h"

typedef enum ChatFormat {
    CHAT_LLAMA2,
    CHAT_LLAMA3, /* the template of Llama 3.0: white space at the ends of messages is dropped */
    CHAT_LLAMA3_META, /* Meta's own ChatFormat for 3.0 to 3.3: messages as they are */
    CHAT_LLAMA31,     /* the template of 3.1 and 3.3: a system message with dates; tools */
    CHAT_LLAMA32,     /* the template of 3.2, in text the same as 3.1 */
    CHAT_R1,          /* R1 distillations: the prompt ends in <think> */
    CHAT_R1_OPEN,     /* the same with the older template, which leaves <think> to the model */
    CHAT_N,
} ChatFormat;

typedef struct ChatMessage {
    const char *role;           /* "system", "user", "assistant", "tool" or "ipython" */
    const char *content;        /* [length] bytes; may be NULL when length is 0 */
    size_t length;              /* bytes */
    const char *tool_name;      /* assistant: the function it calls instead of speaking, or NULL */
    const char *tool_arguments; /* JSON object of its arguments */
} ChatMessage;

typedef struct ChatOptions {
    const char *date; /* "26 Jul 2024", which is also the default; CHAT_LLAMA31 and _LLAMA32 only */
    const char *tools;      /* JSON array of function descriptions, or NULL */
    bool tools_in_system;   /* tools go into the system message (else the first user message) */
    bool generation_prompt; /* end with the header of the assistant, who is to answer */
    bool follows;      /* the messages follow others that were encoded before: no begin-of-text, no
                               system message of the format's own */
    bool tags_as_text; /* Llama 2: do not refuse [INST], <<SYS>> and the like in messages */
} ChatOptions;

/* Appends the ids of n messages, and, when `text` is not NULL, the same as text with the markers written
 * out. CVN_EINVAL for messages that the format cannot express; then nothing was appended to ids. */
int chat_encode(ChatFormat format, const Tokenizer *tokenizer, const ChatMessage *messages,
                size_t n, const ChatOptions *options, TokenIds *ids, StrBuf *text, cvn_err *err);

/* The ids that end an answer, at most 4; their number. */
size_t chat_stops(ChatFormat format, const Tokenizer *tokenizer, int32_t stops[4]);

const char *chat_format_name(ChatFormat format);

/* CHAT_LLAMA3 as a chat template, for tokenizers made here: others then write conversations as they are learned. NULL for a
 * tokenizer without its tokens. */
const char *chat_own_template(const Tokenizer *tokenizer);

/* The format of a model folder: by the chat template in chat_template.jinja or tokenizer_config.json,
 * or, where there is none, by the special tokens. CVN_EUNSUPPORTED for a template of another family. */
int chat_format_find(const char *folder, const Tokenizer *tokenizer, ChatFormat *format,
                     cvn_err *err);

/* Whether answers begin with thinking: CHAT_R1, whose prompt has opened it, and CHAT_R1_OPEN. */
bool chat_thinks(ChatFormat format);

/*
 * Splits an answer, as it streams in, into what stands between <think> and </think> and the rest. Bytes
 * that may be the beginning of a tag are held back. Line ends right behind a tag are dropped.
 */
typedef struct Thinking {
    bool inside;   /* between the tags */
    bool trim;     /* line ends are dropped until something else comes */
    bool answered; /* a </think> or other text has been seen: no <think> is expected any more */
    size_t n_held; /* bytes in held */
    char held[8];  /* the beginning of a tag, perhaps */
} Thinking;

/* Whether a prompt ends with <think>, but for white space behind it. */
bool thinking_begun(const Tokenizer *tokenizer, const TokenIds *prompt);

/* `inside`: the prompt ended so. */
void thinking_init(Thinking *thinking, bool inside);
void thinking_push(Thinking *thinking, const char *text, size_t n, StrBuf *thought, StrBuf *answer);
void thinking_flush(Thinking *thinking, StrBuf *thought, StrBuf *answer);

#endif
