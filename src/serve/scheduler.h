/*
 * Many requests on few slots (continuous batching): cvn_engine_submit, cvn_engine_step and cvn_engine_cancel. All that
 * generates is a client of it: cvn_engine_generate, sessions, a server.
 *
 *     slots     steps →
 *     0        P0 d d d d E P3 d d d d …
 *     1        P1 P1 P1 d d E P2 d d d d …        P a chunk of a prompt, d decode, E end token
 *
 * Slots are given by priority, those who ask taking turns, first come first served; none is passed too often. A step reads
 * chunks of prompts, the oldest first and no more tokens than the largest bucket has, and then decodes: a long prompt does
 * not stop the texts beside it. Short prompts that come together are all read before any of them goes on, while others
 * decode, unless somebody says how long slots may wait. Where the mesh splits slots into parts, slots are taken from all parts alike, and prompts of
 * different parts are read side by side. What a slot says depends on its request alone: whichever programs read a prompt,
 * caches hold the same bits. So chunks may be as long as slots that decode may wait (serve/pace.h).
 *
 * Looking at tokens may be dear where they are not in host memory, so a step decodes eos_interval times; what a slot
 * decoded past its end is dropped, at most eos_interval - 1 tokens.
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
