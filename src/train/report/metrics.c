#include "train/report/metrics.h"

#include "base/heap.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

/* The keys, in the order in which they are written. */
static const struct Key {
    const char *name;
    size_t offset; /* of a double in MetricsRow */
    bool optional; /* may be left out */
    bool zero;     /* left out when it is 0; else, when it is NAN */
} keys[] = {
    {"loss", offsetof(MetricsRow, loss), false, false},
    {"lr", offsetof(MetricsRow, lr), false, false},
    {"grad_norm", offsetof(MetricsRow, grad_norm), false, false},
    {"tokens_per_second", offsetof(MetricsRow, tokens_per_second), false, false},
    {"mfu", offsetof(MetricsRow, mfu), false, false},
    {"seconds", offsetof(MetricsRow, seconds), false, false},
    {"validation_loss", offsetof(MetricsRow, validation_loss), true, false},
    {"comm_seconds", offsetof(MetricsRow, comm_seconds), true, true},
    {"comm_exposed_seconds", offsetof(MetricsRow, comm_exposed_seconds), true, true},
    {"comm_bytes", offsetof(MetricsRow, comm_bytes), true, true},
    {"accuracy", offsetof(MetricsRow, accuracy), true, true},
};

enum { KEYS = sizeof keys / sizeof *keys };

/* False when memory ran out. */
static bool keep_row(Metrics *metrics, const MetricsRow *row)
{
    MetricsRow *more = heap_more(metrics->row, metrics->n, sizeof *more);
    if (!more)
        return false;
    metrics->row = more;
    metrics->row[metrics->n++] = *row;
    return true;
}

/* A line as a row; every step is there once. */
static int take_line(void *context, int64_t step, const json_t *line)
{
    Metrics *metrics = context;
    MetricsRow row = {.step = step};
    for (int key = 0; key < KEYS; key++) {
        const json_t *value = json_object_get(line, keys[key].name);
        double absent = keys[key].zero ? 0 : (double)NAN;
        *(double *)(void *)((char *)&row + keys[key].offset) =
            json_is_number(value) ? json_number_value(value) : absent;
        if (!keys[key].optional && !json_is_number(value) && !json_is_null(value))
            return CVN_EFORMAT;
    }
    if (step <= (metrics->n ? metrics->row[metrics->n - 1].step : 0))
        return CVN_EFORMAT;
    return keep_row(metrics, &row) ? CVN_OK : CVN_EMEM;
}

int metrics_open(Metrics *metrics, const char *run, int64_t step, cvn_err *err)
{
    *metrics = (Metrics){.lines.fd = -1};
    int code = step_lines_open(&metrics->lines, run, METRICS_NAME, step, take_line, metrics, err);
    if (code != CVN_OK)
        metrics_close(metrics);
    return code;
}

int metrics_add(Metrics *metrics, const MetricsRow *row, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf line = {0};
    strbuf_printf(&line, "{\"step\":%" PRId64, row->step);
    for (int key = 0; key < KEYS; key++) {
        double value = metrics_number(row, keys[key].offset);
        if (keys[key].zero && !(value > 0))
            continue;
        if (isfinite(value))
            strbuf_printf(&line, ",\"%s\":%.9g", keys[key].name, value);
        else if (!keys[key].optional)
            strbuf_printf(&line, ",\"%s\":null", keys[key].name);
    }
    strbuf_puts(&line, "}");
    return line.failed || !keep_row(metrics, row)
               ? err_set(err, CVN_EMEM, "no memory for a line of '%s'", metrics->lines.path.text)
               : step_lines_add(&metrics->lines, line.text, line.length, err);
}

void metrics_close(Metrics *metrics)
{
    step_lines_close(&metrics->lines);
    free(metrics->row);
    *metrics = (Metrics){.lines.fd = -1};
}
