#include "cli/bench_sweep.h"

#include "base/file.h"
#include "sim/svg_chart.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const BenchMode sweep_ways[SWEEP_WAYS] = {{"buckets", false, false},
                                          {"token by token", false, false}};

int sweep_draw(const char *path, const char *name, const SweepPoint *point, size_t n, cvn_err *err)
{
    char title[160];
    const char *slash = strrchr(name, '/');
    name = slash && slash[1] ? slash + 1 : name;
    snprintf(title, sizeof title, "%.32s%s: a prompt and %" PRId64 " tokens after it", name,
             strlen(name) > 32 ? "…" : "", n ? point[0].tokens : 0);
    SvgChart chart = {.title = title,
                      .across = "tokens of the prompt",
                      .up = "seconds",
                      .from_zero = true,
                      .n = 4};
    for (size_t w = 0; w < SWEEP_WAYS; w++) {
        SvgSeries *whole = &chart.series[w], *prompt = &chart.series[SWEEP_WAYS + w];
        snprintf(whole->name, sizeof whole->name, "%s", sweep_ways[w].name);
        snprintf(prompt->name, sizeof prompt->name, "%s, prompt only", sweep_ways[w].name);
        for (size_t i = 0; i < n; i++)
            if (point[i].way == &sweep_ways[w]) {
                svg_add_point(whole, (double)point[i].prompt, point[i].read + point[i].generate);
                svg_add_point(prompt, (double)point[i].prompt, point[i].read);
            }
    }
    SCOPED(strbuf_free) StrBuf svg = {0};
    svg_chart(&svg, &chart);
    return svg.failed ? err_set(err, CVN_EMEM, "no memory for the picture")
                      : file_write(path, svg.text, svg.length, err);
}
