/*
 * Tile programs: the elementwise operations of a region's body, for kernels that run them TILE_ELEMENTS elements at a time.
 *
 * Values are f32 in registers of a tile each, which stay in the L1 cache. Operands and results of f32 are read and
 * written where they lie; what is one value for all elements is one vector in memory, read again and again.
 *
 *     %d = subtract %g, %m            0: (g - m) * 0.1 -> register 0
 *     %e = multiply %d, splat 0.1       1: m + register 0 -> result 0
 *     %m1 = add %m, %e
 *
 * A sum, difference or product that only another one reads is computed together with it, each rounded by itself: the
 * bits are those of the operations one by one. A choice by a scalar is made once per run, not per element: what is chosen
 * is computed where it is to lie. Of integers, truth values and f16 registers hold the elements as they are, and what vectors
 * of f32 do not do is done by the operation's own kernel, on the tile.
 *
 * A program may reduce along rows, the last dimensions of all that it reads and writes, of which some are one value a row:
 *
 *     %s = reduce (multiply %x, %x)         x * x -> register 0, the sum of register 0 -> row 1
 *     %k = rsqrt (divide %s, splat 272)       row 1 / 272 -> row 2, rsqrt of row 2 -> row 3
 *     %y = multiply %x, broadcast %k          x * row 3 -> result 0
 *
 * It is a few parts, each but the last ended by a sum: a part goes over the row in tiles, and what it needs of another one but
 * values of the row it makes again. The row stays in the cache.
 */
#ifndef CVN_COMPILE_TILE_PROGRAM_H
#define CVN_COMPILE_TILE_PROGRAM_H

#include "compile/kernel.h"

enum {
    TILE_ELEMENTS = KERNEL_GRAIN,
    TILE_REGISTERS = 16,
    TILE_PLACES = 160,
    TILE_STEPS = 96,
    TILE_LEAST = 8 * KERNEL_GRAIN, /* elements: smaller tensors are in cache anyway */
    TILE_OPS = 48,                 /* operations of a body, at most */
    TILE_OPERANDS = 24,
    TILE_RESULTS = 8,
    TILE_SUMS =
        -1 /* index of the operand that is the root's result in an epilogue; of several TILE_SUMS - i: the i-th */
};

typedef enum TileCode {
    TILE_UNARY,  /* op(a) */
    TILE_BINARY, /* op(a, b) */
#define PAIR(code, first, second, left, y) TILE_##code,
#include "compile/vector_ops.def"
    TILE_COPY,   /* a */
    TILE_WIDEN,  /* a, which is bf16 */
    TILE_ROUND,  /* a, rounded to bf16 */
    TILE_NARROW, /* a, rounded into a bf16 result */
    TILE_SPREAD, /* a, a PLACE_SPREAD */
    TILE_CALL,   /* call number `op`, of a, b and c */
    TILE_SELECT, /* operand c, one bool, says which of a and b */
    TILE_SUM,    /* the elements a of a row, reduced as PLACE_ROW `out` says */
    TILE_KEEP,   /* a PLACE_ROW, into a result of one element a row */
} TileCode;

typedef enum PlaceKind {
    PLACE_REGISTER,
    PLACE_OPERAND,  /* element i of operand `index` */
    PLACE_RESULT,   /* element i of result `index` */
    PLACE_WHOLE,    /* all of operand `index`, for a call */
    PLACE_SCALAR,   /* element 0 of operand `index` */
    PLACE_SPREAD,   /* element i / inner % size of operand `index`, or of `data` */
    PLACE_CONSTANT, /* `value` */
    /* One value for all elements of a row, which a step makes once a row: of a sum `index` is the cvn_reduce; or -1, and it is
       1 / sqrt(mean of squares + `value`). */
    PLACE_ROW,
} PlaceKind;

typedef struct TilePlace {
    PlaceKind kind;
    int index;
    int bytes;   /* of an element; 2, but of a call: bf16 in memory */
    float value; /* of a constant */
    const void *data;
    int64_t inner, size;
    int choice; /* an operand, or -1: where that bool is true, this register lies in result `chosen` */
    int chosen;
} TilePlace;

typedef struct TileStep {
    TileCode code;
    OpKind op;        /* of unary and binary; of a call its number */
    int a, b, c, out; /* places, unless the code says otherwise; -1: none */
} TileStep;

typedef struct TileCall {
    const Op *op;
    const Kernel *kernel;
} TileCall;

/* Of a region, as Fused.program says. */
typedef struct TileProgram {
    int64_t elements;
    int64_t row; /* elements of a row, where some are reduced along rows; else 0 */
    int n_places, n_steps, n_operands, n_results, n_calls;
    TilePlace *place; /* [n_places] */
    TileStep *step;   /* [n_steps] */
    /* [n_calls]; kernels share whole tensors by tiles: of no epilogue or prologue. */
    TileCall *call;
    cvn_value **operand; /* [n_operands] parameters of the body */
    /* Of the steps and places, all but which operand is read, and the values of constants. */
    uint64_t hash;
    uint32_t *over; /* [n_results] bit i: may be written over operand i */
} TileProgram;

/* Whether an operation can be part of a program: elementwise, on tensors that are worth it. */
bool tile_takes(const KernelSet *backend, const Op *op);

/* The program of the elementwise operations of a body, whose results are what the body returns; or of those up to `only`,
   where it is not NULL, of which that is the one result. NULL: some operation cannot be part of one, or they are too many. */
TileProgram *tile_program_make(const KernelSet *backend, Arena *arena, const cvn_graph *body,
                               const cvn_value *only);

/* The epilogue of a body's root: what is done with its results `of`, a bit each, and what is returned of that. Operations that read
   other results are left to the epilogues of those. */
TileProgram *tile_program_epilogue(const KernelSet *backend, Arena *arena, const cvn_graph *body,
                                   const Op *root, unsigned of);

/* The program of a body that reduces along rows; `only` as above. */
TileProgram *tile_program_rows(const KernelSet *backend, Arena *arena, const cvn_graph *body,
                               const cvn_value *only);

/* A view of all of its operand: a reshape or barrier, most often; and what v is all of, under another shape. */
bool tile_is_view(const Op *op);
cvn_value *tile_root_of(cvn_value *v);

/* A constant of one value; or a broadcast of one value, or of a tensor that has a run of the result's dimensions: *inner
   elements of the result in turn are of one element. */
bool tile_is_splat(const cvn_value *v);
bool tile_is_spread(const cvn_value *v, int64_t *inner);

/* bf16 as f32. */
bool tile_is_widened(const cvn_value *v);

#endif
