#include "io/packed.h"

#include "base/file.h"
#include "base/float8.h"
#include "base/json_file.h"
#include "base/json_reader.h"
#include "base/num.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef enum GridKind {
    GRID_BITS,
    GRID_I4,
    GRID_I8,
    GRID_E2M1,
    GRID_E4M3,
    GRID_E5M2,
    GRID_E8M0,
    GRID_F16,
    GRID_BF16,
    GRID_F32
} GridKind;

/* Numbers in rows and columns. Words are of 2^row_shift neighbouring rows or of 2^column_shift columns. */
typedef struct Grid {
    const uint8_t *data; /* in the file's mapping; NULL: there is none */
    GridKind kind;
    int bits; /* of a number, of GRID_BITS, whose words are of 32 */
    int row_shift, column_shift;
    int64_t row_step, column_step; /* words from one to the next; 0 where all share one */
    bool shuffled;                 /* AWQ's order of numbers in a word */
} Grid;

struct IoPacked {
    Grid code, scale, zero;
    float offset;            /* added to zeros; the zero where there are none */
    int64_t rows, columns;   /* neighbours that share a scale */
    const uint8_t *group_of; /* I32 [k], or NULL: neighbours */
};

/* What config.json says of all matrices. */
typedef struct Settings {
    int64_t bits, group; /* group -1: a scale for all of a row */
    int64_t block[2];    /* rows and columns that share a scale, or 0 */
    bool zeros_less_one; /* GPTQ's first format */
} Settings;

enum { CODES, SCALES, ZEROS, ORDER, SHAPE, ROLES };

/* The tensors of one matrix, by role; NULL where it has none. */
typedef struct PackedMatrix {
    const char *name; /* of the matrix, without ".weight" */
    const IoTensor *piece[ROLES];
} PackedMatrix;

/* One way to store matrices. */
typedef struct Reader {
    const char *method, *format; /* quant_method; "format" of compressed-tensors or NULL */
    const char *type;            /* what `inspect` says */
    const char *ending[ROLES];   /* of the tensors; CODES: those that end so are matrices */
    const char *scales_too;      /* another name of them, or NULL */
    int (*settings)(JsonReader *r, Settings *s);
    /* Makes the grids; dims are [n, k] already of what lies so. */
    int (*lay)(struct IoPacked *p, int64_t dims[2], const PackedMatrix *of, const Settings *s,
               cvn_err *err);
} Reader;

/* ---- elements ---- */

static uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint16_t load16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

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

/* ---- how the tensors of a matrix lie ---- */

static int misfit(const IoTensor *t, const char *want, cvn_err *err)
{
    char shape[128];
    return err_set(err, CVN_EFORMAT, "'%s': tensor '%s' is %s %s where %s is expected", t->file,
                   t->name, t->type, io_shape_text(t->dims, t->rank, shape, sizeof shape), want);
}

static bool is_shape(const IoTensor *t, const char *type, int64_t rows, int64_t columns)
{
    return strcmp(t->type, type) == 0 && t->rank == 2 && t->dims[0] == rows &&
           t->dims[1] == columns;
}

/* A float grid over rows and columns; by_column: the tensor is [columns, rows]. */
static int lay_floats(Grid *g, const IoTensor *t, int64_t rows, int64_t columns, bool by_column,
                      cvn_err *err)
{
    static const struct {
        const char *type;
        GridKind kind;
    } kinds[] = {{"F16", GRID_F16}, {"BF16", GRID_BF16}, {"F32", GRID_F32}};
    char want[128];
    snprintf(want, sizeof want, "F16, BF16 or F32 [%" PRId64 ", %" PRId64 "]",
             by_column ? columns : rows, by_column ? rows : columns);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (is_shape(t, kinds[i].type, by_column ? columns : rows, by_column ? rows : columns)) {
            *g = (Grid){.data = t->data,
                        .kind = kinds[i].kind,
                        .row_step = by_column ? 1 : columns,
                        .column_step = by_column ? rows : 1};
            return CVN_OK;
        }
    return misfit(t, want, err);
}

