/*
 * Quantized weights, and products with them.
 *
 * In plain operations a weight is converted, brought from panels into rows if it lies in such, and multiplied by its
 * scales. An i8 weight of 20 rows and 6 columns in panels:
 *
 *     q i8[2,2,16,4] -> f32 -> transpose -> [2,16,2,4] -> reshape [32,1,8]
 *     scale f32[2,1,16] -> [2,16,1] -> [32,1] -> over [32,1,8];  q * scale -> [32,8] -> slice [20,6]
 */
#include "base/num.h"
#include "graph/linear.h"
#include "graph/ops/ops.h"
#include "graph/panels.h"

#include <math.h>
#include <string.h>

/* Checks that operand q holds panels of blocks of a weight of n rows and k columns. */
static int check_blocks(const Op *op, int q, int64_t n, int64_t k, cvn_err *err)
{
    const BlockInfo *info = &block_info[op->attr.blocks];
    if (k % info->elements)
        return infer_fail(op, err, "%lld columns do not make whole blocks of %s, which have %d",
                          (long long)k, info->name, info->elements);
    cvn_type want = block_panel_type(op->attr.blocks, n, k);
    char text[TYPE_TEXT];
    if (!cvn_type_equal(op_in(op, q), &want))
        return infer_fail(op, err, "a weight of %lld rows and %lld columns in %s lies in %s",
                          (long long)n, (long long)k, info->name,
                          type_text(&want, text, sizeof text));
    return CVN_OK;
}

int infer_check_panels(const Op *op, int q, int64_t n, int64_t k, cvn_err *err)
{
    const cvn_type *type = op_in(op, q);
    if (n < 1 || k < 1)
        return infer_fail(op, err, "a weight of %lld rows and %lld columns is empty", (long long)n,
                          (long long)k);
    if (op->attr.blocks)
        return check_blocks(op, q, n, k, err);
    cvn_type want = panel_type(type->dtype, n, k);
    if (!cvn_type_equal(type, &want)) {
        char text[TYPE_TEXT];
        return infer_fail(op, err, "a weight of %lld rows and %lld columns lies in %s",
                          (long long)n, (long long)k, type_text(&want, text, sizeof text));
    }
    if (!panel_scaled(type->dtype))
        return CVN_OK;
    const cvn_type *scale = op_in(op, q + 1);
    int64_t groups = scale->rank == 3 ? scale->dim[1] : 0;
    if ((scale->dtype != CVN_F32 && scale->dtype != CVN_BF16) || groups < 1 ||
        scale->dim[0] != want.dim[0] || scale->dim[2] != PANEL_ROWS)
        return infer_fail(op, err, "the scale must be f32 or bf16 [%lld, groups, %d]",
                          (long long)want.dim[0], PANEL_ROWS);
    int64_t unit = panel_unit(type->dtype);
    if ((groups > 1 || type->dtype == CVN_I4) && k % (groups * unit))
        return infer_fail(op, err, "%lld columns do not make %lld groups of whole units of %lld",
                          (long long)k, (long long)groups, (long long)unit);
    return CVN_OK;
}

/* Whether the first `lead` dimensions of both are the same, and y has more. */
static bool begins_like(const cvn_type *y, const cvn_type *x, int lead)
{
    bool like = y->rank > lead;
    for (int d = 0; d < lead && like; d++)
        like = y->dim[d] == x->dim[d];
    return like;
}

