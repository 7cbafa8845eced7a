/*
 * A conversation becomes documents to learn from: what the chat template writes of it, and of that what the assistant says,
 * with the token that ends its turn.
 *
 * What an answer is among the text is told by the template itself where it has {% generation %} markers. Else it is found by
 * rendering with and without it:
 *
 *     prompt     <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n             the messages before, and the header
 *     answered   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello.<|im_end|>\n
 *                                                                       '-- learnt --'
 *
 * Some templates write an earlier turn otherwise once others have followed: they drop its thoughts, say. A text that is
 * not how the next answer's begins is a document of its own, so that each answer is learnt behind exactly the prompt that it
 * will be asked by:
 *
 *     user 1, <think>a</think>one                                   document 1: answer 1 is learnt
 *     user 1, one, user 2, <think>b</think>two                      document 2: answer 2 is learnt
 *
 * What cannot be told apart, and thoughts and calls that the template does not write, are refused.
 */
#ifndef CVN_TRAIN_DATA_CONVERSATION_H
#define CVN_TRAIN_DATA_CONVERSATION_H

#include "text/answer.h"

/* Starts as {0} and is used again and again. */
typedef struct EncodedUnit {
    TokenIds ids; /* owned */
    StrBuf learn; /* owned: [ids.n] 0 or 1; empty where all is to be learnt */
    TokenIds end; /* owned: [end.n] where each document ends among the ids; empty: there is one */
} EncodedUnit;

/* How conversations are written. Does not change once it is made: threads may share it. */
typedef struct ChatWriter {
    const Tokenizer *tokenizer;   /* borrowed */
    const ChatTemplate *template; /* borrowed */
    AnswerKind kind;              /* owned: how answers are written */
} ChatWriter;

void chat_writer_init(ChatWriter *writer, const ChatTemplate *chat, const Tokenizer *tokenizer);
void chat_writer_free(ChatWriter *writer);

/* Appends the documents of a record that was read (record.h): {"messages", "tools"?}. */
int conversation_encode(const ChatWriter *writer, const json_t *record, EncodedUnit *out,
                        cvn_err *err);

#endif