/* The base-2 logarithm of how many numbers a word has. */
static int word_shift(int64_t bits)
{
    return bits == 4 ? 3 : 2;
}

/* Words of 32 bits in a tensor [words, others] or [others, words], of numbers along rows or along columns. */
static int lay_words(Grid *g, const IoTensor *t, int64_t bits, int64_t rows, int64_t columns,
                     bool along_rows, bool by_column, cvn_err *err)
{
    int shift = word_shift(bits);
    int64_t mask = (1 << shift) - 1;
    int64_t r = along_rows ? (rows + mask) >> shift : rows;
    int64_t c = along_rows ? columns : (columns + mask) >> shift;
    char want[128];
    snprintf(want, sizeof want, "I32 [%" PRId64 ", %" PRId64 "]", by_column ? c : r,
             by_column ? r : c);
    if (!is_shape(t, "I32", by_column ? c : r, by_column ? r : c))
        return misfit(t, want, err);
    *g = (Grid){.data = t->data,
                .kind = GRID_BITS,
                .bits = (int)bits,
                .row_shift = along_rows ? shift : 0,
                .column_shift = along_rows ? 0 : shift,
                .row_step = by_column ? 1 : c,
                .column_step = by_column ? r : 1};
    return CVN_OK;
}

/* How many groups k columns are, and the columns of one. */
static int64_t group_count(const Settings *s, int64_t k, int64_t *columns)
{
    *columns = s->group > 0 && s->group < k ? s->group : k;
    return k > 0 ? (k - 1) / *columns + 1 : 0;
}

static int need_groups(const PackedMatrix *of, int64_t n, int64_t k, int64_t groups, cvn_err *err)
{
    if (n > 0 && k > 0 && groups > 0)
        return CVN_OK;
    return err_set(err, CVN_EFORMAT, "'%s': the matrix '%s' is empty", of->piece[CODES]->file,
                   of->name);
}

/* The group of each column, each held to be one. */
static int lay_order(struct IoPacked *p, const IoTensor *t, int64_t k, int64_t groups, cvn_err *err)
{
    if (!t)
        return CVN_OK;
    if (strcmp(t->type, "I32") != 0 || t->rank != 1 || t->n != k)
        return misfit(t, "I32 of a group for each column", err);
    for (int64_t i = 0; i < k; i++)
        if (load32(t->data + 4 * i) >= groups)
            return err_set(err, CVN_EFORMAT,
                           "'%s': '%s' assigns column %" PRId64 " to group %" PRIu32 " of %" PRId64,
                           t->file, t->name, i, load32(t->data + 4 * i), groups);
    for (int64_t i = 0; i < k && !p->group_of; i++)
        if (load32(t->data + 4 * i) != i / p->columns) /* files without act-order have it, too */
            p->group_of = t->data;
    return CVN_OK;
}

static int lay_gptq(struct IoPacked *p, int64_t dims[2], const PackedMatrix *of, const Settings *s,
                    cvn_err *err)
{
    const IoTensor *q = of->piece[CODES];
    int64_t n = q->dims[1], k, groups;
    if (q->rank != 2 || __builtin_mul_overflow(q->dims[0], 1 << word_shift(s->bits), &k))
        return misfit(q, "I32 [columns / 8, rows]", err);
    groups = group_count(s, k, &p->columns);
    TRY(need_groups(of, n, k, groups, err));
    TRY(lay_words(&p->code, q, s->bits, n, k, false, true, err));
    TRY(lay_floats(&p->scale, of->piece[SCALES], n, groups, true, err));
    TRY(lay_order(p, of->piece[ORDER], k, groups, err));
    dims[0] = n;
    dims[1] = k;
    p->offset = s->zeros_less_one ? 1 : 0;
    if (!of->piece[ZEROS])
        return err_set(err, CVN_EFORMAT, "'%s': '%s' has no tensor '%s.qzeros'", q->file, q->name,
                       of->name);
    return lay_words(&p->zero, of->piece[ZEROS], s->bits, n, groups, true, true, err);
}

