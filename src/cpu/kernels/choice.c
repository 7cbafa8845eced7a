/*
 * The table of choice.h. Rows of AVX-512 were measured on an AMD EPYC (Zen 4, 2 cores): f32 and bf16dot cross between
 * 32 and 48 rows, bf16 that is widened between 64 and 96. Those of AMX were measured on two cores that have it: from a full
 * tile on it takes half the time or less; of blocks from two. dot_general crosses at 10 rows there, and at 32 takes a third.
 *
 * The rows of dot_general that are read as they lie all end at the same number, because there results change their
 * rounding (gemm.h): a machine on which another would be a little faster is not worth texts that depend on it. The
 * kernels of `linear` and `linear_int8` have the same bits as those that they stand in for.
 */
#include "cpu/kernels/choice.h"

#include <string.h>

#define ALL INT64_MAX

const RowChoice row_choices[] = {
    {"dot_general.portable.f32.few", 0, 32},
    {"dot_general.portable.bf16.few", 0, 32},
    {"dot_general.avx2.f32.few", 0, 32},
    {"dot_general.avx2.bf16.few", 0, 32},
    {"dot_general.avx512.f32.few", 0, 32},
    {"dot_general.avx512.bf16.few", 0, 32},
    {"dot_general.avx512.bf16dot.few", 0, 32},
    {"dot_general.portable.same.f32.few", 0, 32},
    {"dot_general.portable.same.bf16.few", 0, 32},
    {"dot_general.avx2.same.f32.few", 0, 32},
    {"dot_general.avx2.same.bf16.few", 0, 32},
    {"dot_general.avx512.same.f32.few", 0, 32},
    {"dot_general.avx512.same.bf16.few", 0, 32},
    {"dot_general.amx.bf16", 33, ALL},
    {"linear.amx.int8", 16, ALL},
    {"linear.amx.int4", 16, ALL},
    {"linear.amx.blocks", 24, ALL},
    {"linear.amx.blocks8", 96, ALL},
    {"linear.amx.rows8", 16, ALL},
    {"linear_int8.amx", 16, ALL},
};
const int row_choices_count = (int)(sizeof row_choices / sizeof *row_choices);

const RowChoice *choice_of(const char *kernel)
{
    for (int i = 0; i < row_choices_count; i++)
        if (strcmp(row_choices[i].kernel, kernel) == 0)
            return &row_choices[i];
    return NULL;
}

bool choice_takes(const char *kernel, int64_t rows)
{
    const RowChoice *row = choice_of(kernel);
    return !row || (rows >= row->from && rows <= row->to);
}
