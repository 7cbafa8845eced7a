/* Curves and measured points over two axes, as a picture of its own. Curves are named where they end, points in the same column. */
#ifndef CVN_SIM_SVG_CHART_H
#define CVN_SIM_SVG_CHART_H

#include "base/strbuf.h"

#include <stdbool.h>

enum { SVG_SERIES = 8, SVG_POINTS = 24, SVG_CHART_WIDE = 600 };

typedef struct SvgSeries {
    char name[48];
    double x[SVG_POINTS], y[SVG_POINTS];
    int n;
    bool dots; /* points by themselves; else a line */
} SvgSeries;

/* How numbers lie along an axis. */
typedef enum SvgScale {
    SVG_DECADES, /* by their logarithm, with lines at 1, 2, 5, 10 */
    SVG_DOUBLES, /* by their logarithm, with lines at powers of two */
    SVG_LINEAR   /* from 0 */
} SvgScale;

typedef struct SvgChart {
    const char *title, *across, *up;
    SvgScale x, y;
    SvgSeries series[SVG_SERIES];
    int n;
} SvgChart;

/* Left out: what is not above 0, and what is too much. */
void svg_add_point(SvgSeries *series, double x, double y);

/* The whole picture, from svg_begin to svg_end. */
void svg_chart(StrBuf *out, const SvgChart *chart);

#endif
