/*
 * Matrix products: C[m, n] = sum over k of A[m, k] * B[n, k], for any strides of A and B.
 *
 * Everything that sums products goes through here. The blocking is that of BLIS (Van Zee and van de
 * Geijn 2015), with the vectors along n, because C and packed weights have n contiguous:
 *
 *     for rows of A, mc at a time                  A packed once, by all threads, into row panels
 *       for columns of B, nc at a time             each thread its share, then what is left (share.h)
 *         for k, kc at a time                      B block packed into column panels, stays in L2
 *           for each row panel of A (mr rows)      stays in L1
 *             for each group of column panels      tile(): mr x (16 * panels) accumulators in
 * registers
 *
 * Packed layouts, with kpack consecutive k kept together (1 for f32; 2 for bf16, whose products are
 * summed in pairs by one instruction) and everything past the edges zero:
 *
 *     B panel  [k / kpack][16 columns][kpack]      the bytes of an AMX tile of B, row by row
 *     A panel  [k / kpack][mr rows][kpack]
 *     C tile   [mr rows][16 * panels columns] f32
 *
 * Where it is asked for (Gemm.squares) the squares of C are summed down each column, too, from the sums that are still in
 * the cache: rows in their order, GEMM_SQUARES of them at a time, whose sums are summed. That is how `reduce` sums
 * columns (rows_impl.h), so that the bits are those of the two operations apart.
 *
 * Few rows (up to 32, choice.c) do not pay for packing: dots() reads the rows of B where they lie,
 * once, and is limited by memory. What holds for results: neither the number of threads nor the
 * row's position matters; and all few m sum in one order, all larger m in another. So a row of a
 * batch has the same bits whatever else is in the batch, as long as the batch does not cross that
 * number.
 */
#ifndef CVN_CPU_KERNELS_GEMM_H
#define CVN_CPU_KERNELS_GEMM_H

#include "compile/kernel.h"
#include "cpu/kernels/fusion_whole.h"

enum {
    GEMM_PANEL = 16,     /* columns of a panel of B */
    GEMM_ROWS = 4,       /* rows that one call of dots takes at most: they stay in L1 */
    GEMM_SQUARES = 128,  /* rows whose squares are summed at a time */
    GEMM_STEP = 32,      /* values of k in a row of a tile of AMX */
    GEMM_TILE_PANELS = 2 /* panels of B that are multiplied at a time there */
};

/* A product of tiles of AMX: panels of 16 rows and of 16 columns, of `steps` tiles each, one after the other. */
typedef struct GemmTiles {
    int64_t steps;
    const void *a, *b;
    int rows, columns;        /* panels: 1 or 2, and 1 … GEMM_TILE_PANELS */
    const float *from;        /* sums so far, or NULL: zeros */
    float *to;                /* sums */
    int64_t from_row, to_row; /* elements from row to row of both */
    /* What is asked for meanwhile, a few rows beside each step: the place of the sums that come next; or NULL. */
    const char *ask;
    size_t ask_row, ask_bytes; /* from row to row, and of a row */
} GemmTiles;

/* Packs 32 rows of A, or columns of B, and GEMM_STEP values of k into two tiles; `stride` elements lie between them, or,
   where it is k that lies across, between its values. The same of `ahead`, any address, is asked for. */
typedef void GemmPack(const uint16_t *x, int64_t stride, const uint16_t *ahead, void *out[2]);

/* What one instruction set offers for one packed dtype. */
typedef struct GemmIsa {
    cvn_dtype packed;   /* dtype of packed panels; other dtypes are converted while packing */
    int kpack;          /* consecutive k kept together */
    int mr;             /* rows of a tile, at most 16 */
    int panels;         /* panels of B in a tile */
    int64_t mc, nc, kc; /* blocking, in elements; nc divides by 16 * panels, kc by kpack */

    /* c = (add ? c : 0) + a * b. a: an A panel; b: `panels` B panels, b_stride bytes apart; c: a C
       tile; k: length in units of kpack. */
    void (*tile)(int64_t k, const void *a, const void *b, size_t b_stride, float *c, bool add);

    /* Instead of tile, where operands are tiles of AMX (gemm_tiles.c). */
    void (*tiles)(const GemmTiles *p);
    GemmPack *pack[2][2]; /* [of B][k lies across] */
    /* Called on each thread before its first tiles and after its last. */
    void (*enter)(void);
    void (*leave)(void);

    /* Rounds rows of n sums to bf16, which lie ld_sum apart and will lie ld apart. */
    void (*round)(uint16_t *restrict out, int64_t ld, const float *restrict sum, int64_t ld_sum,
                  int64_t rows, int64_t n);

    Epilogue *epilogue;
    /* sum[j] += x[i * ld + j]^2, j < n, for i < rows in this order, each rounded by itself. */
    void (*squares)(float *restrict sum, const float *restrict x, int64_t rows, int64_t ld,
                    int64_t n);

    /* Interleaves 16 rows of units (4 bytes: a float, or a pair of bf16, aligned only to its
       elements): out[j * 16 + i] = row[i][j], j < units. */
    void (*interleave)(const void *const row[GEMM_PANEL], int64_t units, void *out);

    /* Pairs rows of 16 bf16 that are `stride` elements apart: out[u * 16 + i] = x[2 u][i], x[2 u + 1][i], u < units.
       Of pairs of bf16. */
    void (*pair)(const uint16_t *x, int64_t stride, int64_t units, uint32_t *out);

    /* c[i * ldc + j] = dot(row i of a, row j of b), i < m <= GEMM_ROWS, j < n. a: the rows as `packed`, `lanes`
       elements of each in turn, [k / lanes][m][lanes], zeros past k; b: rows of k elements of `source`, ldb
       elements apart, where they lie. (In rows a power of two apart, all elements of one column share one set
       of the L1 cache; that is why a is packed.) */
    void (*dots)(int64_t m, int64_t n, int64_t k, const void *a, const void *b, int64_t ldb,
                 float *c, int64_t ldc);
    int lanes;
    cvn_dtype source; /* dtype of the operands */
} GemmIsa;

