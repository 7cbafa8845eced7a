/*
 * A mesh: devices arranged along named axes.
 *
 *     data=4,model=2              8 devices; device 5 has the coordinates data 2, model 1
 *     dcn=2,data=2,model=2        the same number, as two groups joined by a slow network
 *     data=2,model=2:3,2,1,0      the same logical places, held by the devices 3, 2, 1, 0
 *
 * The place of a device is its coordinates read as a number in mixed radix, the first axis most
 * significant; the device at a place is that number, or what the list behind the colon says. An
 * axis named `dcn` (data centre network) is the slow one between groups of machines and comes
 * first, so that neighbours on all other axes are in one group.
 */
#ifndef CVN_SHARD_MESH_H
#define CVN_SHARD_MESH_H

#include "base/arena.h"
#include "base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

enum { MESH_MAX_AXES = 8, MESH_MAX_NAME = 32, MESH_MAX_DEVICES = 65536 };

typedef struct MeshAxis {
    char name[MESH_MAX_NAME]; /* letters, digits, '_' and '-'; begins with a letter */
    int32_t size;             /* devices along it, at least 1 */
} MeshAxis;

/* A plain value, but for `order`, which it borrows. */
typedef struct Mesh {
    int n_axes;
    MeshAxis axis[MESH_MAX_AXES]; /* [n_axes], most significant first */
    int32_t n_devices;            /* product of the sizes; 1 without axes */
    const int32_t *order;         /* [n_devices]: the device at each place; NULL: its number */
} Mesh;

/* Reads "data=4,model=2", "" (one device), with an order behind ':' where wanted; the order goes
   into the arena. CVN_EINVAL with a sentence about `text` when it is not a mesh. */
int mesh_parse(Mesh *mesh, const char *text, Arena *arena, cvn_err *err);
void mesh_print(StrBuf *out, const Mesh *mesh);

/* The axis of this name, or -1. */
int mesh_axis(const Mesh *mesh, const char *name, size_t n);
/* Takes an axis out of the mesh, and returns how many devices were along it: 1 where there is no such axis. Not of a mesh
   with an order. */
int32_t mesh_take_axis(Mesh *mesh, const char *name);
/* Whether the axis runs over the slow network between groups of machines. */
bool mesh_axis_is_slow(const Mesh *mesh, int axis);

/* Device <-> place <-> coordinates [n_axes]. */
int32_t mesh_device(const Mesh *mesh, int32_t place);
int32_t mesh_place(const Mesh *mesh, int32_t device);
void mesh_coordinates(const Mesh *mesh, int32_t place, int32_t *coordinate);

#endif
