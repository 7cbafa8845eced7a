/*
 * Which values share memory. A block is a set of roots that lie in the same bytes one after another; each
 * root starts in a block of its own, and blocks are joined where that saves a copy:
 *
 *     %c1 = cache_update %cache, …     in place over parameter %cache
 *     %c2 = cache_update %c1, …        in place over %c1
 *     output %c2 into %cache           one block {%cache, %c1, %c2} in the parameter's memory
 *
 * Two roots may share a block when one is last read before the other is written, or in the very step that
 * writes it, if the kernel may write its result over just these operands. Memory that a plan may not write
 * (constants, parameters that no output goes into) is frozen: its blocks are never joined.
 */
#ifndef CVN_COMPILE_LOWER_BLOCKS_H
#define CVN_COMPILE_LOWER_BLOCKS_H

#include "compile/liveness.h"

/* Indexed by the ids of roots; the sets are trees of parents, their members chained from the representative. */
typedef struct AliasSets {
    const Liveness *live;        /* borrowed */
    const Kernel *const *kernel; /* borrowed: [live->n_steps], NULL for the fallback */
    cvn_value **root;            /* [n_values] by id, NULL where the value is a view */
    uint32_t *parent;            /* [n_values] */
    uint32_t *next;              /* [n_values] next member, or NO_VALUE */
    uint32_t *tail;              /* [n_values] of representatives: the last member */
    bool *frozen;                /* [n_values] of representatives */
    int *parameter;              /* [n_values] of representatives: the donated parameter, or -1 */
} AliasSets;

#define NO_VALUE UINT32_MAX

/* Every root alone. donated[n_parameters] says which parameters may be written. */
void blocks_init(AliasSets *blocks, const cvn_graph *g, const Liveness *live,
                 const Kernel *const *kernel, const bool *donated, Arena *arena);

/* The representative of the block a root is in. */
uint32_t block_of(const AliasSets *blocks, const cvn_value *root);

/* Joins the blocks of two roots if that is legal, and says whether they are one block now. */
bool blocks_join(AliasSets *blocks, const cvn_value *a, const cvn_value *b);

/* True when a kernel may write result k of op over its operand i. */
bool kernel_overwrites(const Kernel *kernel, const Op *op, int k, int i);

#endif