static int lay_awq(struct IoPacked *p, int64_t dims[2], const PackedMatrix *of, const Settings *s,
                   cvn_err *err)
{
    const IoTensor *q = of->piece[CODES];
    int64_t n, k = q->dims[0];
    if (q->rank != 2 || __builtin_mul_overflow(q->dims[1], 8, &n))
        return misfit(q, "I32 [columns, rows / 8]", err);
    int64_t groups = group_count(s, k, &p->columns);
    TRY(need_groups(of, n, k, groups, err));
    TRY(lay_words(&p->code, q, s->bits, n, k, true, true, err));
    TRY(lay_floats(&p->scale, of->piece[SCALES], n, groups, true, err));
    p->code.shuffled = true;
    dims[0] = n;
    dims[1] = k;
    if (!of->piece[ZEROS])
        return err_set(err, CVN_EFORMAT, "'%s': '%s' has no tensor '%s.qzeros'", q->file, q->name,
                       of->name);
    TRY(lay_words(&p->zero, of->piece[ZEROS], s->bits, n, groups, true, true, err));
    p->zero.shuffled = true;
    return CVN_OK;
}

static int lay_packed(struct IoPacked *p, int64_t dims[2], const PackedMatrix *of,
                      const Settings *s, cvn_err *err)
{
    const IoTensor *q = of->piece[CODES], *shape = of->piece[SHAPE];
    if (!shape || strcmp(shape->type, "I64") != 0 || shape->n != 2)
        return err_set(err, CVN_EFORMAT, "'%s': '%s' has no tensor '%s.weight_shape', I64 [2]",
                       q->file, q->name, of->name);
    memcpy(dims, shape->data, 2 * sizeof *dims);
    int64_t n = dims[0], k = dims[1], most;
    if (n < 1 || k < 1 || q->rank != 2 || n != q->dims[0] ||
        __builtin_mul_overflow(q->dims[1], 8, &most) || k > most)
        return misfit(q, "I32 of the rows of weight_shape", err);
    int64_t groups = group_count(s, k, &p->columns);
    TRY(lay_words(&p->code, q, s->bits, n, k, false, false, err));
    TRY(lay_floats(&p->scale, of->piece[SCALES], n, groups, false, err));
    TRY(lay_order(p, of->piece[ORDER], k, groups, err));
    if (of->piece[ZEROS]) /* also with the offset on */
        return lay_words(&p->zero, of->piece[ZEROS], s->bits, n, groups, true, false, err);
    p->offset = (float)(1 << (s->bits - 1));
    return CVN_OK;
}

/* Scales of bytes: one, one for each row, for each row and group, or for each block. */
static int lay_byte_scales(struct IoPacked *p, const IoTensor *t, int64_t n, int64_t k,
                           const Settings *s, cvn_err *err)
{
    IoTensor flat = *t;
    int64_t groups = group_count(s, k, &p->columns);
    if (t->n == 1 || (t->rank == 1 && t->n == n)) { /* as [1, 1] or [n, 1] */
        flat.rank = 2;
        flat.dims[0] = t->n;
        flat.dims[1] = 1;
    }
    if (t->n == 1) {
        p->rows = n;
        p->columns = k;
        return lay_floats(&p->scale, &flat, 1, 1, false, err);
    }
    if (s->block[0] > 0) {
        p->rows = s->block[0];
        p->columns = s->block[1];
        return lay_floats(&p->scale, &flat, (n - 1) / p->rows + 1, (k - 1) / p->columns + 1, false,
                          err);
    }
    return lay_floats(&p->scale, &flat, n, groups, false, err);
}

