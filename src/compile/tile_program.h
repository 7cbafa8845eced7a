/*
 * Tile programs: what a fusion of floats does, for kernels that run it TILE_ELEMENTS elements at a time.
 *
 * Values are f32 in registers of a tile each, which stay in the L1 cache. Operands and results of f32 are read and
 * written where they lie; what is one value for all elements is one vector in memory, read again and again.
 *
 *     %d = subtract %g, %m            0: (g - m) * 0.1 -> register 0
 *     %e = multiply %d, splat 0.1       1: m + register 0 -> result 0
 *     %m1 = add %m, %e
 *
 * A sum, difference or product that only another one reads is computed together with it, each rounded by itself: the
 * bits are those of the members one by one. A choice by a scalar is made once per run, not per element: what is chosen
 * is computed where it is to lie.
 */
#ifndef CVN_COMPILE_TILE_PROGRAM_H
#define CVN_COMPILE_TILE_PROGRAM_H

#include "graph/graph.h"

enum { TILE_ELEMENTS = 512, TILE_REGISTERS = 16, TILE_PLACES = 160, TILE_STEPS = 96 };

struct Fusion;

typedef enum TileCode {
    TILE_UNARY,  /* op(a) */
    TILE_BINARY, /* op(a, b) */
#define PAIR(code, first, second, left, y) TILE_##code,
#include "compile/vector_ops.def"
    TILE_COPY,   /* a */
    TILE_WIDEN,  /* a, a bf16 operand */
    TILE_ROUND,  /* a, rounded to bf16 */
    TILE_NARROW, /* a, rounded into a bf16 result */
    TILE_SPREAD, /* slot `a` of the fusion, a SLOT_SPREAD of more than one value */
    TILE_SELECT  /* operand c, one bool, says which of a and b */
} TileCode;

typedef enum PlaceKind {
    PLACE_REGISTER,
    PLACE_OPERAND, /* element i of operand `index` */
    PLACE_RESULT,  /* element i of result `index` */
    PLACE_SCALAR,  /* element 0 of operand `index` */
    PLACE_CONSTANT /* `value` */
} PlaceKind;

typedef struct TilePlace {
    PlaceKind kind;
    int index;
    bool half;   /* bf16 in memory; else f32 */
    float value; /* of a constant */
    int choice; /* an operand, or -1: where that bool is true, this register lies in result `chosen` */
    int chosen;
} TilePlace;

typedef struct TileStep {
    TileCode code;
    OpKind op;        /* of unary and binary */
    int a, b, c, out; /* places, unless the code says otherwise; -1: none */
} TileStep;

/* Lives in the graph's arena. */
typedef struct TileProgram {
    int n_places, n_steps;
    TilePlace *place; /* [n_places] */
    TileStep *step;   /* [n_steps] */
} TileProgram;

/* The program of a fusion, or NULL where it has other members than arithmetic in f32 and bf16, or needs more registers
   than there are. over[k] says what result k may lie over, as in Fusion. */
TileProgram *tile_program_make(Arena *arena, const struct Fusion *f);

#endif
