/*
 * Common subexpressions: finds an earlier operation that computes the same.
 *
 * Two operations are the same when kind, attributes, result types, marked specs and operands agree;
 * the operands of commutative operations may be swapped. The table holds operations of one walk
 * over a graph in execution order, so what it finds is defined before its use.
 *
 * Never merged: parameters, barriers (they stand for a moment, not for a value) and collectives,
 * which may be repeated on purpose, to gather a weight again instead of keeping it.
 */
#ifndef CVN_GRAPH_CSE_H
#define CVN_GRAPH_CSE_H

#include "graph/graph.h"

/* Open addressing with linear probing, at most half full. Starts as {0}. */
typedef struct Cse {
    Op **slot;       /* [capacity], owned, heap; NULL where empty */
    size_t capacity; /* power of two, or 0 */
    size_t n;        /* operations in it */
} Cse;

void cse_free(Cse *cse);

/* An operation of the table that computes what op does; NULL, and op is added, when there is none.
   Operands must be resolved. */
Op *cse_find(Cse *cse, Op *op);

/* Both NULL or the same names for every dimension. */
bool spec_equal(const cvn_spec *a, const cvn_spec *b);

#endif
