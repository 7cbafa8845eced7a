#include "train/report/metrics_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Gives lines to `each` until one is not taken: *end is where that begins. */
static int read_lines(const char *path, int64_t step, StepLine *each, void *context, size_t *end,
                      cvn_err *err)
{
    SCOPED(file_unmap) FileMap map = {0};
    int64_t above = 0;
    *end = 0;
    TRY(file_map(&map, path, err));
    int code = CVN_OK;
    while (code == CVN_OK && *end < map.size) {
        const char *line = (const char *)map.data + *end;
        const char *newline = memchr(line, '\n', map.size - *end);
        size_t n = newline ? (size_t)(newline - line) : 0;
        json_auto_t *json = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
        const json_t *value = json_object_get(json, "step");
        int64_t at = json_is_integer(value) ? json_integer_value(value) : -1;
        code = newline && at >= above && at <= step ? each(context, at, json) : CVN_EFORMAT;
        above = at;
        if (code == CVN_OK)
            *end += n + 1;
    }
    if (code == CVN_EMEM)
        err_set(err, CVN_EMEM, "no memory for the lines of '%s'", path);
    return code == CVN_EFORMAT ? CVN_OK : code;
}

int step_lines_open(StepLines *lines, const char *run, const char *name, int64_t step,
                    StepLine *each, void *context, cvn_err *err)
{
    size_t end = 0;
    *lines = (StepLines){.fd = -1, .path = file_path(run, name)};
    const char *path = lines->path.text;
    TRY(file_make_folder(run, err));
    lines->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (lines->fd < 0)
        return err_set(err, CVN_EIO, "cannot open '%s' for writing: %s", path, strerror(errno));
    int code = read_lines(path, step, each, context, &end, err);
    if (code == CVN_OK && ftruncate(lines->fd, (off_t)end) != 0)
        code = err_set(err, CVN_EIO, "cannot truncate '%s' to the resumed step: %s", path,
                       strerror(errno));
    if (code != CVN_OK)
        step_lines_close(lines);
    return code;
}

/* Writes the lines that wait; what was not accepted goes on waiting. */
static int flush(StepLines *lines, cvn_err *err)
{
    StrBuf *pending = &lines->pending;
    const char *path = lines->path.text;
    if (pending->failed)
        return err_set(err, CVN_EMEM, "no memory for a line of '%s'", path);
    size_t done = file_put(lines->fd, path, pending->text, pending->length, err);
    if (done > 0) {
        memmove(pending->text, pending->text + done, pending->length - done + 1);
        pending->length -= done;
    }
    return pending->length ? CVN_EIO : CVN_OK;
}

int step_lines_add(StepLines *lines, const char *line, size_t n, cvn_err *err)
{
    strbuf_add(&lines->pending, line, n);
    strbuf_putc(&lines->pending, '\n');
    return flush(lines, err);
}

int step_lines_sync(StepLines *lines, cvn_err *err)
{
    TRY(flush(lines, err));
    if (fsync(lines->fd) != 0)
        return err_set(err, CVN_EIO, "cannot flush '%s' to the disk: %s", lines->path.text,
                       strerror(errno));
    return CVN_OK;
}

void step_lines_close(StepLines *lines)
{
    if (lines->fd >= 0)
        close(lines->fd);
    strbuf_free(&lines->pending);
    *lines = (StepLines){.fd = -1};
}
