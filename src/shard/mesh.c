#include "shard/mesh.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* What is left of the text that is read. */
typedef struct Reader {
    const char *whole, *p; /* the text, for messages; the next character */
    cvn_err *err;
} Reader;

static int bad(const Reader *r, const char *why)
{
    return err_set(r->err, CVN_EINVAL,
                   "the mesh \"%.200s\" %s; write it like data=4,model=2 or dcn=2,data=4", r->whole,
                   why);
}

/* A number from 0 to `most`; -1 when there is none. */
static int32_t read_number(Reader *r, int32_t most)
{
    int64_t n = 0;
    const char *start = r->p;
    for (; isdigit((unsigned char)*r->p) && n <= most; r->p++)
        n = n * 10 + (*r->p - '0');
    return r->p == start || n > most ? -1 : (int32_t)n;
}

static int read_axis(Reader *r, Mesh *mesh)
{
    const char *start = r->p;
    while (isalnum((unsigned char)*r->p) || *r->p == '_' || *r->p == '-')
        r->p++;
    size_t n = (size_t)(r->p - start);
    if (n == 0 || n >= MESH_MAX_NAME || !isalpha((unsigned char)*start))
        return bad(r, "has an axis without a name of at most 31 letters, digits, '_' and '-'");
    if (mesh_axis(mesh, start, n) >= 0)
        return bad(r, "names an axis twice");
    if (mesh->n_axes == MESH_MAX_AXES)
        return bad(r, "has more than 8 axes");
    if (*r->p++ != '=')
        return bad(r, "lacks '=' and a size after the name of an axis");
    MeshAxis *axis = &mesh->axis[mesh->n_axes++];
    memcpy(axis->name, start, n);
    if (!isdigit((unsigned char)*r->p))
        return bad(r, "has an axis whose size is not a number");
    axis->size = read_number(r, MESH_MAX_DEVICES);
    if (axis->size == 0)
        return bad(r, "has an axis of size 0");
    if (axis->size < 0 || (int64_t)mesh->n_devices * axis->size > MESH_MAX_DEVICES)
        return bad(r, "has more than 65536 devices");
    mesh->n_devices *= axis->size;
    if (mesh->n_axes > 1 && strcmp(axis->name, "dcn") == 0)
        return bad(r, "has dcn after another axis; the slow axis comes first");
    return CVN_OK;
}

int mesh_parse(Mesh *mesh, const char *text, Arena *arena, cvn_err *err)
{
    Reader r = {.whole = text, .p = text, .err = err};
    *mesh = (Mesh){.n_devices = 1};
    while (*r.p && *r.p != ':') {
        if (mesh->n_axes > 0 && *r.p++ != ',')
            return bad(&r, "lacks a comma between axes");
        TRY(read_axis(&r, mesh));
    }
    if (*r.p == ':') { /* the list of devices */
        int32_t *order = arena_array(arena, (size_t)mesh->n_devices, sizeof *order);
        bool *seen = arena_array(arena, (size_t)mesh->n_devices, sizeof *seen);
        for (int32_t i = 0; i < mesh->n_devices; i++) {
            if (*r.p++ != (i ? ',' : ':'))
                return bad(&r, "has an order that does not name every device");
            order[i] = read_number(&r, mesh->n_devices - 1);
            if (order[i] < 0 || seen[order[i]])
                return bad(&r, "has an order that names a device twice, or one that is not there");
            seen[order[i]] = true;
        }
        mesh->order = order;
    }
    return *r.p ? bad(&r, "has text after its end") : CVN_OK;
}

void mesh_print(StrBuf *out, const Mesh *mesh)
{
    for (int i = 0; i < mesh->n_axes; i++)
        strbuf_printf(out, "%s%s=%d", i ? "," : "", mesh->axis[i].name, mesh->axis[i].size);
    for (int32_t i = 0; mesh->order && i < mesh->n_devices; i++)
        strbuf_printf(out, "%c%d", i ? ',' : ':', mesh->order[i]);
}

int mesh_axis(const Mesh *mesh, const char *name, size_t n)
{
    for (int i = 0; i < mesh->n_axes; i++)
        if (strlen(mesh->axis[i].name) == n && memcmp(mesh->axis[i].name, name, n) == 0)
            return i;
    return -1;
}

int32_t mesh_take_axis(Mesh *mesh, const char *name)
{
    int at = mesh_axis(mesh, name, strlen(name));
    if (at < 0)
        return 1;
    int32_t size = mesh->axis[at].size;
    mesh->n_devices /= size;
    mesh->n_axes--;
    for (int i = at; i < mesh->n_axes; i++)
        mesh->axis[i] = mesh->axis[i + 1];
    return size;
}

bool mesh_axis_is_slow(const Mesh *mesh, int axis)
{
    return strcmp(mesh->axis[axis].name, "dcn") == 0;
}

int32_t mesh_device(const Mesh *mesh, int32_t place)
{
    return mesh->order ? mesh->order[place] : place;
}

int32_t mesh_place(const Mesh *mesh, int32_t device)
{
    if (!mesh->order)
        return device;
    int32_t place = 0;
    while (mesh->order[place] != device)
        place++;
    return place;
}

void mesh_coordinates(const Mesh *mesh, int32_t place, int32_t *coordinate)
{
    for (int i = mesh->n_axes - 1; i >= 0; i--) {
        coordinate[i] = place % mesh->axis[i].size;
        place /= mesh->axis[i].size;
    }
}
