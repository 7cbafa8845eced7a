/*
 * What the files of a checkpoint hold: slices of tensors.
 *
 *   model.safetensors, optimizer.safetensors   of one device: each slice is a whole tensor
 *   shard-00001-of-00004.safetensors           of a mesh, one file per device: what device 0 holds, under the names of the
 *                                              tensors. Metadata of the file says of each where in the whole it lies:
 *                                              "0+16 8+8" is elements 0 … 15 of dimension 0 and 8 … 15 of dimension 1
 *
 * Of a slice that several devices hold one writes it, by turns, so that all write about as much. Padding is not
 * written. Every process writes the files of its own devices, all at once; the manifest follows when all are there. A
 * reader goes by the slices and the manifest's list of tensors alone, so a checkpoint is read on any mesh, and by one device.
 */
#ifndef CVN_TRAIN_CHECKPOINT_SHARDS_H
#define CVN_TRAIN_CHECKPOINT_SHARDS_H

#include "shard/box.h"
#include "train/checkpoint/checkpoint.h"

/* A shard of a tensor, to be written. */
typedef struct CheckpointSlice {
    int tensor;       /* in the state */
    int file;         /* of this process, from 0 */
    BoxArray at;      /* the shard, and the array in which it lies */
    const void *data; /* that array; NULL: it is asked for (CheckpointState.read) */
} CheckpointSlice;

/* How a state lies on a mesh, and what of it this process writes. */
struct CheckpointShards {
    int n_files, first, n_local; /* devices of all; the first one here; how many are here */
    CheckpointSlice *slice;      /* [n_slices], by file */
    int n_slices;
};

/* Adds the slices that a device of the mesh, whose file this is, is to write, with data[tensor] as their shards (NULL: none). Tensors
   without a sharding are not on the mesh. shards->slice has room. */
void checkpoint_shards_add(struct CheckpointShards *shards, const Mesh *mesh, int device, int file,
                           const CheckpointState *state, const Sharding *const *sharding,
                           void *const *data);

/* What this process writes of a state: its slices; or the tensors, each a slice that is the whole. */
int checkpoint_pieces(const CheckpointState *state);
CheckpointSlice checkpoint_piece(const CheckpointState *state, int i);

/* The box of a slice as its file says it, a text in the arena. */
const char *checkpoint_box_text(const Box *box, Arena *arena);

/* The name of a file, counted over all devices. */
const char *checkpoint_shard_name(const struct CheckpointShards *shards, int file, Arena *arena);

/* What a checkpoint has of a tensor. */
typedef struct CheckpointShard {
    Box box;
    const uint8_t *data;          /* packed, in a mapping */
    struct CheckpointShard *next; /* of the same tensor */
} CheckpointShard;

typedef struct CheckpointWhole {
    const char *name;
    cvn_type type; /* logical */
    CheckpointShard *shard;
} CheckpointWhole;

typedef struct CheckpointWholes {
    CheckpointWhole *whole; /* [n], the arena's */
    int n;
    Map by_name; /* name -> index */
} CheckpointWholes;

/* The tensors that the manifest names, without shards yet; `folder` is for messages. */
int checkpoint_wholes_init(CheckpointWholes *wholes, const char *folder, const Manifest *manifest,
                           Arena *arena, cvn_err *err);

/* Adds the slices of a file. */
int checkpoint_wholes_add(CheckpointWholes *wholes, const char *path, const uint8_t *data,
                          size_t size, Arena *arena, cvn_err *err);

/* Every element of every tensor is there once. */
int checkpoint_wholes_check(const CheckpointWholes *wholes, const char *folder, cvn_err *err);

const CheckpointWhole *checkpoint_wholes_find(const CheckpointWholes *wholes, const char *name);

/* What of a tensor lies in `to`. */
void checkpoint_whole_copy(const CheckpointWhole *whole, const BoxArray *to, void *target);

/* Elements first … first + n - 1, row-major. */
void checkpoint_whole_range(const CheckpointWhole *whole, int64_t first, int64_t n, void *target);

#endif
