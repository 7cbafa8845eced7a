/* What attention on AMX tiles and its gradient are tested at: shapes that tiles and blocks do not divide. */
#ifndef CVN_TESTS_AMX_ATTENTION_H
#define CVN_TESTS_AMX_ATTENTION_H

#include "amx_check.h"
#include "attention_check.h"

/* dim: b rows of s positions, g heads for each of h KV heads, context n, head_dim d. */
typedef void AttentionCheck(const int64_t dim[6], const int32_t *starts, const int32_t *lengths,
                            FirstKeys how);

/* Positions, heads and head_dims in all combinations, but those that `leaves_out` takes, by their numbers. */
static inline void amx_attention_odd_shapes(AttentionCheck *check,
                                            bool (*leaves_out)(int s, int g, int d))
{
    static const int64_t seqs[] = {17, 31, 33, 127, 9}, groups[] = {1, 3, 4, 8};
    static const int64_t dims[] = {16, 32, 64, 80, 128, 1, 33};
    for (int s = 0; s < 5; s++)
        for (int g = 0; g < 4; g++)
            for (int d = 0; d < 7; d++) {
                int64_t more = (s * 37 + d * 11) % 160;
                int64_t dim[] = {2, seqs[s], groups[g], 1 + (g + d) % 2, seqs[s] + more, dims[d]};
                if (!leaves_out(s, g, d))
                    check(dim, (int32_t[]){(int32_t)more, (int32_t)more / 2},
                          (int32_t[]){(int32_t)seqs[s], 3}, FIRST_NONE);
            }
}

/* Each of n shapes with every kind of first keys; the second row begins `early` before the half of the first. */
static inline void amx_attention_first_keys(AttentionCheck *check, const int64_t (*dims)[6],
                                            size_t n, int32_t early)
{
    for (size_t i = 0; i < n; i++)
        for (int how = FIRST_NONE + 1; how < FIRST_COUNT; how++) {
            int32_t last = (int32_t)(dims[i][4] - dims[i][1]);
            check(dims[i], (int32_t[]){last, last / 2 - early},
                  (int32_t[]){(int32_t)dims[i][1], 13}, (FirstKeys)how);
        }
}

/* Queries of one value and its negative in turn, and keys that rise by `step` each, so that the highest score of a
   row is found late. Of one row and one head. */
static inline void amx_attention_rise(Check *c, const int64_t dim[6], double query, double step)
{
    for (int64_t i = 0; i < dim[1]; i++)
        for (int64_t e = 0; e < dim[5]; e++)
            element_set(CVN_BF16, c->in[0].data, i * dim[5] + e, i % 2 ? query : -query);
    for (int64_t i = 0; i < dim[4]; i++)
        for (int64_t e = 0; e < dim[5]; e++)
            element_set(CVN_BF16, c->in[1].data, i * dim[5] + e, step * (double)i);
}

#endif
