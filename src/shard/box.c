#include "shard/box.h"

#include "base/num.h"
#include "graph/graph.h"
#include "graph/strides.h"

#include <string.h>

Box box_whole(const cvn_type *type)
{
    Box box = {.rank = type->rank};
    for (int d = 0; d < type->rank; d++)
        box.count[d] = type->dim[d];
    return box;
}

BoxArray box_packed(const Box *box)
{
    BoxArray array = {.box = *box};
    memcpy(array.dim, box->count, sizeof array.dim);
    return array;
}

int64_t box_elements(const Box *box)
{
    int64_t n = 1;
    for (int d = 0; d < box->rank; d++)
        n *= box->count[d];
    return n;
}

bool box_same(const Box *a, const Box *b)
{
    bool same = a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++)
        same = a->first[d] == b->first[d] && a->count[d] == b->count[d];
    return same;
}

bool box_intersect(const Box *a, const Box *b, Box *common)
{
    *common = (Box){.rank = a->rank};
    for (int d = 0; d < a->rank; d++) {
        int64_t first = num_max(a->first[d], b->first[d]);
        int64_t end = num_min(a->first[d] + a->count[d], b->first[d] + b->count[d]);
        if (end <= first)
            return false;
        common->first[d] = first;
        common->count[d] = end - first;
    }
    return true;
}

BoxArray box_of_shard(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                      int32_t device)
{
    BoxArray array = {.box.rank = type->rank};
    cvn_type local = sharding_local(sharding, type);
    for (int d = 0; d < type->rank; d++) {
        sharding_range(mesh, sharding, d, type->dim[d], mesh_place(mesh, device),
                       &array.box.first[d], &array.box.count[d]);
        array.dim[d] = local.dim[d];
    }
    return array;
}

void box_walk(BoxWalk *walk, const Box *box, const BoxArray *a, const BoxArray *b)
{
    *walk = (BoxWalk){.n = 1, .left = 1, .outer = box->rank, .box = *box, .array = {*a, *b}};
    while (walk->outer > 0) {
        int d = --walk->outer;
        walk->n *= box->count[d];
        if (a->dim[d] != box->count[d] || b->dim[d] != box->count[d])
            break;
    }
    for (int d = 0; d < walk->outer; d++)
        walk->left *= box->count[d];
    if (walk->n == 0)
        walk->left = 0;
}

/* The element of an array at which the run begins. */
static int64_t index_in(const BoxWalk *w, const BoxArray *array)
{
    int64_t index = 0;
    for (int d = 0; d < w->box.rank; d++)
        index = index * array->dim[d] + w->box.first[d] - array->box.first[d] + w->at[d];
    return index;
}

bool box_next(BoxWalk *w)
{
    if (w->left == 0)
        return false;
    w->left--;
    w->a = index_in(w, &w->array[0]);
    w->b = index_in(w, &w->array[1]);
    index_next(w->outer, w->box.count, w->at);
    return true;
}

BoxWalk box_of(const Box *box, const cvn_type *type)
{
    const Box all = box_whole(type);
    const BoxArray whole = box_packed(&all), part = box_packed(box);
    BoxWalk walk;
    box_walk(&walk, box, &whole, &part);
    return walk;
}

void box_copy(const BoxArray *from, const void *source, const BoxArray *to, void *target,
              cvn_dtype dtype)
{
    Box common;
    BoxWalk walk;
    if (!box_intersect(&from->box, &to->box, &common))
        return;
    box_walk(&walk, &common, from, to);
    while (box_next(&walk)) {
        bool halves = dtype == CVN_I4 && (walk.a | walk.b | walk.n) & 1; /* of bytes */
        for (int64_t i = 0; i < walk.n && halves; i++)
            element_set(dtype, target, walk.b + i, element_get(dtype, source, walk.a + i));
        if (!halves)
            memcpy((char *)target + cvn_dtype_bytes(dtype, walk.b),
                   (const char *)source + cvn_dtype_bytes(dtype, walk.a),
                   cvn_dtype_bytes(dtype, walk.n));
    }
}

void box_cut(const Box *box, const cvn_type *type, const void *whole, void *out)
{
    const Box all = box_whole(type);
    const BoxArray from = box_packed(&all), to = box_packed(box);
    box_copy(&from, whole, &to, out, type->dtype);
}
