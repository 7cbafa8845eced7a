/*
 * How the factors of an operation are split: what its tensors are split by is tried in every
 * combination, and what costs least is taken. Two strategies for a product, for example, with the
 * batch b and the contraction e both split by `data` in what there is:
 *
 *     x <data,_>   w <_,data>   ->   y <data,_>
 *
 *     b by data    w is gathered                            bytes of w
 *     e by data    x goes all_to_all, y is scattered        bytes of x and y
 *
 * Computing costs too, a little, so that of choices that move the same the one that splits most
 * wins.
 */
#include "base/num.h"
#include "shard/partition_impl.h"
#include "shard/projection.h"

#include <string.h>

enum { MOST_CANDIDATES = 6, MOST_TRIED = 2000 };

/* Bytes over the network that one step of the innermost loop is worth. */
static const double BYTES_PER_STEP = 1.0 / 500;

typedef struct Choosing {
    Part *p;
    const Op *op;
    const Rule *rule;
    AxisList candidate[FACTORS_MAX]
                      [MOST_CANDIDATES]; /* [n_factors][n_candidates], most axes first */
    int n_candidates[FACTORS_MAX];
    Choice now, best;
    double best_cost;
    int tried;
} Choosing;

static void add_candidate(Choosing *c, int f, const AxisList *axes)
{
    int *n = &c->n_candidates[f], at;
    if (axes->n == 0 || *n == MOST_CANDIDATES - 1)
        return;
    for (int i = 0; i < *n; i++)
        if (axes_equal(&c->candidate[f][i], axes))
            return;
    for (at = (*n)++; at > 0 && axes_size(&c->candidate[f][at - 1]) < axes_size(axes); at--)
        c->candidate[f][at] = c->candidate[f][at - 1];
    c->candidate[f][at] = *axes;
}

/* What splits each factor in some tensor, and what such a list begins with. */
static void collect(Choosing *c)
{
    const Rule *rule = c->rule;
    Projection seen;
    for (int t = 0; t < rule->n_tensors; t++) {
        const cvn_value *v = factor_tensor(c->op, t);
        if (v->type.rank == 0 || c->p->constant[v->id])
            continue;
        project(&c->p->sharding[v->id], rule, t, &seen);
        for (int f = 0; f < rule->n_factors; f++) {
            const Factor *factor = &rule->factor[f];
            if (factor->kind >= FACTOR_WHOLE || factor->local == LOCAL_PARTS)
                continue;
            AxisList prefix = {0};
            for (int i = 0; i < seen.factor[f].axes.n; i++) {
                axes_add(&prefix, seen.factor[f].axes.ref[i]);
                add_candidate(c, f, &prefix);
            }
        }
    }
    for (int f = 0; f < rule->n_factors; f++)
        c->candidate[f][c->n_candidates[f]++] = (AxisList){0};
}

/* Dimensions of several factors must be split evenly, and in front of what is whole. */
static bool is_legal(const Choosing *c)
{
    const Rule *rule = c->rule;
    for (int t = 0; t < rule->n_tensors; t++)
        for (int d = 0; d < factor_tensor(c->op, t)->type.rank; d++) {
            const DimFactors *dim = &rule->dim[t][d];
            bool stop = false;
            for (int i = 0; i < dim->n && dim->n > 1; i++) {
                int64_t size = rule->factor[dim->factor[i]].size;
                int32_t shards = axes_size(&c->now.axes[dim->factor[i]]);
                if (shards > 1 && (stop || size == 0 || size % shards))
                    return false;
                stop = stop || shards < size;
            }
        }
    return true;
}

/* Steps of the operation's loops on one device. */
static double steps(const Choosing *c)
{
    double n = 1;
    for (int f = 0; f < c->rule->n_factors; f++) {
        const Factor *factor = &c->rule->factor[f];
        int32_t shards = axes_size(&c->now.axes[f]);
        bool looked_up = factor->kind == FACTOR_REDUCE && factor->local == LOCAL_INDEX;
        n *= looked_up ? 1 : (double)num_pieces(factor->size, shards);
    }
    return n;
}

static void evaluate(Choosing *c)
{
    Part *p = c->p;
    const Op *op = c->op;
    if (c->tried++ >= MOST_TRIED || !is_legal(c))
        return;
    double cost = steps(c) * BYTES_PER_STEP;
    for (int t = 0; t < c->rule->n_tensors && cost < c->best_cost; t++) {
        const cvn_value *v = factor_tensor(op, t);
        Sharding s = choice_sharding(c->rule, &c->now, t, v->type.rank);
        if (t < op->n_operands)
            cost += part_cost(p, v, &s);
        else
            cost += part_plan(p, &v->type, &s, &p->sharding[v->id])->cost;
    }
    if (cost >= c->best_cost)
        return;
    c->best_cost = cost;
    c->best = c->now;
}

static bool is_free(const Choosing *c, int f, const AxisList *axes)
{
    for (int g = 0; g < f; g++)
        for (int i = 0; i < axes->n; i++)
            if (axes_overlap(&c->now.axes[g], axes->ref[i]))
                return false;
    return true;
}

static void try_factor(Choosing *c, int f)
{
    if (f == c->rule->n_factors) {
        evaluate(c);
        return;
    }
    for (int i = 0; i < c->n_candidates[f]; i++) {
        if (!is_free(c, f, &c->candidate[f][i]))
            continue;
        c->now.axes[f] = c->candidate[f][i];
        try_factor(c, f + 1);
    }
    c->now.axes[f] = (AxisList){0};
}

void part_choose(Part *p, const Op *op, const Rule *rule, Choice *choice)
{
    Choosing c = {.p = p, .op = op, .rule = rule, .best_cost = 1e300};
    collect(&c);
    try_factor(&c, 0);
    if (c.tried >= MOST_TRIED)
        c.now = (Choice){0}, c.tried = 0, evaluate(&c);
    *choice = c.best;
}
