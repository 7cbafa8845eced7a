/*
 * Weights as they lie in the CPU's memory: panels of 16 rows, in an order that both a matrix-vector product and a
 * matrix product read as one stream. Graphs are written with plain ones; compile/pack.h brings them here.
 *
 * A weight of n rows (output channels) and k columns (what is summed over) becomes
 *
 *     q      [panels, units, 16, 4]      i8    panels = ceil(n / 16), units = ceil(k / 4)
 *            [panels, units, 16, 4, 2]   i4    units = k / 8
 *            [panels, units, 16, 2]      bf16  units = ceil(k / 2)
 *            [panels, units, 16, 1]      f32   units = k
 *     scale  [panels, groups, 16]        f32 or bf16; groups of k / groups neighbours share one; none
 *                                        of bf16 and f32
 *
 * so that 64 bytes hold 16 rows times 4 (8, 2, 1) neighbours in k, the operand of one dot-product
 * instruction (vpdpbusd: 16 sums of four products; vdpbf16ps: of two) and one row of an AMX tile of B.
 * Row r, column c of an i8 weight is q[r / 16, c / 4, r % 16, c % 4], of others likewise. In i4 the two halves of a byte are four columns
 * apart (q[r / 16, c / 8, r % 16, c % 4, c / 4 % 2], the even index in the low nibble), so that
 * masking 64 bytes gives columns 0 to 3 of each row and shifting them columns 4 to 7:
 *
 *     byte b of row r in unit u:   low nibble: column 8 u + b     high nibble: column 8 u + 4 + b
 *
 * Rows and columns past the edges are 0. The value of an element is q * scale.
 */
#ifndef CVN_GRAPH_PANELS_H
#define CVN_GRAPH_PANELS_H

#include "caravan/graph.h"
#include "graph/panel_form.h"

/* Whether weights of the dtype lie in panels at all. */
static inline bool panel_dtype(cvn_dtype dtype)
{
    return dtype == CVN_I8 || dtype == CVN_I4 || dtype == CVN_BF16 || dtype == CVN_F32;
}

/* Whether they have scales. */
static inline bool panel_scaled(cvn_dtype dtype)
{
    return dtype == CVN_I8 || dtype == CVN_I4;
}

/* Columns of a unit. */
static inline int64_t panel_unit(cvn_dtype dtype)
{
    return PANEL_BYTES * 8 / PANEL_ROWS / cvn_dtype_bits(dtype);
}

/* Types of the two tensors; for i4, k divides by 8 * groups. A dtype that has no panels gets those of i8. */
cvn_type panel_type(cvn_dtype dtype, int64_t rows, int64_t k);
cvn_type panel_scale_type(cvn_dtype dtype, int64_t rows, int64_t groups);

/* The panels [*begin, *end) of a product that thread t of nt reads, `panels` counted through all the weights that are joined
   in it (graph/linear.h). Who writes weights first does it in the same shares: where a machine has several memories, a page
   then lies near the thread that reads it. */
static inline void panel_share(int64_t panels, int t, int nt, int64_t *begin, int64_t *end)
{
    *begin = panels * t / nt;
    *end = panels * (t + 1) / nt;
}

/* Where element (row, column) is in q, as an index of elements. */
static inline int64_t panel_index(cvn_dtype dtype, int64_t units, int64_t row, int64_t column)
{
    int64_t unit = panel_unit(dtype);
    int64_t at = (row / PANEL_ROWS * units + column / unit) * PANEL_ROWS + row % PANEL_ROWS;
    return dtype == CVN_I4 ? (at * PANEL_QUAD + column % PANEL_QUAD) * 2 + column / PANEL_QUAD % 2
                           : at * unit + column % unit;
}

/* Makes one panel of up to 16 rows of k numbers (of i4 whole units), `stride` bytes from row to row; the missing ones are
   0. And of their scales, a row of which has `groups`. */
void panel_pack(cvn_dtype dtype, int64_t k, const void *rows, size_t stride, int64_t n, void *out);
void panel_pack_scales(cvn_dtype dtype, int64_t groups, const void *rows, size_t stride, int64_t n,
                       void *out);

/* A weight in panels as floats of the type, whose first `rows` dimensions are its rows, the others columns. scale: NULL for
   bf16 and f32. */
cvn_value *panel_dequantize(cvn_graph *g, cvn_value *q, cvn_value *scale, cvn_type type, int rows);
/* cvn_linear_int8 of x and its scales with a weight in panels and its, of a result of one dimension of rows. */
cvn_value *panel_linear_int8(cvn_graph *g, cvn_value *const operand[4], cvn_type type);

#endif
