/*
 * Operations between devices. Groups are rows of device ids; "member j" of a group is the j-th id of its row. What they
 * mean is written as plain loops over the members of each group. With the loss being the sum of the losses of all
 * devices, the gradient of a linear collective is its transpose: where a device sent to others, it gets back the sum of
 * what they have. In StableHLO devices are replicas.
 */
#include "graph/ops/ops.h"

#include <assert.h>
#include <stdlib.h>

/* ---- builders ---- */

/* A list of n times `each` device ids. */
static Ints device_list(cvn_graph *g, int n, int each, const int64_t *id)
{
    int all = 0;
    if (__builtin_mul_overflow(n, each, &all))
        graph_fail(g, CVN_EINVAL, "%d times %d devices are too many", n, each);
    return graph_ints(g, g->err.code ? 0 : all, id);
}

/* Builds a collective within groups of devices. */
static cvn_value *in_groups(cvn_graph *g, OpKind kind, OpAttr attr, cvn_value *x, int n_groups,
                            int group_size, const int64_t *groups)
{
    attr.group_size = group_size;
    attr.groups = device_list(g, n_groups, group_size, groups);
    return graph_add(g, kind, &attr, 1, &x, NULL);
}

cvn_value *cvn_all_reduce(cvn_graph *g, cvn_value *x, cvn_reduce kind, int n_groups, int group_size,
                          const int64_t *groups)
{
    return in_groups(g, OP_ALL_REDUCE, (OpAttr){.reduce = kind}, x, n_groups, group_size, groups);
}

cvn_value *cvn_all_gather(cvn_graph *g, cvn_value *x, int axis, int n_groups, int group_size,
                          const int64_t *groups)
{
    return in_groups(g, OP_ALL_GATHER, (OpAttr){.axis = axis}, x, n_groups, group_size, groups);
}

cvn_value *cvn_reduce_scatter(cvn_graph *g, cvn_value *x, cvn_reduce kind, int axis, int n_groups,
                              int group_size, const int64_t *groups)
{
    const OpAttr attr = {.reduce = kind, .axis = axis};
    return in_groups(g, OP_REDUCE_SCATTER, attr, x, n_groups, group_size, groups);
}

cvn_value *cvn_all_to_all(cvn_graph *g, cvn_value *x, int split_axis, int concat_axis, int n_groups,
                          int group_size, const int64_t *groups)
{
    const OpAttr attr = {.axis = split_axis, .concat_axis = concat_axis};
    return in_groups(g, OP_ALL_TO_ALL, attr, x, n_groups, group_size, groups);
}

cvn_value *cvn_collective_permute(cvn_graph *g, cvn_value *x, int n, const int64_t *pairs)
{
    OpAttr attr = {.groups = device_list(g, n, 2, pairs)};
    return graph_add(g, OP_COLLECTIVE_PERMUTE, &attr, 1, &x, NULL);
}

cvn_value *cvn_partition_id(cvn_graph *g)
{
    return graph_add(g, OP_PARTITION_ID, NULL, 0, NULL, NULL);
}

/* ---- types ---- */

