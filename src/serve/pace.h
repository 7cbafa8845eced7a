/*
 * How long slots that decode wait while prompts are read (options.max_stall): from one of their tokens to the next no longer
 * than that, as far as the shortest chunk allows.
 *
 *     a token       chunk of 64        chunk of 16   decode      the next one
 *     |-- … --------|--------------------|---------------|-----------|
 *     since         now        one is begun only where, with what decoding takes, it ends in time
 *
 * What each program takes is measured when the engine begins, on texts that begin and on one that has gone on; `late` is how
 * much slower it was lately, at worst: it jumps up with a run that was slower than any, and comes down slowly. All programs
 * have it in common, since what makes them slow is what else the machine does, and what was measured of one lets others be
 * chosen that have not run for long. What a text says depends on none of this.
 */
#ifndef CVN_SERVE_PACE_H
#define CVN_SERVE_PACE_H

#include "serve/engine.h"

/* A chunk of a text of `start` positions took so long. */
void pace_note(StallPace *pace, EngineStep *chunk, int64_t start, double seconds);
/* Slots have their next tokens, by a step that began then. */
void pace_decoded(StallPace *pace, double begin);

/* Whether a slot decodes. */
bool pace_decodes(const cvn_engine *e);

/* Chooses which chunks may begin now (longest, longest_batch), of a text of `start` positions; at least the shortest if
   `least`. *any: there is one. All processes choose what the first one does. */
int pace_choose(cvn_engine *e, int64_t start, bool least, bool *any, cvn_err *err);

#endif
