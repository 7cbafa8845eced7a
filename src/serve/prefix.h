/*
 * The prefix cache (options.reuse): slots keep the texts of finished requests for prompts that begin alike, such as the turns of a
 * conversation, or many with one system prompt.
 *
 *     slot 0   system, question 1, answer 1          system, question 1, answer 1, question 2: goes on in slot 0
 *     slot 1   (oldest)                              system, question 3: copies "system" from slot 0 to slot 1
 *
 * A tree knows who holds what (radix.h). A slot that the prompt goes on from, or of which it shares more than half, is taken
 * itself; else what is shared is copied to the slot that was used longest ago. Slots that work are copied from, too. At least the
 * last token of a prompt is computed, because what follows it is wanted.
 *
 * What was decoded is shared as what was read where a text has the same bits either way (cvn_engine.chunk_invariant), so that the next turn
 * of a conversation reads only what is new. Elsewhere an answer would depend on who else had asked: the last answer is read again.
 */
#ifndef CVN_SERVE_PREFIX_H
#define CVN_SERVE_PREFIX_H

#include "serve/engine.h"
#include "serve/radix.h"

typedef struct Prefix {
    Radix radix; /* of what slots hold */
    int32_t **
        token; /* [slots] [context]: of each slot its prompt, and what was decoded if that is shared */
    int64_t *n;     /* [slots] these tokens; 0: nobody may share them */
    uint64_t *salt; /* [slots] */
    int *adapter;   /* [slots] */
} Prefix;

/* A slot that no request has: the one used longest ago, where that is free to choose. */
int prefix_free_slot(cvn_engine *e);

/* A free slot for the request, and how many tokens of the prompt it holds, which has copied them there if need be. */
int prefix_take_slot(cvn_engine *e, const cvn_request *request, int64_t *keep);

/* The request has the slot (NULL: one that shares nothing); some of its prompt was read; a token was handed over; it has ended, and the slot is
   free, but holds what is shared; it holds nothing any more. */
void prefix_begin(cvn_engine *e, int slot, const cvn_request *request);
void prefix_read(cvn_engine *e, int slot);
void prefix_add(cvn_engine *e, int slot, int32_t token);
void prefix_end(cvn_engine *e, int slot);
void prefix_forget(cvn_engine *e, int slot);

#endif