static int compare_ids(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Device ids: every `step`-th entry from `first` on is >= 0 and no two of them are equal. */
static int check_ids(const Op *op, int first, int step, cvn_err *err)
{
    const Ints *list = &op->attr.groups;
    int n = 0;
    SCOPED(scoped_free) int64_t *sorted = malloc(sizeof *sorted * ((size_t)list->n + 1));
    if (!sorted)
        return err_set(err, CVN_EMEM, "no memory to check %d device ids", list->n);
    for (int i = first; i < list->n; i += step)
        sorted[n++] = list->v[i];
    qsort(sorted, (size_t)n, sizeof *sorted, compare_ids);
    for (int i = 0; i < n; i++) {
        if (sorted[i] < 0)
            return infer_fail(op, err, "device id %lld is negative", (long long)sorted[i]);
        if (i > 0 && sorted[i] == sorted[i - 1])
            return infer_fail(op, err, "device %lld is named twice", (long long)sorted[i]);
    }
    return CVN_OK;
}

/* Groups: rows of group_size device ids, no id twice. */
static int check_groups(const Op *op, cvn_err *err)
{
    const Ints *groups = &op->attr.groups;
    int64_t size = op->attr.group_size;
    if (size < 1 || groups->n < 1 || groups->n % size)
        return infer_fail(op, err, "%d device ids do not make groups of %lld", groups->n,
                          (long long)size);
    return check_ids(op, 0, 1, err);
}

int infer_all_reduce(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    return infer_check_reducer(op, err) || check_groups(op, err) ? CVN_ESHAPE : CVN_OK;
}

int infer_all_gather(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    TRY(check_groups(op, err));
    TRY(infer_check_axis(op, op->attr.axis, type[0].rank, err));
    int64_t *dim = &type[0].dim[op->attr.axis];
    if (__builtin_mul_overflow(*dim, op->attr.group_size, dim))
        return infer_fail(op, err, "the size overflows");
    return CVN_OK;
}

int infer_reduce_scatter(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    TRY(infer_check_reducer(op, err));
    TRY(check_groups(op, err));
    TRY(infer_check_axis(op, op->attr.axis, type[0].rank, err));
    int64_t *dim = &type[0].dim[op->attr.axis];
    if (*dim % op->attr.group_size)
        return infer_fail(op, err, "%lld elements do not divide among %lld devices",
                          (long long)*dim, (long long)op->attr.group_size);
    *dim /= op->attr.group_size;
    return CVN_OK;
}

int infer_all_to_all(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    TRY(check_groups(op, err));
    TRY(infer_check_axis(op, op->attr.axis, type[0].rank, err));
    TRY(infer_check_axis(op, op->attr.concat_axis, type[0].rank, err));
    int64_t *split = &type[0].dim[op->attr.axis], *concat = &type[0].dim[op->attr.concat_axis];
    if (*split % op->attr.group_size)
        return infer_fail(op, err, "%lld elements do not divide among %lld devices",
                          (long long)*split, (long long)op->attr.group_size);
    *split /= op->attr.group_size;
    if (__builtin_mul_overflow(*concat, op->attr.group_size, concat))
        return infer_fail(op, err, "the size overflows");
    return CVN_OK;
}

int infer_collective_permute(const Op *op, cvn_type *type, cvn_err *err)
{
    const Ints *pairs = &op->attr.groups;
    type[0] = *op_in(op, 0);
    if (pairs->n % 2)
        return infer_fail(op, err, "pairs has an odd number of entries");
    TRY(check_ids(op, 0, 2, err));
    TRY(check_ids(op, 1, 2, err));
    return CVN_OK;
}

int infer_partition_id(const Op *op, cvn_type *type, cvn_err *err)
{
    (void)op;
    (void)err;
    type[0] = cvn_scalar(CVN_U32);
    return CVN_OK;
}

/* ---- meaning ---- */

/* What a collective does within one group. */
typedef struct Group {
    const Op *op;
    const int64_t *id; /* [size] devices */
    int64_t size;
    const void *const *in; /* [n_devices] */
    void *const *out;      /* [n_devices] */
} Group;

/* The elements of the devices are combined with each other and nothing else: a sum starts at -0,
   which unlike +0 changes no number, so that a group of one gets back what it gave. */
static Fold start_fold(cvn_reduce kind, cvn_dtype dtype)
{
    Fold fold = interp_fold(kind, dtype);
    if (kind == CVN_SUM)
        fold.real = -0.0;
    return fold;
}

/* Every member gets the reduction over all members. */
static void all_reduce(const Group *g)
{
    const cvn_type *type = op_in(g->op, 0);
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        Fold fold = start_fold(g->op->attr.reduce, type->dtype);
        for (int64_t j = 0; j < g->size; j++)
            interp_fold_add(&fold, type->dtype, g->in[g->id[j]], i);
        for (int64_t j = 0; j < g->size; j++)
            interp_fold_store(&fold, type->dtype, g->out[g->id[j]], i);
    }
}

/* Member p gets part p, along the axis, of the reduction over all members. */
static void reduce_scatter(const Group *g)
{
    Lines part = type_lines(op_out(g->op, 0), g->op->attr.axis);
    cvn_dtype dtype = op_in(g->op, 0)->dtype;
    for (int64_t p = 0; p < g->size; p++)
        for (int64_t o = 0; o < part.outer; o++)
            for (int64_t i = 0; i < part.n * part.inner; i++) {
                Fold fold = start_fold(g->op->attr.reduce, dtype);
                for (int64_t j = 0; j < g->size; j++)
                    interp_fold_add(&fold, dtype, g->in[g->id[j]],
                                    (o * g->size + p) * part.n * part.inner + i);
                interp_fold_store(&fold, dtype, g->out[g->id[p]], o * part.n * part.inner + i);
            }
}