static int lay_bytes(struct IoPacked *p, int64_t dims[2], const PackedMatrix *of, const Settings *s,
                     cvn_err *err)
{
    const IoTensor *q = of->piece[CODES], *zero = of->piece[ZEROS];
    const GridKind kind = strcmp(q->type, "F8_E4M3") == 0   ? GRID_E4M3
                          : strcmp(q->type, "F8_E5M2") == 0 ? GRID_E5M2
                                                            : GRID_I8;
    if (q->rank != 2 || q->n < 1)
        return misfit(q, "a matrix", err);
    int64_t n = dims[0] = q->dims[0], k = dims[1] = q->dims[1];
    p->code = (Grid){.data = q->data, .kind = kind, .row_step = k, .column_step = 1};
    TRY(lay_byte_scales(p, of->piece[SCALES], n, k, s, err));
    TRY(lay_order(p, of->piece[ORDER], k, (k - 1) / p->columns + 1, err));
    if (!zero)
        return CVN_OK;
    if (strcmp(zero->type, "I8") != 0 || zero->n != of->piece[SCALES]->n)
        return misfit(zero, "I8 of the shape of scales", err);
    p->zero = p->scale;
    p->zero.data = zero->data;
    p->zero.kind = GRID_I8;
    return CVN_OK;
}

