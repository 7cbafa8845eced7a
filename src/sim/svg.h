/* What pictures here are drawn with: SVG text, boxes, lines, in the classes of one style sheet. */
#ifndef CVN_SIM_SVG_H
#define CVN_SIM_SVG_H

#include "base/strbuf.h"

/* The page: its size in pixels, white, with the style sheet. svg_end closes it. */
void svg_begin(StrBuf *out, double width, double height);
void svg_end(StrBuf *out);

/* Text from x on, or around or up to it; `words` may have anything. */
typedef enum SvgAnchor { SVG_START, SVG_MIDDLE, SVG_END } SvgAnchor;
void svg_text(StrBuf *out, double x, double y, const char *class, SvgAnchor anchor,
              const char *words);
__attribute__((format(printf, 6, 7))) void svg_printf(StrBuf *out, double x, double y,
                                                      const char *class, SvgAnchor anchor,
                                                      const char *format, ...);
void svg_box(StrBuf *out, double x, double y, double w, double h, const char *class);
void svg_line(StrBuf *out, double x1, double y1, double x2, double y2, const char *class);
void svg_dot(StrBuf *out, double x, double y, double r, const char *class);

/* Classes of areas "c0" to "c5", of lines "l0" to "l5", in the same colors. */
enum { SVG_COLORS = 6 };

#endif
