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
 * the other sequences. The budget is what the largest bucket has, or what options.max_stall allows (serve/pace.h). Where the mesh
 * shards the slots, they are taken from all shards alike, and prompts in different shards are prefilled together. A text depends on its
 * request alone: caches hold the same bits, whatever the chunks.
 */
#ifndef CVN_SERVE_SCHEDULER_H
#define CVN_SERVE_SCHEDULER_H

#include "serve/engine.h"

/* As cvn_engine_submit; on the slot of `kept`, unless it is NULL: of whose tokens the prompt begins with the first kept->n.
   It is borrowed until the request has ended, and then says what the slot's cache holds. */
int scheduler_submit(cvn_engine *e, const cvn_request *request, const cvn_listener *listener,
                     Kept *kept, int *id, cvn_err *err);

/* Before each chunk of a text that is read between steps: with options.max_stall slots that decode do. */
int scheduler_go_on(cvn_engine *e, cvn_err *err);

/* Steps until *left is 0, which callbacks make it, or CVN_EINTERRUPTED once *interrupt (NULL: never) is not 0. */
int scheduler_run(cvn_engine *e, const int *left, const volatile int *interrupt, cvn_err *err);

#endif