/* Every member cuts its operand into parts along the split axis and sends part p to member p, who
   joins what it got, in the order of the senders, along the concat axis. To gather is to send all of it to everyone. */
static void all_to_all(const Group *g)
{
    const cvn_type *x = op_in(g->op, 0), *y = op_out(g->op, 0);
    bool gather = g->op->kind == OP_ALL_GATHER;
    int64_t split = g->op->attr.axis, concat = gather ? split : g->op->attr.concat_axis;
    int64_t sent = gather ? 0 : x->dim[split] / g->size, got = y->dim[concat] / g->size;
    int64_t stride[CVN_MAX_RANK];
    type_strides(x, stride);
    for (int64_t p = 0; p < g->size; p++) {
        int64_t at[CVN_MAX_RANK] = {0};
        for (int64_t i = 0, n = cvn_type_elements(y); i < n; i++, index_next(y->rank, y->dim, at)) {
            int64_t sender = at[concat] / got, from = p * sent * stride[split];
            for (int d = 0; d < y->rank; d++)
                from += (d == concat ? at[d] % got : at[d]) * stride[d];
            interp_move(x->dtype, g->out[g->id[p]], i, g->in[g->id[sender]], from);
        }
    }
}

/* The operand of each pair's source becomes the result of its target; the other results are 0. */
static void collective_permute(const Op *op, int n_devices, const void *const *in, void *const *out)
{
    size_t bytes = cvn_type_bytes(op_out(op, 0));
    for (int d = 0; d < n_devices; d++)
        if (bytes)
            memset(out[d], 0, bytes);
    for (int i = 0; i + 1 < op->attr.groups.n; i += 2) {
        int64_t from = op->attr.groups.v[i], to = op->attr.groups.v[i + 1];
        if (from < n_devices && to < n_devices && bytes)
            memcpy(out[to], in[from], bytes);
    }
}

void interp_collective(const Op *op, int n_devices, const void *const *in, void *const *out)
{
    if (op->kind == OP_PARTITION_ID) {
        for (int d = 0; d < n_devices; d++)
            *(uint32_t *)out[d] = (uint32_t)d;
        return;
    }
    if (op->kind == OP_COLLECTIVE_PERMUTE) {
        collective_permute(op, n_devices, in, out);
        return;
    }
    const Ints *groups = &op->attr.groups;
    assert(groups->n == n_devices);
    for (int first = 0; first < groups->n; first += (int)op->attr.group_size) {
        Group group = {op, groups->v + first, op->attr.group_size, in, out};
        if (op->kind == OP_ALL_REDUCE)
            all_reduce(&group);
        else if (op->kind == OP_REDUCE_SCATTER)
            reduce_scatter(&group);
        else
            all_to_all(&group);
    }
}

/* Carries out a collective where device 0 is alone. */
void interp_alone(const Op *op, const void *const *in, void *const *out)
{
    interp_collective(op, 1, in, out);
}

static int check_op(const Op *op, int n_devices, cvn_err *err)
{
    const Ints *groups = &op->attr.groups;
    bool permute = op->kind == OP_COLLECTIVE_PERMUTE;
    const char *name = op_info[op->kind].name;
    for (int i = 0; i < groups->n; i++)
        if (groups->v[i] < 0 || groups->v[i] >= n_devices)
            return err_set(err, CVN_EINVAL,
                           "%s names device %lld, but the graph runs on devices 0 to %d", name,
                           (long long)groups->v[i], n_devices - 1);
    /* Shape inference holds that no id comes twice, so the count says whether all are there. */
    if (op->kind != OP_PARTITION_ID && !permute && groups->n != n_devices)
        return err_set(
            err, CVN_EINVAL,
            "the groups of %s name %d devices, but the graph runs on %d; each must be in "
            "one group",
            name, groups->n, n_devices);
    return CVN_OK;
}

int interp_check_devices(const cvn_graph *g, int n_devices, cvn_err *err)
{
    if (n_devices < 1)
        return err_set(err, CVN_EINVAL, "a graph cannot run on %d devices", n_devices);
    for (const Op *op = g->first; op; op = op->next)
        if (op_info[op->kind].class_ == CLASS_COLLECTIVE && check_op(op, n_devices, err))
            return CVN_EINVAL;
    return CVN_OK;
}

/* ---- gradients ---- */

