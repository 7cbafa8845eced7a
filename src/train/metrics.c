#include "train/metrics.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The keys, in the order in which they are written. */
static const struct Key {
    const char *name;
    size_t offset; /* of a double in MetricsRow */
    bool optional; /* left out when it is NAN */
} keys[] = {
    {"loss", offsetof(MetricsRow, loss), false},
    {"lr", offsetof(MetricsRow, lr), false},
    {"grad_norm", offsetof(MetricsRow, grad_norm), false},
    {"tokens_per_second", offsetof(MetricsRow, tokens_per_second), false},
    {"mfu", offsetof(MetricsRow, mfu), false},
    {"seconds", offsetof(MetricsRow, seconds), false},
    {"validation_loss", offsetof(MetricsRow, validation_loss), true},
};

enum { KEYS = sizeof keys / sizeof *keys };

static double *field(MetricsRow *row, int key)
{
    return (double *)(void *)((char *)row + keys[key].offset);
}

/* One line, without its newline, as a row. False when it is none. */
static bool parse_line(const char *text, size_t n, MetricsRow *row)
{
    json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *step = json_object_get(json, "step");
    *row = (MetricsRow){.step = json_integer_value(step)};
    bool valid = json_is_integer(step) && row->step > 0;
    for (int key = 0; key < KEYS && valid; key++) {
        const json_t *value = json_object_get(json, keys[key].name);
        *field(row, key) = json_is_number(value) ? json_number_value(value) : (double)NAN;
        valid = keys[key].optional || json_is_number(value) || json_is_null(value);
    }
    json_decref(json);
    return valid;
}

static int keep_row(Metrics *metrics, const MetricsRow *row, cvn_err *err)
{
    if (metrics->n == metrics->capacity) {
        size_t capacity = metrics->capacity ? metrics->capacity * 2 : 1024;
        MetricsRow *grown = realloc(metrics->row, capacity * sizeof *grown);
        if (!grown)
            return err_set(err, CVN_EMEM, "no memory for the lines of '%s'", metrics->path);
        metrics->row = grown;
        metrics->capacity = capacity;
    }
    metrics->row[metrics->n++] = *row;
    return CVN_OK;
}

/* Reads rows until one is not whole, not in order, or after `step`; *end is where that one begins. */
static int read_rows(Metrics *metrics, int64_t step, size_t *end, cvn_err *err)
{
    FileMap map;
    int code = file_map(&map, metrics->path, err);
    size_t at = 0;
    while (code == CVN_OK && at < map.size) {
        const char *line = (const char *)map.data + at;
        const char *newline = memchr(line, '\n', map.size - at);
        MetricsRow row;
        if (!newline || !parse_line(line, (size_t)(newline - line), &row) || row.step > step ||
            (metrics->n > 0 && row.step <= metrics->row[metrics->n - 1].step))
            break;
        code = keep_row(metrics, &row, err);
        at += (size_t)(newline - line) + 1;
    }
    *end = at;
    file_unmap(&map);
    return code;
}

static int name_file(Metrics *metrics, const char *run, cvn_err *err)
{
    *metrics = (Metrics){.fd = -1, .path = file_join(run, METRICS_NAME)};
    return metrics->path ? CVN_OK : err_set(err, CVN_EMEM, "no memory for a name in '%s'", run);
}

int metrics_open(Metrics *metrics, const char *run, int64_t step, cvn_err *err)
{
    size_t end = 0;
    int code = name_file(metrics, run, err);
    if (code == CVN_OK)
        code = file_make_folder(run, err);
    if (code == CVN_OK) {
        metrics->fd = open(metrics->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (metrics->fd < 0)
            code = err_set(err, CVN_EIO, "cannot open '%s' for writing: %s", metrics->path,
                           strerror(errno));
    }
    if (code == CVN_OK)
        code = read_rows(metrics, step, &end, err);
    if (code == CVN_OK && ftruncate(metrics->fd, (off_t)end) != 0)
        code = err_set(err, CVN_EIO, "cannot cut '%s' to the steps that are kept: %s",
                       metrics->path, strerror(errno));
    if (code != CVN_OK)
        metrics_close(metrics);
    return code;
}

int metrics_read(Metrics *metrics, const char *run, cvn_err *err)
{
    size_t end;
    int code = name_file(metrics, run, err);
    if (code == CVN_OK)
        code = read_rows(metrics, INT64_MAX, &end, err);
    if (code != CVN_OK)
        metrics_close(metrics);
    return code;
}

static void print_row(StrBuf *line, const MetricsRow *row)
{
    strbuf_printf(line, "{\"step\":%" PRId64, row->step);
    for (int key = 0; key < KEYS; key++) {
        double value = *field((MetricsRow *)(uintptr_t)row, key);
        if (isfinite(value))
            strbuf_printf(line, ",\"%s\":%.9g", keys[key].name, value);
        else if (!keys[key].optional)
            strbuf_printf(line, ",\"%s\":null", keys[key].name);
    }
    strbuf_puts(line, "}\n");
}

/* Writes the lines that wait; what was not accepted goes on waiting. */
static int flush(Metrics *metrics, cvn_err *err)
{
    StrBuf *pending = &metrics->pending;
    int code = CVN_OK;
    size_t at = 0;
    if (pending->failed)
        return err_set(err, CVN_EMEM, "no memory for a line of '%s'", metrics->path);
    while (code == CVN_OK && at < pending->length) {
        ssize_t wrote = write(metrics->fd, pending->text + at, pending->length - at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            code = err_set(err, CVN_EIO, "cannot write '%s': %s", metrics->path,
                           wrote < 0 ? strerror(errno) : "nothing was accepted");
        else
            at += (size_t)wrote;
    }
    if (at > 0) {
        memmove(pending->text, pending->text + at, pending->length - at + 1);
        pending->length -= at;
    }
    return code;
}

int metrics_add(Metrics *metrics, const MetricsRow *row, cvn_err *err)
{
    int code = keep_row(metrics, row, err);
    if (code != CVN_OK)
        return code;
    print_row(&metrics->pending, row);
    return flush(metrics, err);
}

int metrics_sync(Metrics *metrics, cvn_err *err)
{
    int code = flush(metrics, err);
    if (code == CVN_OK && fsync(metrics->fd) != 0)
        code = err_set(err, CVN_EIO, "cannot flush '%s' to the disk: %s", metrics->path,
                       strerror(errno));
    return code;
}

void metrics_close(Metrics *metrics)
{
    if (metrics->fd >= 0)
        close(metrics->fd);
    free(metrics->path);
    free(metrics->row);
    strbuf_free(&metrics->pending);
    *metrics = (Metrics){.fd = -1};
}