/* Codes U8 [experts, rows, columns / 32, 16], scales U8 [experts, rows, columns / 32]. */
static int lay_mxfp4(struct IoPacked *p, int64_t *dims, const PackedMatrix *of, const Settings *s,
                     cvn_err *err)
{
    const IoTensor *q = of->piece[CODES], *scale = of->piece[SCALES];
    (void)s;
    if (strcmp(q->type, "U8") != 0 || q->rank != 4 || q->dims[3] != 16 || q->n == 0)
        return misfit(q, "U8 [experts, rows, columns / 32, 16]", err);
    if (strcmp(scale->type, "U8") != 0 || scale->rank != 3 ||
        memcmp(scale->dims, q->dims, 3 * sizeof *q->dims) != 0)
        return misfit(scale, "U8 [experts, rows, columns / 32]", err);
    dims[0] = q->dims[0];
    dims[1] = q->dims[1];
    dims[2] = q->dims[2] * 32;
    p->columns = 32;
    p->code = (Grid){.data = q->data,
                     .kind = GRID_E2M1,
                     .column_shift = 1,
                     .row_step = q->dims[2] * 16,
                     .column_step = 1};
    p->scale =
        (Grid){.data = scale->data, .kind = GRID_E8M0, .row_step = q->dims[2], .column_step = 1};
    return CVN_OK;
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

/* ---- what config.json says ---- */

static void refuse_setting(JsonReader *r, const char *key, const json_t *value)
{
    char text[80];
    if (r->code == CVN_OK)
        r->code = err_set(r->err, CVN_EUNSUPPORTED,
                          "'%s': %s = %s in quantization_config is not supported", r->file, key,
                          json_value_text(value, text, sizeof text));
}

/* Null, false, an empty list and an empty object switch nothing on. */
static void refuse_unless_off(JsonReader *r, const char *key)
{
    const json_t *value = json_get(r, key);
    bool off = !value || json_is_false(value) ||
               (json_is_object(value) && !json_object_size(value)) ||
               (json_is_array(value) && !json_array_size(value));
    if (!off)
        refuse_setting(r, key, value);
}

/* A string that must be one of two, or absent. */
static const char *one_of(JsonReader *r, const char *key, const char *a, const char *b)
{
    const char *text = json_get_string(r, key);
    if (!text || strcmp(text, a) == 0 || strcmp(text, b) == 0)
        return text;
    refuse_setting(r, key, json_get(r, key));
    return NULL;
}

static int check_bits(JsonReader *r, const Settings *s, bool eight)
{
    if (r->code == CVN_OK && s->bits != 4 && !(eight && s->bits == 8))
        r->code = err_set(r->err, CVN_EUNSUPPORTED,
                          "'%s': weights of %" PRId64 " bits are not supported; %s", r->file,
                          s->bits, eight ? "4 and 8 are" : "4 are");
    if (r->code == CVN_OK && s->group != -1 && s->group < 1)
        r->code = err_set(r->err, CVN_EFORMAT, "'%s': group_size is %" PRId64, r->file, s->group);
    return r->code;
}

static int read_gptq(JsonReader *r, Settings *s)
{
    json_get_int(r, "bits", &s->bits);
    json_get_int(r, "group_size", &s->group);
    const char *format = one_of(r, "checkpoint_format", "gptq", "gptq_v2");
    refuse_unless_off(r, "is_marlin_format");
    refuse_unless_off(r, "dynamic");
    s->zeros_less_one = !format || strcmp(format, "gptq") == 0;
    return check_bits(r, s, true);
}

static int read_awq(JsonReader *r, Settings *s)
{
    const json_t *zeros = json_get(r, "zero_point");
    json_get_int(r, "bits", &s->bits);
    json_get_int(r, "group_size", &s->group);
    one_of(r, "version", "gemm", "GEMM");
    if (zeros && !json_is_true(zeros))
        refuse_setting(r, "zero_point", zeros);
    return check_bits(r, s, false);
}

static int read_block(JsonReader *r, const char *key, Settings *s)
{
    const json_t *size = json_get(r, key);
    for (size_t i = 0; size && i < 2; i++) {
        const json_t *one = json_array_get(size, i);
        s->block[i] = json_integer_value(one);
        if (json_array_size(size) != 2 || s->block[i] < 1)
            json_wrong_type(r, key, size, "two sizes");
    }
    return r->code;
}

/* The weights of all groups of modules must be quantized alike. */
static int read_compressed(JsonReader *r, Settings *s)
{
    const json_t *groups = json_get(r, "config_groups");
    const json_t *weights = NULL;
    const char *key;
    json_t *group;
    refuse_unless_off(r, "transform_config");
    const json_t *sparsity = json_get(r, "sparsity_config");
    const char *sparse = json_string_value(json_object_get(sparsity, "format"));
    if (sparse && strcmp(sparse, "dense") != 0)
        refuse_setting(r, "sparsity_config", sparsity);
    json_object_foreach((json_t *)(uintptr_t)groups, key, group)
    {
        const json_t *of = json_object_get(group, "weights");
        if (weights && !json_equal(weights, of))
            refuse_setting(r, "config_groups", groups);
        weights = of;
    }
    if (!json_is_object(weights)) {
        json_wrong_type(r, "config_groups", groups, "groups with \"weights\"");
        return r->code;
    }
    JsonReader w = {r->file, weights, r->err, r->code};
    s->bits = 8;
    json_get_int(&w, "num_bits", &s->bits);
    json_get_int(&w, "group_size", &s->group);
    read_block(&w, "block_structure", s);
    return r->code = check_bits(&w, s, true);
}

static int read_fp8(JsonReader *r, Settings *s)
{
    const json_t *fmt = json_get(r, "fmt");
    const char *name = json_string_value(fmt);
    if (fmt && !(name && (strstr(name, "e4m3") || strstr(name, "e5m2"))))
        refuse_setting(r, "fmt", fmt); /* else each tensor says it */
    s->bits = 8;
    return read_block(r, "weight_block_size", s);
}

/* What is not in blocks is floats, whatever the file calls it. */
static int read_mxfp4(JsonReader *r, Settings *s)
{
    (void)r;
    s->bits = 4;
    return CVN_OK;
}

#define COMPRESSED(form, name)                                                                     \
    {                                                                                              \
        .method = "compressed-tensors", .format = form, .type = name,                              \
        .ending = {".weight", ".weight_scale", ".weight_zero_point", ".weight_g_idx"},             \
        .settings = read_compressed, .lay = lay_bytes                                              \
    }

static const Reader readers[] = {
    {.method = "gptq",
     .type = "GPTQ",
     .ending = {".qweight", ".scales", ".qzeros", ".g_idx"},
     .settings = read_gptq,
     .lay = lay_gptq},
    {.method = "awq",
     .type = "AWQ",
     .ending = {".qweight", ".scales", ".qzeros"},
     .settings = read_awq,
     .lay = lay_awq},
    {.method = "compressed-tensors",
     .format = "pack-quantized",
     .type = "packed",
     .ending = {".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx",
                ".weight_shape"},
     .settings = read_compressed,
     .lay = lay_packed},
    COMPRESSED("int-quantized", "I8 scaled"),
    COMPRESSED("float-quantized", "F8 scaled"),
    COMPRESSED("naive-quantized", "F8 scaled"),
    {.method = "fp8",
     .type = "F8 scaled",
     .ending = {".weight", ".weight_scale_inv"},
     .scales_too = ".weight_scale",
     .settings = read_fp8,
     .lay = lay_bytes},
    {.method = "fbgemm_fp8",
     .type = "F8 scaled",
     .ending = {".weight", ".weight_scale"},
     .settings = read_fp8,
     .lay = lay_bytes},
    {.method = "mxfp4",
     .type = "MXFP4",
     .ending = {"_blocks", "_scales"},
     .settings = read_mxfp4,
     .lay = lay_mxfp4},
};

/* ---- joining ---- */

/* Numbers that belong to activations and caches, by the ends of their names. */
static const char *const beside[] = {".input_scale",       ".input_zero_point", ".output_scale",
                                     ".output_zero_point", ".input_scale_ub",   ".k_scale",
                                     ".v_scale",           ".weight_shape"};

/* The name without the ending; NULL when it ends otherwise. */
static const char *stem_of(const char *name, const char *ending, Arena *arena)
{
    if (!ending || !io_ends_with(name, ending))
        return NULL;
    return arena_stringn(arena, name, strlen(name) - strlen(ending));
}

static bool is_matrix(const Reader *reader, const IoTensor *t)
{
    bool bytes = strcmp(t->type, "F8_E4M3") == 0 || strcmp(t->type, "F8_E5M2") == 0 ||
                 strcmp(t->type, "I8") == 0;
    return io_ends_with(t->name, reader->ending[CODES]) && (reader->lay != lay_bytes || bytes);
}

static int join(IoTensors *list, const IoTensors *from, const Reader *reader, const Settings *s,
                const IoTensor *codes, cvn_err *err)
{
    Arena *arena = list->arena;
    PackedMatrix of = {.name = stem_of(codes->name, reader->ending[CODES], arena)};
    IoTensor joined = *codes;
    IoTensor *part = arena_array(arena, ROLES, sizeof *part);
    struct IoPacked *p = arena_alloc(arena, sizeof *p);
    joined.part = part;
    joined.bytes = 0;
    for (int role = 0; role < ROLES; role++) {
        if (!reader->ending[role])
            continue;
        of.piece[role] =
            io_tensors_find(from, arena_printf(arena, "%s%s", of.name, reader->ending[role]));
        if (role == SCALES && !of.piece[role] && reader->scales_too)
            of.piece[role] =
                io_tensors_find(from, arena_printf(arena, "%s%s", of.name, reader->scales_too));
        if (!of.piece[role])
            continue;
        part[joined.n_parts++] = *of.piece[role];
        joined.bytes += of.piece[role]->bytes;
    }
    if (!of.piece[SCALES])
        return err_set(err, CVN_EFORMAT, "'%s': '%s' has no tensor '%s%s'", codes->file,
                       codes->name, of.name, reader->ending[SCALES]);
    *p = (struct IoPacked){.rows = 1};
    TRY(reader->lay(p, joined.dims, &of, s, err));
    const bool experts = reader->lay == lay_mxfp4; /* of all, by a whole name */
    joined.name = experts ? of.name : arena_printf(arena, "%s.weight", of.name);
    joined.type = reader->type;
    joined.data = NULL;
    joined.rank = experts ? 3 : 2;
    joined.n = joined.dims[0] * joined.dims[1]; /* of each there is a code in the file */
    joined.n *= experts ? joined.dims[2] : 1;
    joined.coding = IO_PACKED;
    joined.dtype = CVN_F32;
    joined.block = NULL;
    joined.packed = p;
    return io_tensors_add(list, &joined, err);
}

/* Whether a tensor is a piece of a matrix, or no weight at all. */
static bool is_piece(const IoTensors *from, const Reader *reader, const IoTensor *t, Arena *arena)
{
    const char *const ends[] = {reader->ending[SCALES], reader->ending[ZEROS],
                                reader->ending[ORDER], reader->scales_too};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (io_ends_with(t->name, beside[i]))
            return true;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *stem = stem_of(t->name, ends[i], arena);
        if (stem && io_tensors_find(from, arena_printf(arena, "%s%s", stem, reader->ending[CODES])))
            return true;
    }
    return false;
}