/* Builds another collective within op's groups. */
static cvn_value *over_groups(cvn_graph *g, const Op *op, OpKind kind, OpAttr attr, cvn_value *x)
{
    attr.groups = op->attr.groups;
    attr.group_size = op->attr.group_size;
    return graph_add(g, kind, &attr, 1, &x, NULL);
}

void grad_all_gather(Grad *d, const Op *op)
{
    const OpAttr attr = {.reduce = CVN_SUM, .axis = op->attr.axis};
    grad_give(d, op, 0, over_groups(d->g, op, OP_REDUCE_SCATTER, attr, grad_of(d, op, 0)));
}

/* The gradient of all_reduce and of reduce_scatter. */
static void grad_reducing(Grad *d, const Op *op)
{
    const bool all = op->kind == OP_ALL_REDUCE;
    cvn_reduce kind = op->attr.reduce;
    if (kind == CVN_PRODUCT) {
        grad_refuse(d, op, "when it multiplies");
        return;
    }
    cvn_graph *g = d->g;
    cvn_value *dy = grad_of(d, op, 0), *y = op->result[0];
    const OpAttr sum = {.reduce = CVN_SUM}, gather = {.axis = op->attr.axis};
    dy = over_groups(g, op, all ? OP_ALL_REDUCE : OP_ALL_GATHER, all ? sum : gather, dy);
    if (kind != CVN_SUM) { /* max or min: what is equal to the result shares the group's gradient */
        y = all ? y : over_groups(g, op, OP_ALL_GATHER, gather, y);
        cvn_value *wins = cvn_compare_values(g, CVN_EQ, op->operand[0], y);
        cvn_value *count = cvn_convert(g, wins, dy->type.dtype);
        count = over_groups(g, op, OP_ALL_REDUCE, sum, count);
        dy = where(g, wins, cvn_divide(g, dy, count));
    }
    grad_give(d, op, 0, dy);
}

void grad_all_reduce(Grad *d, const Op *op)
{
    grad_reducing(d, op);
}

void grad_reduce_scatter(Grad *d, const Op *op)
{
    grad_reducing(d, op);
}

void grad_all_to_all(Grad *d, const Op *op)
{
    const OpAttr back = {.axis = op->attr.concat_axis, .concat_axis = op->attr.axis};
    grad_give(d, op, 0, over_groups(d->g, op, OP_ALL_TO_ALL, back, grad_of(d, op, 0)));
}

void grad_collective_permute(Grad *d, const Op *op)
{
    const Ints *pairs = &op->attr.groups;
    int64_t *back = arena_array(&d->g->arena, (size_t)pairs->n + 1, sizeof *back);
    for (int i = 0; i + 1 < pairs->n; i += 2) {
        back[i] = pairs->v[i + 1];
        back[i + 1] = pairs->v[i];
    }
    grad_give(d, op, 0, cvn_collective_permute(d->g, grad_of(d, op, 0), pairs->n / 2, back));
}

/* ---- StableHLO ---- */

void hlo_collective(Hlo *h, const Op *op)
{
    const bool reduces = op->kind == OP_ALL_REDUCE || op->kind == OP_REDUCE_SCATTER;
    const char *plain = hlo_attrs(h, op);
    const char *groups = hlo_rows(h, &op->attr.groups, op->attr.group_size);
    const char *region = NULL;
    if (reduces)
        region = hlo_reducer(h, op->attr.reduce, op->operand[0]->type.dtype);
    hlo_op(h, op, op_info[op->kind].name, region,
           arena_printf(&h->arena, "%s%sreplica_groups = %s", plain ? plain : "", plain ? ", " : "",
                        groups));
}

void hlo_all_reduce(Hlo *h, const Op *op)
{
    hlo_collective(h, op);
}

void hlo_reduce_scatter(Hlo *h, const Op *op)
{
    hlo_collective(h, op);
}

void hlo_all_to_all(Hlo *h, const Op *op)
{
    hlo_collective(h, op);
}

void hlo_collective_permute(Hlo *h, const Op *op)
{
    const char *pairs = hlo_rows(h, &op->attr.groups, 2);
    hlo_op(h, op, "collective_permute", NULL,
           arena_printf(&h->arena, "source_target_pairs = %s", pairs));
}

void hlo_partition_id(Hlo *h, const Op *op)
{
    hlo_op(h, op, "replica_id", NULL, NULL);
}