/* The weight as f32 [n, k]; scale is NULL where it is not quantized. */
static cvn_value *rows_of(cvn_graph *g, cvn_value *q, cvn_value *scale, const LinearWeight *w)
{
    if (w->blocks) {
        const OpAttr attr = {.axis = 1, .blocks = w->blocks};
        const cvn_type type = CVN_TYPE(CVN_F32, w->n, w->k);
        return graph_add(g, OP_DEQUANTIZE, &attr, 1, &q, &type);
    }
    bool panels = w->panels > 0;
    int64_t rows = panels ? w->panels * PANEL_ROWS : w->n;
    int64_t columns = panels ? w->units * panel_unit(w->dtype) : w->k;
    int64_t groups = scale ? w->groups : 1;
    const int64_t grouped[] = {rows, groups, columns / groups};
    cvn_value *value = as(g, q, CVN_F32);
    if (panels)
        value = w->dtype == CVN_I4 ? cvn_transpose(g, value, (const int[]){0, 2, 1, 4, 3})
                                   : cvn_transpose(g, value, (const int[]){0, 2, 1, 3});
    value = cvn_reshape(g, value, 3, grouped);
    if (scale) {
        cvn_value *step = as(g, scale, CVN_F32);
        if (panels)
            step = cvn_transpose(g, step, (const int[]){0, 2, 1});
        step = cvn_reshape(g, step, 2, grouped);
        value = cvn_multiply(g, value, spread(g, step, &value->type, (const int[]){0, 1}));
    }
    value = cvn_reshape(g, value, 2, (const int64_t[]){rows, columns});
    if (rows == w->n && columns == w->k)
        return value;
    return cvn_slice(g, value, (const int64_t[]){0, 0}, (const int64_t[]){w->n, w->k}, NULL);
}

/* ---- dequantize ---- */

cvn_value *cvn_dequantize(cvn_graph *g, cvn_value *q, cvn_value *scale, cvn_dtype dtype)
{
    cvn_type type = q->type;
    type.dtype = dtype;
    return graph_add(g, OP_DEQUANTIZE, NULL, 2, (cvn_value *[]){q, scale}, &type);
}

static BlockKind block_kind(cvn_graph *g, const char *name)
{
    for (int i = 1; i < BLOCK_KINDS; i++)
        if (strcmp(block_names[i], name) == 0)
            return (BlockKind)i;
    graph_fail(g, CVN_EINVAL, "'%.40s' is not a type of quantized blocks", name);
    return BLOCK_NONE;
}

cvn_value *cvn_dequantize_blocks(cvn_graph *g, cvn_value *w, const char *kind, cvn_type type)
{
    OpAttr attr = {.blocks = block_kind(g, kind)};
    return graph_add(g, OP_DEQUANTIZE, &attr, 1, &w, &type);
}

/* The types where blocks are an array, not in panels. */
static int infer_blocks(const Op *op, const cvn_type *type, cvn_err *err)
{
    const BlockInfo *info = &block_info[op->attr.blocks];
    int rows = op_in(op, 0)->rank - 2;
    if (rows < 0 || type->rank <= rows || type_span(type, rows, type->rank) % info->elements)
        return infer_fail(op, err,
                          "takes i8 [rows …, blocks, bytes] and makes [rows …, columns …]"
                          " of whole blocks of %s, which have %d",
                          info->name, info->elements);
    cvn_type want = block_type(op->attr.blocks, type, rows);
    char text[TYPE_TEXT];
    if (!cvn_type_equal(op_in(op, 0), &want))
        return infer_fail(op, err, "this in blocks of %s lies in %s", info->name,
                          type_text(&want, text, sizeof text));
    return CVN_OK;
}

/* The types where a weight and its scale lie plainly: [rows …, columns …], scale [rows …, groups]. */
static int infer_scaled(const Op *op, const cvn_type *type, cvn_err *err)
{
    const cvn_type *weight = op_in(op, 0);
    cvn_type want = *weight;
    want.dtype = type->dtype;
    if (op->n_operands != 2)
        return infer_fail(op, err, "takes a scale");
    if (!cvn_type_equal(type, &want))
        return infer_fail(op, err, "the result has the shape of what is scaled");
    const cvn_type *scale = op_in(op, 1);
    int rows = scale->rank - 1;
    bool fits = rows >= 1 && panel_scaled(weight->dtype) &&
                (scale->dtype == CVN_F32 || scale->dtype == CVN_BF16) &&
                begins_like(weight, scale, rows) && scale->dim[rows] >= 1 &&
                type_span(weight, rows, weight->rank) % scale->dim[rows] == 0;
    return fits
               ? CVN_OK
               : infer_fail(op, err,
                            "takes i8 or i4 [rows …, columns …] with a scale, f32 or bf16 [rows …, "
                            "groups], whose groups divide the columns");
}

