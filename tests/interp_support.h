/* Running small graphs in tests: random inputs, and results compared element by element. */
#ifndef CVN_TESTS_INTERP_SUPPORT_H
#define CVN_TESTS_INTERP_SUPPORT_H

#include "base/rng.h"
#include "graph/interp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A new buffer with n elements of the dtype, normally distributed with this spread; to be freed. */
static inline void *random_tensor(cvn_dtype dtype, int64_t n, double spread, uint64_t seed)
{
    void *data = calloc((size_t)n + 1, 8);
    float *noise = malloc(((size_t)n + 1) * sizeof *noise);
    rng_normal(rng_key(seed, "test"), 0, (size_t)n, noise);
    for (int64_t i = 0; i < n; i++)
        element_set(dtype, data, i, (double)noise[i] * spread);
    free(noise);
    return data;
}

/* Random inputs for every parameter of a graph: integers from 0 to 3, floats normal. */
static inline void random_inputs(const cvn_graph *g, void **inputs, uint64_t seed)
{
    for (int i = 0; i < g->n_parameters; i++) {
        const cvn_type *type = &g->parameter[i]->type;
        int64_t n = cvn_type_elements(type);
        bool real = type->dtype <= CVN_F16;
        inputs[i] = random_tensor(type->dtype, n, 1, seed + (uint64_t)i);
        for (int64_t k = 0; k < n && !real; k++)
            element_set(type->dtype, inputs[i], k, (double)((uint64_t)(k * 7 + i + 3) % 4));
    }
}

static inline void free_all(void **buffers, int n)
{
    for (int i = 0; i < n; i++)
        free(buffers[i]);
}

#endif
