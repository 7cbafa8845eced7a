/*
 * Products with quantized weights, in integers.
 *
 * Weights are i8 or i4 in panels of 16 rows (graph/panels.h) and are read once, as they lie. The
 * activations are brought to integers of the same kind: in each span of 512 neighbours in k, a row
 * of x becomes 16-bit fixed point with one scale,
 *
 *     X = round(x / s),  s = max |x| / 32512,  X = 256 hi + lo,  -128 <= hi, lo <= 127
 *
 * so that one instruction (vpdpbusd) sums four products of a weight with hi, one with lo, and no
 * weight is ever converted. Sums of a span are exact:
 *
 *     |sum| <= 128 * 32512 * 512 < 2^31
 *
 * and only their scaling is in f32:  y = sum over spans of s * (sum over groups of scale * sum).
 * Rounding to 16 bits of the largest element of a span disturbs a sum less than that element's own
 * rounding to bf16 does. Of x in bf16 s is rounded up to a power of two: what is not far smaller than the largest is X
 * exactly then, and every X is a number of bf16. A span with a NaN or an infinity makes the row's results NaN.
 *
 * Weights in blocks (graph/blocks.h) are read as they lie in their chunks, which divide a span, by tile_blocks. With X the sum
 * of a row's fixed point over a group, and c its codes,
 *
 *     y = sum over spans of s * (sum over groups of scale * (sum of (c - offset) x) - minimum * X)
 *
 * An instruction set may take codes as they are, unsigned, and take offset * X off; have whole chunks made numbers of 8
 * bits first (linear_blocks_impl.h), which is right for every kind there is; or multiply floats whose sums are exact, and so
 * the same integers (amx/linear_blocks.c).
 *
 * Of weights in blocks, whose numbers are to be a file's in f32 too, a row of x in f32 is two rows of fixed point, the second
 * of what the first rounded off, and both products are added.
 *
 * With int8 (graph/linear.h), which blocks have, too, the columns of a chunk have one step instead, and x one byte, as it is:
 *
 *     y = sum over chunks of step * (sum over groups of scale * (sum of (c - offset) x) - minimum * (sum of x))
 *
 * What holds for results: integer sums have no order, and the spans of a row are added in one order
 * whatever else is computed, so that a row has the same bits in any batch, in prefill and decode, at
 * any place, on any number of threads.
 *
 * The loops (blocks that keep a span of the activations in L2 and of a panel in L1):
 *
 *     x is quantized once, by all threads
 *     for rows, LINEAR_CHUNK at a time
 *       for panels of weights, each thread its own range, LINEAR_BLOCK at a time
 *         for spans of k
 *           for panels of the block
 *             for tiles of rows               tile(): rows x 16 sums in registers
 */
#ifndef CVN_CPU_KERNELS_LINEAR_H
#define CVN_CPU_KERNELS_LINEAR_H

#include "cpu/kernels/linear_loops.h"
#include "graph/blocks.h"

enum {
    LINEAR_SPAN = 512,                              /* elements of k with one scale */
    LINEAR_ROW_BYTES = 2 * LINEAR_SPAN,             /* of a row's span of activations */
    LINEAR_LEAST_GROUP = 8,                         /* of i4 weights */
    LINEAR_SUMS = LINEAR_SPAN / LINEAR_LEAST_GROUP, /* sums of a row's span at most */
    LINEAR_CHUNK = 240,                             /* rows that are computed at a time */
    LINEAR_WIDE_CHUNK = 512,                        /* where an instruction set wants more */
    LINEAR_WIDE_BLOCK = 16
};

/* One row's span: what of it is not in the arranged bytes. */
typedef union LinearSpan {
    struct {
        float scale;
        int32_t minus8
            [LINEAR_SUMS]; /* -8 times the sum of X over each group of an i4 weight or of blocks, over the span for
                                        i8: for instructions that take weights as unsigned */
    };
    struct { /* of rows in 8 bits */
        float step[LINEAR_SPAN / BLOCK_LEAST_CHUNK];
        int32_t minus[LINEAR_SPAN / BLOCK_LEAST_GROUP]; /* minus the sum of x over each group */
    };
} LinearSpan;

/* One tile: some rows of x and some neighbouring panels, over one span. */
typedef struct LinearTile {
    int rows;   /* at most the rows of the instruction set's tile */
    int panels; /* 1, or as many as the instruction set takes */
    bool eight; /* rows in 8 bits */
    const int8_t
        *x; /* [rows][LINEAR_ROW_BYTES], as arrange() made them; eight: [rows][LINEAR_SPAN] */
    const LinearSpan *span;             /* [rows] */
    const uint8_t *q;                   /* [units][64] of the first panel, from the span on */
    int64_t q_stride;                   /* bytes from panel to panel */
    const uint8_t *ahead[LINEAR_BLOCK]; /* of each panel: [units][64] to ask for in the meantime */
    int64_t units;                      /* of q in this span; of blocks, chunks */
    BlockKind blocks;                   /* then q is chunks of this kind, as `chunk` says */
    const BlockChunk *chunk;
    int64_t group;        /* units of an i4 group */
    const void *scale;    /* i4: [groups][16] of the first panel, from the span on */
    int64_t scale_stride; /* elements from panel to panel */
    cvn_dtype scale_dtype;
    /* [rows][16] of the first panel, f32 sums; i8: still to be multiplied by the weight's scale. */
    float *c;
    int64_t c_stride; /* floats from panel to panel */
    bool add;         /* to c, else c is overwritten */
    const struct LinearBeside
        *beside; /* of many rows, where the instruction set is wide; else NULL */
} LinearTile;