int infer_dequantize(const Op *op, cvn_type *type, cvn_err *err)
{
    if (type[0].dtype == CVN_DTYPE_COUNT || !dtype_is_float(type[0].dtype))
        return infer_fail(op, err, "needs a result type of floats");
    if (op->attr.blocks && op->n_operands != 1)
        return infer_fail(op, err, "takes blocks without a scale");
    if (op->attr.blocks && op->attr.axis == 0)
        return infer_blocks(op, &type[0], err);
    if (op->attr.axis == 0)
        return infer_scaled(op, type, err);
    int rows = (int)op->attr.axis;
    if (op->attr.axis < 1 || op->attr.axis >= type[0].rank)
        return infer_fail(op, err, "rows is %lld, but the result has %d dimensions",
                          (long long)op->attr.axis, type[0].rank);
    if (op->n_operands != 1 + (!op->attr.blocks && panel_scaled(op_in(op, 0)->dtype)))
        return infer_fail(op, err, "takes a scale for integers, and none for floats");
    return infer_check_panels(op, 0, type_span(&type[0], 0, rows),
                              type_span(&type[0], rows, type[0].rank), err);
}

void interp_dequantize(const Op *op, const void *const *in, void *const *out)
{
    const BlockInfo *info = &block_info[op->attr.blocks];
    const bool panels = op->attr.axis > 0;
    const int64_t n = cvn_type_elements(op_out(op, 0));
    const LinearWeight w = panels ? dequantize_weight(op) : (LinearWeight){.k = n};
    const BlockChunk c = panels ? block_chunk(w.blocks, w.k) : (BlockChunk){0};
    const int64_t each = panels ? c.columns : info->elements;
    float element[BLOCK_MOST];
    for (int64_t i = 0; i < n; i += each) {
        const uint8_t *from = in[0];
        const int64_t row = i / w.k, column = i % w.k;
        if (panels)
            block_chunk_row(w.blocks, &c,
                            from + (row / PANEL_ROWS * w.units + column / each) * c.bytes,
                            (int)(row % PANEL_ROWS), element);
        else
            info->widen(from + i / each * info->bytes, element);
        for (int64_t j = 0; j < each; j++)
            element_set(op_out(op, 0)->dtype, out[0], i + j, (double)element[j]);
    }
}

void decompose_dequantize(cvn_graph *g, const Op *op, cvn_value **out)
{
    const cvn_type *type = &op->result[0]->type;
    if (op->attr.blocks) {
        cvn_value *all = decompose_blocks(g, op->operand[0], op->attr.blocks, op->attr.axis > 0);
        out[0] = as(g, cvn_reshape(g, all, type->rank, type->dim), type->dtype);
        return;
    }
    LinearWeight w = dequantize_weight(op);
    cvn_value *scale = w.groups ? op->operand[1] : NULL;
    cvn_value *value = rows_of(g, op->operand[0], scale, &w);
    out[0] = as(g, cvn_reshape(g, value, type->rank, type->dim), type->dtype);
}

bool hlo_has_floats(const Op *op)
{
    return op->kind == OP_DEQUANTIZE && op->attr.axis == 0 &&
           block_info[op->attr.blocks].form.fraction;
}

/* Bytes [from, to) of each block, as numbers of so many of them: one where `type` has a dimension less. */
static const char *hlo_field(Hlo *h, const Op *op, int64_t from, int64_t to, const char *type)
{
    cvn_type bytes = *op_in(op, 0);
    const int last = bytes.rank - 1;
    int64_t first[CVN_MAX_RANK] = {0}, end[CVN_MAX_RANK], ones[CVN_MAX_RANK];
    for (int d = 0; d <= last; d++) {
        end[d] = bytes.dim[d];
        ones[d] = 1;
    }
    first[last] = from;
    end[last] = to;
    const Ints start = {bytes.rank, first}, limit = {bytes.rank, end}, step = {bytes.rank, ones};
    bytes.dim[last] = to - from;
    const char *sliced = hlo_temp(h), *out = hlo_temp(h), *of = hlo_tensor(h, &bytes);
    hlo_call(h, &(HloCall){.result = sliced,
                           .name = "slice",
                           .operands = hlo_operands(h, op),
                           .operand_types = hlo_types(h, op->operand, 1),
                           .attrs = arena_printf(
                               &h->arena, "start_indices = %s, limit_indices = %s, strides = %s",
                               hlo_array(h, &start), hlo_array(h, &limit), hlo_array(h, &step)),
                           .result_types = of});
    hlo_call(h, &(HloCall){.result = out,
                           .name = "bitcast_convert",
                           .operands = sliced,
                           .operand_types = of,
                           .result_types = type});
    return out;
}

