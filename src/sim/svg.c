#include "sim/svg.h"

#include <stdarg.h>
#include <stdio.h>

void svg_begin(StrBuf *out, double width, double height)
{
    static const char *const colors[SVG_COLORS] = {"#d9822b", "#2b6cb0", "#3d9a62", "#8a5fbf",
                                                   "#b8434e", "#2a9fb0", "#c9a227", "#d672a8"};
    strbuf_printf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
        "height=\"%.0f\" font-family=\"system-ui,sans-serif\">\n<style>"
        ".whole{fill:#e8eef5}.frame{fill:none;stroke:#30404f;stroke-width:1.2}"
        ".grid{stroke:#9fb0c0;stroke-width:.6}.faint{stroke:#dde4ea;stroke-width:1}"
        ".axis{stroke:#4a5a6a;stroke-width:1}.rest{fill:#c3ccd5}"
        ".within{font-size:11px;fill:#fff}"
        ".b0{fill:#33424f}.b1{fill:#7d8d9c}.b2{fill:#b4c0ca}.b3{fill:#dde4ea}"
        ".title{font-size:20px;font-weight:600;fill:#1c2733}"
        ".name{font-size:14px;font-weight:600;fill:#1c2733}"
        ".note{font-size:11px;fill:#4a5a6a}"
        ".spec{font-size:12px;fill:#1f5fa8;font-family:ui-monospace,monospace}",
        width, height, width, height);
    for (int i = 0; i < SVG_COLORS; i++)
        strbuf_printf(out, ".c%d{fill:%s}.l%d{stroke:%s;stroke-width:1.8;fill:none}", i, colors[i],
                      i, colors[i]);
    strbuf_printf(out, "</style>\n<rect width=\"%.0f\" height=\"%.0f\" fill=\"#fff\"/>\n", width,
                  height);
}

void svg_end(StrBuf *out)
{
    strbuf_puts(out, "</svg>\n");
}

void svg_escape(StrBuf *out, const char *words)
{
    for (const char *p = words; *p; p++)
        if (*p == '<')
            strbuf_puts(out, "&lt;");
        else if (*p == '>')
            strbuf_puts(out, "&gt;");
        else if (*p == '&')
            strbuf_puts(out, "&amp;");
        else
            strbuf_putc(out, *p);
}

void svg_text(StrBuf *out, double x, double y, const char *class, SvgAnchor anchor,
              const char *words)
{
    static const char *const anchors[] = {"start", "middle", "end"};
    strbuf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\" text-anchor=\"%s\">", x, y, class,
                  anchors[anchor]);
    svg_escape(out, words);
    strbuf_puts(out, "</text>\n");
}

void svg_printf(StrBuf *out, double x, double y, const char *class, SvgAnchor anchor,
                const char *format, ...)
{
    char words[256];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    svg_text(out, x, y, class, anchor, words);
}

/* Ends an element `name`, with what a pointer over it shows. */
static void end_tipped(StrBuf *out, const char *name, const char *tip)
{
    if (*tip) {
        strbuf_puts(out, "><title>");
        svg_escape(out, tip);
        strbuf_printf(out, "</title></%s>\n", name);
    } else {
        strbuf_puts(out, "/>\n");
    }
}

void svg_tipped_box(StrBuf *out, double x, double y, double w, double h, const char *class,
                    const char *tip)
{
    strbuf_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" class=\"%s\"", x,
                  y, w, h, class);
    end_tipped(out, "rect", tip);
}

void svg_box(StrBuf *out, double x, double y, double w, double h, const char *class)
{
    svg_tipped_box(out, x, y, w, h, class, "");
}

void svg_path(StrBuf *out, const double *x, const double *y, int n, const char *class)
{
    strbuf_puts(out, "<path d=\"");
    for (int i = 0; i < n; i++)
        strbuf_printf(out, "%c%.1f %.1f", i ? 'L' : 'M', x[i], y[i]);
    strbuf_printf(out, "\" class=\"%s\"/>\n", class);
}

void svg_line(StrBuf *out, double x1, double y1, double x2, double y2, const char *class)
{
    svg_path(out, (double[]){x1, x2}, (double[]){y1, y2}, 2, class);
}

void svg_dot(StrBuf *out, double x, double y, double r, const char *class, const char *tip)
{
    strbuf_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" class=\"%s\"", x, y, r, class);
    end_tipped(out, "circle", tip);
}
