#include "sim/timeline.h"

#include "sim/svg.h"
#include "sim/svg_chart.h"
#include "train/report/chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_KINDS = 96 };

typedef struct Kind {
    const char *name;
    double seconds;
    bool link;
} Kind;

/* Kinds of operations, those that take longest first. */
typedef struct Kinds {
    Kind kind[MOST_KINDS];
    int n;
} Kinds;

static int by_seconds(const void *a, const void *b)
{
    double x = ((const Kind *)a)->seconds, y = ((const Kind *)b)->seconds;
    return (x < y) - (x > y);
}

static int find_kind(const Kinds *kinds, const char *name)
{
    int k = 0;
    while (k < kinds->n && strcmp(kinds->kind[k].name, name) != 0)
        k++;
    return k;
}

static Kinds kinds_of(const Timed *t)
{
    Kinds kinds = {.n = 0};
    for (int64_t i = 0; i < t->n_spans; i++) {
        int k = find_kind(&kinds, t->span[i].name);
        if (k == MOST_KINDS)
            continue;
        kinds.n += k == kinds.n;
        kinds.kind[k].name = t->span[i].name;
        kinds.kind[k].link = t->span[i].link;
        kinds.kind[k].seconds += t->span[i].seconds;
    }
    qsort(kinds.kind, (size_t)kinds.n, sizeof *kinds.kind, by_seconds);
    return kinds;
}

/* The style class of a kind's color. */
static const char *color_of(const Kinds *kinds, const char *name)
{
    static const char *const colors[SVG_COLORS + 1] = {"c0", "c1", "c2", "c3",  "c4",
                                                       "c5", "c6", "c7", "rest"};
    int k = find_kind(kinds, name);
    return colors[k < SVG_COLORS ? k : SVG_COLORS];
}

/* A time in the unit that suits it. */
static const char *time_text(char text[32], double seconds)
{
    double size = fabs(seconds);
    snprintf(text, 32,
             size >= 1      ? "%.4g s"
             : size >= 1e-3 ? "%.4g ms"
                            : "%.4g µs",
             seconds * (size >= 1      ? 1
                        : size >= 1e-3 ? 1e3
                                       : 1e6));
    return text;
}

/* ---- when ---- */

enum { WIDE = 1216, LEFT = 58, RIGHT = 16, STEP_LANE = 18, LANE = 34, AXIS = 22 };

/* A lane of the picture, for the spans of a time. */
typedef struct Lane {
    StrBuf *out;
    const Kinds *kinds;
    double from, length; /* seconds */
    double y, tall;
    bool told; /* boxes have their names in them */
} Lane;

static double place(const Lane *l, double seconds)
{
    return LEFT + (seconds - l->from) / l->length * (WIDE - LEFT - RIGHT);
}

static void draw_box(const Lane *l, const TimedSpan *s, double begin, double end, int64_t count)
{
    char tip[128], time[32], times[32] = "";
    double wide = end - begin;
    if (count > 1)
        snprintf(times, sizeof times, " × %lld", (long long)count);
    snprintf(tip, sizeof tip, "%s%s: %s", s->name, times,
             time_text(time, wide / (WIDE - LEFT - RIGHT) * l->length));
    svg_tipped_box(l->out, begin, l->y, fmax(0.2, wide - (wide > 2 ? 0.5 : 0)), l->tall,
                   color_of(l->kinds, s->name), tip);
    if (l->told && wide > 6.5 * (double)strlen(s->name) + 8)
        svg_text(l->out, begin + wide / 2, l->y + l->tall / 2 + 4, "within", SVG_MIDDLE, s->name);
}

/* Neighbours of a kind that touch are one box, and what is thinner than a hair is its neighbour's. */
static void draw_lane(const Lane *l, const Timed *t, bool chip, bool links)
{
    const TimedSpan *open = NULL;
    double begin = 0, end = 0;
    int64_t count = 0;
    for (int64_t i = 0; i < t->n_spans; i++) {
        const TimedSpan *s = &t->span[i];
        double from = fmax(place(l, s->begin), LEFT),
               to = fmin(place(l, s->begin + s->seconds), WIDE - RIGHT);
        if (to <= from || !(s->link ? links : chip))
            continue;
        bool touches = open && from - end < 0.3, thin = to - from < 0.3;
        bool alike = open && strcmp(open->name, s->name) == 0 && (!l->told || to - from < 3);
        if (touches && (thin || alike)) {
            count += strcmp(open->name, s->name) == 0;
            end = fmax(end, to);
            continue;
        }
        if (open)
            draw_box(l, open, begin, end, count);
        open = s;
        begin = from;
        end = to;
        count = 1;
    }
    if (open)
        draw_box(l, open, begin, end, count);
}

/* Under the lane, in the unit that suits what is shown. */
static void draw_axis(const Lane *l)
{
    double tick[CHART_TICKS], last = l->from + l->length;
    double scale = last >= 1 ? 1 : last >= 1e-3 ? 1e3 : 1e6;
    int n = chart_ticks(l->from * scale, last * scale, 10, tick);
    double y = l->y + l->tall;
    svg_line(l->out, LEFT, y + 4, WIDE - RIGHT, y + 4, "axis");
    svg_text(l->out, 14, y + 18, "note", SVG_START, last >= 1 ? "s" : last >= 1e-3 ? "ms" : "µs");
    for (int i = 0; i < n; i++) {
        double x = place(l, tick[i] / scale);
        if (x < LEFT - 0.1 || x > WIDE - RIGHT + 0.1)
            continue;
        svg_line(l->out, x, y + 4, x, y + 8, "axis");
        svg_printf(l->out, x, y + 19, "note", i && x > WIDE - RIGHT - 20 ? SVG_END : SVG_MIDDLE,
                   "%.6g", tick[i]);
    }
}