/* Of floats of 8 bits: the bytes are what they are, and compilers widen them for devices that multiply no such.

       codes  = convert(bitcast_convert(slice of bytes 4 …) : f8E4M3FN [rows …, blocks, 128])     f32
       scales = bitcast_convert(slice of bytes 0 … 3) : f32 [rows …, blocks]                      over each 128
       value  = reshape(codes * scales)                                                           [rows …, columns …]   */
void hlo_dequantize(Hlo *h, const Op *op)
{
    const BlockInfo *info = &block_info[op->attr.blocks];
    cvn_type wide = *op_in(op, 0), blocks = wide;
    int64_t dims[CVN_MAX_RANK];
    const Ints over = {wide.rank - 1, dims};
    wide.dtype = blocks.dtype = CVN_F32;
    wide.dim[wide.rank - 1] = info->elements;
    blocks.rank--;
    StrBuf floats = {0};
    strbuf_puts(&floats, "tensor<");
    for (int d = 0; d < wide.rank; d++) {
        strbuf_printf(&floats, "%lldx", (long long)wide.dim[d]);
        dims[d] = d;
    }
    strbuf_printf(&floats, "%s>", info->form.fraction == 3 ? "f8E4M3FN" : "f8E5M2");
    const char *type = arena_string(&h->arena, floats.failed ? "" : floats.text);
    h->out->failed |= floats.failed;
    strbuf_free(&floats);
    const char *of = hlo_tensor(h, &wide), *each = hlo_tensor(h, &blocks);
    const char *code = hlo_field(h, op, info->places->codes, info->bytes, type);
    const char *scale = hlo_field(h, op, info->places->d, info->places->codes, each);
    const char *widened = hlo_temp(h), *spread = hlo_temp(h), *value = hlo_temp(h);
    hlo_call(h, &(HloCall){.result = widened,
                           .name = "convert",
                           .operands = code,
                           .operand_types = type,
                           .result_types = of});
    hlo_call(h, &(HloCall){.result = spread,
                           .name = "broadcast_in_dim",
                           .operands = scale,
                           .operand_types = each,
                           .attrs = arena_printf(&h->arena, "broadcast_dimensions = %s",
                                                 hlo_array(h, &over)),
                           .result_types = of});
    hlo_call(h, &(HloCall){.result = value,
                           .name = "multiply",
                           .operands = arena_printf(&h->arena, "%s, %s", widened, spread),
                           .operand_types = arena_printf(&h->arena, "%s, %s", of, of),
                           .result_types = of});
    hlo_call_in(h, op, (HloCall){.name = "reshape", .operands = value, .operand_types = of},
                CVN_F32);
}

/* Rows pass. Of columns as many parts as their outermost dimension and what is of several columns, a group that has a scale or
   a block, have in common; where a row has one scale, all.

       [rows …, (p a), b …]     q [rows …, (p a), b …]     scale [rows …, (p g)]     or blocks [rows …, (p g), bytes] */
