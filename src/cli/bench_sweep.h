/*
 * The picture of `caravan bench --sweep`: how long a request takes, from its prompt to the last of its tokens, by the length of
 * the prompt; with prompts read in buckets, and with one graph that takes them token by token. As in figure 6 of "The Path to
 * Achieve Ultra-Low Inference Latency With LLaMA 65B on PyTorch/XLA" (2023).
 */
#ifndef CVN_CLI_BENCH_SWEEP_H
#define CVN_CLI_BENCH_SWEEP_H

#include "base/err.h"
#include "serve/bench.h"

enum { SWEEP_WAYS = 2 };
extern const BenchMode sweep_ways[SWEEP_WAYS]; /* in buckets; token by token */

/* One length. */
typedef struct SweepPoint {
    const BenchMode *way;
    int64_t prompt, tokens; /* read; generated after them */
    double read, generate;  /* seconds */
} SweepPoint;

/* Writes the picture of points in ascending order; `name` is the model's. */
int sweep_draw(const char *path, const char *name, const SweepPoint *point, size_t n, cvn_err *err);

#endif
