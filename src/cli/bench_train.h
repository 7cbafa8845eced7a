/* caravan bench --train: a training step against the machine's ceilings. */
#ifndef CVN_CLI_BENCH_TRAIN_H
#define CVN_CLI_BENCH_TRAIN_H

#include "train/bench.h"

/* Names of the choices of --optimizer and --remat; NULL past the last. */
const char *bench_optimizer_name(size_t i);
const char *bench_remat_name(size_t i);

/* Measures and prints; returns the exit code. What depends on the preset is filled in: config, optimizer, and seq where
   it is 0. */
int bench_train(const char *preset, TrainBench bench, OptimizerKind kind, bool as_json);

#endif