/* A list of dimensions walked as one index, major first. */
typedef struct GemmDims {
    int n;
    int64_t size[CVN_MAX_RANK], stride[CVN_MAX_RANK]; /* stride in elements */
} GemmDims;

/* One operand: element (row, k) of product b is at data[offset(batch, b) + offset(row) +
 * offset(k)]. */
typedef struct GemmOperand {
    cvn_dtype dtype;
    GemmDims batch, row, k; /* neighbouring dimensions merged where memory allows */
} GemmOperand;

/* A product as matrices. The result is dense [batch, m, n], unless it is transposed. */
typedef struct Gemm {
    int64_t batch, m, n, k;
    GemmOperand a, b;
    cvn_dtype out;
    bool epilogue;   /* what Fused.program says is done to the sums, and nothing else is written */
    bool transposed; /* element (row, column) goes to offset(row) + offset(column); no batch */
    GemmDims row_at,
        column_at; /* of a transposed result; neighbouring columns lie next to each other */
    bool squares;  /* result 1, f32 [n], is the sum of squares of each column; batch is 1 */
} Gemm;

/* Reads a dot_general as matrices. */
Gemm gemm_from_op(const Op *op);

/* Offset of an index in elements. */
int64_t gemm_offset(const GemmDims *dims, int64_t index);

/* Whether rows of B can be read where they lie, and the product that does so. */
bool gemm_few_match(const GemmIsa *isa, const Gemm *gemm);
size_t gemm_few_scratch(const GemmIsa *isa, const Gemm *gemm, int n_threads);
void gemm_few_run(const GemmIsa *isa, const Gemm *gemm, const KernelArgs *args);

/* Bytes of scratch, and the product itself, of packed panels, in the terms of kernel.h. */
size_t gemm_scratch(const GemmIsa *isa, const Gemm *gemm, int n_threads);
void gemm_run(const GemmIsa *isa, const Gemm *gemm, const KernelArgs *args);

/* Packs k [k0, k0 + length) of rows [first, first + count * width) of one operand of the product that starts at data into
   `count` panels of `width` rows, `panel` bytes apart; rows from `rows` on are zeros. width is isa->mr for A, 16 for B. */
void gemm_pack_panels(const GemmIsa *isa, const GemmOperand *x, const void *data, int64_t rows,
                      int64_t first, int width, int64_t count, int64_t k0, int64_t length,
                      void *out, size_t panel);

/* Packs rows [first, first + 16) of A, k [k0, k0 + length) of at most GEMM_STEP, into a tile of AMX, [16][GEMM_STEP];
   zeros past the edges. */
void gemm_pack_rows(const GemmIsa *isa, const GemmOperand *x, const void *data, int64_t rows,
                    int64_t first, int64_t k0, int64_t length, void *out);

/* ---- inside: gemm.c, gemm_tiles.c ---- */

/* Rows [m0, m0 + rows) of the result, columns [n0, n0 + columns). */
typedef struct GemmRegion {
    int64_t m0, rows, n0, columns;
} GemmRegion;

/* Where the sums of one product of the batch go. */
typedef struct GemmResult {
    const GemmIsa *isa;
    const Gemm *gemm;
    const KernelArgs *args;
    void *out;           /* the whole result */
    int64_t at;          /* element where this product's result starts */
    float *total, *part; /* sums of squares of the columns; of GEMM_SQUARES rows; or NULL */
} GemmResult;

/* part: [n], where squares are summed. */
GemmResult gemm_result(const GemmIsa *isa, const Gemm *gemm, const KernelArgs *args, float *part);

/* Writes a tile of sums, `row` elements from row to row; tiles of a column come in the order of their rows, one after the
   other, where squares are summed. */
void gemm_write(const GemmResult *result, const GemmRegion *tile, const float *sum, int64_t row);

/* The operand of product b of the batch. */
const void *gemm_operand_at(const GemmOperand *x, const void *data, int64_t b);

/* gemm_scratch and gemm_run for tiles of AMX; the product has terms. */
size_t gemm_tiles_scratch(const GemmIsa *isa, const Gemm *gemm, int n_threads);
void gemm_tiles_run(const GemmIsa *isa, const Gemm *gemm, const KernelArgs *args);

extern const GemmIsa gemm_f32_portable, gemm_bf16_portable, gemm_f32_portable_same,
    gemm_bf16_portable_same;
#if defined(CVN_HAVE_AVX2)
extern const GemmIsa gemm_f32_avx2, gemm_bf16_avx2, gemm_f32_avx2_same, gemm_bf16_avx2_same;
#endif
#if defined(CVN_HAVE_AVX512)
extern const GemmIsa gemm_f32_avx512, gemm_bf16_avx512, gemm_bf16_avx512_bf16, gemm_f32_avx512_same,
    gemm_bf16_avx512_same;
void gemm_pair_rows(const uint16_t *x, int64_t stride, int64_t units, uint32_t *out);
GemmPack gemm_tiles_copy, gemm_tiles_turn, gemm_tiles_pair, gemm_tiles_pair_turn;
#endif
#if defined(CVN_HAVE_AMX)
extern const GemmIsa gemm_bf16_amx;
#endif

#endif
