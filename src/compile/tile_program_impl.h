/* Inside tile_program.c and tile_settle.c: a program while it is written. */
#ifndef CVN_COMPILE_TILE_PROGRAM_IMPL_H
#define CVN_COMPILE_TILE_PROGRAM_IMPL_H

#include "compile/plan.h"
#include "compile/tile_program.h"

/* Of a program by rows. */
typedef struct TileRows {
    int64_t n;     /* elements of a row; 0: the program is none by rows */
    bool *has_one; /* [n_values] it has a value for each row */
    int *scale;    /* [n_values] of a norm: the place of what its x is multiplied by */
    bool ended;    /* the last part, which writes results */
} TileRows;

typedef struct TileWriter {
    const KernelSet *backend;
    const cvn_graph *body;
    const cvn_value *only;
    const Op *root;  /* whose epilogue it is, or NULL */
    unsigned of;     /* bit i: of its result i */
    unsigned *reads; /* [n_values] bit i: a value is made of the root's result i */
    bool *before;    /* [n_values] the root's operands, and what they are made of */
    cvn_value *operand[TILE_OPERANDS];
    TilePlace place[TILE_PLACES];
    TileStep step[TILE_STEPS];
    TileCall call[TILE_OPS];
    uint32_t over[TILE_RESULTS];
    int n_operands, n_results, n_places, n_steps, n_calls;
    int64_t elements;
    TileRows rows;
    int *read; /* [n_values] the place that has a value of the body, bf16 as f32; or -1 */
    bool full; /* it did not fit */
} TileWriter;

/* Brings steps that are all written to their last form, and gives the hash of that; false: there are not registers enough. */
bool tile_settle(TileWriter *w, uint64_t *hash);

#endif
