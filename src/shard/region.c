#include "shard/region.h"

#include "base/num.h"
#include "graph/graph.h"
#include "graph/strides.h"

#include <string.h>

Region region_whole(const cvn_type *type)
{
    Region region = {.rank = type->rank};
    for (int d = 0; d < type->rank; d++)
        region.count[d] = type->dim[d];
    return region;
}

RegionArray region_packed(const Region *region)
{
    RegionArray array = {.region = *region};
    memcpy(array.dim, region->count, sizeof array.dim);
    return array;
}

int64_t region_elements(const Region *region)
{
    int64_t n = 1;
    for (int d = 0; d < region->rank; d++)
        n *= region->count[d];
    return n;
}

bool region_same(const Region *a, const Region *b)
{
    bool same = a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++)
        same = a->first[d] == b->first[d] && a->count[d] == b->count[d];
    return same;
}

bool region_intersect(const Region *a, const Region *b, Region *common)
{
    *common = (Region){.rank = a->rank};
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

RegionArray region_of_shard(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                            int32_t device)
{
    RegionArray array = {.region.rank = type->rank};
    cvn_type local = sharding_local(sharding, type);
    for (int d = 0; d < type->rank; d++) {
        sharding_range(mesh, sharding, d, type->dim[d], mesh_place(mesh, device),
                       &array.region.first[d], &array.region.count[d]);
        array.dim[d] = local.dim[d];
    }
    return array;
}

void region_walk(RegionWalk *walk, const Region *region, const RegionArray *a, const RegionArray *b)
{
    *walk = (RegionWalk){
        .n = 1, .left = 1, .outer = region->rank, .region = *region, .array = {*a, *b}};
    while (walk->outer > 0) {
        int d = --walk->outer;
        walk->n *= region->count[d];
        if (a->dim[d] != region->count[d] || b->dim[d] != region->count[d])
            break;
    }
    for (int d = 0; d < walk->outer; d++)
        walk->left *= region->count[d];
    if (walk->n == 0)
        walk->left = 0;
}

/* The element of an array at which the run begins. */
static int64_t index_in(const RegionWalk *w, const RegionArray *array)
{
    int64_t index = 0;
    for (int d = 0; d < w->region.rank; d++)
        index = index * array->dim[d] + w->region.first[d] - array->region.first[d] + w->at[d];
    return index;
}

bool region_next(RegionWalk *w)
{
    if (w->left == 0)
        return false;
    w->left--;
    w->a = index_in(w, &w->array[0]);
    w->b = index_in(w, &w->array[1]);
    index_next(w->outer, w->region.count, w->at);
    return true;
}

RegionWalk region_of(const Region *region, const cvn_type *type)
{
    const Region all = region_whole(type);
    const RegionArray whole = region_packed(&all), part = region_packed(region);
    RegionWalk walk;
    region_walk(&walk, region, &whole, &part);
    return walk;
}

void region_copy(const RegionArray *from, const void *source, const RegionArray *to, void *target,
                 cvn_dtype dtype)
{
    Region common;
    RegionWalk walk;
    if (!region_intersect(&from->region, &to->region, &common))
        return;
    region_walk(&walk, &common, from, to);
    while (region_next(&walk)) {
        bool halves = dtype == CVN_I4 && (walk.a | walk.b | walk.n) & 1; /* of bytes */
        for (int64_t i = 0; i < walk.n && halves; i++)
            element_set(dtype, target, walk.b + i, element_get(dtype, source, walk.a + i));
        if (!halves)
            memcpy((char *)target + cvn_dtype_bytes(dtype, walk.b),
                   (const char *)source + cvn_dtype_bytes(dtype, walk.a),
                   cvn_dtype_bytes(dtype, walk.n));
    }
}

void region_cut(const Region *region, const cvn_type *type, const void *whole, void *out)
{
    const Region all = region_whole(type);
    const RegionArray from = region_packed(&all), to = region_packed(region);
    region_copy(&from, whole, &to, out, type->dtype);
}
