/*
 * Text that cannot be malformed: JSON by a schema, regular expressions, grammars and choices, as masks over the tokens
 * that a model may say next. Nothing here knows a model; whoever samples asks for a mask, and says what was sampled.
 *
 *     cvn_vocabulary *words;      the bytes of every token, once per tokenizer
 *     cvn_constraint *json;       what is asked, once per schema
 *     cvn_constrained *text;      one text that is being written
 *
 *     cvn_vocabulary_new(pieces, lengths, n, &(cvn_token){eos}, 1, &words, &err);
 *     if (cvn_constraint_schema(schema, strlen(schema), NULL, &json, &err))
 *         …                                                 err says which keyword is refused, and why
 *     cvn_constrained_new(json, words, &text, &err);
 *     uint32_t mask[CVN_MASK_WORDS(n)];
 *     do {
 *         cvn_constrained_mask(text, mask, &err);           bit i of word i / 32: token i may come
 *         token = sample(logits, mask);
 *         cvn_constrained_advance(text, token, &err);
 *     } while (token != eos);                               the mask allows it where the text is complete
 *
 * A mask never leads into a dead end: whatever is sampled under it can be completed. A constraint is exact: it accepts
 * the texts that fulfil it and no others; where that cannot be, it is refused when it is made (docs/CONSTRAIN.md says
 * what is). What a constraint finds out is kept in it, so its texts are asked from one thread at a time. An engine does
 * all this for requests that have a constraint (engine.h).
 */
#ifndef CARAVAN_CONSTRAIN_H
#define CARAVAN_CONSTRAIN_H

#include "caravan/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t cvn_token;
typedef struct cvn_vocabulary cvn_vocabulary;
typedef struct cvn_constraint cvn_constraint;
typedef struct cvn_constrained cvn_constrained;

/* Words of a mask over n tokens. */
#define CVN_MASK_WORDS(n) (((size_t)(n) + 31) / 32)

/* Copies the bytes of tokens 0 to n - 1: piece[i] has length[i] of them; a token of no bytes is never allowed. Those of
   `end` end a text and are allowed where it is complete. */
int cvn_vocabulary_new(const char *const *piece, const size_t *length, cvn_token n,
                       const cvn_token *end, size_t n_end, cvn_vocabulary **out, cvn_err *err);
void cvn_vocabulary_free(cvn_vocabulary *vocabulary);

typedef struct cvn_constrain_options {
    int draft;            /* 4, 6, 7, 2019 or 2020, of schemas that do not say; 0: 2020-12 */
    bool annotate_format; /* `format` asks nothing */
    bool compact;         /* no blanks between the parts of JSON */
    bool in_order;        /* members in the order in which the schema names them */
    /* Strings and names as JSON.stringify writes them: UTF-8 as it is, escapes only for what needs them; integers, and numbers
       that enum or const lists, by their digits alone: 12, not 12.0 or 1.2e1. */
    bool canonical;
    /* What is refused may be found on the way, unless cvn_constraint_check finds it before. */
    bool lazy;
} cvn_constrain_options;

/* Options may be NULL. CVN_EFORMAT for what is malformed, CVN_EUNSUPPORTED for what is refused; the message names the path
   of the keyword. A constraint lives until it is freed and so do the texts made from it. */
int cvn_constraint_schema(const char *schema, size_t n, const cvn_constrain_options *options,
                          cvn_constraint **out, cvn_err *err);
int cvn_constraint_json(const cvn_constrain_options *options, cvn_constraint **out, cvn_err *err);
int cvn_constraint_regex(const char *regex, size_t n, cvn_constraint **out, cvn_err *err);
/* A context-free grammar as llama.cpp (GBNF) or Lark writes them; docs/CONSTRAIN.md says what of them is read. */
int cvn_constraint_grammar(const char *grammar, size_t n, cvn_constraint **out, cvn_err *err);
int cvn_constraint_choices(const char *const *choice, const size_t *length, size_t n,
                           cvn_constraint **out, cvn_err *err);
void cvn_constraint_free(cvn_constraint *constraint);

/* Looks at all that a constraint made with options.lazy leads to: milliseconds, for schemas of thousands of keywords.
   CVN_EUNSUPPORTED where something is refused. */
int cvn_constraint_check(cvn_constraint *constraint, cvn_err *err);

/* Nothing fulfils it: no text comes of it, not the empty one either. */
bool cvn_constraint_is_empty(const cvn_constraint *constraint);

/* A text of a constraint, empty at first. The vocabulary may be NULL where only bytes are asked about. */
int cvn_constrained_new(cvn_constraint *constraint, const cvn_vocabulary *vocabulary,
                        cvn_constrained **out, cvn_err *err);
cvn_constrained *cvn_constrained_clone(const cvn_constrained *text); /* NULL: no memory */
void cvn_constrained_free(cvn_constrained *text);

/* Writes CVN_MASK_WORDS(n) words. CVN_EUNSUPPORTED where finding out what may come takes more than its limits. */
int cvn_constrained_mask(cvn_constrained *text, uint32_t *mask, cvn_err *err);

/* Appends a token, or bytes. CVN_EINVAL where they may not come; the text is as before. */
int cvn_constrained_advance(cvn_constrained *text, cvn_token token, cvn_err *err);
int cvn_constrained_advance_bytes(cvn_constrained *text, const char *bytes, size_t n, cvn_err *err);

/* Whether the mask takes some microseconds only: it is kept already, or one byte may come and no other. Others may take some
   hundred, which another thread has while a model computes. */
bool cvn_constrained_is_quick(cvn_constrained *text);

/* The text may end here. */
bool cvn_constrained_complete(const cvn_constrained *text);

#ifdef __cplusplus
}
#endif
#endif
