#include "shard/projection.h"

#include "base/num.h"

/* Moves the front of `left` that divides size n to `to`; what stays in `left`
   did not fit. Returns what of n is not split. */
static int64_t take(AxisList *left, int64_t n, AxisList *to)
{
    int used = 0;
    while (used < left->n) {
        AxisRef a = left->ref[used];
        int32_t common = (int32_t)num_gcd(a.size, n);
        if (common == 1)
            break;
        axes_add(to, axis_first(a, common));
        n /= common;
        if (common < a.size)
            left->ref[used] = axis_rest(a, common);
        else
            used++;
    }
    AxisList rest = {0};
    for (int i = used; i < left->n; i++)
        rest.ref[rest.n++] = left->ref[i];
    *left = rest;
    return n;
}

static void project_dim(const DimSharding *dim, const Rule *rule, const DimFactors *factors,
                        Projection *p)
{
    AxisList left = dim->axes;
    bool stopped = false;
    for (int i = 0; i < factors->n; i++) {
        FactorAxes *f = &p->factor[factors->factor[i]];
        *f = (FactorAxes){
            .present = true, .closed = dim->closed || stopped, .alone = factors->n == 1};
        if (f->alone) {
            f->axes = left;
            return;
        }
        if (stopped)
            continue;
        int64_t rest = take(&left, rule->factor[factors->factor[i]].size, &f->axes);
        if (left.n && (rest > 1 || i == factors->n - 1)) {
            f->overflow = left;
            stopped = true;
        }
    }
    if (factors->n == 0)
        axes_add_list(&p->taken, &left);
}

void project(const Sharding *sharding, const Rule *rule, int tensor, Projection *p)
{
    p->taken = (AxisList){0};
    for (int f = 0; f < rule->n_factors; f++)
        p->factor[f] = (FactorAxes){0};
    axes_add_list(&p->taken, &sharding->replicated);
    axes_add_list(&p->taken, &sharding->unreduced);
    for (int d = 0; d < sharding->rank; d++)
        project_dim(&sharding->dim[d], rule, &rule->dim[tensor][d], p);
}

AxisList unproject(const Projection *p, const Rule *rule, int tensor, int d)
{
    const DimFactors *factors = &rule->dim[tensor][d];
    AxisList axes = {0};
    for (int i = 0; i < factors->n; i++) {
        const FactorAxes *f = &p->factor[factors->factor[i]];
        axes_add_list(&axes, &f->axes);
        axes_add_list(&axes, &f->overflow);
        if (f->overflow.n || axes_size(&f->axes) != rule->factor[factors->factor[i]].size)
            break;
    }
    return axes;
}

/* The part of a that factor f, split into `before` so far, has room for. */
static AxisRef room(const FactorAxes *f, int64_t size, int64_t before, AxisRef a)
{
    if (axes_contain(&f->axes, a))
        return a;
    if (f->closed || f->overflow.n) {
        const AxisRef *last = f->axes.n ? &f->axes.ref[f->axes.n - 1] : NULL;
        return last && axis_prefix_of(*last, a) ? *last : axis_first(a, 1);
    }
    if (size == 0)
        return axis_first(a, 1);
    if (f->alone && before * a.size <= size)
        return a; /* perhaps unevenly, but no device is left without a shard to
                 speak of */
    if (size % before)
        return axis_first(a, 1);
    return axis_first(a, (int32_t)num_gcd(a.size, size / before));
}

AxisList projection_fit(const Projection *p, const Rule *rule, int f, const AxisList *axes)
{
    AxisList fit = {0};
    const FactorAxes *own = &p->factor[f];
    int64_t before = 1;
    for (int i = 0; i < axes->n; i++) {
        AxisRef a = axes->ref[i];
        for (int g = 0; g < rule->n_factors; g++) {
            if (g != f && p->factor[g].present) {
                a = axes_prefix_without(a, &p->factor[g].axes);
                a = axes_prefix_without(a, &p->factor[g].overflow);
            }
        }
        if (own->present)
            a = axes_prefix_without(a, &p->taken);
        if (own->present && a.size > 1)
            a = room(own, rule->factor[f].size, before, a);
        axes_add(&fit, a);
        if (a.size != axes->ref[i].size)
            break;
        before *= a.size;
    }
    return fit;
}
