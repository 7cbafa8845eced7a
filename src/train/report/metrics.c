#include "train/report/metrics.h"

#include "base/heap.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

// clang-format off
#define KEY(field, tag, about) #field, tag, about, offsetof(MetricsRow, field)
#define UNLESS(field) offsetof(MetricsRow, field)
static const MetricsKey keys[] = {
    /* name, tag, what it is, where */                                                    /* optional, zero, decides */
    {KEY(loss, "train/loss", "mean over the step's tokens, in nats"),                     false, false, 0},
    {KEY(lr, "train/lr", "learning rate"),                                                false, false, 0},
    {KEY(grad_norm, "train/grad_norm", "norm of the gradient before clipping"),           false, false, 0},
    {KEY(tokens_per_second, "speed/tokens_per_second", "of the step"),                    false, false, 0},
    {KEY(mfu, "speed/mfu", "model FLOPs utilization, 0 to 1"),                            false, false, 0},
    {KEY(seconds, "speed/seconds", "wall time of the step"),                              false, false, 0},
    {KEY(validation_loss, "validation/loss", "in nats, at the steps where it was measured"),
                                                                                          true, false, UNLESS(validation_loss)},
    {KEY(comm_seconds, "communication/seconds", "of collectives in flight, per device"),  true, true, UNLESS(comm_seconds)},
    {KEY(comm_exposed_seconds, "communication/exposed_seconds", "of these, not overlapped with computation"),
                                                                                          true, true, UNLESS(comm_exposed_seconds)},
    {KEY(comm_bytes, "communication/bytes", "sent by a device"),                          true, true, UNLESS(comm_bytes)},
    {KEY(accuracy, "train/accuracy", "fraction of preference pairs ranked correctly"),    true, true, UNLESS(accuracy)},
    {KEY(slowest_rank, "ranks/slowest", "the rank that the others wait for"),             true, true, UNLESS(busy_seconds)},
    {KEY(busy_seconds, "ranks/busy_seconds", "of the slowest rank, without exposed communication"),
                                                                                          true, true, UNLESS(busy_seconds)},
    {KEY(busy_seconds_others, "ranks/busy_seconds_others", "the same, median of the other ranks"),
                                                                                          true, true, UNLESS(busy_seconds)},
};
#undef KEY
#undef UNLESS
// clang-format on

enum { KEYS = sizeof keys / sizeof *keys };

const MetricsKey *metrics_key(int i)
{
    return i < KEYS ? &keys[i] : NULL;
}

/* False when memory ran out. */
static bool keep_row(RunMetrics *metrics, const MetricsRow *row)
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
    RunMetrics *metrics = context;
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

int metrics_open(RunMetrics *metrics, const char *run, int64_t step, cvn_err *err)
{
    *metrics = (RunMetrics){.lines.fd = -1};
    int code = step_lines_open(&metrics->lines, run, METRICS_NAME, step, take_line, metrics, err);
    if (code != CVN_OK)
        metrics_close(metrics);
    return code;
}

int metrics_add(RunMetrics *metrics, const MetricsRow *row, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf line = {0};
    strbuf_printf(&line, "{\"step\":%" PRId64, row->step);
    for (int key = 0; key < KEYS; key++) {
        double value = metrics_number(row, keys[key].offset);
        if (!metrics_has(row, &keys[key]))
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

void metrics_close(RunMetrics *metrics)
{
    step_lines_close(&metrics->lines);
    free(metrics->row);
    *metrics = (RunMetrics){.lines.fd = -1};
}
