/*
 * How the tensors of a quantized matrix lie, format by format (the table in packed.h): their types and shapes are checked, and grids made
 * of them. What does not fit is refused by the tensor's name.
 */
#include "io/packed_form.h"

#include "base/num.h"

#include <inttypes.h>
#include <stdio.h>

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

int packed_lay_gptq(struct IoPacked *p, int64_t *dims, const PackedMatrix *of, const Settings *s,
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

int packed_lay_awq(struct IoPacked *p, int64_t *dims, const PackedMatrix *of, const Settings *s,
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

int packed_lay_words(struct IoPacked *p, int64_t *dims, const PackedMatrix *of, const Settings *s,
                     cvn_err *err)
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

int packed_lay_bytes(struct IoPacked *p, int64_t *dims, const PackedMatrix *of, const Settings *s,
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
int packed_lay_mxfp4(struct IoPacked *p, int64_t *dims, const PackedMatrix *of, const Settings *s,
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
