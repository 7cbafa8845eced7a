/*
 * The picture of a plan: the mesh as a grid of devices, and below it one card for each kind of weight, a
 * rectangle cut the way the mesh cuts it, the part that device 0 holds filled in.
 */
#include "sim/plan.h"

#include <math.h>
#include <stdio.h>

enum {
    WIDTH = 960,
    MARGIN = 24,
    CARD_WIDTH = 216,
    CARD_HEIGHT = 208,
    CARDS = 4, /* in a row */
    BOX = 120  /* the rectangle's longer side */
};

static void text(StrBuf *out, double x, double y, const char *class, const char *words)
{
    strbuf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    for (const char *p = words; *p; p++) {
        if (*p == '<')
            strbuf_puts(out, "&lt;");
        else if (*p == '>')
            strbuf_puts(out, "&gt;");
        else if (*p == '&')
            strbuf_puts(out, "&amp;");
        else
            strbuf_putc(out, *p);
    }
    strbuf_puts(out, "</text>\n");
}

static void box(StrBuf *out, double x, double y, double w, double h, const char *class)
{
    strbuf_printf(out,
                  "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"/>\n", x,
                  y, w, h, class);
}

/* How many parts one line stands for, so that lines stay apart. */
static int line_step(double length, int parts)
{
    enum { APART = 4 };
    int step = 1;
    while (parts > 1 && length * step / parts < APART)
        step *= 2;
    return step;
}

/* A rectangle in rows and columns, and the part at the top left. */
static void grid(StrBuf *out, double x, double y, double w, double h, int rows, int columns)
{
    enum { VISIBLE = 3 };
    double part_w = w / columns, part_h = h / rows;
    box(out, x, y, w, h, "whole");
    for (int i = line_step(h, rows), step = i; i < rows; i += step)
        strbuf_printf(out, "<path d=\"M%.1f %.1fh%.1f\"/>\n", x, y + h * i / rows, w);
    for (int i = line_step(w, columns), step = i; i < columns; i += step)
        strbuf_printf(out, "<path d=\"M%.1f %.1fv%.1f\"/>\n", x + w * i / columns, y, h);
    box(out, x, y, part_w < VISIBLE ? VISIBLE : part_w, part_h < VISIBLE ? VISIBLE : part_h,
        "part");
    box(out, x, y, w, h, "frame");
}

static void shape_text(char *out, size_t size, const cvn_type *type)
{
    int n = 0;
    out[0] = 0;
    for (int d = 0; d < type->rank && n >= 0 && (size_t)n < size; d++)
        n += snprintf(out + n, size - (size_t)n, "%s%lld", d ? " × " : "", (long long)type->dim[d]);
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
    for (int cut = 1; cut < t->type.rank; cut++) { /* the most nearly square one */
        Flat other = flatten(t, cut);
        if (cut == 1 || fabs(log(other.tall / other.wide)) < fabs(log(f.tall / f.wide)))
            f = other;
    }
    /* True proportions, as far as both sides stay visible. */
    double ratio = f.tall / f.wide;
    ratio = ratio > 4 ? 4 : ratio < 0.15 ? 0.15 : ratio;
    double w = ratio > 1 ? BOX / ratio : BOX, h = ratio > 1 ? BOX : BOX * ratio;
    char shape[128], size[96];
    shape_text(shape, sizeof shape, &t->type);
    snprintf(size, sizeof size, "%.2f MiB of %lld per device", t->device_bytes / 0x1p20,
             (long long)t->count);
    text(out, x, y + 14, "name", t->kind);
    text(out, x, y + 30, "note", shape);
    text(out, x, y + 45, "spec", t->spec);
    grid(out, x, y + 56, w, h, f.rows, f.columns);
    text(out, x, y + 56 + BOX + 16, "note", size);
}

static void header(StrBuf *out, const SimAsk *ask, const SimAnswer *a, double height)
{
    char line[256];
    strbuf_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" "
                  "font-family=\"system-ui,sans-serif\">\n",
                  WIDTH, height, WIDTH);
    strbuf_puts(out,
                "<style>.whole{fill:#e8eef5}.part{fill:#d9822b}.frame{fill:none;stroke:#30404f;"
                "stroke-width:1.2}path{stroke:#9fb0c0;stroke-width:.6;fill:none}"
                ".title{font-size:20px;font-weight:600;fill:#1c2733}.name{font-size:14px;"
                "font-weight:600;fill:#1c2733}.note{font-size:11px;fill:#4a5a6a}"
                ".spec{font-size:12px;fill:#1f5fa8;font-family:ui-monospace,monospace}"
                "</style>\n");
    strbuf_printf(out, "<rect width=\"%d\" height=\"%.0f\" fill=\"#fff\"/>\n", WIDTH, height);
    snprintf(line, sizeof line, "mesh %s, layout %s", ask->mesh[0] ? ask->mesh : "of one device",
             ask->layout);
    text(out, MARGIN, 38, "title", line);
    snprintf(line, sizeof line,
             "%.2f GiB per device: weights %.2f, optimizer %.2f, temporaries %.2f",
             a->memory.total / 0x1p30, (a->memory.weights + a->memory.rounded_weights) / 0x1p30,
             a->memory.optimizer / 0x1p30, a->memory.temporaries / 0x1p30);
    text(out, MARGIN, 58, "note", line);
}

/* The last axis across, all others down. */
static void mesh_grid(StrBuf *out, const SimAnswer *a, double y, double h)
{
    const Mesh *mesh = &a->rt.mesh;
    int columns = mesh->n_axes ? mesh->axis[mesh->n_axes - 1].size : 1;
    int rows = mesh->n_devices / columns;
    char line[128];
    double w = WIDTH - 2 * MARGIN - 160;
    grid(out, MARGIN + 160, y, w, h, rows, columns);
    snprintf(line, sizeof line, "%d devices", (int)mesh->n_devices);
    text(out, MARGIN, y + 14, "name", line);
    for (int i = 0; i < mesh->n_axes; i++) {
        snprintf(line, sizeof line, "%s %s: %d", mesh->axis[i].name,
                 i == mesh->n_axes - 1 ? "across" : "down", (int)mesh->axis[i].size);
        text(out, MARGIN, y + 32 + 15 * i, "note", line);
    }
    text(out, MARGIN, y + h - 4, "note", "filled: device 0");
}

void sim_svg(StrBuf *out, const SimAsk *ask, const SimAnswer *a)
{
    int n = 0;
    for (int i = 0; i < a->n_tensors; i++)
        n += a->tensor[i].role == SIM_WEIGHT || a->tensor[i].role == SIM_CACHE;
    double mesh_height = 110, top = 76 + mesh_height + 24;
    double height = top + (double)((n + CARDS - 1) / CARDS) * CARD_HEIGHT + MARGIN;
    header(out, ask, a, height);
    mesh_grid(out, a, 76, mesh_height);
    int at = 0;
    for (int i = 0; i < a->n_tensors; i++) {
        const SimTensor *t = &a->tensor[i];
        if (t->role != SIM_WEIGHT && t->role != SIM_CACHE)
            continue;
        card(out, t, MARGIN + (at % CARDS) * (CARD_WIDTH + 16), top + (at / CARDS) * CARD_HEIGHT);
        at++;
    }
    strbuf_puts(out, "</svg>\n");
}
