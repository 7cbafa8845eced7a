/*
 * The KV cache: for each layer a K and a V tensor [rows, kv_heads, positions, head_dim] in address
 * space that is reserved at full length and filled by use. What is not touched costs nothing; a row
 * that is done gives its pages back; a prefix is shared by copying it. The MMU is the page table.
 *
 * A row of a tensor is contiguous, so a graph made for one row runs on any row by being given its
 * address.
 */
#ifndef CVN_SERVE_KV_H
#define CVN_SERVE_KV_H

#include "caravan/dtype.h"
#include "model/params.h"

typedef struct KvCache {
    char *base;            /* the mapping, owned */
    size_t bytes;          /* of the mapping */
    size_t tensor_bytes;   /* of one tensor, all rows; a multiple of the page size */
    size_t row_bytes;      /* of one row of one tensor */
    size_t head_bytes;     /* of one head of one row: positions * head_dim elements */
    size_t position_bytes; /* of one position of one head */
    int n_tensors;         /* 2 * layers: k, v of layer 0, k, v of layer 1, … */
    int rows;
    int64_t kv_heads;
} KvCache;

int kv_init(KvCache *kv, const LlamaConfig *config, int rows, int64_t positions, cvn_dtype dtype,
            cvn_err *err);
void kv_free(KvCache *kv);

/* Address of a row of tensor i (2 * layer for K, 2 * layer + 1 for V). Constant over the cache's
 * life. */
void *kv_row(const KvCache *kv, int i, int row);

/* Gives the memory of a row back to the system; its contents are then zero. */
void kv_release(KvCache *kv, int row);

/* Copies the first n positions of one row to another. */
void kv_copy_prefix(KvCache *kv, int from, int to, int64_t n);

#endif
