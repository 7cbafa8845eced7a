#include "shard/axes.h"

#include "base/num.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int32_t next_pre(AxisRef a)
{
    return a.pre * a.size;
}

bool axis_equal(AxisRef a, AxisRef b)
{
    return a.axis == b.axis && a.pre == b.pre && a.size == b.size;
}

/* The four borders of the two digits are a chain of divisors. */
bool axis_coexist(AxisRef a, AxisRef b)
{
    if (a.axis != b.axis)
        return true;
    int64_t low = num_min(a.pre, b.pre), high = num_max(a.pre, b.pre);
    int64_t low_end = num_min(next_pre(a), next_pre(b)),
            high_end = num_max(next_pre(a), next_pre(b));
    if (high >= low_end)
        return high % low_end == 0;
    return high % low == 0 && low_end % high == 0 && high_end % low_end == 0;
}

bool axis_overlaps(AxisRef a, AxisRef b)
{
    if (a.axis != b.axis || a.size == 1 || b.size == 1)
        return false;
    return !axis_coexist(a, b) || (a.pre < next_pre(b) && b.pre < next_pre(a));
}

bool axis_contains(AxisRef a, AxisRef b)
{
    return a.axis == b.axis && a.pre <= b.pre && next_pre(b) <= next_pre(a) && b.pre % a.pre == 0 &&
           next_pre(a) % next_pre(b) == 0;
}

bool axis_prefix_of(AxisRef a, AxisRef b)
{
    return a.axis == b.axis && a.pre == b.pre && b.size % a.size == 0;
}

bool axis_merge(AxisRef a, AxisRef b, AxisRef *merged)
{
    if (a.axis != b.axis || next_pre(a) != b.pre)
        return false;
    *merged = (AxisRef){a.axis, a.pre, a.size * b.size};
    return true;
}

AxisRef axis_first(AxisRef a, int32_t size)
{
    assert(a.size % size == 0);
    return (AxisRef){a.axis, a.pre, size};
}

AxisRef axis_rest(AxisRef a, int32_t size)
{
    assert(a.size % size == 0);
    return (AxisRef){a.axis, a.pre * size, a.size / size};
}

AxisRef axis_prefix_without(AxisRef a, AxisRef b)
{
    for (int32_t size = a.size; size > 1; size--)
        if (a.size % size == 0 && !axis_overlaps(axis_first(a, size), b))
            return axis_first(a, size);
    return axis_first(a, 1);
}

void axes_add(AxisList *list, AxisRef ref)
{
    if (ref.size == 1)
        return;
    if (list->n > 0 && axis_merge(list->ref[list->n - 1], ref, &list->ref[list->n - 1]))
        return;
    assert(list->n < AXES_MAX);
    list->ref[list->n++] = ref;
}

void axes_add_list(AxisList *list, const AxisList *more)
{
    for (int i = 0; i < more->n; i++)
        axes_add(list, more->ref[i]);
}

int32_t axes_size(const AxisList *list)
{
    int32_t size = 1;
    for (int i = 0; i < list->n; i++)
        size *= list->ref[i].size;
    return size;
}

bool axes_equal(const AxisList *a, const AxisList *b)
{
    if (a->n != b->n)
        return false;
    for (int i = 0; i < a->n; i++)
        if (!axis_equal(a->ref[i], b->ref[i]))
            return false;
    return true;
}

bool axes_prefix_of(const AxisList *a, const AxisList *b)
{
    if (a->n > b->n)
        return false;
    for (int i = 0; i < a->n; i++) {
        bool last = i == a->n - 1;
        if (!(last ? axis_prefix_of(a->ref[i], b->ref[i]) : axis_equal(a->ref[i], b->ref[i])))
            return false;
    }
    return true;
}

AxisList axes_common_prefix(const AxisList *a, const AxisList *b)
{
    AxisList common = {0};
    for (int i = 0; i < a->n && i < b->n; i++) {
        AxisRef x = a->ref[i], y = b->ref[i];
        if (x.axis != y.axis || x.pre != y.pre)
            break;
        axes_add(&common, axis_first(x, (int32_t)num_gcd(x.size, y.size)));
        if (x.size != y.size)
            break;
    }
    return common;
}

