/*
 * What the loops of linear.c and linear_float.c share: arithmetic of blocks, and asking for what comes next, part by
 * part, beside the tiles that are computed in the meantime.
 */
#ifndef CVN_CPU_KERNELS_LINEAR_LOOPS_H
#define CVN_CPU_KERNELS_LINEAR_LOOPS_H

#include "cpu/kernels/linear.h"

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* Asks for part `call` of `calls` of some lines, for the L2 cache. Inlined early: gcc takes calls of what only asks ahead
   for superfluous. */
static inline __attribute__((always_inline)) void fetch(const char *at, int64_t lines, int64_t call,
                                                        int64_t calls)
{
    for (int64_t i = lines * call / calls, end = lines * (call + 1) / calls; i < end; i++)
        __builtin_prefetch(at + i * 64, 0, 2);
}

/* A result, or what is added to it, as far as some panels cover it: its first row's columns, in bytes. */
typedef struct Place {
    const char *at;
    int64_t columns, panel,
        stride; /* of all panels, of one, from row to row; no columns: there is none */
} Place;

static inline Place place_of(const LinearPanels *panels, int64_t m0, int64_t n, cvn_dtype dtype,
                             const void *data)
{
    int64_t column = panels->first * PANEL_ROWS, size = (int64_t)cvn_dtype_bytes(dtype, 1);
    int64_t columns = least(panels->n * PANEL_ROWS, n - column);
    return (Place){(const char *)data + (m0 * n + column) * size, columns * size, PANEL_ROWS * size,
                   n * size};
}

/* Of a weight's result and its residual, rows from m0 on, some neighbouring panels. */
static inline void places_of(const KernelArgs *args, int weight, const LinearPanels *panels,
                             int64_t m0, Place place[2])
{
    const Op *op = args->op;
    int64_t n = linear_weight(op, weight).n;
    int residual = linear_residual(op);
    place[0] = place_of(panels, m0, n, op->result[weight]->type.dtype, args->out[weight]);
    if (residual >= 0)
        place[1] = place_of(panels, m0, n, op->operand[residual]->type.dtype, args->in[residual]);
}

/* Asks for `rows` rows of it, from row r on, behind `panels` panels from the g-th on. */
static inline __attribute__((always_inline)) void
fetch_place(const Place *p, int64_t g, int64_t panels, int64_t r, int64_t rows)
{
    int64_t left = p->columns - g * p->panel, stride = p->stride;
    int64_t bytes = left < panels * p->panel ? left : panels * p->panel;
    const char *at = p->at + r * stride + g * p->panel;
    for (; bytes > 0; bytes -= 64, at += 64)
        for (int64_t i = 0; i < rows; i++)
            __builtin_prefetch(at + i * stride, 1, 2);
}

#endif
