/*
 * What random operations are drawn with: the graph so far, dice, and operands. Recent values are preferred, so that
 * chains arise, and constants that identities know (0, -0, 1, -1, all ones), so that rules have something to do.
 */
#ifndef TESTS_RANDOM_OPERAND_H
#define TESTS_RANDOM_OPERAND_H

#include "random_data.h"

typedef struct RandomOptions {
    int n_ops;             /* operations to draw; some draws fail and make none */
    int n_parameters;      /* at least 1 */
    int64_t most_elements; /* of any tensor */
    bool composites;       /* also draw attention, rms_norm, … */
    bool collectives;      /* also draw collectives, in groups of one device, for a run on one */
    bool specials;         /* inputs hold NaN, infinities, -0 and the extremes of integers */
    bool regions;          /* some operations are regions */
    bool marks;            /* some values carry a spec */
    bool into;             /* some outputs are computed into parameters */
    /* Not 0: most operations are what is fused, and most tensors have so many rows of RANDOM_COLUMNS elements. Those of
       RANDOM_ROWS are large enough for tile programs, those of 31 are not. most_elements is to be that of such a tensor at
       least; 4 times that does not keep any operation from being drawn. */
    int64_t rows;
} RandomOptions;

enum { RANDOM_ROWS = 67, RANDOM_COLUMNS = 128 }; /* elements: no multiple of a tile's */

typedef struct RandomGraph {
    cvn_graph *g;
    RandomOptions options;
    uint64_t state;         /* of the random numbers */
    cvn_value *value[4096]; /* [n] drawn so far, operands of what comes */
    int n;
} RandomGraph;

/* In [0, n), n > 0. */
static inline int random_below(RandomGraph *r, int64_t n)
{
    return (int)(splitmix(&r->state) % (uint64_t)n);
}

static inline bool random_chance(RandomGraph *r, int percent)
{
    return random_below(r, 100) < percent;
}

static inline int64_t random_size(RandomGraph *r)
{
    static const int64_t size[] = {1, 1, 2, 2, 3, 3, 4, 5, 6, 8};
    return random_chance(r, 2) ? 0 : size[random_below(r, 10)];
}

/* The shapes of one another. */
static inline cvn_type random_fused_type(RandomGraph *r, cvn_dtype dtype)
{
    const int64_t rows = r->options.rows;
    const struct {
        int rank;
        int64_t dim[3];
    } shape[] = {{2, {rows, RANDOM_COLUMNS}},
                 {1, {rows * RANDOM_COLUMNS}},
                 {3, {2, rows, RANDOM_COLUMNS / 2}},
                 {2, {2 * rows, RANDOM_COLUMNS / 2}}};
    int i = random_below(r, 4);
    return cvn_type_make(dtype, shape[i].rank, shape[i].dim);
}

static inline cvn_type random_type(RandomGraph *r, cvn_dtype dtype)
{
    int64_t dim[CVN_MAX_RANK];
    if (r->options.rows && random_chance(r, 75))
        return random_fused_type(r, dtype);
    for (;;) {
        int rank = random_below(r, 5);
        for (int i = 0; i < rank; i++)
            dim[i] = random_size(r);
        cvn_type type = cvn_type_make(dtype, rank, dim);
        if (cvn_type_elements(&type) <= r->options.most_elements)
            return type;
    }
}

static inline bool random_fits(OpKind kind, cvn_dtype dtype)
{
    OpDTypes allowed = op_info[kind].dtypes;
    if (dtype == CVN_I4)
        return allowed == DTYPES_A || kind == OP_CONVERT;
    if (dtype == CVN_BOOL && allowed == DTYPES_N)
        return false;
    return allowed == DTYPES_F ? random_is_float(dtype)
                               : allowed != DTYPES_I || !random_is_float(dtype);
}

/* A value that may be an operand of this kind, mostly a recent one; NULL when there is none. */
static inline cvn_value *random_pick(RandomGraph *r, OpKind kind, int least_rank)
{
    for (int tries = 0; tries < 20; tries++) {
        int recent = r->n < 6 ? r->n : 6;
        int at = random_chance(r, 60) ? r->n - 1 - random_below(r, recent) : random_below(r, r->n);
        cvn_value *v = r->value[at];
        if (v->type.rank >= least_rank && random_fits(kind, v->type.dtype))
            return v;
    }
    return NULL;
}

static inline cvn_value *random_constant(RandomGraph *r, cvn_type type)
{
    static const double number[] = {0, -0.0, 1, -1, 2, 0.5, 4, 3, INFINITY, -INFINITY, 31};
    if (random_chance(r, 70)) {
        double x = number[random_below(r, 11)];
        if (type.dtype == CVN_U32 && random_chance(r, 10))
            x = UINT32_MAX;
        return cvn_splat(r->g, type, x);
    }
    void *data = calloc(cvn_type_bytes(&type) + 1, 1);
    if (data)
        random_fill(&r->state, &type, data, false);
    cvn_value *v = cvn_constant(r->g, type, data);
    free(data);
    return v;
}

/* A value of exactly this type: an old one, a constant, a scalar stretched, or an iota. */
static inline cvn_value *random_of_type(RandomGraph *r, cvn_type type)
{
    if (random_chance(r, 70)) {
        int start = random_below(r, r->n);
        for (int i = 0; i < r->n; i++) {
            cvn_value *v = r->value[(start + i) % r->n];
            if (cvn_type_equal(&v->type, &type))
                return v;
        }
    }
    if (random_chance(r, 30) && type.rank > 0) {
        cvn_value *scalar = random_of_type(r, cvn_scalar(type.dtype));
        return cvn_broadcast_in_dim(r->g, scalar, type, NULL);
    }
    bool countable = type.dtype != CVN_BOOL && type.dtype != CVN_I4 && type.rank > 0;
    if (random_chance(r, 20) && countable)
        return cvn_iota(r->g, type, random_below(r, type.rank));
    return random_constant(r, type);
}

static inline void random_permutation(RandomGraph *r, int n, int *permutation)
{
    for (int i = 0; i < n; i++) {
        int j = random_below(r, i + 1);
        permutation[i] = permutation[j];
        permutation[j] = i;
    }
}

#endif
