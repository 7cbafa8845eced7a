#include "sim/svg_chart.h"

#include "sim/svg.h"
#include "train/report/chart.h"

#include <math.h>
#include <stdio.h>

void svg_add_point(SvgSeries *s, double x, double y)
{
    if (s->n < SVG_POINTS && x > 0 && y > 0 && isfinite(x) && isfinite(y)) {
        s->x[s->n] = x;
        s->y[s->n++] = y;
    }
}

/* From low to high; a chart's inner part. */
typedef struct Scale {
    double low, high, from, to; /* numbers, or their logarithms; pixels */
    bool from_zero;             /* numbers */
} Scale;

static double at(const Scale *s, double value)
{
    value = s->from_zero ? value : log10(value);
    return s->from + (value - s->low) / (s->high - s->low) * (s->to - s->from);
}

static Scale scale_of(const SvgChart *c, bool across, double from, double to)
{
    Scale s = {INFINITY, -INFINITY, from, to, c->from_zero};
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->series[i].n; k++) {
            double v = across ? c->series[i].x[k] : c->series[i].y[k];
            v = s.from_zero ? v : log10(v);
            s.low = fmin(s.low, v);
            s.high = fmax(s.high, v);
        }
    if (!(s.high > s.low)) {
        s.low = isfinite(s.low) ? s.low - 0.5 : 0;
        s.high = s.low + 1;
    }
    if (s.from_zero)
        s.low = 0;
    double room = 0.04 * (s.high - s.low);
    s.low -= s.from_zero ? 0 : room;
    s.high += room;
    return s;
}

static void tick(StrBuf *out, double p, double v, bool across, double other_from, double other_to)
{
    if (across) {
        svg_line(out, p, other_from, p, other_to, "faint");
        svg_printf(out, p, other_from + 15, "note", SVG_MIDDLE, "%g", v);
    } else {
        svg_line(out, other_from, p, other_to, p, "faint");
        svg_printf(out, other_from - 6, p + 4, "note", SVG_END, "%g", v);
    }
}

/* Lines at round numbers; else at the powers of ten, and between them where there are few. */
static void ticks(StrBuf *out, const Scale *s, bool across, double other_from, double other_to)
{
    static const double steps[] = {1, 2, 5, 3, 4, 6, 7, 8};
    double decades = s->high - s->low, round[CHART_TICKS];
    int n = s->from_zero ? chart_ticks(s->low, s->high, 6, round) : 0;
    for (int i = 0; i < n; i++)
        if (round[i] <= s->high)
            tick(out, at(s, round[i]), round[i], across, other_from, other_to);
    if (s->from_zero)
        return;
    int each = decades > 2.5 ? 1 : decades > 0.7 ? 3 : 8;
    for (int power = (int)floor(s->low); power <= (int)ceil(s->high); power++)
        for (int i = 0; i < each; i++) {
            double v = steps[i] * pow(10, power);
            if (log10(v) >= s->low && log10(v) <= s->high)
                tick(out, at(s, v), v, across, other_from, other_to);
        }
}

void svg_chart(StrBuf *out, const SvgChart *c)
{
    enum { WIDE = 620, TALL = 380, LEFT = 64, RIGHT = 200, TOP = 44, BELOW = 46 };
    svg_begin(out, WIDE, TALL);
    Scale x = scale_of(c, true, LEFT, WIDE - RIGHT), y = scale_of(c, false, TALL - BELOW, TOP);
    svg_text(out, 14, 24, "name", SVG_START, c->title);
    ticks(out, &x, true, TALL - BELOW, TOP);
    ticks(out, &y, false, LEFT, WIDE - RIGHT);
    svg_box(out, LEFT, TOP, WIDE - RIGHT - LEFT, TALL - BELOW - TOP, "frame");
    svg_text(out, (LEFT + WIDE - RIGHT) / 2.0, TALL - 12, "note", SVG_MIDDLE, c->across);
    svg_text(out, LEFT, TOP - 6, "note", SVG_START, c->up);
    for (int i = 0; i < c->n; i++) {
        const SvgSeries *s = &c->series[i];
        char line[4], area[4];
        double legend = TOP + 12 + 18.0 * i;
        snprintf(line, sizeof line, "l%d", i % SVG_COLORS);
        snprintf(area, sizeof area, "c%d", i % SVG_COLORS);
        for (int k = 0; k < s->n; k++) {
            if (!s->dots && k > 0)
                svg_line(out, at(&x, s->x[k - 1]), at(&y, s->y[k - 1]), at(&x, s->x[k]),
                         at(&y, s->y[k]), line);
            svg_dot(out, at(&x, s->x[k]), at(&y, s->y[k]), s->dots ? 4.5 : 2, area);
        }
        svg_dot(out, WIDE - RIGHT + 16, legend - 4, s->dots ? 4.5 : 3, area);
        svg_text(out, WIDE - RIGHT + 26, legend, "note", SVG_START, s->name);
    }
    svg_end(out);
}
