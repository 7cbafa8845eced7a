/*
 * A file of JSON lines, each an object with a "step", to which a run appends: metrics.jsonl and
 * samples.jsonl. A line is one write, so a process that dies leaves whole lines and at most one cut
 * short. A run that goes on from step N cuts off the lines after N, and the file is as if nothing had
 * happened.
 */
#ifndef CVN_TRAIN_REPORT_METRICS_LINES_H
#define CVN_TRAIN_REPORT_METRICS_LINES_H

#include "base/err.h"
#include "base/file.h"
#include "base/strbuf.h"

#include <jansson.h>
#include <stdint.h>

typedef struct StepLines {
    int fd;         /* -1 when closed */
    FilePath path;  /* RUN/NAME */
    StrBuf pending; /* lines that the disk had no room for yet */
} StepLines;

/* Takes a line that was read: CVN_OK; CVN_EFORMAT when it is not one of this file, which ends the reading
 * before it; CVN_EMEM. */
typedef int StepLine(void *context, int64_t step, const json_t *line);

/* Opens RUN/NAME to go on after `step`: gives every line up to it to `each`, and cuts off the file at the
 * first that is of a later step, of a step before the line above, or no whole line. Makes the folder and
 * the file if need be. */
int step_lines_open(StepLines *lines, const char *run, const char *name, int64_t step,
                    StepLine *each, void *context, cvn_err *err);

/* Appends a line, given without its newline. One that cannot be written (a full disk) is an error, but is
 * kept, and written before the next. */
int step_lines_add(StepLines *lines, const char *line, size_t n, cvn_err *err);

/* Flushes to the disk: before a checkpoint, so that its lines are there when it is. */
int step_lines_sync(StepLines *lines, cvn_err *err);

/* Safe after a failed open and on {.fd = -1}. */
void step_lines_close(StepLines *lines);

#endif
