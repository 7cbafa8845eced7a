/*
 * What rows hold when their request has ended, for those that begin alike (options.reuse): the turns of a conversation, and
 * the system prompt of many.
 *
 *     row 0   system, question 1, answer 1          system, question 1, answer 1, question 2: goes on in row 0
 *     row 1   (oldest)                              system, question 3: copies "system" from row 0 to row 1
 *
 * Every row's tokens are known; a prompt is compared with all of them. A row that the prompt goes on from, or of which it
 * shares more than half, is taken itself; else what is shared is copied to the row that was used longest ago. Rows that work
 * are copied from, too. At least the last token of a prompt is computed, because what follows it is wanted.
 */
#ifndef CVN_SERVE_PREFIX_H
#define CVN_SERVE_PREFIX_H

#include "serve/engine.h"

typedef struct PrefixRow {
    int32_t *
        token; /* [context + 1] what the row's cache holds, the first `filled` of the engine, and the last one drawn */
    int64_t n; /* 0: nobody may share it */
    uint64_t salt;
    int64_t used; /* when, in requests */
} PrefixRow;

/* For all rows, in the engine's arena. */
void prefix_init(cvn_engine *e);

/* A free row for the request, and how many tokens of the prompt it holds, which has copied them there if need be. */
int prefix_take_row(cvn_engine *e, const cvn_request *request, int64_t *keep);

/* The request has the row; it has drawn a token; it has ended, and the row is free: its tokens are kept. */
void prefix_begin(cvn_engine *e, int row, const cvn_request *request);
void prefix_add(cvn_engine *e, int row, int32_t token);
void prefix_end(cvn_engine *e, int row);

#endif
