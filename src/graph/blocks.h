/*
 * Weights in blocks: quantized numbers as GGUF files store them. A row of a weight is a row of blocks; each holds a small
 * code per element and what they are scaled with.
 *
 * In graphs such a weight is an array of bytes, [rows …, blocks, bytes of one], and `dequantize` with the kind of its
 * blocks says the numbers:
 *
 *     %w: i8[32,64,8,144] = parameter
 *     %0: bf16[32,64,2048] = dequantize %w {blocks=q4_k}
 *
 * so that it is cut, gathered and looked up like any other array, a block being the least there is of a row. Every kind is
 * of one form, which is data (BlockForm): with c an element's code, and a scale and a minimum for each group of neighbours,
 *
 *     element = scale * (c - offset) - minimum         or scale * table[c]         or scale * c, c a float of 8 bits
 *
 * where scale and minimum are floats of 16 bits, or whole numbers times such a float of the block. All products are exact
 * in f32 (at most 24 bits), so that only the last difference, if any, rounds: that is what ggml computes. Floats of 8 bits
 * (base/float8.h), of which no GGUF file has any, have a scale in f32 and a product that rounds. They are checkpoints in FP8, as they lie:
 * a scale for 128 neighbours says those for a tensor, a row or a square of 128 (io/packed.h).
 *
 * Panels of 16 rows (graph/panels.h) are what products read. A panel is a row of chunks, [panels, chunks, bytes], each all
 * there is of 16 rows and `columns` neighbours (256; of kinds whose blocks are of 32, the largest of 256, 128, 64, 32 that
 * divides the rows), in planes one after the other:
 *
 *     codes   base 4:  [columns / 8][64]   as of i4, without a sign: in byte b of row r of unit u (byte 4 r + b) the low half is
 *                                          of column 8 u + b, the high half of column 8 u + 4 + b
 *             base 8:  [columns / 4][64]   as of i8, with the highest bit flipped: code c is the byte c ^ 128
 *             floats:  [columns / 4][64]   by four rows: 16 bytes, of which byte 8 h + 2 r + b is of row r of these and column 4 u + 2 h + b
 *             two:     [columns / 16][64]  two more bits: bits 2 i and 2 i + 1 of byte 4 r + b of unit u are of column
 *                                          16 u + 4 i + b
 *             one:     [columns / 4][8]    one more bit: bit 4 r + b of unit u's 64 is of column 4 u + b
 *     scales  [columns / group][16]        f16 (bf16 of mxfp4, f32 of floats); or in bytes, whole numbers (of q2_k the minimum's above)
 *     minima  [columns / group][16]        likewise, where there are any
 *     d, m    [16] each                    f16, which the whole numbers of scales and of minima are multiples of
 *
 * The bytes of a chunk are at most 1.04 times those of its blocks (mxfp4 1.06, tq1_0 1.23).
 */
#ifndef CVN_GRAPH_BLOCKS_H
#define CVN_GRAPH_BLOCKS_H

#include "graph/graph.h"

/* A block taken apart. */
typedef struct BlockParts {
    uint8_t code[BLOCK_MOST];
    int8_t scale[BLOCK_GROUPS], minimum[BLOCK_GROUPS]; /* whole numbers of the groups */
    uint16_t d,
        m; /* floats of 16 bits: scale and minimum of a form without whole numbers, else what those are times */
    float wide; /* the scale of floats */
} BlockParts;

/* What the bytes of codes are. A run of n bytes has 2 n codes of 4 bits, the low halves first; or 4 n of 2, the lowest first. */
typedef enum BlockCode { CODE_4, CODE_2, CODE_8, CODE_TRITS, CODE_FLOATS } BlockCode;

/* How whole numbers of groups are kept. */
typedef enum BlockScales {
    SCALES_NONE,
    SCALES_BYTES,   /* 16, signed */
    SCALES_NIBBLES, /* 16: a group's byte has its scale below and its minimum above */
    /* 8 scales and 8 minima of 6 bits in 12 bytes. The first four of each are the low bits of bytes 0-3 and 4-7; the last four
       have their low four bits in bytes 8-11, scales below and minima above, and their upper two on top of bytes 0-3 and 4-7. */
    SCALES_6_MINIMA,
    /* 16 scales of 6 bits, less 32: byte g % 8 has the low four of scale g, below for the first eight and above for the others;
       byte 8 + g % 4 has the upper two, those of g / 4 = 0 lowest. */
    SCALES_6,
    SCALES_6_APART /* 8 scales of 6 bits, less 32: the upper two of all in 2 bytes, then the low four of two in a byte */
} BlockScales;

/* Where a block has what, in bytes. */
typedef struct BlockPlaces {
    int d, m;             /* f16; m: 0 of forms without a minimum */
    bool added;           /* the minimum is added, not taken off */
    bool exponent;        /* d is a byte e instead, for 2^(e - 128) */
    BlockCode code;       /* of its runs, … */
    int codes, run, runs; /* … where they begin, bytes of one, and how many there are */
    int fifth;            /* 4 bytes: bit i is the fifth of code i; or 0 */
    int bits, high; /* 32 bytes: bit k of byte j is bit `high` of code 32 k + j; high 0: none */
    int two; /* 32 bytes of each run: bits 2 k, 2 k + 1 of byte j are the upper ones of the run's code 32 k + j; or 0 */
    BlockScales scale; /* whole numbers, … */
    int scales;        /* … and where they are */
} BlockPlaces;

typedef struct BlockInfo {
    const char *name;    /* "q4_k" */
    int elements, bytes; /* of a block */
    BlockForm form;
    const BlockPlaces *places;
    void (*open)(const uint8_t *block, BlockParts *out);
    void (*widen)(const uint8_t *block, float *out); /* its elements */
} BlockInfo;

extern const BlockInfo block_info[BLOCK_KINDS]; /* BLOCK_NONE has no name */
extern const char *const block_names[BLOCK_KINDS];

/* How many blocks of an array of so many bytes have a scale or minimum that is NaN or infinite; of floats, such an element. */
int64_t block_count_nonfinite(BlockKind kind, const uint8_t *blocks, int64_t bytes);

/* The chunks that k columns are cut into. */
BlockChunk block_chunk(BlockKind kind, int64_t k);

/* The array of bytes of a weight of this type, whose first `rows` dimensions are rows; and the panels of one of n rows and k
   columns. k is a multiple of the block's elements. */
cvn_type block_type(BlockKind kind, const cvn_type *weight, int rows);
cvn_type block_panel_type(BlockKind kind, int64_t n, int64_t k);

/* Makes one panel of up to 16 rows, `stride` bytes from row to row; the missing ones are 0. A block with a code that is no finite
   number gets a scale that is NaN, and products need not look at codes for that. */
void block_pack(BlockKind kind, int64_t k, const void *rows, size_t stride, int64_t n, void *out);

/* Elements of a row of a chunk. */
void block_chunk_row(BlockKind kind, const BlockChunk *chunk, const uint8_t *at, int row,
                     float *out);

#endif
