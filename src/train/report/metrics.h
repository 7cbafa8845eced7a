/*
 * RUN/metrics.jsonl: one line of JSON per step, for every program that reads lines.
 *
 *   {"step":7,"loss":5.3125,"lr":0.0003,"grad_norm":1.25,"tokens_per_second":9120.5,"mfu":0.41,
 *    "seconds":0.898}                     (on one line)
 *
 *   step                 steps done, from 1; every step is there once, in order
 *   loss                 mean over the step's tokens, in nats
 *   lr                   learning rate of the update
 *   grad_norm            global norm of the gradient before clipping
 *   tokens_per_second    of this step
 *   mfu                  model FLOPs utilization, from 0 to 1
 *   seconds              wall time of this step
 *   validation_loss      only where it was measured
 *   comm_seconds         of collectives in flight, per device; this and the next two only where there are
 *                        several devices (comm/account.h)
 *   comm_exposed_seconds of these, how long a device did nothing else
 *   comm_bytes           that a device sent
 *   accuracy             of pairs of answers, the part that is in order; left out where it is 0
 *   slowest_rank         the rank that the others wait for; this and the next two only where there are several processes
 *   busy_seconds         its time without exposed communication (`seconds` is about the same in all ranks)
 *   busy_seconds_others  the same, the median of the other ranks
 *
 * Floats have the 9 digits that give the same f32 back. What is not finite is written null, since JSON
 * has no other way.
 *
 * When a run goes on from step N, the lines after N are cut off (metrics_lines.h).
 */
#ifndef CVN_TRAIN_REPORT_METRICS_H
#define CVN_TRAIN_REPORT_METRICS_H

#include "train/report/metrics_lines.h"

#define METRICS_NAME "metrics.jsonl"

typedef struct MetricsRow {
    int64_t step;
    double loss;              /* nats per token */
    double lr;                /* learning rate */
    double grad_norm;         /* before clipping */
    double tokens_per_second; /* of this step */
    double mfu;               /* 0 to 1 */
    double seconds;           /* of this step */
    double validation_loss;   /* nats per token; NAN: not measured */
    /* Of collectives, per device; all 0: there was none. */
    double comm_seconds, comm_exposed_seconds, comm_bytes;
    double accuracy;                                        /* of pairs of answers, 0 to 1 */
    double slowest_rank, busy_seconds, busy_seconds_others; /* straggler.h; all 0: one process */
} MetricsRow;

/* A number of a row: its key here, its tag in TensorBoard's event files and W&B's history, and what it is. */
typedef struct MetricsKey {
    const char *name, *tag, *about;
    size_t offset;  /* of a double in MetricsRow */
    bool optional;  /* may be left out */
    bool zero;      /* left out when `decides` is 0; else, when it is NAN */
    size_t decides; /* offset of the double that says whether it is left out */
} MetricsKey;

/* The i-th, in the order in which they are written; NULL past the last. */
const MetricsKey *metrics_key(int i);

/* The number at an offset of the row. */
static inline double metrics_number(const MetricsRow *row, size_t offset)
{
    return *(const double *)(const void *)((const char *)row + offset);
}

/* Whether a row has a number, finite or not. */
static inline bool metrics_has(const MetricsRow *row, const MetricsKey *key)
{
    double number = metrics_number(row, key->decides);
    return !key->optional || (key->zero ? number > 0 : number == number);
}

/* The lines of a run, on the disk and in memory (96 bytes each), for the report. */
typedef struct RunMetrics {
    StepLines lines; /* RUN/metrics.jsonl */
    MetricsRow *row; /* owned: [n], in order of steps */
    size_t n;
} RunMetrics;

/* Opens RUN/metrics.jsonl to go on after `step` (0: from the beginning): reads the lines up to it and
 * cuts off the rest. The run's folder is made if need be. */
int metrics_open(RunMetrics *metrics, const char *run, int64_t step, cvn_err *err);

/* Appends one line; see step_lines_add for what happens on a full disk. */
int metrics_add(RunMetrics *metrics, const MetricsRow *row, cvn_err *err);

/* Safe after a failed open and on {.lines.fd = -1}. */
void metrics_close(RunMetrics *metrics);

#endif
