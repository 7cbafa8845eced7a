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
 * across instead of along k (a transposed operand) are copied, many panels at a time.
 */
#include "cpu/kernels/gemm.h"

#include "base/float16.h"
#include "base/num.h"

#include <string.h>

enum { STAGE = 64 /* units staged at a time */ };

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
    uint16_t *half = (uint16_t *)out;
    float *value = (float *)out;
    const int last = x->k.n - 1;
    for (int64_t j = 0, run; j < n; j += run) { /* neighbours in k that lie next to each other */
        run = last < 0 || x->k.stride[last] != 1 ? 1
              : last == 0                        ? n
                                                 : x->k.size[last] - (k0 + j) % x->k.size[last];
        run = num_min(run, n - j);
        int64_t at = row + gemm_offset(&x->k, k0 + j);
        if (isa->packed == CVN_BF16)
            memcpy(half + j, (const uint16_t *)data + at, (size_t)run * sizeof *half);
        else
            for (int64_t i = 0; i < run; i++)
                value[j + i] = read_f32(x->dtype, data, at + i);
    }
    if (isa->packed == CVN_BF16 && n % 2)
        half[n] = 0;
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

/* Rows of which neighbours lie next to each other, for each k: a transposed operand. */
static bool lies_across(const GemmOperand *x)
{
    return x->row.n > 0 && x->row.stride[x->row.n - 1] == 1 && !contiguous(&x->k);
}

enum {
    ACROSS = 512, /* columns taken at a time: for each k, 1 or 2 KiB in a piece */
    DEEP = 8 /* units of k taken at a time: whole cache lines of each panel are written at once */
};

/* Rows [first, first + n) as runs of neighbours. */
typedef struct Runs {
    int n;
    int64_t start[ACROSS], length[ACROSS]; /* offset of the first, and how many */
} Runs;

static void find_runs(const GemmDims *row, int64_t first, int64_t n, Runs *runs)
{
    int64_t inner = row->n == 1 ? first + n : row->size[row->n - 1];
    runs->n = 0;
    for (int64_t i = first; i < first + n; runs->n++) {
        int64_t left = first + n - i, length = inner - i % inner;
        length = num_min(length, left);
        runs->start[runs->n] = gemm_offset(row, i);
        runs->length[runs->n] = length;
        i += length;
    }
}

/* Copies the elements of one k in all runs, `columns` of them with zeros at the end, as `packed`. They are never used
   where they lie: rows a power of two apart would share one set of the L1 cache. */
static void lay_out(const GemmIsa *isa, const GemmOperand *x, const void *data, const Runs *runs,
                    int64_t k, int64_t columns, void *buffer)
{
    size_t size = isa->packed == CVN_F32 ? 4 : 2;
    int64_t at = gemm_offset(&x->k, k), done = 0;
    for (int r = 0; r < runs->n; done += runs->length[r], r++) {
        int64_t from = at + runs->start[r], n = runs->length[r];
        char *to = (char *)buffer + (size_t)done * size;
        if (x->dtype == isa->packed) {
            memcpy(to, (const char *)data + (size_t)from * size, (size_t)n * size);
            continue;
        }
        float *value = (float *)(void *)to;
        const uint16_t *half = (const uint16_t *)data + from;
        if (x->dtype == CVN_BF16)
            for (int64_t i = 0; i < n; i++)
                value[i] = bf16_to_f32(half[i]);
        else
            for (int64_t i = 0; i < n; i++)
                value[i] = f16_to_f32(half[i]);
    }
    memset((char *)buffer + (size_t)done * size, 0, (size_t)(columns - done) * size);
}

static inline void pair_up(uint32_t *out, const uint16_t *even, const uint16_t *odd, int n)
{
    for (int i = 0; i < n; i++)
        out[i] = even[i] | (uint32_t)odd[i] << 16;
}

/* Writes `units` units of k of one panel; row: what was laid out, ACROSS elements apart, from this panel's columns
   on. */
