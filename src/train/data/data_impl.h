/*
 * The inside of a TrainData, between opening (data.c), making the cache (make.c) and cutting rows
 * (rows.c). Tokens are numbered through all files, and so are documents.
 */
#ifndef CVN_TRAIN_DATA_DATA_IMPL_H
#define CVN_TRAIN_DATA_DATA_IMPL_H

#include "base/arena.h"
#include "base/rng.h"
#include "train/data/cache.h"
#include "train/data/data.h"
#include "train/data/source.h"

typedef struct DataFile {
    TokenFile tokens;    /* owned */
    char *path;          /* arena */
    int64_t first_token; /* number of its first token */
    int64_t first_document;
} DataFile;

/* Rows of a split: where each begins. */
typedef struct DataRows {
    int64_t *begin; /* [n] number of the first token, ascending, owned */
    int64_t n;
} DataRows;

struct TrainData {
    Arena arena; /* owned: paths, file, part, share */
    /* Of a mixture: its parts, owned, and how many of a block of rows each has (mix.c); then there are no files here. */
    TrainData **part; /* [n_parts] */
    int64_t *share;   /* [n_parts] */
    size_t n_parts;
    TrainData *held; /* owned: what validates, where that is a file of its own; NULL */
    DataFile *file;  /* [n_files] the cache, then the shards */
    size_t n_files;
    int32_t vocab;       /* ids are below */
    int32_t pad;         /* id in padding */
    int64_t seq;         /* tokens of a row */
    DataPacking packing; /* not AUTO */
    bool pairs;          /* documents, and rows, 2 i and 2 i + 1 belong together */
    uint32_t held_back;  /* a document validates when its 32 random bits are below; 0: none does */
    RngKey split;        /* of these bits */
    RngKey order;        /* of the order of rows */
    DataRows rows[DATA_SPLITS];
    DataReport report;
};

/* Opens the cache of the text and JSONL files of `list` into *file, making it first where there is none or
 * it is damaged. */
int data_make(TrainData *data, const SourceList *list, const DataOptions *options, DataFile *file,
              cvn_err *err);

/* Opens the parts, where the paths have weights; and the file that validates, where there is one. */
int data_mix_open(TrainData *data, const DataOptions *options, cvn_err *err);
int data_held_open(TrainData *data, const DataOptions *options, cvn_err *err);

/* The place of row i of a split, counted over epochs: the data without parts that have it, and the split there. */
typedef struct DataPlace {
    const TrainData *data;
    DataSplit split;
    int64_t i;
    bool in_order; /* rows are not permuted */
} DataPlace;
DataPlace data_place(const TrainData *data, DataSplit split, int64_t i);

/* Cuts the rows of both splits. */
int data_cut(TrainData *data, const DataOptions *options, cvn_err *err);

/* Place i of the permutation of 0 … n - 1 that a key and an epoch stand for. */
int64_t data_permute(RngKey key, uint64_t epoch, int64_t i, int64_t n);

#endif
