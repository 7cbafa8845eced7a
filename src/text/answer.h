/*
 * Answers in parts: what a model thought, what it says, and the calls of tools. Models mark these in a dozen ways; which one a
 * model has is found from its chat template (answer_forms.c), and one reader parts them while the text comes:
 *
 *     <think>\nhm\n</think>\n\nLet me look.\n<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>
 *             '--'            '----------'   '----------------------- call -------------------------'
 *             thought         said
 *
 *     <|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.
 *     '---------- header ----------'--                         '-------- header ---------'----
 *
 * How the text is cut into pieces makes no difference: bytes that may begin a mark are held back. Line ends right behind a mark
 * of thoughts are dropped, and so is white space in front of a call.
 */
#ifndef CVN_TEXT_ANSWER_H
#define CVN_TEXT_ANSWER_H

#include "text/answer_forms.h"
#include "text/call_syntax.h"

/* How the answers of a model are written. */
typedef struct AnswerKind {
    const AnswerForm *form; /* or NULL */
    CallSyntax calls;       /* owned */
    int32_t stops[4];       /* [n_stops] ids that end an answer */
    size_t n_stops;
} AnswerKind;

void answer_kind_learn(AnswerKind *kind, const ChatTemplate *chat, const Tokenizer *tokenizer);
void answer_kind_free(AnswerKind *kind);
bool answer_ends(const AnswerKind *kind, int32_t id);

typedef enum AnswerPart { ANSWER_SAID, ANSWER_THOUGHT, ANSWER_HEADER, ANSWER_CALL } AnswerPart;

/* Owned; what is read is appended to them. */
typedef struct AnswerTexts {
    StrBuf thought, said;
    /* all from the mark of the first call on, with the white space in front of it (calls_read) */
    StrBuf call;
} AnswerTexts;

void answer_texts_free(AnswerTexts *texts);

/* Invariant: place + held.length bytes were pushed; nothing is held in ANSWER_CALL, which is the last part. */
typedef struct Answer {
    const AnswerKind *kind; /* borrowed */
    bool calls;             /* they are looked for */
    AnswerPart part;
    /* the byte at which the part began: of its mark, or of its header behind what stands in front of that */
    int64_t begin;
    int64_t place; /* bytes that were read */
    bool trim;     /* line ends are dropped until something else comes */
    bool begun;    /* something was said: no thought is opened any more */
    StrBuf held;   /* owned: what may be the beginning of a mark, or a header */
    StrBuf blank;  /* owned: white space that is said unless a call follows */
} Answer;

/* `prompt`: what the answer goes on from, which may have opened a thought; or NULL. */
void answer_init(Answer *answer, const AnswerKind *kind, bool calls, const Tokenizer *tokenizer,
                 const TokenIds *prompt);
void answer_free(Answer *answer);
void answer_push(Answer *answer, const char *text, size_t n, AnswerTexts *out);
void answer_flush(Answer *answer, AnswerTexts *out);

/* Appends the text of a token: a special one's where it is part of a mark, or the decoder writes all. */
void answer_decode(const AnswerKind *kind, Decoder *decoder, int32_t token, StrBuf *out);
/* Takes back the tokens from the byte on at which the part began. `decoder` is as it was before the first; `rest` gets what the first
   of them has in front of it. */
void answer_cut(const Answer *answer, Decoder decoder, TokenIds *tokens, StrBuf *rest);

/* Whether it is not known yet that the answer itself has begun: a thought is open, or headers come first. */
static inline bool answer_waits(const Answer *answer)
{
    return answer->part == ANSWER_THOUGHT || answer->part == ANSWER_HEADER;
}

#endif
