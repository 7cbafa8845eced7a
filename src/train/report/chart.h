/*
 * A curve over steps, as an SVG picture inside an HTML page. No script: what a pointer over the curve
 * tells comes from <title> elements of invisible columns.
 *
 * A run of any length is drawn with at most CHART_BUCKETS points: a bucket shows the mean of its steps,
 * and behind it a band from its least to its greatest. A smoothed line may be drawn over them: the mean of
 * all buckets with weights that fall off exponentially to both sides (so that it does not
 * lag behind).
 *
 * What is not finite is left out, and the line has a gap there.
 */
#ifndef CVN_TRAIN_REPORT_CHART_H
#define CVN_TRAIN_REPORT_CHART_H

#include "base/strbuf.h"
#include "train/report/metrics.h"

enum { CHART_BUCKETS = 480, CHART_TICKS = 12 };

typedef struct Chart {
    const char *title; /* "Loss" */
    const char *unit;  /* "nats per token"; "" for none */
    size_t offset;     /* of the double in MetricsRow */
    size_t points;     /* offset of a double drawn as points where it is finite, or 0 for none */
    const char *points_name; /* "validation" */
    bool smooth;             /* the smoothed line is the one to look at; the values go behind it */
    bool from_zero;          /* the axis begins at 0 */
    bool percent;            /* numbers are fractions, shown in percent */
    bool wide;               /* drawn for the whole width of the page, else for half of it */
} Chart;

/* Appends <figure>…</figure>. */
void chart_draw(StrBuf *out, const Chart *chart, const MetricsRow *row, size_t n);

/* Round numbers (1, 2 or 5 times a power of ten apart) that cover [low, high], at most CHART_TICKS of
 * them, about `wanted`: tick[0] <= low, the last >= high. Returns how many, at least 2. */
int chart_ticks(double low, double high, int wanted, double tick[CHART_TICKS]);

/* A number for people, in four significant digits: 0.0003, 12.5, 9,120, 1.25M. */
void chart_number(StrBuf *out, double number);

#endif
