/*
 * A core with AMX and its caches, as far as products on tiles need them. Kernels are the compiler's own code, to which
 * instrument.awk has added calls: each instruction is counted and each address goes through the caches, while what is
 * no tile instruction is also carried out. Tile instructions only count.
 *
 * What it rests on: times that were measured on one core of a processor at 3.7 GHz (amx_model.c prints them). Costs of
 * each kind are added up over windows of about 512 micro-operations, as many as that processor has under way at once,
 * and a window takes
 *
 *     (products^p + loads^p + stores^p + instructions^p) ^ (1 / p),    p = 3.5
 *
 * which is a little more than the largest: with this p, 2 x 2 tiles run at 97% of the peak from L1, 71% from L2 and
 * 14% from L3, measured were 95, 72 and 14.
 */
#ifndef CVN_BENCH_AMX_MODEL_H
#define CVN_BENCH_AMX_MODEL_H

#include <stddef.h>
#include <stdint.h>

/* What time goes to; LATE: waiting for lines that were asked for ahead, but not early enough. */
typedef enum Cost {
    COST_PRODUCTS,
    COST_L1,
    COST_L2,
    COST_L3,
    COST_MEMORY,
    COST_LATE,
    COST_STORES,
    COST_VECTORS,
    COST_COUNT
} Cost;

enum { MODEL_FUNCTIONS = 64 };

typedef struct ModelTimes {
    int64_t picoseconds, products, bytes; /* in all; tdp instructions; from memory and to it */
    int64_t lost[COST_COUNT];             /* picoseconds without a product, by their cause */
    const char *name[MODEL_FUNCTIONS];    /* of functions */
    int64_t function[MODEL_FUNCTIONS]
                    [COST_COUNT]; /* picoseconds in them by kind, as if nothing were hidden */
} ModelTimes;

enum { PRODUCT_PS = 4900 };

/* ((1 + (i / 1024)^p)^(1 / p) - 1) * 2^20, filled in by main: the model itself has no floating point. */
extern uint32_t model_above[1025];

/* Whether loads from L2 and behind it overlap those from L1. What was measured does not tell: in each of the three all
   loads are from one level, and both ways give those. 0 is the cautious one. */
extern int model_overlap;

/* Empties the caches, unless they are kept, and begins to count. */
void model_begin(int64_t l3_bytes, int keep);
ModelTimes model_end(void);

/* Puts bytes into L3. */
void model_warm(const void *at, size_t bytes);

#endif
