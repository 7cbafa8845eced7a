/*
 * One page of what is simulated of a model on chips, as HTML that needs nothing else: the figures, what the step's time goes to, what of
 * it is when; and pictures and a table of what else could be asked for the same task: of decoding the time of a token over rows and
 * contexts, of a prefill over lengths of prompts, of training the share of the peak over chips and batches; the roofline with a layer's
 * operations on it; and the cost by model. Published points of the same model on the same chips are on them.
 */
#ifndef CVN_SIM_REPORT_H
#define CVN_SIM_REPORT_H

#include "base/strbuf.h"
#include "sim/figures.h"
#include "sim/plan.h"
#include "sim/serving.h"

typedef struct SimReport {
    const SimFigures *figures; /* of the step */
    SimTask task;
    const char *mesh, *layout;
    double memory;      /* bytes of a chip that the step takes */
    SimServing serving; /* the model, its numbers and one replica; with a chip */
    double rows, seq;   /* of the step; tokens of each */
    double context;     /* tokens that a row has */
    const Timed *timed; /* the step, with its spans */
    double layers;
} SimReport;

void report_html(StrBuf *out, const SimReport *report);
/* When what of the step is, alone. */
void report_svg(StrBuf *out, const SimReport *report);

#endif
