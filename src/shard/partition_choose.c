/*
 * How the factors of an operation are split, at the least cost, among what its tensors are split by.
 * Two strategies for a product, for example, with the batch b and the contraction e both split by
 * `data` in what there is:
 *
 *     x <data,_>   w <_,data>   ->   y <data,_>
 *
 *     b by data    w is gathered                            bytes of w
 *     e by data    x goes all_to_all, y is scattered        bytes of x and y
 *
 * All combinations would be too many: they grow exponentially with the axes of the mesh. The search
 * begins with what each tensor has, and changes the best of that, one or two factors at a time, as
 * long as it gets better.
 *
 * Computing costs too, a little, so that of choices that move the same the one that splits most
 * wins.
 */
#include "base/num.h"
#include "shard/partition_impl.h"
#include "shard/projection.h"

#include <string.h>

enum { MOST_CANDIDATES = 6 };

/* Bytes over the network that one step of the innermost loop is worth. */
static const double BYTES_PER_STEP = 1.0 / 500;
static const double NEVER = 1e300;

typedef struct Choosing {
    Partitioner *p;
    const Op *op;
    const Rule *rule;
    AxisList candidate[FACTORS_MAX]
                      [MOST_CANDIDATES]; /* [n_factors][n_candidates], most axes first */
    int n_candidates[FACTORS_MAX];
    int pick[FACTORS_MAX], best[FACTORS_MAX]; /* [n_factors] which candidates, now and at best */
    FactorSplit now;                          /* what pick says */
    double best_cost;
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

/* The candidates of a factor: the axes that split it in some tensor, and the prefixes of such lists. */
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

/* The cost of a choice. Adding up ends early where it exceeds `most`. */
static double cost_of(Choosing *c, double most)
{
    Partitioner *p = c->p;
    const Op *op = c->op;
    double steps = 1; /* of the operation's loops on one device */
    for (int f = 0; f < c->rule->n_factors; f++) {
        const Factor *factor = &c->rule->factor[f];
        int32_t shards = axes_size(&c->now.axes[f]);
        bool looked_up = factor->kind == FACTOR_REDUCE && factor->local == LOCAL_INDEX;
        steps *= looked_up ? 1 : (double)num_pieces(factor->size, shards);
    }
    double cost = is_legal(c) ? steps * BYTES_PER_STEP : NEVER;
    for (int t = 0; t < c->rule->n_tensors && cost <= most; t++) {
        const cvn_value *v = factor_tensor(op, t);
        Sharding s = choice_sharding(c->rule, &c->now, t, v->type.rank);
        if (t < op->n_operands)
            cost += part_cost(p, v, &s);
        else
            cost += part_plan(p, &v->type, &s, &p->sharding[v->id])->cost;
    }
    return cost;
}

static bool overlap(const AxisList *a, const AxisList *b)
{
    for (int i = 0; i < b->n; i++)
        if (axes_overlap(a, b->ref[i]))
            return true;
    return false;
}

/* Keeps the current choice if it is the best so far. Of choices that cost the same, the one is kept whose first factors come
   first in the lists of candidates. */
static void evaluate(Choosing *c)
{
    int f = 0;
    while (f < c->rule->n_factors && c->pick[f] == c->best[f])
        f++;
    if (f == c->rule->n_factors && c->best_cost < NEVER)
        return;
    double cost = cost_of(c, c->best_cost);
    if (cost > c->best_cost || (cost == c->best_cost && c->pick[f] > c->best[f]))
        return;
    c->best_cost = cost;
    memcpy(c->best, c->pick, sizeof c->pick);
}

static void set(Choosing *c, int f, int pick)
{
    c->pick[f] = pick;
    c->now.axes[f] = c->candidate[f][pick];
}

static void set_best(Choosing *c)
{
    for (int f = 0; f < c->rule->n_factors; f++)
        set(c, f, c->best[f]);
}

/* Every factor that is split by nothing takes the first of its candidates that is free; false where
   none is. */
static bool fill(Choosing *c)
{
    bool any = false;
    for (int f = 0; f < c->rule->n_factors; f++)
        for (int i = 0; c->now.axes[f].n == 0 && c->candidate[f][i].n; i++) {
            bool taken = false;
            for (int o = 0; o < c->rule->n_factors; o++)
                taken = taken || (o != f && overlap(&c->now.axes[o], &c->candidate[f][i]));
            if (taken)
                continue;
            set(c, f, i);
            any = true;
        }
    return any;
}

/* Factors f and g are split so; others give up what these take, and then take what is free. */
static void change(Choosing *c, int f, int i, int g, int j)
{
    set_best(c);
    set(c, f, i);
    set(c, g, j);
    if (overlap(&c->now.axes[f], &c->now.axes[g]) && f != g)
        return;
    for (int h = 0; h < c->rule->n_factors; h++)
        if (h != f && h != g &&
            (overlap(&c->now.axes[h], &c->now.axes[f]) ||
             overlap(&c->now.axes[h], &c->now.axes[g])))
            set(c, h, c->n_candidates[h] - 1);
    evaluate(c);
    if (fill(c))
        evaluate(c);
}

/* Every factor is split as tensor t has it, where it has it. */
static void follow(Choosing *c, int t)
{
    const cvn_value *v = factor_tensor(c->op, t);
    Projection seen;
    if (c->p->constant[v->id])
        return;
    project(&c->p->sharding[v->id], c->rule, t, &seen);
    for (int f = 0; f < c->rule->n_factors; f++) {
        int none = c->n_candidates[f] - 1, i = 0;
        while (i < none && !axes_equal(&c->candidate[f][i], &seen.factor[f].axes))
            i++;
        set(c, f, i);
    }
    evaluate(c);
    if (fill(c))
        evaluate(c);
}

void part_choose(Partitioner *p, const Op *op, const Rule *rule, FactorSplit *choice)
{
    Choosing c = {.p = p, .op = op, .rule = rule, .best_cost = NEVER};
    collect(&c);
    for (int f = 0; f < rule->n_factors; f++)
        set(&c, f, c.n_candidates[f] - 1);
    evaluate(&c);
    for (int t = 0; t < rule->n_tensors; t++)
        follow(&c, t);
    for (double before = NEVER; c.best_cost < before;) {
        before = c.best_cost;
        for (int f = 0; f < rule->n_factors; f++)
            for (int i = 0; i < c.n_candidates[f]; i++)
                for (int g = 0; g <= f; g++)
                    for (int j = 0; j < c.n_candidates[g]; j++)
                        if (i != c.best[f] && (f == g ? j == i : j != c.best[g]))
                            change(&c, f, i, g, j);
    }
    set_best(&c);
    *choice = c.now;
}