void factors_dequantize(const Op *op, Rule *rule)
{
    int result = op->n_operands, last = result - 1;
    const cvn_type *type = op_out(op, 0), *groups = op_in(op, last);
    int rows = op->attr.blocks ? groups->rank - 2 : groups->rank - 1;
    if (op->attr.axis) /* in panels, which the graph of one device has: nothing is split */
        return;
    for (int d = 0; d < rows; d++)
        rule_put_all(rule, d, rule_add(rule, type->dim[d], FACTOR_PASS));
    int64_t size = type->dim[rows], n = groups->dim[rows];
    bool alone = !op->attr.blocks && n == 1; /* a scale of all columns */
    int64_t parts = alone ? size : num_gcd(n, size);
    int part = rule_add(rule, parts, FACTOR_PASS),
        rest = rule_add(rule, size / parts, FACTOR_WHOLE);
    for (int t = op->attr.blocks ? result : 0; t <= result; t += result) {
        rule_put(rule, t, rows, part);
        rule_put(rule, t, rows, rest);
    }
    rule_put(rule, last, rows, alone ? NO_FACTOR : part);
    rule_put(rule, last, rows, rule_add(rule, alone ? 1 : n / parts, FACTOR_WHOLE));
    if (op->attr.blocks)
        rule_put(rule, 0, rows + 1, rule_add(rule, groups->dim[rows + 1], FACTOR_WHOLE));
    for (int d = rows + 1; d < type->rank; d++) {
        int f = rule_add(rule, type->dim[d], alone ? FACTOR_PASS : FACTOR_WHOLE);
        rule_put(rule, result, d, f);
        if (!op->attr.blocks)
            rule_put(rule, 0, d, f);
    }
}

double flops_dequantize(const Op *op)
{
    return op_elements(op->result[0]);
}

/* ---- quantize_rows ---- */

void cvn_quantize_rows(cvn_graph *g, cvn_value *x, cvn_value *out[2])
{
    build_results(g, graph_add(g, OP_QUANTIZE_ROWS, NULL, 1, &x, NULL), 2, out);
}

int infer_quantize_rows(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    if (x->rank < 1 || x->dim[x->rank - 1] < 1)
        return infer_fail(op, err, "x must be floats [..., d] with d at least 1");
    type[0] = type[1] = *x;
    type[0].dtype = CVN_I8;
    type[1].dtype = CVN_BF16;
    type[1].dim[x->rank - 1] = 1;
    return CVN_OK;
}

/* The nearest whole number of floats of at most 2^23, halves to even. (x + c - c for a large c would do, but
   XLA folds it to x.) The part of |x| past its floor is exact. */
static cvn_value *nearest(cvn_graph *g, cvn_value *x)
{
    cvn_value *size = cvn_abs(g, x), *low = cvn_floor(g, size);
    cvn_value *part = cvn_subtract(g, size, low), *half = like(g, x, 0.5);
    cvn_value *odd = cvn_remainder(g, low, like(g, x, 2)), *one = like(g, x, 1);
    cvn_value *tie = cvn_compare_values(g, CVN_EQ, part, half);
    cvn_value *up = cvn_and(g, tie, cvn_compare_values(g, CVN_EQ, odd, one));
    up = cvn_or(g, up, cvn_compare_values(g, CVN_GT, part, half));
    low = cvn_add(g, low, cvn_select(g, up, one, like(g, x, 0)));
    return cvn_multiply(g, low, cvn_sign(g, x));
}

/* Rounds x [..., d] to i8, with a scale of each row as bf16 [..., 1]. */
static void to_8_bits(cvn_graph *g, cvn_value *x, cvn_value *out[2])
{
    x = as(g, x, CVN_F32);
    int last = x->type.rank - 1;
    cvn_type scales = x->type;
    scales.dim[last] = 1;
    cvn_value *most = cvn_reduce_dims(g, CVN_MAX, cvn_abs(g, x), 1, &last); /* [...] */
    cvn_value *scale = cvn_convert(g, cvn_divide(g, most, like(g, most, 127)), CVN_BF16);
    out[1] = cvn_reshape(g, scale, last + 1, scales.dim);
    cvn_value *step = as(g, scale, CVN_F32);
    cvn_value *usable = cvn_compare_values(g, CVN_GT, step, like(g, step, 0));
    usable = spread_over(g, cvn_and(g, usable, cvn_is_finite(g, step)), &x->type, last);
    cvn_value *steps = cvn_divide(g, x, spread_over(g, step, &x->type, last));
    cvn_value *least = like(g, x, -127);
    steps = nearest(g, cvn_clamp(g, least, steps, like(g, x, 127)));
    out[0] = cvn_convert(g, cvn_select(g, usable, steps, like(g, x, 0)), CVN_I8);
}

