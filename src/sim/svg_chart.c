#include "sim/svg_chart.h"

#include "sim/svg.h"
#include "train/report/chart.h"

#include <math.h>
#include <stdio.h>

enum { WIDE = SVG_CHART_WIDE, TALL = 340, LEFT = 58, RIGHT = 150, TOP = 62, BELOW = 46, LINE = 15 };

void svg_add_point(SvgSeries *s, double x, double y)
{
    if (s->n < SVG_POINTS && x > 0 && y > 0 && isfinite(x) && isfinite(y)) {
        s->x[s->n] = x;
        s->y[s->n++] = y;
    }
}

/* An axis: numbers as they lie, and pixels. */
typedef struct Axis {
    SvgScale scale;
    double low, high, from, to;
    bool across;
} Axis;

static double lies(SvgScale scale, double v)
{
    return scale == SVG_LINEAR ? v : scale == SVG_DOUBLES ? log2(v) : log10(v);
}

static double at(const Axis *a, double value)
{
    return a->from + (lies(a->scale, value) - a->low) / (a->high - a->low) * (a->to - a->from);
}

static Axis axis_of(const SvgChart *c, bool across, double from, double to)
{
    Axis a = {across ? c->x : c->y, INFINITY, -INFINITY, from, to, across};
    for (int i = 0; i < c->n; i++)
        for (int k = 0; k < c->series[i].n; k++) {
            double v = lies(a.scale, across ? c->series[i].x[k] : c->series[i].y[k]);
            a.low = fmin(a.low, v);
            a.high = fmax(a.high, v);
        }
    if (!(a.high >= a.low)) /* no points */
        a.low = a.high = 0;
    double room = a.high > a.low ? 0.04 * (a.high - a.low) : 0.5, round[CHART_TICKS];
    if (a.scale == SVG_LINEAR) {
        a.low = 0;
        a.high = round[chart_ticks(0, a.high, 5, round) - 1];
        return a;
    }
    a.low -= room;
    a.high += room;
    return a;
}

static void tick(StrBuf *out, const Axis *a, double v)
{
    StrBuf number = {0};
    double p = at(a, v);
    bool inside = p >= fmin(a->from, a->to) - 0.01 && p <= fmax(a->from, a->to) + 0.01;
    chart_number(&number, v);
    if (inside && number.text && a->across) {
        svg_line(out, p, TOP, p, TALL - BELOW, "faint");
        svg_text(out, p, TALL - BELOW + 15, "note", SVG_MIDDLE, number.text);
    } else if (inside && number.text) {
        svg_line(out, LEFT, p, WIDE - RIGHT, p, "faint");
        svg_text(out, LEFT - 6, p + 4, "note", SVG_END, number.text);
    }
    strbuf_free(&number);
}

static void ticks(StrBuf *out, const Axis *a)
{
    static const double mantissa[] = {1, 2, 5, 3, 4, 6, 7, 8};
    double round[CHART_TICKS], span = a->high - a->low;
    if (a->scale == SVG_LINEAR) {
        int n = chart_ticks(0, a->high, 5, round);
        for (int i = 0; i < n; i++)
            tick(out, a, round[i]);
        return;
    }
    int between = span > 2.5 ? 1 : span > 0.7 ? 3 : 8, apart = span > 8.8 ? 2 : 1;
    for (int power = (int)floor(a->low); power <= (int)ceil(a->high); power++)
        if (a->scale == SVG_DECADES)
            for (int i = 0; i < between; i++)
                tick(out, a, mantissa[i] * pow(10, power));
        else if (power % apart == 0)
            tick(out, a, exp2(power));
}

static void draw_series(StrBuf *out, const SvgSeries *s, const Axis *x, const Axis *y, int color)
{
    char line[4], area[4];
    snprintf(line, sizeof line, "l%d", color);
    snprintf(area, sizeof area, "c%d", color);
    double px[SVG_POINTS], py[SVG_POINTS];
    for (int k = 0; k < s->n; k++) {
        px[k] = at(x, s->x[k]);
        py[k] = at(y, s->y[k]);
    }
    if (!s->dots && s->n > 1)
        svg_path(out, px, py, s->n, line);
    for (int k = 0; k < s->n; k++) {
        StrBuf tip = {0};
        strbuf_printf(&tip, "%s: ", s->name);
        chart_number(&tip, s->y[k]);
        strbuf_puts(&tip, " at ");
        chart_number(&tip, s->x[k]);
        svg_dot(out, px[k], py[k], s->dots ? 4.5 : 2.5, area, tip.text ? tip.text : "");
        strbuf_free(&tip);
    }
}

/* Each name beside its curve's end, and under the one above it. */
static void draw_names(StrBuf *out, const SvgChart *c, const Axis *y)
{
    double place[SVG_SERIES];
    int order[SVG_SERIES];
    for (int i = 0; i < c->n; i++) {
        const SvgSeries *s = &c->series[i];
        int k = i;
        place[i] = s->n ? at(y, s->y[s->n - 1]) : TALL - BELOW;
        for (; k > 0 && place[order[k - 1]] > place[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    double least = TOP + 6;
    for (int k = 0; k < c->n; k++) {
        place[order[k]] = fmax(place[order[k]], least);
        least = place[order[k]] + LINE;
    }
    double most = TALL - BELOW - 2;
    for (int k = c->n - 1; k >= 0; k--) {
        place[order[k]] = fmin(place[order[k]], most);
        most = place[order[k]] - LINE;
    }
    for (int i = 0; i < c->n; i++) {
        char area[4];
        snprintf(area, sizeof area, "c%d", i % SVG_COLORS);
        svg_dot(out, WIDE - RIGHT + 14, place[i], c->series[i].dots ? 4.5 : 3, area, "");
        svg_text(out, WIDE - RIGHT + 23, place[i] + 4, "note", SVG_START, c->series[i].name);
    }
}

void svg_chart(StrBuf *out, const SvgChart *c)
{
    svg_begin(out, WIDE, TALL);
    Axis x = axis_of(c, true, LEFT, WIDE - RIGHT), y = axis_of(c, false, TALL - BELOW, TOP);
    svg_text(out, 14, 24, "name", SVG_START, c->title);
    svg_text(out, 14, 44, "note", SVG_START, c->up);
    ticks(out, &x);
    ticks(out, &y);
    svg_line(out, LEFT, TALL - BELOW, WIDE - RIGHT, TALL - BELOW, "axis");
    svg_text(out, (LEFT + WIDE - RIGHT) / 2.0, TALL - 12, "note", SVG_MIDDLE, c->across);
    for (int i = 0; i < c->n; i++)
        draw_series(out, &c->series[i], &x, &y, i % SVG_COLORS);
    draw_names(out, c, &y);
    svg_end(out);
}
