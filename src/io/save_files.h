/*
 * Which tensor is written into which file. Files are filled in order, and the next one is begun where a tensor would
 * not fit. One is NAME.safetensors; several are NAME-0000N-of-0000M.safetensors, with an index.
 */
#ifndef CVN_IO_SAVE_FILES_H
#define CVN_IO_SAVE_FILES_H

#include "base/arena.h"

#include <jansson.h>
#include <stdint.h>

#define SAVE_INDEX "model.safetensors.index.json"

typedef struct SaveFiles {
    const char *name;    /* "model" */
    uint64_t limit;      /* most bytes of tensors in a file; one may exceed it */
    Arena *arena;        /* borrowed: the rest is in it */
    const char **tensor; /* [n_tensors] names */
    int *file;           /* [n_tensors] in which each lies, from 0; -1: in none */
    /* [n_tensors] of those whose name stands for so many tensors, by "%d"; else 0 */
    int64_t *pieces;
    int n_tensors, n;
    uint64_t used, total; /* bytes: of the last file, of all */
} SaveFiles;

/* None is in a file yet. limit 0: 5e9. */
SaveFiles save_files(const char *name, uint64_t limit, int n_tensors, Arena *arena);

/* Tensor i comes next. One of no bytes goes beside the one before. */
void save_files_add(SaveFiles *files, int i, const char *tensor, uint64_t bytes);

/* Once all are added: what a file is called. */
const char *save_files_name(const SaveFiles *files, int file);

/* SAVE_INDEX as JSON; NULL where there is no memory. */
json_t *save_files_json(const SaveFiles *files);

/* SAVE_INDEX, which Hugging Face's readers want where a model has several files. */
int save_files_index(const SaveFiles *files, const char *folder, cvn_err *err);

#endif