void decompose_quantize_rows(cvn_graph *g, const Op *op, cvn_value **out)
{
    to_8_bits(g, op->operand[0], out);
}

/* ---- linear_int8 ---- */

cvn_value *cvn_linear_int8(cvn_graph *g, cvn_value *x, cvn_value *x_scale, cvn_value *q,
                           cvn_value *scale, cvn_type type)
{
    return graph_add(g, OP_LINEAR_INT8, NULL, 4, (cvn_value *[]){x, x_scale, q, scale}, &type);
}

/* Whether operand q is a weight of i8 in panels with a scale in f32 for each row. */
static bool takes_rows_of_8_bits(const Op *op, int q)
{
    if (op_in(op, q)->dtype != CVN_I8) /* then there is no scale, perhaps */
        return false;
    const cvn_type *scale = op_in(op, q + 1);
    return scale->dtype == CVN_F32 && scale->rank == 3 && scale->dim[1] == 1;
}

/* Checks the weight of a linear_int8 that is not in panels, for results y whose rows are from `lead` on. */
static int check_plain_int8(const Op *op, const cvn_type *y, int lead, int64_t k, cvn_err *err)
{
    const cvn_type *q = op_in(op, 2), *scale = op_in(op, 3);
    int rows = y->rank - lead;
    bool fits = q->dtype == CVN_I8 && q->rank > rows && scale->dtype == CVN_F32 &&
                scale->rank == rows + 1 && scale->dim[rows] == 1;
    for (int d = 0; d < rows && fits; d++)
        fits = y->dim[lead + d] == q->dim[d] && y->dim[lead + d] == scale->dim[d];
    if (!fits || type_span(q, rows, q->rank) != k)
        return infer_fail(
            op, err,
            "takes a weight of i8 [rows …, columns …] of %lld columns and scales of f32 "
            "[rows …, 1] for results [..., rows …]",
            (long long)k);
    return CVN_OK;
}

int infer_linear_int8(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0), *y = &type[0];
    int lead = x->rank - 1;
    if (x->dtype != CVN_I8 || lead < 0 || x->dim[lead] < 1 || x->dim[lead] > LINEAR_INT8_MOST_K)
        return infer_fail(op, err, "x must be i8 [..., k] with k from 1 to %d", LINEAR_INT8_MOST_K);
    cvn_type scales = *x;
    scales.dtype = CVN_BF16;
    scales.dim[lead] = 1;
    if (!cvn_type_equal(&scales, op_in(op, 1)))
        return infer_fail(op, err, "x's scales must be bf16 [..., 1]");
    if (y->dtype == CVN_DTYPE_COUNT || !dtype_is_float(y->dtype) || y->dtype == CVN_F64)
        return infer_fail(op, err, "needs a result type of f32, bf16 or f16");
    if (!begins_like(y, x, lead))
        return infer_fail(op, err, "the result begins with the dimensions of x but its last");
    if (op->attr.axis == 0)
        return check_plain_int8(op, y, lead, x->dim[lead], err);
    if (op->attr.axis != y->rank - lead)
        return infer_fail(op, err, "rows is %lld, but the result has %d dimensions behind x's",
                          (long long)op->attr.axis, y->rank - lead);
    if (!takes_rows_of_8_bits(op, 2))
        return infer_fail(op, err, "takes a weight of i8 with a scale in f32 for each row");
    return infer_check_panels(op, 2, type_span(y, lead, y->rank), x->dim[lead], err);
}

