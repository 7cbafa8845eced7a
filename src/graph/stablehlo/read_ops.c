/* Operations of a module that are operations of graphs, most of them by what ops.def says: the name, and the names of attributes in
   StableHLO, with those that its printer uses. */
#include "graph/stablehlo/read.h"

#include <string.h>

/* Attributes that StableHLO's own way of writing calls otherwise. */
static const char *const other_names[][2] = {
    {"broadcast_dimensions", "dims"},
    {"permutation", "dims"},
    {"dimensions", "dims"},
    {"iota_dimension", "dim"},
    {"dimension", "dim"},
    {"edge_padding_low", "low"},
    {"edge_padding_high", "high"},
    {"interior_padding", "interior"},
    {"slice_sizes", "sizes"},
};

static const char *other_name(const char *name)
{
    for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++)
        if (strcmp(other_names[i][0], name) == 0)
            return other_names[i][1];
    return NULL;
}

OpKind read_kind(Span name)
{
    for (OpKind kind = 0; kind < OP_COUNT; kind++) {
        OpClass class_ = op_info[kind].class_;
        if ((class_is_elementwise(class_) || class_ == CLASS_SHAPE || kind == OP_IOTA) &&
            span_is(name, op_info[kind].name))
            return kind;
    }
    return OP_COUNT;
}

/* Where i64 stands for whole numbers that fit in 32 bits, they may be moved and compared. */
static bool only_moves(OpKind kind)
{
    return op_info[kind].class_ == CLASS_SHAPE || kind == OP_COMPARE || kind == OP_SELECT ||
           kind == OP_MINIMUM || kind == OP_MAXIMUM || kind == OP_CLAMP;
}

/* Whether results of op are i64, as its operands are. */
static int check_wide(Read *r, const MlirOp *op, OpKind kind, const ReadValue *in, bool *wide)
{
    *wide = false;
    for (size_t i = 0; i < op->operand.n; i++)
        *wide |= in[i].wide;
    if (*wide && !only_moves(kind))
        return read_fail(r, op, "calculates with i64; the integers of graphs have 32 bits at most");
    for (size_t i = kind == OP_SELECT; *wide && i < op->operand.n; i++)
        if (!in[i].wide)
            return read_fail(r, op, "has operands of i64 and others");
    *wide = *wide && kind != OP_COMPARE;
    return CVN_OK;
}

/* "[0:4, 1:9:2]" */
static int read_ranges(Read *r, Span text, OpAttr *attr)
{
    int64_t v[3][CVN_MAX_RANK];
    int n = 0;
    Lexer lex = mlir_lexer(r->m, text);
    while (lex_space(&lex), lex.p < lex.end) {
        if (n == CVN_MAX_RANK)
            return lex_fail_at(&lex, lex.p, "a slice has more than %d dimensions", CVN_MAX_RANK);
        TRY(lex_int(&lex, &v[0][n], "where a slice begins"));
        TRY(lex_need(&lex, ':', "in a slice"));
        TRY(lex_int(&lex, &v[1][n], "where a slice ends"));
        v[2][n] = 1;
        if (lex_take(&lex, ':'))
            TRY(lex_int(&lex, &v[2][n], "the stride of a slice"));
        n++;
        lex_take(&lex, ',');
    }
    attr->start = graph_ints(r->g, n, v[0]);
    attr->limit = graph_ints(r->g, n, v[1]);
    attr->stride = graph_ints(r->g, n, v[2]);
    return CVN_OK;
}

/* The attributes of kind that StableHLO has names for. */
static int read_attrs(Read *r, const MlirOp *op, OpKind kind, OpAttr *attr)
{
    const Span *ranges = mlir_find(&op->attr, "slice", NULL);
    if (kind == OP_SLICE && ranges)
        return read_ranges(r, *ranges, attr);
    for (const AttrInfo *row = op_info[kind].attrs; row->name; row++) {
        void *field = (char *)attr + row->offset;
        if (row->hlo && row->type == ATTR_INTS)
            TRY(read_ints(r, op, row->hlo, other_name(row->hlo), field));
        else if (row->hlo)
            TRY(read_int(r, op, row->hlo, other_name(row->hlo), field));
    }
    return CVN_OK;
}

/* Operation `kind` of the first n operands, whose result is of the type that is written where it is not implied. */
static int add(Read *r, const MlirOp *op, OpKind kind, const OpAttr *attr, size_t n,
               const ReadValue *in, ReadValue *out)
{
    enum { MOST = 4096 };
    if (op->result.n != 1 || n > MOST)
        return read_fail(r, op, "has %zu operands and %zu results", n, op->result.n);
    cvn_value **operand = arena_array(&r->g->arena, n + 1, sizeof *operand);
    for (size_t i = 0; i < n; i++)
        operand[i] = in[i].v;
    out[0].v = graph_add(r->g, kind, attr, (int)n, operand, &op->out.v[0].type);
    return CVN_OK;
}

