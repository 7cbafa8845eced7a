/*
 * Packing: from rows anywhere in memory, of any stride and dtype, to the panels of gemm.h.
 *
 * In units of 4 bytes (a float, or two bf16 that are neighbours in k) a panel of 16 rows is a
 * transpose:
 *
 *     rows of B, k contiguous           panel
 *     b00 b01 b02 ...                   b00 b10 b20 ... b15,0
 *     b10 b11 b12 ...            ->     b01 b11 b21 ... b15,1
 *     ...                               ...
 *
 * Rows that lie well are transposed where they are. Others (converted, strided, past the edge, an
 * odd k at the end of bf16) are first staged as units, 64 at a time. Rows that are contiguous
 * across instead of along k (a transposed operand) are copied.
 */
#include "cpu/kernels/gemm.h"

#include "base/float16.h"

#include <string.h>

enum { STAGE = 64 }; /* units staged at a time */

int64_t gemm_offset(const GemmDims *dims, int64_t index)
{
    if (dims->n == 1)
        return index * dims->stride[0];
    int64_t offset = 0;
    for (int i = dims->n - 1; i >= 0; i--) {
        offset += index % dims->size[i] * dims->stride[i];
        index /= dims->size[i];
    }
    return offset;
}

static bool contiguous(const GemmDims *dims)
{
    return dims->n == 0 || (dims->n == 1 && dims->stride[0] == 1);
}

static float read_f32(cvn_dtype dtype, const void *data, int64_t i)
{
    if (dtype == CVN_F32)
        return ((const float *)data)[i];
    uint16_t half = ((const uint16_t *)data)[i];
    return dtype == CVN_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

/* Elements k0 … k0 + n of a row that starts at element `row`, as units; an odd end is padded with
 * zero. */
static void stage_row(const GemmIsa *isa, const GemmOperand *x, const void *data, int64_t row,
                      int64_t k0, int64_t n, uint32_t *out)
{
    if (isa->packed == CVN_BF16) {
        uint16_t *half = (uint16_t *)out;
        for (int64_t j = 0; j < n; j++)
            half[j] = ((const uint16_t *)data)[row + gemm_offset(&x->k, k0 + j)];
        if (n % 2)
            half[n] = 0;
        return;
    }
    float *value = (float *)out;
    if (contiguous(&x->k)) {
        for (int64_t j = 0; j < n; j++)
            value[j] = read_f32(x->dtype, data, row + k0 + j);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        value[j] = read_f32(x->dtype, data, row + gemm_offset(&x->k, k0 + j));
}

/* Panels of fewer than 16 rows are cut out of panels of 16. */
static void interleave(const GemmIsa *isa, int width, const void *const *row, int64_t units,
                       void *out)
{
    if (width == GEMM_PANEL) {
        isa->interleave(row, units, out);
        return;
    }
    uint32_t wide[STAGE][GEMM_PANEL], *to = out;
    for (int64_t j = 0; j < units; j += STAGE) {
        int64_t n = units - j < STAGE ? units - j : STAGE;
        const void *from[GEMM_PANEL];
        for (int i = 0; i < GEMM_PANEL; i++)
            from[i] = (const char *)row[i < width ? i : 0] + j * 4;
        isa->interleave(from, n, wide);
        for (int64_t k = 0; k < n; k++, to += width)
            memcpy(to, wide[k], (size_t)width * sizeof *to);
    }
}

/* All rows lie one next to the other, for each k: element (first + i, k) is at k's offset + first +
 * i. */
static void pack_across(const GemmIsa *isa, const GemmOperand *x, const void *data, int64_t first,
                        int width, int64_t k0, int64_t length, void *out)
{
    if (isa->packed == CVN_BF16) {
        uint16_t *to = out;
        for (int64_t k = 0; k < length; k++) {
            const uint16_t *from = (const uint16_t *)data + gemm_offset(&x->k, k0 + k) + first;
            uint16_t *pair = to + k / 2 * width * 2 + k % 2;
            for (int i = 0; i < width; i++)
                pair[i * 2] = from[i];
            if (k % 2 == 0 && k + 1 == length)
                for (int i = 0; i < width; i++)
                    pair[i * 2 + 1] = 0;
        }
        return;
    }
    float *to = out;
    for (int64_t k = 0; k < length; k++, to += width) {
        int64_t from = gemm_offset(&x->k, k0 + k) + first;
        if (x->dtype == CVN_F32)
            memcpy(to, (const float *)data + from, (size_t)width * sizeof *to);
        else
            for (int i = 0; i < width; i++)
                to[i] = read_f32(x->dtype, data, from + i);
    }
}

void gemm_pack(const GemmIsa *isa, const GemmOperand *x, const void *data, int64_t rows,
               int64_t first, int width, int64_t k0, int64_t length, void *out)
{
    int64_t valid = rows - first < width ? rows - first : width;
    if (valid == width && contiguous(&x->row) && !contiguous(&x->k)) {
        pack_across(isa, x, data, first, width, k0, length, out);
        return;
    }

    const size_t unit = 4; /* bytes */
    int64_t start[GEMM_PANEL] = {0};
    for (int i = 0; i < valid; i++)
        start[i] = gemm_offset(&x->row, first + i);
    const void *row[GEMM_PANEL];
    int64_t done = 0; /* k */
    if (valid == width && x->dtype == isa->packed && contiguous(&x->k)) {
        for (int i = 0; i < width; i++)
            row[i] = (const char *)data + (size_t)(start[i] + k0) * unit / (size_t)isa->kpack;
        int64_t units = length / isa->kpack;
        interleave(isa, width, row, units, out);
        done = units * isa->kpack;
    }
    uint32_t stage[GEMM_PANEL][STAGE];
    for (int i = 0; i < width; i++)
        row[i] = stage[i];
    for (; done < length; done += STAGE * isa->kpack) {
        int64_t n = length - done < STAGE * isa->kpack ? length - done : STAGE * isa->kpack;
        for (int i = 0; i < width; i++) {
            if (i < valid)
                stage_row(isa, x, data, start[i], k0 + done, n, stage[i]);
            else
                memset(stage[i], 0, sizeof stage[i]);
        }
        int64_t units = (n + isa->kpack - 1) / isa->kpack;
        interleave(isa, width, row, units,
                   (char *)out + (size_t)(done / isa->kpack * width) * unit);
    }
}

void gemm_pack_rows(const GemmIsa *isa, const GemmOperand *x, const void *data, int64_t rows,
                    int64_t first, int64_t k, void *out)
{
    const size_t unit = 4, size = unit / (size_t)isa->kpack, row = (size_t)isa->step * size;
    bool lies = x->dtype == isa->packed && contiguous(&x->k);
    for (int i = 0; i < isa->mr; i++) {
        char *to = (char *)out + (size_t)i * row;
        int64_t start = first + i < rows ? gemm_offset(&x->row, first + i) : 0;
        for (int64_t k0 = 0; k0 < k; k0 += isa->step, to += (size_t)isa->mr * row) {
            int64_t n = first + i >= rows ? 0 : k - k0 < isa->step ? k - k0 : isa->step;
            uint32_t stage[STAGE];
            const void *from = stage;
            if (lies)
                from = (const char *)data + (size_t)(start + k0) * size;
            else if (n)
                stage_row(isa, x, data, start, k0, n, stage);
            if (n)
                memcpy(to, from, (size_t)n * size);
            memset(to + (size_t)n * size, 0, (size_t)(isa->step - n) * size);
        }
    }
}
