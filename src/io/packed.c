#include "io/packed.h"

#include "io/packed_form.h"

#include "base/float8.h"
#include "base/num.h"

#include <math.h>

/* ---- elements ---- */

static inline float grid_at(const Grid *g, int64_t row, int64_t column)
{
    static const uint8_t shuffle[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* where number i of a word is */
    int64_t at = (row >> g->row_shift) * g->row_step + (column >> g->column_shift) * g->column_step;
    int lane;
    switch (g->kind) {
    case GRID_BITS:
        lane = (int)(g->row_shift ? row & ((1 << g->row_shift) - 1)
                                  : column & ((1 << g->column_shift) - 1));
        lane = g->shuffled ? shuffle[lane] : lane;
        return (float)(load32(g->data + 4 * at) >> lane * g->bits & ((1u << g->bits) - 1));
    case GRID_I4: /* two in a byte, with a sign */
        lane = (int)column & 1;
        return (float)((int8_t)(lane ? g->data[at] : g->data[at] << 4) >> 4);
    case GRID_I8:
        return (float)(int8_t)g->data[at];
    case GRID_E2M1: /* two in a byte, the first in its lower half */
        lane = (int)column & 1;
        return 0.5F * (float)block_mxfp4_number[g->data[at] >> 4 * lane & 15];
    case GRID_E4M3:
        return f8_to_f32(F8_E4M3, g->data[at]);
    case GRID_E5M2:
        return f8_to_f32(F8_E5M2, g->data[at]);
    case GRID_E8M0:
        return ldexpf(1, g->data[at] - 127);
    case GRID_F16:
        return f16_to_f32(load16(g->data + 2 * at));
    case GRID_BF16:
        return bf16_to_f32(load16(g->data + 2 * at));
    case GRID_F32:
        break;
    }
    float v;
    memcpy(&v, g->data + 4 * at, sizeof v);
    return v;
}

/* Columns first .. first+n-1 of a row. */
static void decode_row(const struct IoPacked *p, int64_t row, int64_t first, int64_t n, float *out)
{
    int64_t shared = row / p->rows, last = -1;
    float scale = 0, zero = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t column = first + i;
        int64_t group =
            p->group_of ? (int64_t)load32(p->group_of + 4 * column) : column / p->columns;
        if (group != last) {
            scale = grid_at(&p->scale, shared, group);
            zero = p->offset + (p->zero.data ? grid_at(&p->zero, shared, group) : 0);
            last = group;
        }
        out[i] = scale * (grid_at(&p->code, row, column) - zero);
    }
}

void packed_decode(const IoTensor *tensor, int64_t first, int64_t n, float *out)
{
    int64_t k = tensor->dims[tensor->rank - 1];
    while (n > 0) {
        int64_t inside = first % k, piece = num_min(k - inside, n);
        decode_row(tensor->packed, first / k, inside, piece, out);
        first += piece;
        out += piece;
        n -= piece;
    }
}

/* ---- as blocks ---- */

/* Whether codes of so many bits mean what those of a kind of blocks mean: all zeros in the middle. */
static bool is_centred(const struct IoPacked *p, float middle, int64_t rows, int64_t groups)
{
    if (!p->zero.data)
        return p->offset == middle;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t g = 0; g < groups; g++)
            if (p->offset + grid_at(&p->zero, row, g) != middle)
                return false;
    return true;
}

static bool has_f16_scales(const struct IoPacked *p, int64_t rows, int64_t groups)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t g = 0; g < groups; g++) {
            float scale = grid_at(&p->scale, row, g);
            if (f16_to_f32(f16_from_f32(scale)) != scale)
                return false;
        }
    return true;
}

BlockKind packed_kind(const IoTensor *tensor)
{
    const struct IoPacked *p = tensor->packed;
    if (p->code.kind == GRID_E2M1)
        return BLOCK_MXFP4;
    bool bytes = p->code.kind == GRID_I8;
    if (p->code.kind == GRID_E4M3 || p->code.kind == GRID_E5M2) {
        const BlockKind floats = p->code.kind == GRID_E4M3 ? BLOCK_F8_E4M3 : BLOCK_F8_E5M2;
        const int64_t same = block_info[floats].elements;
        const bool whole = tensor->dims[1] % same == 0 && p->columns % same == 0;
        return whole && !p->group_of && !p->zero.data ? floats : BLOCK_NONE;
    }
    int bits = bytes ? 8 : p->code.kind == GRID_BITS ? p->code.bits : 0;
    int64_t each = block_info[BLOCK_Q4_0].elements, k = tensor->dims[1];
    if (!bits || p->group_of || k % each != 0 || p->columns % each != 0)
        return BLOCK_NONE;
    int64_t rows = (tensor->dims[0] - 1) / p->rows + 1, groups = (k - 1) / p->columns + 1;
    if (!has_f16_scales(p, rows, groups))
        return BLOCK_NONE;
    if (is_centred(p, bytes ? 0 : (float)(1 << (bits - 1)), rows, groups))
        return bits == 4 ? BLOCK_Q4_0 : BLOCK_Q8_0;
    return bits == 4 ? BLOCK_Q5_0 : BLOCK_NONE;
}

