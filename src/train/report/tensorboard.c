#include "train/report/tensorboard.h"

#include "base/crc32c.h"
#include "base/protobuf.h"
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Field numbers; see the header. */
enum {
    EVENT_WALL_TIME = 1,
    EVENT_STEP = 2,
    EVENT_FILE_VERSION = 3,
    EVENT_SUMMARY = 5,
    EVENT_SESSION_LOG = 7,
    SESSION_STATUS = 1,
    SUMMARY_VALUE = 1,
    VALUE_TAG = 1,
    VALUE_SIMPLE = 2,
    VALUE_TENSOR = 8,
    VALUE_METADATA = 9,
    METADATA_PLUGIN = 1,
    PLUGIN_NAME = 1,
    TENSOR_DTYPE = 1,
    TENSOR_SHAPE = 2,
    TENSOR_STRING = 8,
    SHAPE_DIM = 2,
    DIM_SIZE = 1,
};

enum { STATUS_START = 1, DTYPE_STRING = 7 };

static StrBuf event_at(int64_t step)
{
    StrBuf event = {0};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    proto_put_key(&event, EVENT_WALL_TIME, PROTO_FIXED64);
    strbuf_add(&event, &seconds, sizeof seconds);
    proto_put_int(&event, EVENT_STEP, step);
    return event;
}

static uint32_t masked(const void *bytes, size_t n)
{
    uint32_t crc = crc32c(0, bytes, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* Writes an event as one record, in one call, and frees it. */
static int write_record(EventFile *events, StrBuf *event, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf record = {0};
    uint64_t n = event->length;
    uint32_t length_crc = masked(&n, sizeof n), data_crc = masked(event->text, event->length);
    strbuf_add(&record, &n, sizeof n);
    strbuf_add(&record, &length_crc, sizeof length_crc);
    strbuf_add(&record, event->text, event->length);
    strbuf_add(&record, &data_crc, sizeof data_crc);
    int code = record.failed || event->failed
                   ? err_set(err, CVN_EMEM, "no memory for an event of '%s'", events->path.text)
                   : CVN_OK;
    strbuf_free(event);
    if (code == CVN_OK) {
        size_t done = file_put(events->fd, events->path.text, record.text, record.length, err);
        if (done == record.length)
            return CVN_OK;
        /* Readers stop at a record cut short: it is taken back or, where that cannot be, the file closed. */
        code = CVN_EIO;
        off_t end = lseek(events->fd, 0, SEEK_END);
        if (done > 0 && (end < (off_t)done || ftruncate(events->fd, end - (off_t)done) != 0)) {
            close(events->fd);
            events->fd = -1;
        }
    }
    return code;
}

int event_file_open(EventFile *events, const char *run, int64_t step, cvn_err *err)
{
    static const char version[] = "brain.Event:2";
    const FilePath folder = file_path(run, "tensorboard");
    char host[65] = "host", name[160];
    gethostname(host, sizeof host - 1);
    host[strcspn(host, "/")] = '\0';
    snprintf(name, sizeof name, "events.out.tfevents.%lld.%s.%ld", (long long)time(NULL), host,
             (long)getpid());
    *events = (EventFile){.fd = -1, .path = file_path(folder.text, name)};
    TRY(file_make_folder(run, err));
    TRY(file_make_folder(folder.text, err));
    const char *path = events->path.text;
    events->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (events->fd < 0)
        return err_set(err, CVN_EIO, "cannot create '%s': %s", path, strerror(errno));
    StrBuf event = event_at(0);
    proto_put_bytes(&event, EVENT_FILE_VERSION, version, sizeof version - 1);
    int code = write_record(events, &event, err);
    if (code == CVN_OK && step > 0) {
        StrBuf start = event_at(step + 1), session = {0};
        proto_put_int(&session, SESSION_STATUS, STATUS_START);
        proto_put_message(&start, EVENT_SESSION_LOG, &session);
        code = write_record(events, &start, err);
    }
    if (code != CVN_OK)
        event_file_close(events);
    return code;
}

static void put_scalar(StrBuf *summary, const char *tag, double number)
{
    StrBuf value = {0};
    float simple = (float)number;
    proto_put_bytes(&value, VALUE_TAG, tag, strlen(tag));
    proto_put_key(&value, VALUE_SIMPLE, PROTO_FIXED32);
    strbuf_add(&value, &simple, sizeof simple);
    proto_put_message(summary, SUMMARY_VALUE, &value);
}

int event_file_add(EventFile *events, const MetricsRow *row, cvn_err *err)
{
    StrBuf event = event_at(row->step), summary = {0};
    const MetricsKey *key;
    for (int i = 0; (key = metrics_key(i)); i++)
        if (metrics_has(row, key))
            put_scalar(&summary, key->tag, metrics_number(row, key->offset));
    proto_put_message(&event, EVENT_SUMMARY, &summary);
    return write_record(events, &event, err);
}

int event_file_text(EventFile *events, int64_t step, const char *tag, const char *text,
                    cvn_err *err)
{
    StrBuf event = event_at(step), summary = {0}, value = {0}, part = {0}, inner = {0};
    StrBuf tensor = {0}, indented = {0};
    proto_put_bytes(&value, VALUE_TAG, tag, strlen(tag));
    proto_put_int(&tensor, TENSOR_DTYPE, DTYPE_STRING);
    proto_put_int(&inner, DIM_SIZE, 1);
    proto_put_message(&part, SHAPE_DIM, &inner);
    proto_put_message(&tensor, TENSOR_SHAPE, &part);
    for (const char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        n += line[n] == '\n';
        strbuf_puts(&indented, "    ");
        strbuf_add(&indented, line, n);
        line += n;
    }
    proto_put_message(&tensor, TENSOR_STRING, &indented);
    proto_put_message(&value, VALUE_TENSOR, &tensor);
    proto_put_bytes(&inner, PLUGIN_NAME, "text", 4);
    proto_put_message(&part, METADATA_PLUGIN, &inner);
    proto_put_message(&value, VALUE_METADATA, &part);
    proto_put_message(&summary, SUMMARY_VALUE, &value);
    proto_put_message(&event, EVENT_SUMMARY, &summary);
    return write_record(events, &event, err);
}

void event_file_close(EventFile *events)
{
    if (events->fd >= 0)
        close(events->fd);
    *events = (EventFile){.fd = -1};
}
