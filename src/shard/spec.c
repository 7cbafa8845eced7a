#include "shard/spec.h"

#include "base/num.h"

Sharding sharding_open(int rank)
{
    return (Sharding){.rank = rank};
}

bool sharding_uses(const Sharding *s, AxisRef ref)
{
    for (int d = 0; d < s->rank; d++)
        if (axes_overlap(&s->dim[d].axes, ref))
            return true;
    return axes_overlap(&s->replicated, ref) || axes_overlap(&s->unreduced, ref);
}

int sharding_from_spec(const Mesh *mesh, const cvn_spec *spec, int rank, const char *name,
                       Sharding *sharding, cvn_err *err)
{
    Sharding s = sharding_open(rank);
    if (spec->rank != rank)
        return err_set(err, CVN_ESHAPE, "the spec of %s has %d dimensions, the tensor %d", name,
                       spec->rank, rank);
    for (int d = 0; d < rank; d++) {
        s.dim[d].closed = true;
        for (int i = 0; i < spec->dim[d].n; i++) {
            AxisRef ref;
            const char *axis = spec->dim[d].axis[i];
            if (axis_parse(mesh, axis, &ref, err)) {
                err_prefix(err, "spec of %s", name);
                return CVN_EINVAL;
            }
            if (sharding_uses(&s, ref))
                return err_set(err, CVN_EINVAL,
                               "the spec of %s uses the axis \"%s\" twice; an axis can split only "
                               "one dimension of a tensor",
                               name, axis);
            axes_add(&s.dim[d].axes, ref);
        }
    }
    *sharding = s;
    return CVN_OK;
}

int sharding_to_spec(const Mesh *mesh, const Sharding *s, Arena *arena, cvn_spec *spec,
                     cvn_err *err)
{
    *spec = (cvn_spec){.rank = s->rank};
    for (int d = 0; d < s->rank; d++) {
        const AxisList *axes = &s->dim[d].axes;
        if (axes->n > CVN_MAX_SPEC_AXES)
            return err_set(err, CVN_EUNSUPPORTED, "a spec has at most %d axes per dimension",
                           CVN_MAX_SPEC_AXES);
        spec->dim[d].n = axes->n;
        for (int i = 0; i < axes->n; i++) {
            char text[AXIS_NAME_SIZE];
            axis_name(mesh, axes->ref[i], text, sizeof text);
            spec->dim[d].axis[i] = arena_string(arena, text);
        }
    }
    return CVN_OK;
}

/* Adds the references of a list to `all`, or says what is wrong with them. */
static int check_list(const Mesh *mesh, const AxisList *list, AxisList *all, const char *name,
                      cvn_err *err)
{
    if (list->n < 0 || list->n > AXES_MAX)
        return err_set(err, CVN_EINVAL, "%s is sharded over %d axes", name, list->n);
    for (int i = 0; i < list->n; i++) {
        AxisRef a = list->ref[i];
        if (a.axis < 0 || a.axis >= mesh->n_axes || a.pre < 1 || a.size < 2 ||
            a.size > mesh->axis[a.axis].size || a.pre > mesh->axis[a.axis].size ||
            mesh->axis[a.axis].size % ((int64_t)a.pre * a.size))
            return err_set(err, CVN_EINVAL,
                           "%s is sharded over an axis that the mesh does not have", name);
        if (axes_overlap(all, a) || all->n == AXES_MAX)
            return err_set(err, CVN_EINVAL, "%s uses the axis \"%s\" twice", name,
                           mesh->axis[a.axis].name);
        all->ref[all->n++] = a;
    }
    return CVN_OK;
}

int sharding_check(const Mesh *mesh, const Sharding *s, const char *name, cvn_err *err)
{
    AxisList all = {0};
    for (int d = 0; d < s->rank; d++)
        TRY(check_list(mesh, &s->dim[d].axes, &all, name, err));
    TRY(check_list(mesh, &s->replicated, &all, name, err));
    return check_list(mesh, &s->unreduced, &all, name, err);
}

void sharding_print(StrBuf *out, const Mesh *mesh, const Sharding *s)
{
    strbuf_putc(out, '<');
    for (int d = 0; d < s->rank; d++) {
        strbuf_puts(out, d ? "," : "");
        axes_print(out, mesh, &s->dim[d].axes);
    }
    strbuf_putc(out, '>');
    if (s->unreduced.n) {
        strbuf_puts(out, "+unreduced(");
        axes_print(out, mesh, &s->unreduced);
        strbuf_putc(out, ')');
    }
}

int64_t sharding_chunk(const Sharding *s, int d, int64_t n)
{
    return num_pieces(n, axes_size(&s->dim[d].axes));
}

void sharding_range(const Mesh *mesh, const Sharding *s, int d, int64_t n, int32_t place,
                    int64_t *first, int64_t *count)
{
    int64_t chunk = sharding_chunk(s, d, n), at = axes_digit(mesh, &s->dim[d].axes, place) * chunk;
    *first = num_min(at, n);
    *count = num_min(n - *first, chunk);
}

bool sharding_same(const Sharding *a, const Sharding *b)
{
    if (a->rank != b->rank || !axes_equal(&a->unreduced, &b->unreduced))
        return false;
    for (int d = 0; d < a->rank; d++)
        if (!axes_equal(&a->dim[d].axes, &b->dim[d].axes))
            return false;
    return true;
}

cvn_type sharding_local(const Sharding *sharding, const cvn_type *type)
{
    cvn_type local = *type;
    for (int d = 0; d < type->rank; d++)
        local.dim[d] = sharding_chunk(sharding, d, type->dim[d]);
    return local;
}
