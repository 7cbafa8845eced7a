#include "train/report/prometheus.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static void add_label(StrBuf *out, const char *run)
{
    strbuf_puts(out, "{run=\"");
    for (; *run; run++) {
        if (*run == '"' || *run == '\\')
            strbuf_putc(out, '\\');
        strbuf_putc(out, *run == '\n' ? ' ' : *run);
    }
    strbuf_puts(out, "\"} ");
}

static void add_gauge(StrBuf *out, const char *run, const char *name, const char *about,
                      double value)
{
    strbuf_printf(out,
                  "# HELP caravan_train_%s %s\n# TYPE caravan_train_%s gauge\ncaravan_train_%s",
                  name, about, name, name);
    add_label(out, run);
    if (isfinite(value))
        strbuf_printf(out, "%.9g\n", value);
    else
        strbuf_puts(out, isnan(value) ? "NaN\n" : value > 0 ? "+Inf\n" : "-Inf\n");
}

/* The text of a row. */
static void prometheus_text(StrBuf *out, const char *run, int64_t steps, const MetricsRow *row)
{
    const MetricsKey *key;
    add_gauge(out, run, "step", "steps that are done", (double)row->step);
    add_gauge(out, run, "steps", "all steps of the run", (double)steps);
    for (int i = 0; (key = metrics_key(i)); i++)
        if (metrics_has(row, key))
            add_gauge(out, run, key->name, key->about, metrics_number(row, key->offset));
}

int prometheus_write(const char *run, int64_t steps, const MetricsRow *row, double *last,
                     cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    if (*last > 0 && seconds - *last < 1 && row->step < steps)
        return CVN_OK;
    *last = seconds;
    prometheus_text(&text, run, steps, row);
    const FilePath path = file_path(run, PROMETHEUS_NAME),
                   part = file_path(run, PROMETHEUS_NAME ".new");
    FILE *file = text.failed
                     ? NULL
                     : fopen(part.text, "we"); /* no flush to the disk: it is old in a second */
    bool fine = file && fwrite(text.text, 1, text.length, file) == text.length;
    fine = file && !fclose(file) && fine;
    if (!fine || rename(part.text, path.text))
        return err_set(err, CVN_EIO, "cannot write '%s': %s", path.text, strerror(errno));
    return CVN_OK;
}
