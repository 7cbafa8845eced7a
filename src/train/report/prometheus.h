/*
 * RUN/metrics.prom: the numbers of the newest step in Prometheus' text format, for the textfile collector of node_exporter:
 *
 *   # HELP caravan_train_loss mean over the step's tokens, in nats
 *   # TYPE caravan_train_loss gauge
 *   caravan_train_loss{run="RUN"} 5.3125
 *
 * Numbers are those of metrics.jsonl by their keys, and caravan_train_step and caravan_train_steps, those done and all. The file is
 * at most a second old while steps are done, and always whole: it is written beside and renamed. examples/grafana-training.json is
 * a dashboard of it.
 */
#ifndef CVN_TRAIN_REPORT_PROMETHEUS_H
#define CVN_TRAIN_REPORT_PROMETHEUS_H

#include "train/report/metrics.h"

#define PROMETHEUS_NAME "metrics.prom"

/* Writes a row to RUN/metrics.prom where that was last done a second ago or more, by *last (seconds, 0 at first), or the row is that
   of the last step. `run` is the label, steps all of the run. */
int prometheus_write(const char *run, int64_t steps, const MetricsRow *row, double *last,
                     cvn_err *err);

#endif
