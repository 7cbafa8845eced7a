/*
 * The picture of a plan: what a device's memory goes to as one bar, the mesh as a grid of devices, and below it one card for each kind of
 * weight or cache, a rectangle cut the way the mesh cuts it, the part that device 0 holds filled in.
 */
#include "base/bytes.h"
#include "sim/plan.h"
#include "sim/svg.h"

#include <math.h>
#include <stdio.h>

enum {
    WIDTH = 960,
    MARGIN = 24,
    CARD_WIDTH = 216,
    CARD_HEIGHT = 190,
    CARDS = 4, /* in a row */
    BOX = 96,  /* the rectangle's longer side */
    APART = 4, /* pixels between lines at least, and of a part that is seen */
    BAR = 96,  /* where the bar of memory begins */
    MESH = 172 /* where the mesh begins */
};

/* ---- memory ---- */

/* One bar of all that a device holds, a legend below it. */
static void memory_bar(StrBuf *out, const SimAnswer *a)
{
    const DeviceMemory *m = &a->memory;
    const struct {
        const char *name;
        double bytes;
    } part[] = {{"weights", m->weights + m->rounded_weights},
                {"optimizer", m->optimizer},
                {"KV cache", m->kv_cache},
                {"inputs", m->inputs},
                {"activations and buffers", m->temporaries}};
    double x = MARGIN, width = WIDTH - 2 * MARGIN, legend = MARGIN;
    svg_printf(out, MARGIN, BAR - 10, "name", SVG_START, "%s on each device",
               bytes_text(m->total).text);
    for (int i = 0; i < 5; i++) {
        char class[4], words[96];
        double w = m->total > 0 ? width * part[i].bytes / m->total : 0;
        snprintf(class, sizeof class, "c%d", i);
        if (part[i].bytes <= 0)
            continue;
        svg_box(out, x, BAR, w, 20, class);
        svg_box(out, legend, BAR + 29, 10, 10, class);
        int n =
            snprintf(words, sizeof words, "%s %s", part[i].name, bytes_text(part[i].bytes).text);
        svg_text(out, legend + 15, BAR + 38, "note", SVG_START, words);
        legend += 30 + 6.2 * n;
        x += w;
    }
    svg_box(out, MARGIN, BAR, width, 20, "frame");
}

/* ---- the mesh ---- */

/* A row of squares, each of which stands for `each` devices. */
typedef struct Row {
    int squares, each;
} Row;

static Row row_of(int devices, double room)
{
    Row r = {devices, 1};
    while (r.squares * (APART + 2) > room) {
        r.each *= 2;
        r.squares = (r.squares + 1) / 2;
    }
    return r;
}

/* Draws the mesh, its longest axis across and all others down, and returns the height. */
static double mesh_grid(StrBuf *out, const SimAnswer *a)
{
    const Mesh *mesh = &a->rt.mesh;
    const double label = 150, room = WIDTH - 2 * MARGIN - label, tall = 132;
    int along = 0;
    for (int i = 1; i < mesh->n_axes; i++)
        along = mesh->axis[i].size > mesh->axis[along].size ? i : along;
    int columns = mesh->n_axes ? (int)mesh->axis[along].size : 1;
    Row across = row_of(columns, room), down = row_of(mesh->n_devices / columns, tall);
    double side = fmin(18, fmin(room / across.squares, tall / down.squares)),
           gap = side > 8 ? 2 : 1;
    svg_printf(out, MARGIN, MESH + 12, "name", SVG_START, "%d device%s", (int)mesh->n_devices,
               mesh->n_devices == 1 ? "" : "s");
    for (int i = 0; i < mesh->n_axes; i++)
        svg_printf(out, MARGIN, MESH + 30 + 15 * i, "note", SVG_START, "%s: %d %s",
                   mesh->axis[i].name, (int)mesh->axis[i].size, i == along ? "across" : "down");
    double y = MESH + 30 + 15 * mesh->n_axes;
    if (across.each * down.each > 1)
        svg_printf(out, MARGIN, y, "note", SVG_START, "a square: %d devices",
                   across.each * down.each);
    for (int r = 0; r < down.squares; r++)
        for (int c = 0; c < across.squares; c++)
            svg_box(out, MARGIN + label + c * side, MESH + r * side, side - gap, side - gap,
                    r + c == 0 ? "c0" : "whole");
    return fmax(y + 15 - MESH, down.squares * side);
}

/* ---- weights ---- */

