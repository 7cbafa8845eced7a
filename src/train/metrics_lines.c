#include "train/metrics_lines.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Gives one line to `each`, or not: CVN_EFORMAT where the reading ends. */
static int take_line(const char *text, size_t n, int64_t *above, int64_t step, StepLine *each,
                     void *context)
{
    json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *value = json_object_get(json, "step");
    int64_t at = json_is_integer(value) ? json_integer_value(value) : -1;
    int code = at >= *above && at <= step ? each(context, at, json) : CVN_EFORMAT;
    *above = at;
    json_decref(json);
    return code;
}

/* *end is where the first line begins that is not taken. */
static int read_lines(const char *path, int64_t step, StepLine *each, void *context, size_t *end,
                      cvn_err *err)
{
    FileMap map;
    int64_t above = 0;
    int code = file_map(&map, path, err);
    *end = 0;
    if (code)
        return code;
    while (code == CVN_OK && *end < map.size) {
        const char *line = (const char *)map.data + *end;
        const char *newline = memchr(line, '\n', map.size - *end);
        size_t n = newline ? (size_t)(newline - line) : 0;
        code = newline ? take_line(line, n, &above, step, each, context) : CVN_EFORMAT;
        if (code == CVN_OK)
            *end += n + 1;
    }
    file_unmap(&map);
    if (code == CVN_EMEM)
        err_set(err, CVN_EMEM, "no memory for the lines of '%s'", path);
    return code == CVN_EFORMAT ? CVN_OK : code;
}

int step_lines_open(StepLines *lines, const char *run, const char *name, int64_t step,
                    StepLine *each, void *context, cvn_err *err)
{
    size_t end = 0;
    *lines = (StepLines){.fd = -1, .path = file_join(run, name)};
    int code = lines->path ? file_make_folder(run, err)
                           : err_set(err, CVN_EMEM, "no memory for a name in '%s'", run);
    if (code == CVN_OK) {
        lines->fd = open(lines->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (lines->fd < 0)
            code = err_set(err, CVN_EIO, "cannot open '%s' for writing: %s", lines->path,
                           strerror(errno));
    }
    if (code == CVN_OK)
        code = read_lines(lines->path, step, each, context, &end, err);
    if (code == CVN_OK && ftruncate(lines->fd, (off_t)end) != 0)
        code = err_set(err, CVN_EIO, "cannot cut '%s' to the steps that are kept: %s", lines->path,
                       strerror(errno));
    if (code != CVN_OK)
        step_lines_close(lines);
    return code;
}

/* Writes the lines that wait; what was not accepted goes on waiting. */
static int flush(StepLines *lines, cvn_err *err)
{
    StrBuf *pending = &lines->pending;
    int code = CVN_OK;
    size_t at = 0;
    if (pending->failed)
        return err_set(err, CVN_EMEM, "no memory for a line of '%s'", lines->path);
    while (code == CVN_OK && at < pending->length) {
        ssize_t wrote = write(lines->fd, pending->text + at, pending->length - at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            code = err_set(err, CVN_EIO, "cannot write '%s': %s", lines->path,
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

int step_lines_add(StepLines *lines, const char *line, size_t n, cvn_err *err)
{
    strbuf_add(&lines->pending, line, n);
    strbuf_putc(&lines->pending, '\n');
    return flush(lines, err);
}

int step_lines_sync(StepLines *lines, cvn_err *err)
{
    int code = flush(lines, err);
    if (code == CVN_OK && fsync(lines->fd) != 0)
        code = err_set(err, CVN_EIO, "cannot flush '%s' to the disk: %s", lines->path,
                       strerror(errno));
    return code;
}

void step_lines_close(StepLines *lines)
{
    if (lines->fd >= 0)
        close(lines->fd);
    free(lines->path);
    strbuf_free(&lines->pending);
    *lines = (StepLines){.fd = -1};
}
