/*
 * The weights of an opened model, one array per parameter, in the type that is wanted.
 *
 * Where a file holds a tensor in that type already, the array is the file's own mapping: nothing is
 * read until it is used and nothing is copied. The others are converted into one block of memory
 * whose size is known before (weights_owned_bytes). An array is row-major in the parameter's
 * logical shape (Param.dims), which has the same bytes as the shape in the file.
 */
#ifndef CVN_IO_WEIGHTS_H
#define CVN_IO_WEIGHTS_H

#include "io/model.h"

typedef struct WeightsOptions {
    cvn_dtype dtype; /* f32, bf16 or f16 */
    int threads;     /* that convert and scan; 0: as many as the machine has */
} WeightsOptions;

typedef struct Weight {
    const void *data; /* [param->n] of Weights.dtype; 64-byte aligned where owned, else aligned to
                         the element; writable only where owned */
    size_t bytes;
    bool owned;          /* in Weights.block, not in a file's mapping */
    int64_t n_nonfinite; /* NaN and infinite elements; -1 where nobody looked */
} Weight;

typedef struct Weights {
    Weight *weight; /* [n], heap; in the order of IoModel.params */
    int n;
    cvn_dtype dtype;
    void *block; /* owned, anonymous mapping of block_bytes; NULL when everything is mapped */
    size_t block_bytes;
    char warnings[2048]; /* tensors with NaN or infinite elements, one per line; "" when none */
} Weights;

/* Looks for NaN and infinities where data is converted, and everywhere when the whole model has at most 4 GB. The model
   must stay open as long as the weights. */
int weights_load(Weights *weights, const IoModel *model, const WeightsOptions *options,
                 cvn_err *err);
void weights_free(Weights *weights);

/* Bytes that weights_load would allocate. */
size_t weights_owned_bytes(const IoModel *model, cvn_dtype dtype);

/* A box of one parameter in its logical shape, start[i] <= index < start[i] + size[i], converted to
 * dtype (f32, bf16 or f16) and packed row-major: how a process of a mesh reads its own shards only. */
int weights_read_box(const IoModel *model, int param, const int64_t *start, const int64_t *size,
                     cvn_dtype dtype, void *out, cvn_err *err);

#endif