void timeline_draw(StrBuf *out, const char *task, const Timed *t, double layers)
{
    Kinds kinds = kinds_of(t);
    char whole[32], part[32];
    double length = fmin(t->seconds, 3 * t->seconds / fmax(1, layers)), top = 42;
    Lane step = {out, &kinds, 0, t->seconds, top, STEP_LANE, false};
    double lanes = top + STEP_LANE + AXIS + 24;
    Lane chip = {out, &kinds, (t->seconds - length) / 2, length, lanes, LANE - 6, true};
    Lane links = chip;
    bool linked = t->in_flight > 0 || t->exposed > 0;
    links.y += linked ? LANE : 0;
    int named = kinds.n < SVG_COLORS ? kinds.n : SVG_COLORS, across = 6;
    bool others = kinds.n > named;
    double legend = links.y + LANE + AXIS + 14;
    svg_begin(out, WIDE, legend + 20 * ((named + others + across - 1) / across) + 4);
    svg_printf(out, 14, 24, "name", SVG_START,
               "Timeline of %s: %s, and below it %s from its middle", task,
               time_text(whole, t->seconds), time_text(part, length));
    svg_text(out, 14, step.y + 13, "note", SVG_START, "step");
    draw_lane(&step, t, true, false);
    draw_axis(&step);
    /* Lines that show which stretch of the step the lane below magnifies. */
    double from = place(&step, chip.from), to = place(&step, chip.from + length);
    svg_box(out, from, step.y - 2, to - from, STEP_LANE + 4, "frame");
    svg_line(out, from, step.y + STEP_LANE + 2, LEFT, chip.y - 3, "faint");
    svg_line(out, to, step.y + STEP_LANE + 2, WIDE - RIGHT, chip.y - 3, "faint");
    svg_text(out, 14, chip.y + 18, "note", SVG_START, "chip");
    draw_lane(&chip, t, true, false);
    if (linked) {
        svg_text(out, 14, links.y + 18, "note", SVG_START, "links");
        draw_lane(&links, t, false, true);
    }
    draw_axis(&links);
    for (int k = 0; k < named + others; k++) {
        const char *name = k < named ? kinds.kind[k].name : "others";
        double x = LEFT + 190.0 * (k % across), y = legend + 20.0 * (k / across);
        svg_box(out, x, y, 10, 10, k < named ? color_of(&kinds, name) : "rest");
        svg_text(out, x + 16, y + 9, "note", SVG_START, name);
    }
    svg_end(out);
}

/* ---- how much ---- */

static void part_bar(StrBuf *out, double y, const char *name, const char *class, double seconds,
                     double whole)
{
    enum { NAMES = 150, VALUES = 130 };
    char time[32];
    double wide = (SVG_CHART_WIDE - NAMES - VALUES) * seconds / whole;
    svg_text(out, NAMES - 8, y + 13, "note", SVG_END, name);
    svg_box(out, NAMES, y + 2, fmax(1, wide), 15, class);
    svg_printf(out, NAMES + fmax(1, wide) + 6, y + 13, "note", SVG_START, "%s, %.1f %%",
               time_text(time, seconds), 100 * seconds / whole);
}

void timeline_parts(StrBuf *out, const Timed *t)
{
    enum { LINE = 23, TOP = 62, BOUNDS_TALL = 66, SHOWN = 8 };
    Kinds kinds = kinds_of(t);
    double y = TOP, others = 0;
    int shown[SHOWN], n = 0;
    for (int k = 0; k < kinds.n; k++)
        if (kinds.kind[k].link)
            continue;
        else if (n < SHOWN && kinds.kind[k].seconds > 5e-4 * t->seconds)
            shown[n++] = k;
        else
            others += kinds.kind[k].seconds;
    int rows = n + (others > 0) + (t->exposed > 0);
    svg_begin(out, SVG_CHART_WIDE, TOP + LINE * rows + BOUNDS_TALL);
    svg_text(out, 14, 24, "name", SVG_START, "Time of the step by kind of operation");
    svg_text(out, 14, 44, "note", SVG_START,
             "on the chip; only exposed time of collectives counts");
    for (int i = 0; i < n; i++, y += LINE) {
        const Kind *kind = &kinds.kind[shown[i]];
        part_bar(out, y, kind->name, color_of(&kinds, kind->name), kind->seconds, t->seconds);
    }
    if (others > 0) {
        part_bar(out, y, "others", "rest", others, t->seconds);
        y += LINE;
    }
    if (t->exposed > 0) {
        part_bar(out, y, "waiting for links", "b2", t->exposed, t->seconds);
        y += LINE;
    }
    /* The time of the step, divided by what bounds it. */
    static const char *const colors[COST_BOUNDS] = {"b0", "b1", "b2", "b3"};
    double x = 14, wide = SVG_CHART_WIDE - 28;
    y += 8;
    for (int b = 0; b < COST_BOUNDS; b++) {
        char tip[64];
        double part = t->cost.spent[b] / t->seconds;
        snprintf(tip, sizeof tip, "%s %.1f %%", cost_bound_names[b], 100 * part);
        svg_tipped_box(out, x, y, wide * part, 18, colors[b], tip);
        x += wide * part;
        svg_box(out, 14 + 140.0 * b, y + 28, 10, 10, colors[b]);
        svg_text(out, 30 + 140.0 * b, y + 37, "note", SVG_START, tip);
    }
    svg_end(out);
}
