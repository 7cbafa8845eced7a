#include "train/report/history.h"

#include <inttypes.h>
#include <math.h>
#include <time.h>

static int take_line(void *context, int64_t step, const json_t *line)
{
    History *history = context;
    const json_t *seconds = json_object_get(line, "_runtime");
    (void)step;
    if (!json_is_number(seconds))
        return CVN_EFORMAT;
    history->seconds = json_number_value(seconds);
    return CVN_OK;
}

int history_open(History *history, const char *run, int64_t step, cvn_err *err)
{
    *history = (History){.lines.fd = -1};
    int code = step_lines_open(&history->lines, run, HISTORY_NAME, step, take_line, history, err);
    if (code != CVN_OK)
        history_close(history);
    return code;
}

int history_add(History *history, const MetricsRow *row, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf line = {0};
    struct timespec now;
    const MetricsKey *key;
    clock_gettime(CLOCK_REALTIME, &now);
    history->seconds += row->seconds;
    strbuf_printf(&line, "{\"_step\":%" PRId64 ",\"_timestamp\":%lld.%03ld,\"_runtime\":%.9g",
                  row->step, (long long)now.tv_sec, now.tv_nsec / 1000000, history->seconds);
    for (int i = 0; (key = metrics_key(i)); i++) {
        double value = metrics_number(row, key->offset);
        if (!metrics_has(row, key))
            continue;
        strbuf_printf(&line, ",\"%s\":", key->tag);
        if (isfinite(value))
            strbuf_printf(&line, "%.9g", value);
        else
            strbuf_puts(&line, isnan(value) ? "\"NaN\""
                               : value > 0  ? "\"Infinity\""
                                            : "\"-Infinity\"");
    }
    strbuf_printf(&line, ",\"step\":%" PRId64 "}", row->step);
    return line.failed
               ? err_set(err, CVN_EMEM, "no memory for a line of '%s'", history->lines.path.text)
               : step_lines_add(&history->lines, line.text, line.length, err);
}

void history_close(History *history)
{
    step_lines_close(&history->lines);
    *history = (History){.lines.fd = -1};
}
