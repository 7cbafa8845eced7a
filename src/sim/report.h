/*
 * One page of pictures of what is simulated of a model on a chip, as HTML that needs nothing else: time of a token and tokens a second
 * over rows and context, cost by size, utilisation in training by mesh, the roofline with a layer's operations on it, and what of a step
 * is when. Published points of the same model on the same chips are on them.
 */
#ifndef CVN_SIM_REPORT_H
#define CVN_SIM_REPORT_H

#include "base/strbuf.h"
#include "sim/serving.h"
#include "sim/timing.h"

typedef struct Report {
    const char *model, *task;
    SimServing serving; /* the model, its numbers and one replica; with a chip */
    double rows, context;
    const Timed *timed; /* the step, with its spans */
    double layers;
} Report;

void report_html(StrBuf *out, const Report *report);
/* The last of its pictures alone: when what of the step is. */
void report_svg(StrBuf *out, const Report *report);

#endif