/* A rectangle in rows and columns, and the part at the top left. Where lines would be too close, their number is said. */
static void cut_box(StrBuf *out, double x, double y, double w, double h, int rows, int columns)
{
    svg_box(out, x, y, w, h, "whole");
    for (int i = 1; i < rows && h / rows >= APART; i++)
        svg_line(out, x, y + h * i / rows, x + w, y + h * i / rows, "grid");
    for (int i = 1; i < columns && w / columns >= APART; i++)
        svg_line(out, x + w * i / columns, y, x + w * i / columns, y + h, "grid");
    svg_box(out, x, y, fmax(APART - 1, w / columns), fmax(APART - 1, h / rows), "c0");
    svg_box(out, x, y, w, h, "frame");
    if (rows > 1)
        svg_printf(out, x + w + 6, y + h / 2 + 4, "note", SVG_START, "÷ %d", rows);
    if (columns > 1)
        svg_printf(out, x + w / 2, y + h + 13, "note", SVG_MIDDLE, "÷ %d", columns);
}

/* A tensor as a matrix: dimensions before `cut` down, the others across. */
typedef struct Flat {
    double tall, wide;
    int rows, columns; /* shards */
} Flat;

static Flat flatten(const SimTensor *t, int cut)
{
    Flat f = {1, 1, 1, 1};
    for (int d = 0; d < t->type.rank; d++) {
        *(d < cut ? &f.tall : &f.wide) *= (double)t->type.dim[d];
        *(d < cut ? &f.rows : &f.columns) *= t->shards[d];
    }
    return f;
}

static void card(StrBuf *out, const SimTensor *t, double x, double y)
{
    Flat f = flatten(t, 0);
    char shape[128] = "";
    for (int cut = 1; cut < t->type.rank; cut++) { /* the most nearly square one */
        Flat other = flatten(t, cut);
        if (cut == 1 || fabs(log(other.tall / other.wide)) < fabs(log(f.tall / f.wide)))
            f = other;
    }
    /* True proportions, as far as both sides stay visible. */
    double ratio = fmax(0.2, fmin(3, f.tall / f.wide));
    double w = ratio > 1 ? BOX / ratio : BOX, h = ratio > 1 ? BOX : BOX * ratio;
    int n = 0;
    for (int d = 0; d < t->type.rank && n >= 0 && (size_t)n < sizeof shape; d++)
        n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%lld", d ? " × " : "",
                      (long long)t->type.dim[d]);
    char all[32] = "";
    if (t->count > 1)
        snprintf(all, sizeof all, " in all %lld", (long long)t->count);
    svg_printf(out, x, y + 14, "name", SVG_START, "%s: %s%s", t->kind,
               bytes_text(t->device_bytes).text, all);
    svg_text(out, x, y + 30, "note", SVG_START, shape);
    svg_text(out, x, y + 45, "spec", SVG_START, t->spec);
    cut_box(out, x, y + 56, w, h, f.rows, f.columns);
}

/* Vectors are small and mostly unsplit, so they are not drawn. */
static bool drawn(const SimTensor *t)
{
    return (t->role == SIM_WEIGHT || t->role == SIM_CACHE) && t->type.rank > 1;
}

void sim_svg(StrBuf *out, const SimAsk *ask, const SimAnswer *a, const char *name)
{
    StrBuf body = {0};
    double top = MESH + mesh_grid(&body, a) + 34;
    int at = 0;
    for (int i = 0; i < a->n_tensors; i++)
        if (drawn(&a->tensor[i])) {
            card(&body, &a->tensor[i], MARGIN + (at % CARDS) * (CARD_WIDTH + 16),
                 top + (at / CARDS) * CARD_HEIGHT);
            at++;
        }
    svg_begin(out, WIDTH, top + (double)((at + CARDS - 1) / CARDS) * CARD_HEIGHT);
    svg_text(out, MARGIN, 38, "title", SVG_START, name);
    svg_printf(out, MARGIN, 58, "note", SVG_START, "mesh %s, layout %s",
               ask->mesh[0] ? ask->mesh : "of one device", ask->layout);
    svg_box(out, WIDTH - MARGIN - 250, 48, 10, 10, "c0");
    svg_text(out, WIDTH - MARGIN - 235, 57, "note", SVG_START,
             "device 0, and of each weight what it holds");
    memory_bar(out, a);
    strbuf_puts(out, body.text ? body.text : "");
    out->failed |= body.failed;
    strbuf_free(&body);
    svg_end(out);
}
