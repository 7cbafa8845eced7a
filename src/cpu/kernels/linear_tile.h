/*
 * Tiles of products with weights in panels: what they are given, what an instruction set has for them, and what asks for what
 * comes next, part by part, beside them. linear.h says what is computed. It stands apart, and knows nothing of graphs, because
 * tiles that are compiled once for each form of weights take long, and need nothing else.
 */
#ifndef CVN_CPU_KERNELS_LINEAR_TILE_H
#define CVN_CPU_KERNELS_LINEAR_TILE_H

#include "base/num.h"
#include "caravan/dtype.h"
#include "graph/panel_form.h"

#include <stddef.h>

enum {
    LINEAR_BLOCK = 4,       /* panels that are computed at a time */
    LINEAR_MOST_BLOCK = 32, /* where an instruction set wants more */
    LINEAR_STREAMED = 8     /* rows up to which panels are read in one go, all of their spans */
};

/* What a piece of many rows asks for beside its tiles: the panels that come next, and the next span of x. */
typedef struct LinearAhead {
    const char *panel; /* the first of n, `stride` bytes apart; each in `units` lines */
    int64_t n, stride, units;
    const char *x;
    int64_t x_lines;
    int64_t tiles, calls; /* tiles of rows, and all tiles of the piece: each asks for its part */
} LinearAhead;

/* Its part beside one tile: lines of three places, of which each step of the tile asks for `part`. A core has 16 lines under
   way to its L1 cache, whether loaded or asked for; those for which all was asked at once would hold up the tiles,
   whose operands come from L2. */
typedef struct LinearBeside {
    const char *at[3];
    int64_t lines[3], part[3];
    /* Where the next tile's sums will go and what an epilogue reads beside them, if this tile's leave: rows, so many bytes apart. */
    const char *out, *read;
    int64_t out_row, out_bytes, read_row;
} LinearBeside;

static inline LinearBeside linear_beside(const LinearAhead *a, int64_t tile, int64_t call,
                                         int64_t steps)
{
    int64_t panel = num_pieces(a->units, a->tiles), x = num_pieces(a->x_lines, a->calls);
    LinearBeside b = {.at = {a->x + call * x * 64}, .lines = {num_min(x, a->x_lines - call * x)}};
    for (int64_t i = 0; i < a->n && i < 2; i++) {
        b.at[1 + i] = a->panel + i * a->stride + tile * panel * 64;
        b.lines[1 + i] = num_min(panel, a->units - tile * panel);
    }
    for (int i = 0; i < 3; i++)
        b.part[i] = num_pieces(b.lines[i], steps);
    return b;
}

/* Beside step i of a tile, for the L2 cache. Inlined early: gcc takes calls of what only asks ahead for superfluous. */
static inline __attribute__((always_inline)) void linear_ask(const LinearBeside *b, int64_t i)
{
    for (int k = 0; k < 3; k++) {
        int64_t end = num_min(b->lines[k], (i + 1) * b->part[k]);
        for (int64_t line = i * b->part[k]; line < end; line++)
            __builtin_prefetch(b->at[k] + line * 64, 0, 2);
    }
}

/* The rows of results that step i of 16 asks for: two of 32. */
static inline __attribute__((always_inline)) void linear_ask_rows(const LinearBeside *b, int64_t i)
{
    enum { ROWS = 2, LINE = 64, LINES = 2 };
    for (int64_t r = i * ROWS; r < (i + 1) * ROWS; r++) {
        for (int64_t j = 0; j < b->out_bytes; j += LINE)
            __builtin_prefetch(b->out + r * b->out_row + j, 1, 2);
        for (int64_t j = 0; b->read && j < LINES * LINE; j += LINE)
            __builtin_prefetch(b->read + r * b->read_row + j, 0, 2);
    }
}

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

/* Lays LINEAR_SPAN numbers of fixed point out as tiles read them, in LINEAR_ROW_BYTES. */
typedef void LinearArrange(const int16_t *x, int8_t *out);

typedef struct LinearRows LinearRows; /* linear_rows.h */
extern const LinearRows linear_rows_portable, linear_rows_avx2, linear_rows_avx512,
    linear_rows_avx512_bf16, linear_rows_portable_same, linear_rows_avx2_same,
    linear_rows_avx512_same;

/* What one instruction set offers for weights of one kind. */
typedef struct LinearIsa {
    const LinearRows *of_rows;
    const LinearRows *of_same; /* with --numerics portable; NULL: there tiles are not for that */
    cvn_dtype weight;          /* of blocks CVN_I8 */
    bool blocks;               /* weights in blocks of whole numbers, of any kind */
    bool floats;               /* or in blocks of floats */
    bool fixed;                /* x becomes fixed point; else what it is laid out as: */
    cvn_dtype x;
    int least_group; /* of i4 weights, where not all are taken */
    int rows;        /* of a tile at most */
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

extern const LinearIsa linear_f32_portable, linear_bf16_portable, linear_rows8_portable,
    linear_i8_portable, linear_i4_portable, linear_blocks_portable, linear_float8_portable,
    linear_float8_portable_same, linear_f32_portable_same, linear_bf16_portable_same,
    linear_rows8_portable_same, linear_i8_portable_same, linear_i4_portable_same,
    linear_blocks_portable_same;
#if defined(CVN_HAVE_DOTPROD)
extern const LinearIsa linear_rows8_dotprod, linear_i8_dotprod, linear_i4_dotprod,
    linear_blocks_dotprod;
#endif
#if defined(CVN_HAVE_I8MM)
extern const LinearIsa linear_bf16_i8mm, linear_rows8_i8mm, linear_i8_i8mm, linear_i4_i8mm,
    linear_blocks_i8mm, linear_float8_i8mm;
#endif
#if defined(CVN_HAVE_AVX2)
extern const LinearIsa linear_f32_avx2, linear_bf16_avx2, linear_rows8_avx2, linear_i8_avx2,
    linear_i4_avx2, linear_blocks_avx2, linear_float8_avx2;
#endif
#if defined(CVN_HAVE_AVX_VNNI)
extern const LinearIsa linear_rows8_avx_vnni, linear_i8_avx_vnni, linear_i4_avx_vnni,
    linear_blocks_avx_vnni;
#endif
#if defined(CVN_HAVE_AVX512)
extern const LinearIsa linear_f32_avx512, linear_bf16_avx512, linear_bf16_avx512_bf16,
    linear_rows8_avx512_vnni, linear_i8_avx512_vnni, linear_i4_avx512_vnni,
    linear_blocks_avx512_vnni, linear_float8_avx512, linear_float8_avx512_bf16;
/* For tiles of AMX: x as it is laid out there, and a span of a panel of blocks, put together. */
LinearArrange linear_avx512_arrange;
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
