/* caravan bench --train: a training step against the machine's ceilings. */
#ifndef CVN_CLI_BENCH_TRAIN_H
#define CVN_CLI_BENCH_TRAIN_H

#include "train/bench.h"

typedef enum BenchFormat { BENCH_TEXT, BENCH_JSON, BENCH_CSV } BenchFormat;

/* Measures and prints. What depends on the preset is filled in: config, optimizer, and seq where it is 0. */
int bench_train(const char *preset, TrainBench bench, OptimizerKind kind, BenchFormat format,
                cvn_err *err);

#endif
