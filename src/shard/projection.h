/*
 * From dimensions to factors and back.
 *
 * A dimension made of the factors [kv 2, group 4] that is split by an axis
 * `model` of size 4 splits kv by model.1.2 and group by model.2.2: a split into
 * 4 neighbouring shards is a split of the major factor into 2 and of each half
 * into 2. What cannot be said in factors (an axis of 3 on kv 2) is the
 * dimension's overflow: it stays, and propagation adds nothing behind it.
 *
 *     dimension   heads 8 <model>          model of size 4
 *     factors     kv 2: model.1.2          group 4: model.2.2
 *
 * A dimension of one factor takes any axes, whether they divide its size or
 * not: shards are then of unequal size.
 */
#ifndef CVN_SHARD_PROJECTION_H
#define CVN_SHARD_PROJECTION_H

#include "graph/factors.h"
#include "shard/spec.h"

/* How one tensor splits one factor of an operation. */
typedef struct FactorAxes {
    AxisList axes;     /* that split it */
    AxisList overflow; /* axes of its dimension that no factor can take */
    bool present;      /* the tensor has the factor */
    bool closed;       /* no axes may be added */
    bool alone;        /* it is the only factor of its dimension */
} FactorAxes;

/* One tensor seen through the rule of one operation. */
typedef struct Projection {
    FactorAxes factor[FACTORS_MAX]; /* [n_factors] */
    AxisList taken; /* axes that no factor shows but that may not be used: replicated,
                unreduced, and those of dimensions without factors */
} Projection;

void project(const Sharding *sharding, const Rule *rule, int tensor, Projection *projection);

/* The axes of dimension d that the factors of a projection stand for. What
   stands behind a factor that is not split to the end cannot be said as a split
   of the dimension and is left out. */
AxisList unproject(const Projection *projection, const Rule *rule, int tensor, int d);

/* The longest prefix of `axes` that factor f of the tensor can be split by:
   without what its other factors use, and no more than is open and fits the
   size. For a tensor without f: what would not disturb it. */
AxisList projection_fit(const Projection *projection, const Rule *rule, int f,
                        const AxisList *axes);

#endif
