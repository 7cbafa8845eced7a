/*
 * Texts that are kept, beside those of slots, for prompts that begin alike: the turns of a session, which nobody else goes on from, and with
 * options.reuse all that end, such as the turns of a conversation, or many with one system prompt.
 *
 *     kept 0   system, question 1, answer 1          system, question 1, answer 1, question 2: is slot 0's text again
 *     slot 1   system, question 2                    system, question 3: slot 2 shares the full pages of "system" with slot 1
 *
 * A kept text of which the prompt shares more than half becomes the slot's; of any other, slots that work among them, the pages that are
 * full are shared (pages.h), and nothing is copied. Where pages run out the text used longest ago loses its last ones. At least the last
 * token of a prompt is computed, because what follows it is wanted.
 *
 * What was decoded is shared as what was read where a text has the same bits either way (cvn_engine.chunk_invariant), or where it is a
 * session's, so that the next turn reads only what is new. Elsewhere an answer would depend on who else had asked: the last answer is
 * read again.
 */
#ifndef CVN_SERVE_PREFIX_H
#define CVN_SERVE_PREFIX_H

#include "serve/engine.h"

typedef struct Text {
    const int32_t *token; /* of one that is kept owned, of others borrowed */
    int64_t n;            /* of them in the cache; 0: there is no text */
    const void *owner;    /* the session that it is of; NULL: of anybody */
    uint64_t salt;
    int adapter;
    int64_t used; /* when, counted in uses of kept texts */
} Text;

typedef struct Prefix {
    Text *kept; /* [n] */
    int n;
    int64_t uses;
} Prefix;

/* A free slot for a request, which holds *keep tokens of the prompt; false: there are no pages for it now. */
bool prefix_take_slot(cvn_engine *e, const Job *job, int *slot, int64_t *keep);

/* The slot's request leaves it, and its text is kept, if anybody may go on from it. */
void prefix_keep(cvn_engine *e, int slot);

/* The text that is kept for a session, as p->kept[text - slots]; -1: none is. */
int prefix_own(const cvn_engine *e, const void *owner);

/* A place for a text, of that which was used longest ago. */
int prefix_place(cvn_engine *e);
/* A text is there, whose tokens are copied; false: there is no memory for them, and it is not kept. */
bool prefix_put(cvn_engine *e, int text, Text is);

/* A kept text is no longer there. */
void prefix_drop(cvn_engine *e, int text);

/* Pages for positions [0, n) of a text: kept ones give theirs up where none is free; false: there are not as many. */
bool prefix_hold(cvn_engine *e, int text, int64_t n);

/* The kept text of a shard that was used longest ago gives its last page up; false: there is none. */
bool prefix_give_up(cvn_engine *e, int shard);

#endif
