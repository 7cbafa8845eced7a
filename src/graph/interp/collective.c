/*
 * Operations between devices, as plain loops over the members of each group. Groups are rows of
 * device ids; "member j" of a group is the j-th id of its row.
 */
#include "graph/interp/interp_impl.h"

#include <assert.h>

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