AxisList axes_without_prefix(const AxisList *b, const AxisList *a)
{
    AxisList rest = {0};
    assert(axes_prefix_of(a, b));
    for (int i = a->n ? a->n - 1 : 0; i < b->n; i++)
        axes_add(&rest, i < a->n ? axis_rest(b->ref[i], a->ref[i].size) : b->ref[i]);
    return rest;
}

bool axes_overlap(const AxisList *list, AxisRef ref)
{
    for (int i = 0; i < list->n; i++)
        if (axis_overlaps(list->ref[i], ref))
            return true;
    return false;
}

bool axes_contain(const AxisList *list, AxisRef ref)
{
    for (int i = 0; i < list->n; i++)
        if (axis_contains(list->ref[i], ref))
            return true;
    return false;
}

AxisRef axes_prefix_without(AxisRef a, const AxisList *list)
{
    for (int i = 0; i < list->n; i++)
        a = axis_prefix_without(a, list->ref[i]);
    return a;
}

AxisList axes_remove(const AxisList *list, AxisRef ref)
{
    AxisList rest = {0};
    for (int i = 0; i < list->n; i++) {
        AxisRef a = list->ref[i];
        if (!axis_overlaps(a, ref)) {
            axes_add(&rest, a);
            continue;
        }
        if (!axis_coexist(a, ref))
            continue;
        if (a.pre < ref.pre)
            axes_add(&rest, axis_first(a, ref.pre / a.pre));
        if (next_pre(ref) < next_pre(a))
            axes_add(&rest, axis_rest(a, next_pre(ref) / a.pre));
    }
    return rest;
}

int32_t axes_digit(const Mesh *mesh, const AxisList *list, int32_t place)
{
    int32_t coordinate[MESH_MAX_AXES], digit = 0;
    mesh_coordinates(mesh, place, coordinate);
    for (int i = 0; i < list->n; i++) {
        AxisRef a = list->ref[i];
        int32_t below = mesh->axis[a.axis].size / next_pre(a);
        digit = digit * a.size + coordinate[a.axis] / below % a.size;
    }
    return digit;
}

void axis_name(const Mesh *mesh, AxisRef ref, char *name, size_t size)
{
    const MeshAxis *axis = &mesh->axis[ref.axis];
    if (ref.size == axis->size)
        snprintf(name, size, "%s", axis->name);
    else
        snprintf(name, size, "%s.%d.%d", axis->name, ref.pre, ref.size);
}

void axes_print(StrBuf *out, const Mesh *mesh, const AxisList *list)
{
    char name[AXIS_NAME_SIZE];
    for (int i = 0; i < list->n; i++) {
        axis_name(mesh, list->ref[i], name, sizeof name);
        strbuf_printf(out, "%s%s", i ? "*" : "", name);
    }
    strbuf_puts(out, list->n ? "" : "_");
}

int axis_parse(const Mesh *mesh, const char *name, AxisRef *ref, cvn_err *err)
{
    size_t n = strcspn(name, ".");
    int axis = mesh_axis(mesh, name, n);
    if (axis < 0)
        return err_set(err, CVN_EINVAL, "the mesh has no axis \"%.*s\"; see --mesh", (int)n, name);
    int32_t size = mesh->axis[axis].size;
    *ref = (AxisRef){axis, 1, size};
    if (name[n] == '\0')
        return CVN_OK;
    char *end = NULL;
    long pre = strtol(name + n + 1, &end, 10), part = 0;
    if (*end == '.')
        part = strtol(end + 1, &end, 10);
    if (*end || pre < 1 || part < 2 || pre > size || part > size || size % (pre * part))
        return err_set(err, CVN_EINVAL,
                       "\"%.64s\" is not a sub-axis of an axis of size %d; write NAME.PRE.SIZE, "
                       "where PRE times SIZE divides the size",
                       name, size);
    *ref = (AxisRef){axis, (int32_t)pre, (int32_t)part};
    return CVN_OK;
}
