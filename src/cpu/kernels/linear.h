/*
 * Products of x with weights in panels (graph/panels.h): their tiles, and what an instruction set has for them.
 *
 * Weights of x's own kind, bf16, f32 or 8 bits, are multiplied directly. Every sum has one accumulator, to which the products
 * are added in the order of k (of bf16 in pairs, by one instruction where there is one), however many rows there are and
 * whatever is kept in registers. Few rows take more panels at a time instead, so that enough sums are under way. Rows of 8
 * bits (`linear` with int8, which brings them there, and `linear_int8`) are multiplied in integers, |sum| <= 128 * 127 * k
 * fits 32 bits; floats come of them when they are written.
 *
 * Quantized weights are multiplied in integers, too. They are i8 or i4 and are read once, as they lie. The
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
 * An instruction set may take codes as they are, unsigned, and take offset * X off (vec_codes.h), or multiply floats whose
 * sums are exact, and so the same integers (amx/linear_blocks.c).
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
 * x is first laid out by spans, [spans][rows][512]: a tile's rows then lie together, while rows a power of two apart would
 * share a few sets of the L1 cache. Some tiles of AMX want 16 rows of 64 bytes in one piece: each 16 whole rows are [span's
 * 64 bytes][16][64] there. The loops (blocks that keep a span of the activations in L2 and of a panel in L1):
 *
 *     x is laid out once, by all threads
 *     for rows, a chunk at a time
 *       for panels of weights, each thread its own range, LINEAR_BLOCK (or isa->block) at a time
 *         for spans of k
 *           for panels of the block
 *             for tiles of rows               tile(): rows x 16 * panels sums in registers
 */
#ifndef CVN_CPU_KERNELS_LINEAR_H
#define CVN_CPU_KERNELS_LINEAR_H

#include "cpu/kernels/linear_loops.h"
#include "graph/blocks.h"

enum {
    LINEAR_SPAN = 512,                              /* elements of k with one scale */
    LINEAR_ROW_BYTES = 2 * LINEAR_SPAN,             /* of a row's span of fixed point */
    LINEAR_LEAST_GROUP = 8,                         /* of i4 weights */
    LINEAR_SUMS = LINEAR_SPAN / LINEAR_LEAST_GROUP, /* sums of a row's span at most */
    LINEAR_CHUNK = 240,                             /* rows that are computed at a time, about */
    LINEAR_WIDE_CHUNK = 512                         /* where an instruction set wants more */
};

/* One row's span of fixed point: what of it is not in the arranged bytes. */
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
    bool eight; /* of fixed point, rows in 8 bits */
    /* [rows][x_stride] of the instruction set's x; of fixed point [LINEAR_ROW_BYTES], as arrange() made them; eight:
       [LINEAR_SPAN]. */
    const void *x;
    int64_t x_stride;       /* elements: LINEAR_SPAN, unless the instruction set has another span */
    const LinearSpan *span; /* of fixed point: [rows] */
    const int32_t *sum;     /* of rows of 8 bits: [rows] of x's elements in this span */
    const uint8_t *q;       /* [units][64] of the first panel, from the span on */
    int64_t q_stride;       /* bytes from panel to panel */
    const uint8_t *ahead[LINEAR_BLOCK]; /* of each panel: [units][64] to ask for in the meantime */
    int64_t units;                      /* of q in this span; of blocks, chunks */
    BlockKind blocks;                   /* then q is chunks of this kind, as `chunk` says */
    const BlockChunk *chunk;
    int64_t group;        /* units of an i4 group */
    const void *scale;    /* i4: [groups][16] of the first panel, from the span on */
    int64_t scale_stride; /* elements from panel to panel */
    cvn_dtype scale_dtype;
    /* [rows][16] sums of the first panel; of i8 still to be multiplied by the weight's scale; of rows of 8 bits they are
       int32_t. */
    float *c;
    int64_t c_stride;           /* floats from panel to panel */
    bool add;                   /* to c, else c is overwritten */
    const LinearBeside *beside; /* of many rows, where the instruction set asks; else NULL */
    const float *next;          /* beside: c of the tile that comes next */
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

/* Lays LINEAR_SPAN numbers of fixed point out as tiles read them, in LINEAR_ROW_BYTES. */
typedef void LinearArrange(const int16_t *x, int8_t *out);

