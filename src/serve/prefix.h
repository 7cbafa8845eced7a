/*
 * What rows hold when their request has ended, for those that begin alike (options.reuse): the turns of a conversation, and
 * the system prompt of many.
 *
 *     row 0   system, question 1, (answer 1)        system, question 1, answer 1, question 2: goes on in row 0
 *     row 1   (oldest)                              system, question 3: copies "system" from row 0 to row 1
 *
 * A tree knows who holds what (radix.h). A row that the prompt goes on from, or of which it shares more than half, is taken
 * itself; else what is shared is copied to the row that was used longest ago. Rows that work are copied from, too. At least the
 * last token of a prompt is computed, because what follows it is wanted.
 *
 * Only what was read as a prompt is shared: attention to a token that is decoded adds up in another order than to one of a
 * prompt, and an answer would depend on who else had asked. The next turn of a conversation reads the last answer again.
 */
#ifndef CVN_SERVE_PREFIX_H
#define CVN_SERVE_PREFIX_H

#include "serve/engine.h"
#include "serve/radix.h"

typedef struct Prefix {
    Radix radix;     /* of what rows hold */
    int32_t **token; /* [rows] [context]: the prompt of each row */
    int64_t *n;      /* [rows] its tokens; 0: nobody may share it */
    uint64_t *salt;  /* [rows] */
    int *adapter;    /* [rows] */
} Prefix;

/* A row that no request has: the one used longest ago, where that is free to choose. */
int prefix_free_row(cvn_engine *e);

/* A free row for the request, and how many tokens of the prompt it holds, which has copied them there if need be. */
int prefix_take_row(cvn_engine *e, const cvn_request *request, int64_t *keep);

/* The request has the row (NULL: one that shares nothing); some of its prompt was read; it has ended, and the row is free, but holds its prompt; it holds
   nothing any more. */
void prefix_begin(cvn_engine *e, int row, const cvn_request *request);
void prefix_read(cvn_engine *e, int row);
void prefix_end(cvn_engine *e, int row);
void prefix_forget(cvn_engine *e, int row);

#endif
