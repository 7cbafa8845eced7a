/*
 * The safetensors of a Hugging Face folder, as one list of tensors:
 *
 *   model.safetensors               one file, or
 *   model.safetensors.index.json    {"weight_map": {"tensor name": "shard file", …}}
 *                                   and its shards, or
 *   anything.safetensors            when it is the only one
 *
 * The index is held to the shards: a shard that is missing, that lies outside of the folder, or
 * that holds other tensors than the index says is an error.
 */
#ifndef CVN_IO_FOLDER_H
#define CVN_IO_FOLDER_H

#include "base/file.h"
#include "io/tensor.h"

typedef struct Folder {
    IoTensors tensors; /* of all files; pointing into map */
    FileMap *map;      /* [n_maps], owned mappings; the array is in the arena */
    size_t n_maps;
} Folder;

/* Names and arrays go to the arena, which must outlive the folder. */
int folder_open(Folder *folder, const char *path, Arena *arena, cvn_err *err);
void folder_close(Folder *folder);
void folder_release(void *folder); /* the same as a cleanup (base/protect.h) */

#endif
