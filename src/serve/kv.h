/*
 * The KV cache: for each layer a K and a V tensor [rows, kv_heads, positions,
 * head_dim], and in 8 bits the scales of both, bf16 [rows, kv_heads, positions,
 * 1], in address space that is reserved at full length and filled by use. What
 * is not touched costs nothing; a row that is done gives its pages back.
 * The MMU is the page table.
 *
 * A row of a tensor is contiguous, so a graph made for one row runs on any row by being given its
 * address.
 */
#ifndef CVN_SERVE_KV_H
#define CVN_SERVE_KV_H

#include "caravan/dtype.h"
#include "model/params.h"

/* Sizes of a tensor, in bytes. */
typedef struct KvShape {
    size_t tensor;   /* all rows; a multiple of the page size */
    size_t row;      /* one row */
    size_t head;     /* one head of a row: all positions */
    size_t position; /* one position of a head */
} KvShape;

typedef struct KvCache {
    char *base;         /* the mapping, owned */
    size_t bytes;       /* of the mapping */
    KvShape shape[2];   /* of keys and values; of their scales */
    size_t layer_bytes; /* of all tensors of a layer */
    int layer_tensors;  /* k, v, and in 8 bits k_scale, v_scale */
    int n_tensors;      /* those of layer 0, those of layer 1, … */
    int rows;
    int64_t kv_heads;
} KvCache;

/* dtype: f32 or bf16, or i8 with scales. */
int kv_init(KvCache *kv, const LlamaConfig *config, int rows, int64_t positions, cvn_dtype dtype,
            cvn_err *err);
void kv_free(KvCache *kv);

/* The sizes of tensor i: layer i / layer_tensors, in the order of the graph's parameters. */
const KvShape *kv_shape(const KvCache *kv, int i);

/* Address of a row of tensor i. Constant over the cache's life. */
void *kv_row(const KvCache *kv, int i, int row);

/* Gives the memory of a row back to the system; its contents are then zero. */
void kv_release(KvCache *kv, int row);

#endif
