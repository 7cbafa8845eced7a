/* What of a step is when, and what its time goes to: pictures of its spans (sim/timing.h). Kinds of operations have the same colors in
   both; those that take most have one of their own. */
#ifndef CVN_SIM_TIMELINE_H
#define CVN_SIM_TIMELINE_H

#include "base/strbuf.h"
#include "sim/timing.h"

/* The whole step in one lane, and below it what chip and links do in the time of about three of its layers, over an axis of time. */
void timeline_draw(StrBuf *out, const char *task, const Timed *timed, double layers);
/* A bar for each kind of operation, as long as its part of the step, and one for what is waited for. */
void timeline_parts(StrBuf *out, const Timed *timed);

#endif
