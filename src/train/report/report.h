/*
 * RUN/report.html: one page that shows a run, complete in itself (no script, no network, light and dark),
 * and RUN/samples.jsonl, the texts made during it:
 *
 *   {"step":500,"prompt":"Once upon a time","text":", there was a fox who …"}
 */
#ifndef CVN_TRAIN_REPORT_REPORT_H
#define CVN_TRAIN_REPORT_REPORT_H

#include "comm/account.h"
#include "train/report/metrics.h"

#define REPORT_NAME "report.html"
#define SAMPLES_NAME "samples.jsonl"

typedef struct Sample {
    int64_t step; /* steps done when it was made */
    char *prompt; /* owned, heap */
    char *text;   /* owned, heap: what the model wrote after it */
} Sample;

typedef struct Samples {
    StepLines lines; /* RUN/samples.jsonl */
    Sample *sample;  /* owned: [n], in order of steps */
    size_t n;
} Samples;

/* Opens RUN/samples.jsonl to go on after `step`, as metrics_open. */
int samples_open(Samples *samples, const char *run, int64_t step, cvn_err *err);

/* Adds a text that was generated; bytes that are not UTF-8 are replaced by U+FFFD. */
int samples_add(Samples *samples, int64_t step, const char *prompt, const char *text, cvn_err *err);

/* Safe after a failed open and on {.lines.fd = -1}. */
void samples_close(Samples *samples);

/* What a report shows; all borrowed. Texts may be NULL. */
typedef struct Report {
    const char *title;   /* of the page: what is trained */
    const char *command; /* how the run was begun, to be copied */
    const char *machine; /* processor, threads, memory, peak: a line each */
    const char *config;  /* JSON object of the options that the run took */
    const RunMetrics *metrics;
    const Samples *samples;
    const CommTable *communication; /* of a step, or NULL */
    int64_t steps;                  /* planned */
    int64_t tokens;                 /* seen */
    bool finished;
} Report;

/* Writes RUN/report.html, beside and renamed. */
int report_write(const char *run, const Report *report, cvn_err *err);

/* Appends a text to HTML: the five characters that mean something escaped, control characters and bytes
 * that are no UTF-8 as U+FFFD. */
void report_escape(StrBuf *out, const char *text);

#endif