/* A byte has columns c and c + 16 in blocks, neighbours in the file. */
static void mxfp4_blocks(const struct IoPacked *p, int64_t first, int64_t n, uint8_t *out)
{
    enum { HALF = 16 };
    for (int64_t i = first; i < first + n; i++) {
        const uint8_t *from = p->code.data + i * HALF;
        *out++ = p->scale.data[i];
        for (int c = 0; c < HALF; c++)
            *out++ = (uint8_t)((from[c / 2] >> c % 2 * 4 & 15) |
                               (from[HALF / 2 + c / 2] >> c % 2 * 4 & 15) << 4);
    }
}

/* Blocks of a view, whose rows are whole rows of what it is of. */
static void view_blocks(const IoTensor *tensor, BlockKind kind, int64_t first, int64_t n,
                        uint8_t *out)
{
    const BlockInfo *info = &block_info[kind];
    const IoView *v = tensor->view;
    const int64_t a_row = v->columns / info->elements;
    while (n > 0) {
        const int64_t row = first / a_row, inside = first % a_row;
        const int64_t piece = num_min(a_row - inside, n);
        const int64_t at = v->begin + row / v->rows * v->expert + row % v->rows * v->row;
        packed_blocks(tensor->part, kind, at / info->elements + inside, piece, out);
        out += piece * info->bytes;
        first += piece;
        n -= piece;
    }
}

/* Codes as they lie, behind the scale that theirs is. */
static void blocks_of_floats(const IoTensor *tensor, const BlockInfo *info, int64_t first,
                             int64_t n, uint8_t *out)
{
    const struct IoPacked *p = tensor->packed;
    const int64_t a_row = tensor->dims[1] / info->elements;
    for (int64_t i = first; i < first + n; i++, out += info->bytes) {
        const int64_t row = i / a_row, column = i % a_row * info->elements;
        const float scale = grid_at(&p->scale, row / p->rows, column / p->columns);
        memcpy(out, &scale, sizeof scale);
        memcpy(out + sizeof scale, p->code.data + row * p->code.row_step + column,
               (size_t)info->elements);
    }
}

void packed_blocks(const IoTensor *tensor, BlockKind kind, int64_t first, int64_t n, uint8_t *out)
{
    enum { EACH = 32 };
    if (tensor->coding == IO_VIEW) {
        view_blocks(tensor, kind, first, n, out);
        return;
    }
    if (kind == BLOCK_MXFP4) {
        mxfp4_blocks(tensor->packed, first, n, out);
        return;
    }
    const struct IoPacked *p = tensor->packed;
    if (block_info[kind].form.fraction) {
        blocks_of_floats(tensor, &block_info[kind], first, n, out);
        return;
    }
    int64_t a_row = tensor->dims[1] / EACH;
    for (int64_t i = first; i < first + n; i++, out += block_info[kind].bytes) {
        int64_t row = i / a_row, column = i % a_row * EACH;
        int64_t shared = row / p->rows, group = column / p->columns;
        uint16_t scale = f16_from_f32(grid_at(&p->scale, shared, group));
        float zero = p->offset + (p->zero.data ? grid_at(&p->zero, shared, group) : 0);
        int up = kind == BLOCK_Q4_0 ? 8 : kind == BLOCK_Q5_0 ? 16 : 0;
        uint32_t high = 0;
        uint8_t code[EACH], *low = out + 2;
        for (int c = 0; c < EACH; c++) {
            code[c] = (uint8_t)((int)(grid_at(&p->code, row, column + c) - zero) + up);
            high |= (uint32_t)(code[c] >> 4 & 1) << c;
        }
        memcpy(out, &scale, sizeof scale);
        if (kind == BLOCK_Q8_0)
            memcpy(low, code, EACH);
        if (kind == BLOCK_Q5_0) {
            memcpy(low, &high, sizeof high);
            low += sizeof high;
        }
        for (int c = 0; kind != BLOCK_Q8_0 && c < EACH / 2; c++)
            low[c] = (uint8_t)((code[c] & 15) | (code[EACH / 2 + c] & 15) << 4);
    }
}

/* ---- our own ---- */

const IoTensor *packed_own(const Param *param, const IoTensor *numbers, const IoTensor *scales,
                           Arena *arena)
{
    const QuantForm *f = &param->quant;
    bool half = f->dtype == CVN_I4;
    struct IoPacked *p = arena_alloc(arena, sizeof *p);
    IoTensor *joined = arena_alloc(arena, sizeof *joined);
    *p = (struct IoPacked){.rows = 1, .columns = f->k / f->groups};
    p->code = (Grid){.data = numbers->data,
                     .kind = half ? GRID_I4 : GRID_I8,
                     .column_shift = half,
                     .row_step = half ? f->k / 2 : f->k,
                     .column_step = 1};
    p->scale = (Grid){.data = scales->data,
                      .kind = f->scale_dtype == CVN_F32 ? GRID_F32 : GRID_BF16,
                      .row_step = f->groups,
                      .column_step = 1};
    *joined = (IoTensor){.name = numbers->name,
                         .type = half ? "int4" : "int8",
                         .file = numbers->file,
                         .bytes = numbers->bytes + scales->bytes,
                         .dims = {f->n, f->k},
                         .n = f->n * f->k,
                         .rank = 2,
                         .coding = IO_PACKED,
                         .dtype = CVN_F32,
                         .packed = p};
    return joined;
}
