/*
 * What is done with rows of x on their way into a product with weights in panels, and with its sums on their way out. Tiles, which
 * take long to compile, need not know it (linear_tile.h).
 */
#ifndef CVN_CPU_KERNELS_LINEAR_ROWS_H
#define CVN_CPU_KERNELS_LINEAR_ROWS_H

#include "cpu/kernels/fusion_whole.h"
#include "cpu/kernels/linear_tile.h"

/* What leaves: `rows` rows of the 16 sums of some neighbouring panels. */
typedef struct LinearOut {
    int rows, columns; /* columns: of all the panels, at most 16 * LINEAR_MOST_BLOCK */
    const float *c;    /* [rows][16] of the first panel */
    int64_t c_stride;  /* floats from panel to panel */
    /* c is integers, in steps of so much for each row; NULL: they are floats */
    const float *step;
    const float *scale; /* [columns rounded up to 16] to multiply by, or NULL: i4 */
    void *out;          /* the result, from element `at` on */
    cvn_dtype dtype;
    int64_t at, stride; /* elements: the first row's first column; from row to row */
} LinearOut;

typedef void LinearWrite(const LinearOut *out);

/* What is done with rows of x, and with sums, on some vectors (linear_rows_impl.h). In all of it n <= LINEAR_SPAN. */
struct LinearRows {
    FusionRow *row;
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
    /* What stands behind a product (fusion_whole.h). */
    Epilogue *epilogue;
};

#endif