static void write_units(const GemmIsa *isa, const void *row, int width, int64_t units, char *out)
{
    const float *value = row;
    const uint16_t *half = row;
    if (isa->packed == CVN_BF16 && width == GEMM_PANEL) {
        isa->pair(half, ACROSS, units, (uint32_t *)(void *)out);
        return;
    }
    for (int64_t u = 0; u < units; u++, out += (size_t)width * 4) {
        uint32_t *to = (uint32_t *)(void *)out;
        if (isa->packed == CVN_F32)
            memcpy(out, value + u * ACROSS, (size_t)width * 4);
        else if (width == 12)
            pair_up(to, half + 2 * u * ACROSS, half + (2 * u + 1) * ACROSS, 12);
        else
            pair_up(to, half + 2 * u * ACROSS, half + (2 * u + 1) * ACROSS, width);
    }
}

/* `count` panels at once, so that memory is read in long pieces: a panel alone would take half a cache line from
   each of many far apart. */
static void pack_across(const GemmIsa *isa, const GemmOperand *x, const void *data, int64_t rows,
                        int64_t first, int width, int64_t count, int64_t k0, int64_t length,
                        char *out, size_t panel)
{
    Runs runs;
    float buffer[DEEP * ACROSS]; /* [DEEP][ACROSS] of f32, or [2 * DEEP][ACROSS] of bf16 */
    size_t size = isa->packed == CVN_F32 ? 4 : 2;
    int64_t columns = count * width, valid = num_min(rows - first, columns);
    find_runs(&x->row, first, valid < 0 ? 0 : valid, &runs);
    int64_t deep = DEEP * isa->kpack;
    for (int64_t k = 0; k < length; k += deep, out += (size_t)(DEEP * width) * 4) {
        int64_t n = num_min(length - k, deep);
        int64_t units = num_pieces(n, isa->kpack);
        for (int64_t i = 0; i < units * isa->kpack; i++) {
            char *to = (char *)buffer + (size_t)(i * ACROSS) * size;
            if (i < n)
                lay_out(isa, x, data, &runs, k0 + k + i, columns, to);
            else
                memset(to, 0, (size_t)columns * size);
        }
        for (int64_t i = 0; i < count; i++)
            write_units(isa, (char *)buffer + (size_t)(i * width) * size, width, units,
                        out + (size_t)i * panel);
    }
}

/* One panel, of rows of which neighbours do not lie next to each other. */
static void pack_along(const GemmIsa *isa, const GemmOperand *x, const void *data, int64_t rows,
                       int64_t first, int width, int64_t k0, int64_t length, void *out)
{
    int64_t valid = num_min(rows - first, width);
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
        int64_t units = num_pieces(n, isa->kpack);
        interleave(isa, width, row, units,
                   (char *)out + (size_t)(done / isa->kpack * width) * unit);
    }
}

void gemm_pack_panels(const GemmIsa *isa, const GemmOperand *x, const void *data, int64_t rows,
                      int64_t first, int width, int64_t count, int64_t k0, int64_t length,
                      void *out, size_t panel)
{
    int64_t step = lies_across(x) ? ACROSS / width : 1;
    for (int64_t i = 0; i < count; i += step) {
        char *to = (char *)out + (size_t)i * panel;
        if (step > 1)
            pack_across(isa, x, data, rows, first + i * width, width, num_min(count - i, step), k0,
                        length, to, panel);
        else
            pack_along(isa, x, data, rows, first + i * width, width, k0, length, to);
    }
}

void gemm_pack_rows(const GemmIsa *isa, const GemmOperand *x, const void *data, int64_t rows,
                    int64_t first, int64_t k0, int64_t length, void *out)
{
    uint32_t stage[GEMM_PANEL];
    memset(out, 0, (size_t)(GEMM_PANEL * GEMM_STEP) * sizeof(uint16_t));
    for (int64_t i = 0; i < GEMM_PANEL && first + i < rows; i++) {
        stage_row(isa, x, data, gemm_offset(&x->row, first + i), k0, length, stage);
        memcpy((uint16_t *)out + i * GEMM_STEP, stage, (size_t)length * sizeof(uint16_t));
    }
}
