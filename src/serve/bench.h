/*
 * How fast a model runs, and what share of the machine that is.
 *
 *   prefill   N tokens of one slot, the last of which is sampled from. MFU is the model's operations
 *             (2 per weight and token that a product uses, the output head once, and causal
 *             attention) over the peak of products of what enters them (f32, bf16 or 8 bits), which is
 *             measured in turns with the prefills: neighbours change it, too.
 *   decode    one step of B slots, each with `context` positions filled. Bandwidth utilisation is
 *             the bytes that a step cannot do without (each weight once, the filled KV of each slot)
 *             over the measured bandwidth.
 *
 *             That bandwidth is measured in turns with the steps, on the same threads and with the
 *             same large pages, because neighbours change it within seconds: after each step of 10
 *             ms or more, and after each 10 ms of shorter ones, reads go on for about as long.
 *             Steps are held against the mean of the reads before and after them; the median of
 *             these shares counts. Of short steps the first one after reads, which finds the caches
 *             empty, is not counted.
 *
 *             Its overhead is everything that is not traffic of weights or KV: small steps, waiting
 *             for other threads, sampling, and what happens between steps. It is what a profile of
 *             further steps finds to be outside of products and attention on thread 0; taking that
 *             profile is part of it (some 10 us).
 *
 * Figures are medians over repeats, after a run that is not
 * counted; the spread is (largest - smallest) / median.
 *
 * Four ways of running the same graphs make the ladder, from the bottom: op by op (no
 * simplification or fusion, all threads are woken and waited for at each operation, attention in
 * its parts), with attention as one kernel, compiled, and both, which is how everything else runs.
 */
#ifndef CVN_SERVE_BENCH_H
#define CVN_SERVE_BENCH_H

#include "serve/engine.h"

typedef struct BenchFigure {
    double seconds;           /* median: of a prefill, of a step */
    double spread;            /* relative */
    double tokens_per_second; /* of all slots */
    double utilization;       /* prefill: MFU; decode: of the read bandwidth */
    double bandwidth;         /* decode: bytes per second that reads made meanwhile, median */
    double peak; /* prefill: operations per second that were possible meanwhile, median */
    /* Decode: seconds of a step in which thread 0 was in no product and no attention. */
    double overhead;
} BenchFigure;

/* Prefills n tokens `repeats` times on slot 0. */
int bench_prefill(cvn_engine *e, int64_t n, int repeats, BenchFigure *out, cvn_err *err);

/* Decodes with `context` positions of every slot filled (with numbers, not by a prefill: what they
   are does not matter to the time): `steps` steps, or fewer, but 3, once `seconds` have passed. */
int bench_decode(cvn_engine *e, int64_t context, int64_t steps, double seconds, BenchFigure *out,
                 cvn_err *err);

/* A way of running. */
typedef struct BenchMode {
    const char *name;
    bool op_by_op, split_attention; /* as in cvn_engine_options */
} BenchMode;

enum { BENCH_MODES = 4 };
extern const BenchMode bench_modes[BENCH_MODES]; /* from the bottom of the ladder */

/* Whether `slots` slots of `positions` positions fit in the memory that is free now. */
bool bench_fits(const cvn_engine *e, int64_t slots, int64_t positions);

/* Operations of a prefill of n tokens, and bytes that a decode step of `slots` slots reads at least:
   matrices in dtype (or quantized), keys and values in kv. */
double bench_prefill_flops(const Model *config, int64_t n);
double bench_decode_bytes(const Model *config, cvn_dtype dtype, cvn_dtype kv, int64_t slots,
                          int64_t filled);

#endif
