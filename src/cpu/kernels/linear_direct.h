/*
 * Products of x with weights of its own kind, bf16, f32 or 8 bits, that lie in panels (graph/panels.h): they are multiplied
 * directly, where linear.h brings x to fixed point for weights of 8 and 4 bits.
 *
 * Every sum has one accumulator, to which the products are added in the order of k (of bf16 in pairs, by one
 * instruction where there is one), however many rows there are and whatever is kept in registers: so a row has
 * the same bits in any batch, in prefill and decode, on any number of threads. Few rows take more panels at a
 * time instead, so that enough sums are under way.
 *
 * Rows of 8 bits (`linear` with int8, which brings them there, and `linear_int8`) are multiplied in integers, so that
 * their sums have no order at all: |sum| <= 128 * 127 * k fits 32 bits. Floats come of them when they are written.
 *
 * x is first laid out by spans of 512 neighbours in k, [spans][rows][512]: a tile's rows then lie together, while rows
 * a power of two apart would share a few sets of the L1 cache. Tiles of AMX want 16 rows of 64 bytes in one piece: each 16
 * whole rows are [span's 64 bytes][16][64] there, as far as a span is whole tiles. The loops are those of linear.h:
 *
 *     for rows, a chunk at a time
 *       for panels, each thread its own range, LINEAR_BLOCK (or isa->block) at a time
 *         for spans of k
 *           for groups of panels
 *             for tiles of rows               tile(): rows x 16 * panels sums in registers
 */
#ifndef CVN_CPU_KERNELS_LINEAR_DIRECT_H
#define CVN_CPU_KERNELS_LINEAR_DIRECT_H

#include "cpu/kernels/linear.h"
#include "cpu/kernels/linear_loops.h"

/* Some rows of x and some neighbouring panels, over one span. */
typedef struct DirectTile {
    int rows, panels;
    const void *x;      /* [rows][x_stride] of the instruction set's x */
    int64_t x_stride;   /* elements: LINEAR_SPAN, unless the instruction set has another span */
    const char *w;      /* the first panel, from the span on */
    int64_t w_stride;   /* bytes from panel to panel */
    int64_t units;      /* of a panel in this span */
    const int32_t *sum; /* of 8 bits: [rows] of x's elements in this span */
    float *c;           /* sums of the first panel, [rows][16]; of 8 bits they are int32_t */
    int64_t c_stride;   /* floats from panel to panel */
    bool add;           /* to c, else c is overwritten */
    const LinearBeside *beside; /* of many rows; else NULL */
    const float *next;          /* beside: c of the tile that comes next */
} DirectTile;

typedef struct DirectIsa {
    /* Whose functions of rows of x, and of sums, it takes; NULL: its own. */
    const struct DirectIsa *rows_of;
    cvn_dtype weight; /* bf16 or f32, also x's in the operation; i8 */
    cvn_dtype x;      /* what x is laid out as */
    int rows;         /* of a tile at most */
    int few;          /* rows up to which a tile takes LINEAR_BLOCK panels; above, two */
    int chunk;        /* of many rows, about so many are computed at a time; 0: as of fewer */
    int block; /* and so many panels, `group` of them for each tile of x, in spans of `span` elements; the next
                         panels and the next span of x are asked for in L2 meanwhile */
    int group, span;
    bool even;   /* rows are shared out evenly over tiles; else all tiles but the last are full */
    bool turned; /* x is laid out in tiles of AMX, where it fills them */
    void (*enter)(void); /* before and after the tiles of a product, on each thread; or NULL */
    void (*leave)(void);
    void (*tile)(const DirectTile *tile);
    LinearNormScale *norm_scale;
    LinearNormSpan *norm_span;
    /* Of 8 bits. The bits of the largest magnitude of elements [at, at + n) of x and of `most`, and the step of a row
       with that; then those elements in steps, x's i8 as they are, and the sum of them. */
    int32_t (*largest)(cvn_dtype dtype, const void *x, int64_t at, int64_t n, int32_t most);
    float (*step)(int32_t most);
    int32_t (*to_8_bits)(cvn_dtype dtype, const void *x, int64_t at, int64_t n, float step,
                         int8_t *out);
    LinearWrite *write;
} DirectIsa;

/* Of so many rows: those that tiles of AMX take. Of the last 16, four or fewer are faster without; more are filled up to 16,
   whatever those hold. */
static inline int64_t linear_tiled_rows(int64_t rows)
{
    enum { ROWS = 16, WITHOUT = 4 };
    return rows % ROWS > WITHOUT ? num_round_up(rows, ROWS) : rows / ROWS * ROWS;
}

bool linear_direct_match(const DirectIsa *isa, const Op *op);
size_t linear_direct_scratch(const DirectIsa *isa, const Op *op, int n_threads);
void linear_direct_run(const DirectIsa *isa, const KernelArgs *args);

extern const DirectIsa linear_portable_f32, linear_portable_bf16, linear_portable_rows8;
#if defined(CVN_HAVE_AVX2)
extern const DirectIsa linear_avx2_f32, linear_avx2_bf16, linear_avx2_rows8;
#endif
#if defined(CVN_HAVE_AVX512)
extern const DirectIsa linear_avx512_f32, linear_avx512_bf16, linear_avx512_bf16dot,
    linear_avx512_rows8;
#endif
#if defined(CVN_HAVE_AMX)
extern const DirectIsa linear_amx_bf16, linear_amx_rows8;

/* A tile of up to four rows and one or two panels, without tile registers but with their bits. */
enum { TILES_ROWS = 4 };
void linear_rows_as_tiles(const DirectTile *tile);
#endif

#endif
