/*
 * The prefix cache (options.reuse): texts of finished requests are kept, beside the slots, for prompts that begin alike, such as the turns
 * of a conversation, or many with one system prompt.
 *
 *     kept 0   system, question 1, answer 1          system, question 1, answer 1, question 2: is slot 0's text again
 *     slot 1   system, question 2                    system, question 3: slot 2 shares the full pages of "system" with slot 1
 *
 * A tree knows who holds what (radix.h). A kept text of which the prompt shares more than half becomes the slot's; of any other,
 * slots that work among them, the pages that are full are shared (pages.h), and nothing is copied. The one used longest ago makes
 * room. At least the last token of a prompt is computed, because what follows it is wanted.
 *
 * What was decoded is shared as what was read where a text has the same bits either way (cvn_engine.chunk_invariant), so that the next turn
 * of a conversation reads only what is new. Elsewhere an answer would depend on who else had asked: the last answer is read again.
 */
#ifndef CVN_SERVE_PREFIX_H
#define CVN_SERVE_PREFIX_H

#include "serve/engine.h"
#include "serve/radix.h"

typedef struct Prefix {
    Radix radix; /* of what slots and kept texts hold */
    int32_t *
        *token; /* [texts] [context]: of each its prompt, and what was decoded if that is shared */
    int64_t *n; /* [texts] these tokens; 0: nobody may share them */
    uint64_t *salt; /* [texts] */
    int *adapter;   /* [texts] */
} Prefix;

/* A free slot for the request, which holds *keep tokens of the prompt; false: there are no pages for it now. */
bool prefix_take_slot(cvn_engine *e, const cvn_request *request, int *slot, int64_t *keep);

/* The request has the slot; some of its prompt was read; a token was handed over; it has ended, and the slot's text is kept. */
void prefix_begin(cvn_engine *e, int slot, const cvn_request *request);
void prefix_read(cvn_engine *e, int slot);
void prefix_add(cvn_engine *e, int slot, int32_t token);
void prefix_end(cvn_engine *e, int slot);

/* Nobody shares a text any more. */
void prefix_forget(cvn_engine *e, int text);

/* A slot's pages for positions [0, n): kept texts, and slots that idle, give theirs up where none is free. */
int prefix_hold(cvn_engine *e, int slot, int64_t n, cvn_err *err);

/* The kept text of a shard that was used longest ago gives its pages up; false: there is none. */
bool prefix_give_up(cvn_engine *e, int shard);

#endif
