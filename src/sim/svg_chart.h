/* Curves and measured points over two axes, as a picture of its own. */
#ifndef CVN_SIM_SVG_CHART_H
#define CVN_SIM_SVG_CHART_H

#include "base/strbuf.h"

#include <stdbool.h>

enum { SVG_SERIES = 8, SVG_POINTS = 24 };

typedef struct SvgSeries {
    char name[48];
    double x[SVG_POINTS], y[SVG_POINTS];
    int n;
    bool dots; /* measured; else a line */
} SvgSeries;

typedef struct SvgChart {
    const char *title, *across, *up;
    bool from_zero; /* both axes begin at 0; else they go by powers of ten */
    SvgSeries series[SVG_SERIES];
    int n;
} SvgChart;

/* Left out: what is not above 0, and what is too much. */
void svg_add_point(SvgSeries *series, double x, double y);

/* The whole picture, from svg_begin to svg_end. */
void svg_chart(StrBuf *out, const SvgChart *chart);

#endif
