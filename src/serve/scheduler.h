/*
 * Continuous batching: many requests on a few slots (cvn_engine_submit, cvn_engine_step and cvn_engine_cancel). All that
 * generates is a client of it: cvn_engine_generate, sessions, a server.
 *
 *     slots    steps →
 *     0        P0 d d d d E P3 d d d d …
 *     1        P1 P1 P1 d d E P2 d d d d …        P a chunk of a prompt, d decode, E end token
 *
 * Slots are given by priority, round-robin over keys, first come first served; a request is overtaken a limited number of times. A step
 * has a budget of tokens: those of active slots come first, then chunks of prompts, the oldest first, in the same list (serve/list.h);
 * where that depends on how texts are cut into runs, chunks are read first, and then all active slots decode. A long prompt does not stop
 * the other sequences. The budget is what the largest bucket has, or what options.max_stall allows (serve/pace.h). Where pages run out, the
 * request that would get a slot last of those that run, of the lowest priority and then the latest, gives its pages up, waits, and is
 * read again when there are pages: the first one always goes on, since the pages suffice for one text. Where the mesh
 * shards the slots, they are taken from all shards alike, and prompts in different shards are prefilled together. A text depends on its
 * request alone: caches hold the same bits, whatever the chunks.
 */
#ifndef CVN_SERVE_SCHEDULER_H
#define CVN_SERVE_SCHEDULER_H

#include "serve/engine.h"

/* As cvn_engine_submit; of a session, which goes on with its own text, and whose text is kept for it; or NULL. */
int scheduler_submit(cvn_engine *e, const cvn_request *request, const cvn_listener *listener,
                     const void *owner, int *id, cvn_err *err);

/* Pages for positions [0, n) of a slot, whoever must give theirs up; false: there are not as many, or the slot's own request had to. */
bool scheduler_hold(cvn_engine *e, int slot, int64_t n);

/* As cvn_engine_generate, of a session or of nobody (serve/generate.c). */
int generate_all(cvn_engine *e, const void *owner, const cvn_request *request, int n,
                 cvn_token_fn *heard, void *context, const volatile int *interrupt,
                 cvn_result *result, cvn_err *err);

/* Before each chunk of a text that is read between steps: with options.max_stall slots that decode do. */
int scheduler_go_on(cvn_engine *e, cvn_err *err);

/* Steps until *left is 0, which callbacks make it, or CVN_EINTERRUPTED once *interrupt (NULL: never) is not 0. */
int scheduler_run(cvn_engine *e, const int *left, const volatile int *interrupt, cvn_err *err);

#endif
