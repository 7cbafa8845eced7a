/*
 * Checkpoints of a mesh: the same folder as of one device (checkpoint.h), but in place of the model's and the
 * optimizer's files it has one file per device.
 *
 *   shard-00001-of-00004.safetensors     what device 0 holds: slices, under the names of their tensors. Metadata of the
 *                                        file says of each where in the whole it lies: "0+16 8+8" is elements 0 … 15
 *                                        of dimension 0 and 8 … 15 of dimension 1
 *   manifest.json                        version 2; its "mesh" has the axes, the layout, and name, type, shape and spec
 *                                        of every tensor. Shapes are logical: q is [heads, head_dim, embed]
 *
 * Of a slice that several devices hold one writes it, by turns, so that all write about as much. Padding is not
 * written. Every process writes the files of its own devices, all at once; the manifest follows when all are there. A
 * reader goes by the slices alone, so a checkpoint is read on any other mesh, and by one device.
 */
#ifndef CVN_TRAIN_CHECKPOINT_SHARDS_H
#define CVN_TRAIN_CHECKPOINT_SHARDS_H

#include "shard/region.h"
#include "train/checkpoint/checkpoint.h"

/* A part of a tensor, to be written. */
typedef struct CheckpointSlice {
    int tensor;       /* in the state */
    int file;         /* of this process, from 0 */
    RegionArray at;   /* the part, and the array in which it lies */
    const void *data; /* that array; NULL: it is asked for (CheckpointState.read) */
} CheckpointSlice;

/* How a state lies on a mesh, and what of it this process writes. */
struct CheckpointShards {
    const char *mesh, *layout;   /* as given */
    const char *const *spec;     /* [n of the state] "<data,_>" */
    int n_files, first, n_local; /* devices of all; the first one here; how many are here */
    CheckpointSlice *slice;      /* [n_slices], by file */
    int n_slices;
};

/* Which devices' slices: adds those that device `file + shards->first` is to write, with data[tensor] as their
   shards (NULL: none). shards->slice has room. */
void checkpoint_shards_add(struct CheckpointShards *shards, const Mesh *mesh, int file,
                           const CheckpointState *state, const Sharding *sharding,
                           void *const *data);

/* What this process writes of a state: its slices; or the tensors, each a slice that is the whole. */
int checkpoint_pieces(const CheckpointState *state);
CheckpointSlice checkpoint_piece(const CheckpointState *state, int i);

/* Where a slice lies, as its file says it; in the arena. */
const char *checkpoint_region_text(const Region *region, Arena *arena);

/* The name of a file, counted over all devices. */
const char *checkpoint_shard_name(const struct CheckpointShards *shards, int file, Arena *arena);

/* The manifest's "mesh" as JSON text, in the arena. */
int checkpoint_shards_text(const CheckpointState *state, Arena *arena, const char **text,
                           cvn_err *err);

/* What a checkpoint of a mesh says of a tensor that lies in parts. */
typedef struct CheckpointPart {
    Region region;
    const uint8_t *data;         /* packed, in a mapping */
    struct CheckpointPart *next; /* of the same tensor */
} CheckpointPart;

typedef struct CheckpointWhole {
    const char *name;
    cvn_type type; /* logical */
    CheckpointPart *part;
} CheckpointWhole;

typedef struct CheckpointWholes {
    CheckpointWhole *whole; /* [n], the arena's */
    int n;
    Map by_name; /* name -> index */
} CheckpointWholes;

/* The tensors that the manifest's "mesh" names, without parts yet. */
int checkpoint_wholes_read(CheckpointWholes *wholes, const char *folder, const char *text,
                           Arena *arena, cvn_err *err);

/* Adds the slices of a file. */
int checkpoint_wholes_add(CheckpointWholes *wholes, const char *path, const uint8_t *data,
                          size_t size, Arena *arena, cvn_err *err);

/* Every element of every tensor is there once. */
int checkpoint_wholes_check(const CheckpointWholes *wholes, const char *folder, cvn_err *err);

const CheckpointWhole *checkpoint_wholes_find(const CheckpointWholes *wholes, const char *name);

/* What of a tensor lies in `to`. */
void checkpoint_whole_copy(const CheckpointWhole *whole, const RegionArray *to, void *target);

/* Elements first … first + n - 1, row-major. */
void checkpoint_whole_range(const CheckpointWhole *whole, int64_t first, int64_t n, void *target);

#endif