/* GPTQ gives every matrix a bias, of zeros where the model has none. */
static bool is_empty_bias(const IoTensors *from, const Reader *reader, const IoTensor *t,
                          Arena *arena)
{
    const char *stem = reader->lay == lay_gptq ? stem_of(t->name, ".bias", arena) : NULL;
    if (!stem || !io_tensors_find(from, arena_printf(arena, "%s%s", stem, reader->ending[CODES])))
        return false;
    for (size_t i = 0; i < t->bytes; i++)
        if (t->data[i])
            return false;
    return true;
}

static const Reader *find_reader(const char *file, const char *method, const char *format,
                                 cvn_err *err)
{
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (strcmp(readers[i].method, method) == 0 &&
            (!readers[i].format || (format && strcmp(readers[i].format, format) == 0)))
            return &readers[i];
    err_set(err, CVN_EUNSUPPORTED,
            "'%s': weights quantized by '%.40s'%s%.40s are not supported; gptq, awq, fp8, "
            "fbgemm_fp8, mxfp4 and compressed-tensors (pack-, int-, float-quantized) are",
            file, method, format ? " as " : "", format ? format : "");
    return NULL;
}

/* The newer files of compressed-tensors say "mixed-precision" and give each group its own. */
static const char *format_of(const json_t *quantization)
{
    const char *format = json_string_value(json_object_get(quantization, "format"));
    json_t *groups = json_object_get(quantization, "config_groups"), *group;
    const char *key;
    json_object_foreach(groups, key, group)
    {
        const char *own = json_string_value(json_object_get(group, "format"));
        format = own ? own : format;
    }
    return format;
}

