/*
 * TensorBoard event files: RUN/tensorboard/events.out.tfevents.TIME.HOST.PID, one per start of a run.
 *
 * A file is a sequence of TFRecords (tensorflow/core/lib/io/record_writer.h):
 *
 *   bytes   what
 *   8       n, little endian
 *   4       masked CRC-32C of these 8 bytes
 *   n       an Event
 *   4       masked CRC-32C of the n bytes          mask(c) = rotate_right(c, 15) + 0xa282ead8
 *
 * An Event is a protocol buffer (base/protobuf.h; tensorflow/core/util/event.proto, framework/summary.proto). Its fields that we
 * write:
 *
 *   Event         1 wall_time double   2 step int64   3 file_version string (the first event's)
 *                 5 summary Summary    7 session_log SessionLog
 *   SessionLog    1 status enum (1: START, which makes readers drop what older files say of this
 *                 event's step and later ones: what a run that goes on computes again)
 *   Summary       1 value Value, repeated
 *   Value         1 tag string         2 simple_value float
 *                 8 tensor TensorProto 9 metadata { 1 plugin_data { 1 plugin_name string } }
 *   TensorProto   1 dtype enum (7: string)   2 tensor_shape { 2 dim { 1 size int64 } }
 *                 8 string_val bytes
 */
#ifndef CVN_TRAIN_REPORT_TENSORBOARD_H
#define CVN_TRAIN_REPORT_TENSORBOARD_H

#include "base/err.h"
#include "base/file.h"
#include "train/report/metrics.h"

typedef struct EventFile {
    int fd; /* -1 when closed */
    FilePath path;
} EventFile;

/* A new file for a run that goes on after `step` (0: begins). The folders are made if need be. */
int event_file_open(EventFile *events, const char *run, int64_t step, cvn_err *err);

/* The row's numbers as scalars, by their tags (metrics.h). */
int event_file_add(EventFile *events, const MetricsRow *row, cvn_err *err);

/* A text made at a step, shown under `tag` in the Text tab. The tab reads Markdown; every line is
 * indented by four blanks, which Markdown shows as it is. */
int event_file_text(EventFile *events, int64_t step, const char *tag, const char *text,
                    cvn_err *err);

/* Safe after a failed open and on {.fd = -1}. */
void event_file_close(EventFile *events);

#endif
