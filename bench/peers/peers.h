/*
 * Other libraries' matrix products, to stand beside ours in bench_kernels: oneDNN (f32 and bf16; weights in the
 * layout that it likes best, made before the clock starts) and OpenBLAS (f32). Each is there when it was
 * installed as Caravan was configured (libdnnl-dev, libopenblas-dev); none is needed.
 */
#ifndef CVN_BENCH_PEERS_H
#define CVN_BENCH_PEERS_H

#include "caravan/dtype.h"

#include <stdint.h>

typedef struct Peer {
    const char *name;
    /* Median seconds of C[m, n] = A[m, k] B[n, k]^T with f32 results, or a negative number where the library does
       not do it. */
    double (*product)(int threads, cvn_dtype dtype, int64_t m, int64_t k, int64_t n);
} Peer;

extern const Peer peers[]; /* ended by a row without a name */

/* Median of some runs after one that is not counted. */
double peer_seconds(void (*run)(void *context), void *context);

#if defined(CVN_HAVE_DNNL)
double peer_onednn(int threads, cvn_dtype dtype, int64_t m, int64_t k, int64_t n);
#endif
#if defined(CVN_HAVE_OPENBLAS)
double peer_openblas(int threads, cvn_dtype dtype, int64_t m, int64_t k, int64_t n);
#endif

#endif