int read_plain(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    const char *dialect_end = memchr(op->name.p, '.', op->name.n);
    const char *name = dialect_end + 1;
    OpKind kind = read_kind((Span){name, op->name.n - (size_t)(name - op->name.p)});
    OpAttr attr = {0};
    TRY(check_wide(r, op, kind, in, &out[0].wide));
    TRY(read_attrs(r, op, kind, &attr));
    TRY(add(r, op, kind, &attr, op->operand.n, in, out));
    if (kind == OP_IOTA && !r->g->err.code) /* counts to less than 2^31 */
        out[0].wide = op->out.v[0].wide && out[0].v->type.dim[attr.axis] <= INT32_MAX;
    return CVN_OK;
}

/* ---- leaves and conversions ---- */

static int read_constant_op(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    const Span *value = mlir_find(&op->attr, "value", NULL);
    (void)in;
    if (!value || op->result.n != 1)
        return read_fail(r, op, "has no value");
    const MlirType *type = &op->out.v[0];
    if (!op->literal) {
        Literal literal;
        TRY(mlir_dense(r->m, *value, type, &literal, r->whole));
        ((MlirOp *)op)->literal = arena_copy(&r->whole->arena, &literal, sizeof literal);
    }
    out[0].v =
        graph_add(r->g, OP_CONSTANT, &(OpAttr){.literal = *op->literal}, 0, NULL, &type->type);
    out[0].wide = type->wide;
    return CVN_OK;
}

static int read_convert(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    if (op->operand.n != 1 || op->result.n != 1)
        return read_fail(r, op, "has no operand and result");
    const MlirType *to = &op->out.v[0];
    cvn_dtype from = in[0].v->type.dtype;
    if (to->wide && dtype_is_float(from))
        return read_fail(r, op, "makes i64 of floats; the integers of graphs have 32 bits at most");
    out[0].wide = to->wide;
    out[0].v = to->wide && from == CVN_U32 ? in[0].v : read_as(r->g, in[0].v, to->type.dtype);
    return CVN_OK;
}

static int read_bitcast(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    if (op->operand.n != 1 || op->result.n != 1)
        return read_fail(r, op, "has no operand and result");
    cvn_dtype from = in[0].v->type.dtype, to = op->out.v[0].type.dtype;
    bool whole = (from == CVN_I32 || from == CVN_U32) && (to == CVN_I32 || to == CVN_U32);
    if (in[0].wide || op->out.v[0].wide || (from != to && !whole))
        return read_fail(r, op, "of %s as %s is not supported: graphs have no such operation",
                         cvn_dtype_name(from), cvn_dtype_name(to));
    out[0].v = read_as(r->g, in[0].v, to);
    return CVN_OK;
}

/* ---- comparisons ---- */

/* A word alone, or at the end of an attribute: #stablehlo<comparison_direction LT>. */
static bool says(const MlirOp *op, const char *attr, const char *word)
{
    const Span *value = mlir_find(&op->attr, attr, NULL);
    size_t n = strlen(word);
    if (!value)
        return mlir_has_word(op, word);
    size_t end = value->n - (value->n && value->p[value->n - 1] == '>');
    return end >= n && memcmp(value->p + end - n, word, n) == 0;
}

static int read_compare(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    static const char *const direction[COMPARE_COUNT] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
    OpAttr attr = {0};
    int found = -1;
    for (int i = 0; i < COMPARE_COUNT; i++)
        found = says(op, "comparison_direction", direction[i]) ? i : found;
    if (found < 0)
        return read_fail(r, op, "has no direction");
    if (says(op, "compare_type", "TOTALORDER")) {
        if (r->g == r->whole)
            return read_fail(r, op, "in total order is supported in the block of a sort only");
        r->total = true;
    }
    attr.compare = (cvn_compare)found;
    TRY(check_wide(r, op, OP_COMPARE, in, &out[0].wide));
    return add(r, op, OP_COMPARE, &attr, op->operand.n, in, out);
}

/* ---- products ---- */

/* "[0, 1] x [2, 3]" */
static int read_pair(Read *r, const MlirOp *op, const char *name, Ints *lhs, Ints *rhs)
{
    const Span *value = mlir_find(&op->attr, name, NULL);
    if (!value)
        return CVN_OK;
    const char *x = memchr(value->p, 'x', value->n);
    if (!x)
        return read_fail(r, op, "expected %s = […] x […]", name);
    TRY(mlir_ints(r->m, (Span){value->p, (size_t)(x - value->p)}, lhs, r->g));
    return mlir_ints(r->m, (Span){x + 1, value->n - (size_t)(x + 1 - value->p)}, rhs, r->g);
}

/* A list of the fields; none: empty. */
static int read_field(Read *r, const MlirAttrs *fields, const char *name, const char *other,
                      Ints *out)
{
    const Span *value = mlir_find(fields, name, other);
    return value ? mlir_ints(r->m, *value, out, r->g) : CVN_OK;
}