int packed_join_by(IoTensors *list, const char *file, const json_t *quantization, cvn_err *err)
{
    JsonReader r = {file, quantization, err, CVN_OK};
    const char *method = json_get_string(&r, "quant_method");
    if (!method || r.code)
        return r.code;
    const Reader *reader = find_reader(file, method, format_of(quantization), err);
    Settings settings = {.group = -1};
    if (!reader)
        return CVN_EUNSUPPORTED;
    TRY(reader->settings(&r, &settings));
    IoTensors from = *list;
    Arena *arena = list->arena;
    io_tensors_init(list, arena);
    for (size_t i = 0; i < from.n; i++) {
        const IoTensor *t = &from.tensor[i];
        if (is_matrix(reader, t))
            TRY(join(list, &from, reader, &settings, t, err));
        else if (!is_piece(&from, reader, t, arena) && !is_empty_bias(&from, reader, t, arena))
            TRY(io_tensors_add(list, t, err));
    }
    return CVN_OK;
}

int packed_join(IoTensors *list, const char *folder, cvn_err *err)
{
    const FilePath path = file_path(folder, "config.json");
    json_t *json = json_object_read(path.text, err);
    Cleanup cleanup;
    if (!json)
        return CVN_EFORMAT;
    cleanup_push(&cleanup, json_release, json);
    const json_t *quantization = json_object_get(json, "quantization_config");
    if (!quantization)
        quantization = json_object_get(json, "compression_config");
    const char *method = json_string_value(json_object_get(quantization, "quant_method"));
    int code = CVN_OK;
    if (json_is_object(quantization) && !(method && strcmp(method, "caravan") == 0))
        code = packed_join_by(list, path.text, quantization, err);
    cleanup_run(&cleanup);
    return code;
}