void interp_linear_int8(const Op *op, const void *const *in, void *const *out)
{
    const LinearWeight w = linear_weight(op, 0);
    const int8_t *x = in[0];
    int64_t rows = cvn_type_elements(op_in(op, 1));
    for (int64_t at = 0; at < rows * w.n; at++) {
        int64_t m = at / w.n, n = at % w.n, sum = 0;
        for (int64_t k = 0; k < w.k; k++) {
            int64_t place = w.panels ? panel_index(w.dtype, w.units, n, k) : n * w.k + k;
            sum += x[m * w.k + k] * (int64_t)((const int8_t *)in[2])[place];
        }
        double scale = element_get(CVN_F32, in[3], n) * element_get(CVN_BF16, in[1], m);
        element_set(op_out(op, 0)->dtype, out[0], at, (double)sum * scale);
    }
}

/* x [rows, k] times weight i, as f32 [rows, n]; step is the scale of each row of x if it is of 8 bits, of any shape, or NULL. */
static cvn_value *product_of(cvn_graph *g, const Op *op, int i, cvn_value *x, cvn_value *step)
{
    const cvn_dot_dims dims = {.n_contract = 1, .lhs_contract = {1}, .rhs_contract = {1}};
    LinearWeight w = linear_weight(op, i);
    cvn_value *const *q = op->operand + linear_operand(op, i);
    cvn_value *values = rows_of(g, q[0], w.groups ? q[1] : NULL, &w);
    cvn_value *y = cvn_dot_general(g, as(g, x, CVN_F32), values, &dims, CVN_F32);
    if (!step)
        return y;
    step = as(g, cvn_reshape(g, step, 1, &y->type.dim[0]), CVN_F32);
    return cvn_multiply(g, y, spread_over(g, step, &y->type, 1));
}

void decompose_linear_int8(cvn_graph *g, const Op *op, cvn_value **out)
{
    const cvn_type *type = &op->result[0]->type;
    const int64_t shape[] = {linear_rows(op), linear_weight(op, 0).k};
    cvn_value *x = cvn_reshape(g, op->operand[0], 2, shape);
    cvn_value *y = product_of(g, op, 0, x, op->operand[1]);
    out[0] = as(g, cvn_reshape(g, y, type->rank, type->dim), type->dtype);
}

void factors_linear_int8(const Op *op, Rule *rule)
{
    int lead = op_in(op, 0)->rank - 1, rank = op_out(op, 0)->rank;
    for (int d = 0; d < (op->attr.axis ? lead : rank); d++) { /* weights in panels are not split */
        int f = rule_add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
        rule_put(rule, 4, d, f);
        for (int t = 0; t < 2; t++)
            rule_put(rule, d < lead ? t : 2 + t, d < lead ? d : d - lead, f);
    }
    for (int d = rank - lead; d < op_in(op, 2)->rank && !op->attr.axis; d++) {
        bool exact =
            op_out(op, 0)->dtype == CVN_F32; /* holds sums of whole numbers times a scale */
        int f = rule_add(rule, op_in(op, 2)->dim[d], exact ? FACTOR_REDUCE : FACTOR_WHOLE);
        rule_put(rule, 0, lead, f);
        rule_put(rule, 2, d, f);
    }
}

double flops_linear_int8(const Op *op)
{
    return flops_linear(op);
}

/* ---- linear ---- */

void cvn_linear(cvn_graph *g, cvn_value *x, const cvn_linear_spec *spec, cvn_value **out)
{
    OpAttr attr = {.axis = spec->contract,
                   .group_size = spec->n_weights,
                   .int8 = spec->int8,
                   .blocks = spec->blocks ? block_kind(g, spec->blocks) : BLOCK_NONE};
    cvn_value *operand[LINEAR_OPERANDS] = {x};
    int n = 1;
    for (int i = 0; i < spec->n_weights && i < LINEAR_WEIGHTS; i++) {
        operand[n++] = spec->q[i];
        if (spec->scale[i])
            operand[n++] = spec->scale[i];
    }
    cvn_value *first = graph_add(g, OP_LINEAR, &attr, n, operand, spec->type);
    build_results(g, first, op_results(OP_LINEAR, n, &attr), out);
}

