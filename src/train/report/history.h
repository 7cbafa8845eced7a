/*
 * RUN/wandb-history.jsonl: the numbers of each step as Weights & Biases has a run's history, a JSON object on a line:
 *
 *   {"_step":7,"_timestamp":1764000000.25,"_runtime":12.5,"train/loss":5.3125,"train/lr":0.0003, … ,"step":7}
 *
 *   _step        steps done
 *   _timestamp   seconds since 1970 at which it ended
 *   _runtime     seconds of all steps up to it
 *   step         as in metrics.jsonl; numbers have the tags of TensorBoard's event files
 *
 * What is not finite is "NaN", "Infinity" or "-Infinity", as W&B writes it. When a run goes on from step N, the lines after N are
 * cut off.
 */
#ifndef CVN_TRAIN_REPORT_HISTORY_H
#define CVN_TRAIN_REPORT_HISTORY_H

#include "train/report/metrics.h"

#define HISTORY_NAME "wandb-history.jsonl"

typedef struct History {
    StepLines lines;
    double seconds; /* of all steps up to the last line */
} History;

/* Opens, writes and closes a history, as metrics_open and its companions do. */
int history_open(History *history, const char *run, int64_t step, cvn_err *err);
int history_add(History *history, const MetricsRow *row, cvn_err *err);
void history_close(History *history);

#endif