/* What is done with rows of x, and with sums, on some vectors (linear_rows_impl.h). In all of it n <= LINEAR_SPAN. */
typedef struct LinearRows {
    /* Of row `row`: what its elements are multiplied by; and elements [k0, k0 + n) of it, normalised and rounded. */
    float (*norm_scale)(const LinearNorm *norm, int64_t row);
    void (*norm_span)(const LinearNorm *norm, int64_t row, int64_t k0, int64_t n, float scale,
                      void *out);
    /* n elements of x to fixed point; group: elements of a sum. Where rest is not 0, what that rounds off is brought to
       fixed point, too, as the row so many rows on. */
    void (*quantize)(cvn_dtype dtype, const void *x, int64_t n, int64_t group,
                     LinearArrange *arrange, int8_t *out, LinearSpan *span, int64_t rest);
    /* The same to 8 bits, with a step for every `columns`. */
    void (*quantize8)(cvn_dtype dtype, const void *x, int64_t n, int64_t group, int64_t columns,
                      int8_t *out, LinearSpan *span);
    /* Of rows of 8 bits. The bits of the largest magnitude of n elements of x and of `most`, and the step of a row with
       that; then those elements in steps, x's i8 as they are, and the sum of them. */
    int32_t (*largest)(cvn_dtype dtype, const void *x, int64_t n, int32_t most);
    float (*step)(int32_t most);
    int32_t (*to_8_bits)(cvn_dtype dtype, const void *x, int64_t n, float step, int8_t *out);
    LinearWrite *write;
} LinearRows;

extern const LinearRows linear_rows_portable, linear_rows_avx2, linear_rows_avx512,
    linear_rows_avx512_bf16;

/* What one instruction set offers for weights of one kind. */
typedef struct LinearIsa {
    const LinearRows *of_rows;
    cvn_dtype weight; /* of blocks CVN_I8 */
    bool blocks;      /* weights in blocks, of any kind */
    bool fixed;       /* x becomes fixed point; else what it is laid out as: */
    cvn_dtype x;
    int least_group; /* of i4 weights, where not all are taken */
    int rows;        /* of a tile at most */
    int alone; /* rows up to which one tile takes all there are, though it would take fewer of more; or 0 */
    bool even;  /* rows are shared out evenly over tiles; else all tiles but the last are full */
    int panels; /* that a tile takes */
    int few;    /* rows up to which it takes LINEAR_BLOCK panels instead */
    int ahead; /* bytes of a panel between what a tile of few rows reads and what it asks for; as measured */
    int asks; /* rows from which the next panels and the next span of x are asked for in L2 beside tiles; or 0: never */
    /* Of many rows about so many are computed at a time, with so many panels, in spans of so many elements; or 0: as of
       fewer. */
    int chunk, block, span;
    bool turned; /* x is laid out in tiles of AMX, where it fills them */
    /* Where x is more than moved for that: lays out a row's span of fixed point, of which 16 rows are in one piece; 1 KiB
       from 64 bytes to the next. */
    void (*turn)(bool eight, const int8_t *x, int8_t *to);
    void (*enter)(void); /* before and after the tiles of a product, on each thread; or NULL */
    void (*leave)(void);
    LinearArrange *arrange; /* of fixed point */
    void (*tile)(const LinearTile *tile);
} LinearIsa;

/* Of so many rows: those that tiles of AMX take of x as it is. Of the last 16, four or fewer are faster without; more are
   filled up to 16, whatever those hold. */
static inline int64_t linear_tiled_rows(int64_t rows)
{
    enum { ROWS = 16, WITHOUT = 4 };
    return rows % ROWS > WITHOUT ? num_round_up(rows, ROWS) : rows / ROWS * ROWS;
}

/* Functions of kernels whose `isa` is a LinearIsa. */
bool linear_match(const Kernel *kernel, const Op *op);
size_t linear_scratch(const Kernel *kernel, const Op *op, int n_threads);
void linear_run(const KernelArgs *args);

extern const LinearIsa linear_f32_portable, linear_bf16_portable, linear_rows8_portable,
    linear_i8_portable, linear_i4_portable, linear_blocks_portable;
#if defined(CVN_HAVE_AVX2)
extern const LinearIsa linear_f32_avx2, linear_bf16_avx2, linear_rows8_avx2, linear_i8_avx2,
    linear_i4_avx2, linear_blocks_avx2;
#endif
#if defined(CVN_HAVE_AVX_VNNI)
extern const LinearIsa linear_rows8_avx_vnni, linear_i8_avx_vnni, linear_i4_avx_vnni,
    linear_blocks_avx_vnni;
#endif
#if defined(CVN_HAVE_AVX512)
extern const LinearIsa linear_f32_avx512, linear_bf16_avx512, linear_bf16_avx512_bf16,
    linear_rows8_avx512_bf16, linear_i8_avx512_bf16, linear_i4_avx512_bf16,
    linear_blocks_avx512_bf16;
LinearArrange linear_avx512_arrange;
void linear_avx512_tile_blocks(const LinearTile *tile);
void linear_avx512_codes(const LinearTile *t, int panel, LinearCodes *out);
#endif
#if defined(CVN_HAVE_AMX)
extern const LinearIsa linear_bf16_amx, linear_rows8_amx, linear_i8_amx, linear_i4_amx,
    linear_blocks_amx;
void linear_amx_tile_i4(const LinearTile *tile); /* groups of 32 and more */
void linear_amx_tile_blocks(const LinearTile *tile);
void linear_amx_arrange_blocks(bool eight, const int8_t *x, int8_t *to);

/* Only for tiles of one or two panels: without tile registers but with their bits. */
extern const LinearIsa linear_as_tiles;
#endif

#endif