int infer_linear(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    int64_t contract = op->attr.axis, weights = op->attr.group_size;
    if (weights < 1 || weights > LINEAR_WEIGHTS)
        return infer_fail(op, err, "takes 1 to %d weights", LINEAR_WEIGHTS);
    int each = linear_each(op);
    if (op->n_operands != linear_behind(op))
        return infer_fail(op, err,
                          "takes x and each of %lld weights, with its scale if it is quantized",
                          (long long)weights);
    if (!dtype_is_float(x->dtype) || x->dtype == CVN_F64 || contract < 1 || contract > x->rank)
        return infer_fail(op, err, "x must be f32, bf16 or f16 of at least %lld dimensions",
                          (long long)contract);
    int lead = x->rank - (int)contract;
    int64_t k = type_span(x, lead, x->rank);
    for (int i = 0; i < (int)weights; i++) {
        const cvn_type *y = &type[i];
        if (y->dtype == CVN_DTYPE_COUNT || !dtype_is_float(y->dtype) || y->dtype == CVN_F64)
            return infer_fail(op, err, "needs result types of f32, bf16 or f16");
        if (!begins_like(y, x, lead))
            return infer_fail(op, err, "results begin with the %d dimensions of x that are kept",
                              lead);
        if (!op->attr.blocks && each != 1 + panel_scaled(op_in(op, 1 + each * i)->dtype))
            return infer_fail(op, err, "takes weights that are all quantized, or none");
        if (op->attr.int8 && block_info[op->attr.blocks].form.fraction)
            return infer_fail(op, err, "with int8 takes weights in blocks of whole numbers");
        if (op->attr.int8 && !op->attr.blocks &&
            (!takes_rows_of_8_bits(op, 1 + each * i) || k > LINEAR_INT8_MOST_K))
            return infer_fail(op, err,
                              "with int8 takes weights in blocks, or of i8 of at most %d columns "
                              "with a scale in f32 for each row",
                              LINEAR_INT8_MOST_K);
        TRY(infer_check_panels(op, 1 + each * i, type_span(y, lead, y->rank), k, err));
    }
    return CVN_OK;
}

void decompose_linear(cvn_graph *g, const Op *op, cvn_value **out)
{
    const int64_t shape[] = {linear_rows(op), linear_weight(op, 0).k};
    cvn_value *from = op->operand[0], *eight[2] = {NULL, NULL};
    from = cvn_reshape(g, from, 2, shape);
    if (op->attr.int8 && op->attr.blocks) {
        const LinearWeight w = linear_weight(op, 0);
        const int64_t columns = linear_step_columns(&w);
        from = cvn_reshape(g, from, 3, (const int64_t[]){shape[0], w.k / columns, columns});
        to_8_bits(g, from, eight);
        from = cvn_reshape(g, cvn_dequantize(g, eight[0], eight[1], CVN_F32), 2, shape);
        eight[1] = NULL;
    } else if (op->attr.int8) {
        to_8_bits(g, from, eight);
        from = eight[0];
    }
    for (int i = 0; i < op->n_results; i++) {
        const cvn_type *type = &op->result[i]->type;
        cvn_value *y = product_of(g, op, i, from, eight[1]);
        out[i] = as(g, cvn_reshape(g, y, type->rank, type->dim), type->dtype);
    }
}

/* Rows of x are split. Weights are in panels, which the graph of one device has: they are not. */
void factors_linear(const Op *op, Rule *rule)
{
    int lead = op_in(op, 0)->rank - (int)op->attr.axis;
    for (int d = 0; d < lead; d++) {
        int f = rule_add(rule, op_in(op, 0)->dim[d], FACTOR_PASS);
        for (int t = 0; t < rule->n_tensors; t++)
            if (t == 0 || t >= op->n_operands)
                rule_put(rule, t, d, f);
    }
    for (int d = lead; d < op_in(op, 0)->rank; d++)
        rule_put(rule, 0, d, rule_add(rule, op_in(op, 0)->dim[d], FACTOR_WHOLE));
}

double flops_linear(const Op *op)
{
    double n = 0;
    for (int i = 0; i < linear_weights(op); i++) {
        LinearWeight w = linear_weight(op, i);
        n += 2 * (double)linear_rows(op) * (double)w.n * (double)w.k;
    }
    return n;
}
