/*
 * Logits processors: what a request changes of the logits of its slot before sampling (biases, penalties on tokens that were
 * generated, a minimum length), and what it wants to see of them. Each is a bias per entry of the vocabulary, which follows the
 * tokens as they are sampled; slots without any have a bias of 0, which changes no bit.
 *
 * A constraint is a mask over the vocabulary. It is made at once after a token was sampled, if that takes little time: if it allows only one
 * token, that is taken without sampling (speculate.h). Otherwise a helper thread makes it while the next step computes its
 * layers, and the step waits for it before it samples:
 *
 *     sampled: {"n      step t + 1: layers, logits ......... | sample        sampled: ame
 *                       helper:     mask after {"n           |
 */
#ifndef CVN_SERVE_LOGITS_H
#define CVN_SERVE_LOGITS_H

#include "serve/engine.h"

typedef struct SlotLogits {
    const cvn_request *request; /* of the slot, borrowed; NULL: it asks for nothing of the kind */
    int64_t drawn;              /* tokens so far */
    uint8_t *seen;              /* [vocab] 1: was drawn */
    const float *logits;        /* [vocab] of the last run, until the next; or NULL */
    /* what was drawn, under the request's constraint; owned, or NULL */
    struct cvn_constrained *text;
    float *bias;    /* [vocab] of the slot's logits; borrowed */
    uint8_t *mask;  /* [vocab] 1: the token may come; borrowed */
    uint32_t *bits; /* [CVN_MASK_WORDS(vocab)] of a mask that is made, … */
    uint32_t *had;  /* … and of the same size, of the mask as it is; owned with them */
    uint8_t *run;   /* where a run reads the mask that is made while it runs; borrowed, or NULL */
    bool shown;     /* mask is that of the text; true without one */
    int32_t only;   /* the one token that is known to be allowed alone, or -1 */
    cvn_err err;    /* why that is not known */
} SlotLogits;

/* Refuses settings that are invalid, or that the engine was not created for. */
int logits_check(const cvn_engine *e, const cvn_request *request, cvn_err *err);

/* Makes the vocabulary and the helper thread that requests with a constraint share. */
int logits_prepare(cvn_engine *e, const cvn_request *request, cvn_err *err);

/* Begins to make the masks that slots lack, on the helper thread; and they are there, or slots have an err. In between nobody asks
   slots or constraints anything. */
void logits_start(cvn_engine *e);
void logits_wait(cvn_engine *e);

/* The slot's request is another; NULL: none. The last so many tokens of its prompt were drawn for it. */
void logits_begin(cvn_engine *e, int slot, const cvn_request *request, int64_t drawn);
/* It has drawn a token, of these logits. Returns it, or another, where logits without a likeliest (NaN, infinities) led to
   one that is not allowed. */
int32_t logits_drawn(cvn_engine *e, int slot, int32_t token, const float *logits);

/* Tokens that the slot's constraint lets come next and no others: up to `most`, and no end; returns how many. */
int logits_forced(cvn_engine *e, int slot, int32_t *token, int most);

/* What is added to a slot's logits, and what may come [vocab each], as inputs of a run; a mask that is not made yet is put there by
   logits_start. */
void logits_copy(cvn_engine *e, int slot, float *bias, uint8_t *mask);

/* What is added to the logits after each of n tokens, if these are drawn, and what may come there: bias and mask [n + 1, vocab],
   from the next token on. Returns how many of them may be drawn; what is behind those is not written. */
int logits_ahead(cvn_engine *e, int slot, const int32_t *token, int n, float *bias, uint8_t *mask);

#endif
