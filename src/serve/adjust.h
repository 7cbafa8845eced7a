/*
 * What a request says of single tokens: biases, penalties on what was generated, a text's least length, and that it wants to
 * see logits. All but the last is a bias for each entry of the vocabulary, which moves as tokens are drawn: rows that ask for
 * nothing of the kind have a bias of 0, which changes no bit. What a constraint does not allow has a bias of -inf.
 */
#ifndef CVN_SERVE_ADJUST_H
#define CVN_SERVE_ADJUST_H

#include "serve/engine.h"

typedef struct RowAdjust {
    const cvn_request *request; /* of the row, borrowed; NULL: it asks for nothing of the kind */
    int64_t drawn;              /* tokens so far */
    uint8_t *seen;              /* [vocab] 1: was drawn */
    const float *logits;        /* [vocab] of the last run, until the next; or NULL */
    struct cvn_constrained
        *text;      /* what was drawn, under the request's constraint; owned, or NULL */
    float *added;   /* [vocab] to the row's logits; borrowed */
    float *base;    /* [vocab] with a text: biases of what is allowed; owned */
    uint32_t *mask; /* [CVN_MASK_WORDS(vocab)] what is allowed next, as `added` has it; owned */
    uint32_t *made; /* of the same size, for the mask after it; owned */
    int32_t only;   /* the one token that is allowed, or -1 */
    cvn_err err;    /* why that is not known */
} RowAdjust;

void adjust_init(cvn_engine *e);
void adjust_free(cvn_engine *e);

/* Whether a request needs programs that adjust. */
bool adjust_wanted(const cvn_engine *e, const cvn_request *request);
/* Refuses what makes no sense, or what the engine was not made for. */
int adjust_check(const cvn_engine *e, const cvn_request *request, cvn_err *err);

/* Makes what requests with a constraint share. */
int adjust_prepare(cvn_engine *e, const cvn_request *request, cvn_err *err);

/* The row's request is another; NULL: none. */
void adjust_begin(cvn_engine *e, int row, const cvn_request *request);
/* It has drawn a token, of these logits. Returns it, or another, where logits without a likeliest (NaN, infinities) led to
   one that is not allowed. */
int32_t adjust_drawn(cvn_engine *e, int row, int32_t token, const float *logits);

/* Tokens that the row's constraint lets come next and no others: up to `most`, and no end; returns how many. */
int adjust_forced(cvn_engine *e, int row, int32_t *token, int most);

/* What is added to the logits after each of n tokens, if these are drawn: bias [n + 1, vocab], from the next token on. Returns
   how many of them may be drawn; what is behind those is not written. */
int adjust_ahead(cvn_engine *e, int row, const int32_t *token, int n, float *bias);

#endif
