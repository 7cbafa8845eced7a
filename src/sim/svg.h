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
void svg_path(StrBuf *out, const double *x, const double *y, int n, const char *class);
/* A pointer over it shows `tip`, unless that is empty. */
void svg_dot(StrBuf *out, double x, double y, double r, const char *class, const char *tip);
void svg_tipped_box(StrBuf *out, double x, double y, double w, double h, const char *class,
                    const char *tip);
/* Text as HTML and SVG have it: without what they would read. */
void svg_escape(StrBuf *out, const char *words);

/* Classes of areas "c0" to "c7", of lines "l0" to "l7", in the same colors; of what is left over, "rest"; greys from
   dark to light, "b0" to "b3". */
enum { SVG_COLORS = 8 };

#endif
