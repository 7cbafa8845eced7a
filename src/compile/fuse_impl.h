/* Inside fuse*.c: what the walks share, and the making of one region. */
#ifndef CVN_COMPILE_FUSE_IMPL_H
#define CVN_COMPILE_FUSE_IMPL_H

#include "compile/fuse.h"
#include "compile/tile_program.h"

/* One who reads a value: the operation that makes `of`, which may have become part of a region by now. */
typedef struct Reader {
    cvn_value *of;
    struct Reader *next;
} Reader;

/* What one walk over the graph knows. */
typedef struct Fuse {
    cvn_graph *g;
    const KernelSet *backend;
    Arena *arena;      /* for what is not needed afterwards */
    bool changed;      /* some region was made */
    bool by_root;      /* uses are of roots: views of all of a value are none */
    uint32_t *uses;    /* [n_values] by operations and outputs, before the walk began */
    int64_t *position; /* [n_values] of the operation that makes a value, from the first on */
    Reader **reader;   /* [n_values] the operations that read it */
} Fuse;

/* Begins a walk: finds uses, positions and readers. */
void fuse_begin(Fuse *f, bool by_root);

/* [n_values] of the operation that makes a value, counted from the first. */
int64_t *fuse_positions(const cvn_graph *g, Arena *arena);

/* ---- one region ---- */

enum { FUSE_MOST = TILE_OPS }; /* operations that become one region at a time */

/* The region of n operations in their order, some of which may be regions, or NULL: the back end does not accept it. It is
   in no graph yet. It returns what others use of their results; or `only` that, where it is not NULL. spreads: it makes
   constants of one value, and what is broadcast, for itself. */
Op *fuse_region(Fuse *f, Op *const *op, int n, const cvn_value *only, bool spreads);

/* Puts it before `next`, which may be one of the operations, and removes these; of those of `only` but the last. */
void fuse_put_region(Fuse *f, Op *region, Op *const *op, int n, const cvn_value *only, Op *next);

/* ---- the walks, in their order ---- */

/* Sums of squares of products with rows. */
void fuse_rows(Fuse *f);
/* Roots of a product, and of all else that is one, take what stands beside them. chains: products, and those only. */
void fuse_roots(Fuse *f, bool chains);
void fuse_recompute(Fuse *f);
/* Linears, or reductions along rows, take all that is elementwise around them, however small. */
void fuse_around(Fuse *f, bool rows);
void fuse_reduce(Fuse *f);
void fuse_chains(Fuse *f);

#endif
