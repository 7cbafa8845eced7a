/*
 * linear_int8: rows of 8 bits times weights of 8 bits, in integers; half the work of `linear`, whose rows have 16.
 *
 * Weights are i8 in panels of 16 rows (graph/panels.h), x is rows as quantize_rows leaves them. Sums over all of k are
 * exact in 32 bits (|sum| <= 128 * 127 * k, k <= 131072), so that every instruction set has the same bits, in any
 * batch, on any number of threads.
 *
 *     x's rows are copied to where they lie better, and summed where tiles want that, by all threads
 *     for rows, as many as keep x in L2
 *       for panels of weights, each thread its own range: a panel stays in L1
 *         for tiles of rows                       tile(): rows x 16 sums in registers
 */
#ifndef CVN_CPU_KERNELS_LINEAR_INT8_H
#define CVN_CPU_KERNELS_LINEAR_INT8_H

#include "compile/kernel.h"

#include <stdint.h>

enum { LINEAR_INT8_ROWS = 48, LINEAR_INT8_PANELS = 2, LINEAR_INT8_MOST_K = 131072 };

/* Some rows of x times one panel, or as many as the instruction set takes. */
typedef struct Int8Tile {
    int panels;
    int64_t q_stride;   /* bytes from panel to panel */
    int64_t c_stride;   /* sums from panel to panel */
    int rows;           /* at most the rows of the instruction set's tile */
    const int8_t *x;    /* [rows][stride] */
    int64_t stride;     /* bytes, a multiple of 4 */
    const int32_t *sum; /* [rows] of x's elements */
    const int8_t *q;    /* [units][16][4] */
    int64_t units;
    int32_t *c; /* [rows][16] sums */
} Int8Tile;

/* Results of a tile: c times the weight's scale, then times the row's. */
typedef struct Int8Out {
    int rows;
    const int32_t *c;          /* [rows][16] */
    const float *scale;        /* [16] */
    const uint16_t *row_scale; /* bf16 [rows] */
    cvn_dtype dtype;           /* bf16 or f32 */
    void *out;                 /* the first row's first column */
    int64_t stride;            /* elements from row to row */
} Int8Out;

typedef struct Int8Isa {
    int rows;   /* of a tile; at most LINEAR_INT8_ROWS */
    int panels; /* of a tile, at most LINEAR_INT8_PANELS; 0: one */
    int64_t
        chunk; /* bytes of x that lie in L2; 0: as much as any processor has. Then the next panel is asked for
                            as well */
    void (*write)(const Int8Out *out); /* of whole panels; NULL: slowly */
    void (*enter)(void); /* before and after the tiles of a product, on each thread; or NULL */
    void (*leave)(void);
    int32_t (*sum)(const int8_t *x, int64_t n); /* of n elements; NULL: tiles want no sums */
    void (*tile)(const Int8Tile *tile);
} Int8Isa;

bool linear_int8_match(const Op *op);
size_t linear_int8_scratch(const Op *op, int n_threads);
void linear_int8_run(const Int8Isa *isa, const KernelArgs *args);

extern const Int8Isa linear_int8_portable;
#if defined(CVN_HAVE_AVX2)
extern const Int8Isa linear_int8_avx2;
#endif
#if defined(CVN_HAVE_AVX512)
extern const Int8Isa linear_int8_avx512;
#endif
#if defined(CVN_HAVE_AMX)
extern const Int8Isa linear_int8_amx;
#endif

#endif