static int read_dot_general(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    const Span *numbers = mlir_find(&op->attr, "dot_dimension_numbers", NULL);
    OpAttr attr = {0};
    MlirAttrs fields = {0};
    TRY(check_wide(r, op, OP_DOT_GENERAL, in, &out[0].wide));
    TRY(read_pair(r, op, "batching_dims", &attr.lhs_batch, &attr.rhs_batch));
    TRY(read_pair(r, op, "contracting_dims", &attr.lhs_contract, &attr.rhs_contract));
    if (numbers) {
        TRY(mlir_fields(r->m, *numbers, &fields, &r->g->arena));
        TRY(read_field(r, &fields, "lhs_batching_dimensions", NULL, &attr.lhs_batch));
        TRY(read_field(r, &fields, "rhs_batching_dimensions", NULL, &attr.rhs_batch));
        TRY(read_field(r, &fields, "lhs_contracting_dimensions", NULL, &attr.lhs_contract));
        TRY(read_field(r, &fields, "rhs_contracting_dimensions", NULL, &attr.rhs_contract));
    }
    return add(r, op, OP_DOT_GENERAL, &attr, op->operand.n, in, out);
}

/* The product of vectors and matrices. */
static int read_dot(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    if (op->operand.n != 2 || in[0].v->type.rank < 1 || in[0].wide || in[1].wide)
        return read_fail(r, op, "has no vectors or matrices of numbers");
    OpAttr attr = {.lhs_contract = graph_ints(r->g, 1, (int64_t[]){in[0].v->type.rank - 1}),
                   .rhs_contract = graph_ints(r->g, 1, (int64_t[]){0})};
    return add(r, op, OP_DOT_GENERAL, &attr, 2, in, out);
}

/* ---- indexing ---- */

/* Starts may be i64, which are whole numbers of 32 bits here. */
static int read_dynamic(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    bool update = memmem(op->name.p, op->name.n, "update", 6) != NULL;
    OpKind kind = update ? OP_DYNAMIC_UPDATE_SLICE : OP_DYNAMIC_SLICE;
    OpAttr attr = {0};
    if (op->operand.n < 1 || op->operand.n > 2 + CVN_MAX_RANK)
        return read_fail(r, op, "has %zu operands", op->operand.n);
    TRY(read_attrs(r, op, kind, &attr));
    if (update && op->operand.n > 1 && in[0].wide != in[1].wide)
        return read_fail(r, op, "has operands of i64 and others");
    out[0].wide = in[0].wide;
    return add(r, op, kind, &attr, op->operand.n, in, out);
}

static int read_gather(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    const Span *numbers = mlir_find(&op->attr, "dimension_numbers", NULL), *along;
    OpAttr attr = {0};
    MlirAttrs f = {0};
    if (!numbers || op->operand.n != 2)
        return read_fail(r, op, "has no dimension_numbers");
    TRY(mlir_fields(r->m, *numbers, &f, &r->g->arena));
    TRY(read_field(r, &f, "offset_dims", NULL, &attr.window));
    TRY(read_field(r, &f, "collapsed_slice_dims", NULL, &attr.collapsed));
    TRY(read_field(r, &f, "operand_batching_dims", NULL, &attr.operand_batch));
    TRY(read_field(r, &f, "start_indices_batching_dims", NULL, &attr.index_batch));
    TRY(read_field(r, &f, "start_index_map", NULL, &attr.index_map));
    along = mlir_find(&f, "index_vector_dim", NULL);
    if (along)
        TRY(mlir_int(r->m, *along, &attr.index_vector_dim));
    TRY(read_ints(r, op, "slice_sizes", NULL, &attr.sizes));
    out[0].wide = in[0].wide;
    return add(r, op, OP_GATHER, &attr, 2, in, out);
}

/* ---- between devices, and order ---- */

static int read_barrier(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    if (op->result.n != op->operand.n)
        return read_fail(r, op, "has %zu operands and %zu results", op->operand.n, op->result.n);
    for (size_t i = 0; i < op->operand.n; i++)
        out[i] = (ReadValue){cvn_optimization_barrier(r->g, in[i].v), r->g, in[i].wide};
    return CVN_OK;
}

static int read_device(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    return add(r, op, OP_PARTITION_ID, NULL, op->operand.n, in, out);
}

const ReadRow read_rows[] = {
    {"constant", read_constant_op},
    {"convert", read_convert},
    {"bitcast_convert", read_bitcast},
    {"compare", read_compare},
    {"dot_general", read_dot_general},
    {"dot", read_dot},
    {"dynamic_slice", read_dynamic},
    {"dynamic_update_slice", read_dynamic},
    {"gather", read_gather},
    {"optimization_barrier", read_barrier},
    {"replica_id", read_device},
    {"partition_id", read_device},
    {NULL, NULL},
};
