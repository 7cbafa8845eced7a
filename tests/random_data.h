/*
 * Random contents of tensors, with the numbers at which operations differ, and where two tensors differ.
 * Everything is a function of the seed.
 */
#ifndef TESTS_RANDOM_DATA_H
#define TESTS_RANDOM_DATA_H

#include "graph/graph.h"
#include "splitmix.h"

#include <math.h>
#include <stdlib.h>

static inline bool random_is_float(cvn_dtype dtype)
{
    return dtype == CVN_F64 || dtype == CVN_F32 || dtype == CVN_BF16 || dtype == CVN_F16;
}

static inline double random_number(uint64_t *state, cvn_dtype dtype, bool specials)
{
    static const double special[] = {-0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-40, 65504, 3e38};
    uint64_t bits = splitmix(state);
    bool is_special = specials && bits % 8 == 0;
    bits >>= 8;
    if (dtype == CVN_BOOL)
        return (double)(bits % 2);
    if (random_is_float(dtype)) {
        if (is_special)
            return special[bits % 8];
        return bits % 4 == 0 ? (double)((int)(bits / 4 % 17) - 8) / 2
                             : ((double)(bits % 1000003) / 1000003 - 0.5) * 8;
    }
    if (is_special && dtype == CVN_U32)
        return bits % 2 ? UINT32_MAX : INT32_MAX;
    if (is_special && dtype == CVN_I32)
        return bits % 2 ? INT32_MIN : INT32_MAX;
    if (is_special)
        return bits % 2 ? 127 : -128; /* saturates in i4 */
    return dtype == CVN_U32 ? (double)(bits % 9) : (double)((int)(bits % 13) - 4);
}

static inline void random_fill(uint64_t *state, const cvn_type *type, void *data, bool specials)
{
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++)
        element_set(type->dtype, data, i, random_number(state, type->dtype, specials));
}

/* A buffer per parameter: an array of g->n_parameters, to be freed by random_free. */
static inline void **random_inputs(const cvn_graph *g, uint64_t seed, bool specials)
{
    void **inputs = calloc((size_t)g->n_parameters + 1, sizeof *inputs);
    for (int i = 0; inputs && i < g->n_parameters; i++) {
        const cvn_type *type = &g->parameter[i]->type;
        inputs[i] = calloc(cvn_type_bytes(type) + 1, 1);
        if (inputs[i])
            random_fill(&seed, type, inputs[i], specials);
    }
    return inputs;
}

static inline void random_free(void **buffers, int n)
{
    for (int i = 0; buffers && i < n; i++)
        free(buffers[i]);
    free(buffers);
}

/* The first element where a and b differ, or -1. Zeros of different sign differ; NaNs do not. */
static inline int64_t random_difference(const cvn_type *type, const void *a, const void *b)
{
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        double x = element_get(type->dtype, a, i), y = element_get(type->dtype, b, i);
        if (!(isnan(x) && isnan(y)) && (x != y || signbit(x) != signbit(y)))
            return i;
    }
    return -1;
}

#endif
