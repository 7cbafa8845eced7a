/*
 * Where in one arena each buffer lies, when all lifetimes are known: a pure function.
 *
 * Largest first, each buffer goes into the smallest gap that fits between those already placed
 * whose lifetimes overlap its own:
 *
 *     bytes
 *       4-5 |    B  B        A, 4 bytes, lives in steps 0-1 and is placed first, at 0;
 *       2-3 | A  A           B, 2 bytes, lives in 1-2, overlaps A and goes above it, at 4;
 *       0-1 | A  A     C     C, 2 bytes, lives in 3, overlaps nothing and goes to 0.
 *        step 0  1  2  3
 *
 * Where that does not reach the lower bound, the same is tried by bytes times steps and by steps, and the best of
 * the three is kept. The same lifetimes always give the same offsets.
 */
#ifndef CVN_COMPILE_MEMORY_H
#define CVN_COMPILE_MEMORY_H

#include "base/err.h"

#include <stddef.h>

enum { MEMORY_ALIGN = 64 }; /* bytes: a cache line, and a row of an AMX tile */

/* A buffer's size, the steps that need it, and the answer. Offsets of zero bytes are 0. */
typedef struct Lifetime {
    size_t bytes;
    int first, last; /* steps, both included; first <= last */
    size_t offset;   /* result: multiple of MEMORY_ALIGN */
} Lifetime;

typedef struct MemoryPlan {
    size_t total;       /* bytes of the arena */
    size_t lower_bound; /* the largest sum of sizes (rounded up to the alignment) alive in one step:
                           no placement can do with less */
} MemoryPlan;

/* Fills in the offsets of n buffers. Fails when memory runs out, or the arena would not fit a
 * size_t. */
int memory_plan(Lifetime *buffer, int n, MemoryPlan *out, cvn_err *err);

#endif