/* A span of a panel of blocks, put together: what all kinds have in common. */
typedef struct LinearCodes {
    float scale[LINEAR_SPAN / BLOCK_LEAST_GROUP * PANEL_ROWS]
        __attribute__((aligned(64))); /* [groups][16] */
    /* An eighth of them; for rows of x in 8 bits as they are. */
    float minimum[LINEAR_SPAN / BLOCK_LEAST_GROUP * PANEL_ROWS];
    uint8_t *code; /* [columns / 4][16][4] */
    int offset;    /* what codes are more than numbers, where there are no minima */
} LinearCodes;

/* What a product that takes a norm in does with a row of x; the bits are those of the kernel of rms_norm. */
typedef struct LinearNorm {
    cvn_dtype x_dtype, weight_dtype, out_dtype; /* out_dtype: linear_rows_dtype */
    const void *x, *weight;
    int64_t k; /* elements of a row */
    float eps;
} LinearNorm;

/* Of row `row`: what its elements are multiplied by. */
typedef float LinearNormScale(const LinearNorm *norm, int64_t row);
/* Elements [k0, k0 + n) of it, n <= LINEAR_SPAN, normalised and rounded. */
typedef void LinearNormSpan(const LinearNorm *norm, int64_t row, int64_t k0, int64_t n, float scale,
                            void *out);

/* Of an operation that has a norm. */
LinearNorm linear_norm_of(const KernelArgs *args);

typedef struct LinearIsa {
    /* Whose functions of rows of x, and of sums, it takes; NULL: its own. */
    const struct LinearIsa *rows_of;
    int rows_i8, rows_i4; /* of a tile at most */
    int rows_blocks;
    int panels; /* that a tile takes, and rows are shared out evenly over tiles; 0: one, and all tiles but the last
                   are full */
    int few; /* rows up to which it takes LINEAR_BLOCK panels instead */
    int alone_i8; /* rows up to which one tile takes all there are, though it would take fewer of more; or 0 */
    /* Of many rows LINEAR_WIDE_CHUNK and LINEAR_WIDE_BLOCK panels are computed at a time, of which the next are asked for
       in L2 meanwhile, and all tiles but the last are full. */
    bool wide;
    void (*enter)(void); /* before and after the tiles of a product, on each thread; or NULL */
    void (*leave)(void);
    /* Row of x, n <= 512 elements from `at` on, to fixed point; group: elements of a sum. Where rest is not 0, what that
       rounds off is brought to fixed point, too, as the row so many rows on. */
    void (*quantize)(cvn_dtype dtype, const void *x, int64_t at, int64_t n, int64_t group,
                     int8_t *out, LinearSpan *span, int64_t rest);
    /* The same to 8 bits, with a step for every `columns`. */
    void (*quantize8)(cvn_dtype dtype, const void *x, int64_t at, int64_t n, int64_t group,
                      int64_t columns, int8_t *out, LinearSpan *span);
    void (*tile_i8)(const LinearTile *tile);
    void (*tile_i4)(const LinearTile *tile);
    void (*tile_blocks)(const LinearTile *tile);
    /* Of blocks, where it is wide: lays out a row's span of x, of which 16 rows are in one piece; 1 KiB from 64 bytes to
       the next. */
    void (*arrange_blocks)(bool eight, const int8_t *x, int8_t *to);
    LinearNormScale *norm_scale;
    LinearNormSpan *norm_span;
    LinearWrite *write;
} LinearIsa;

bool linear_match(const Op *op);
size_t linear_scratch(const Op *op, int n_threads);
size_t linear_wide_scratch(const Op *op, int n_threads); /* of an instruction set that is wide */
void linear_run(const LinearIsa *isa, const KernelArgs *args);

#if defined(CVN_HAVE_AVX512)
void linear_avx512_tile_blocks(const LinearTile *tile);
void linear_avx512_codes(const LinearTile *t, int panel, LinearCodes *out);
#endif
extern const LinearIsa linear_portable;
#if defined(CVN_HAVE_AVX2)
extern const LinearIsa linear_avx2;
#endif
#if defined(CVN_HAVE_AVX512)
extern const LinearIsa linear_avx512_vnni;
#endif
#if defined(CVN_HAVE_AMX)
extern const LinearIsa linear_amx_int8;
void linear_amx_tile_i4(const LinearTile *tile); /* groups of 32 and more */
void linear_amx_tile_blocks(const LinearTile *tile);
void linear_amx_arrange_blocks(bool eight, const int8_t *x, int8_t *to);
#endif

#endif
