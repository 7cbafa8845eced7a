#include "graph/stablehlo_impl.h"

#include "graph/decompose.h"
#include "graph/lex.h"
#include "graph/names.h"

#include <inttypes.h>
#include <string.h>

/* Operations that are a name, operands and perhaps plain attributes. */
static void plain_as(Hlo *h, const Op *op, const char *name, const char *attrs)
{
    hlo_call(h, &(HloCall){.result = hlo_results(h, op),
                           .name = name,
                           .operands = hlo_operands(h, op, 0),
                           .operand_types = hlo_operand_types(h, op, 0),
                           .attrs = attrs,
                           .result_types = hlo_result_type(h, op)});
}

static void plain(Hlo *h, const Op *op)
{
    plain_as(h, op, op_info[op->kind].name, NULL);
}

/* Parameters are arguments of the function. */
static void parameter(Hlo *h, const Op *op)
{
    (void)h;
    (void)op;
}

static void constant(Hlo *h, const Op *op)
{
    const Literal *literal = &op->attr.literal;
    const char *dense = hlo_dense(h, &op->result[0]->type, literal->data, literal->splat);
    plain_as(h, op, "constant", arena_printf(&h->arena, "value = %s", dense));
}

static void iota(Hlo *h, const Op *op)
{
    plain_as(h, op, "iota",
             arena_printf(&h->arena, "iota_dimension = %" PRId64 " : i64", op->attr.axis));
}

/* StableHLO has abs and sign of signed numbers only. */
static void absolute(Hlo *h, const Op *op)
{
    plain_as(h, op, op->result[0]->type.dtype == CVN_U32 ? "convert" : "abs", NULL);
}

static void sign(Hlo *h, const Op *op)
{
    const cvn_type *type = &op->result[0]->type;
    if (type->dtype != CVN_U32) {
        plain(h, op);
        return;
    }
    const char *t = hlo_tensor(h, type), *one = hlo_splat(h, type, 1);
    hlo_call(h,
             &(HloCall){.result = hlo_results(h, op),
                        .name = "minimum",
                        .operands = arena_printf(&h->arena, "%s, %s", hlo_operands(h, op, 0), one),
                        .operand_types = arena_printf(&h->arena, "%s, %s", t, t),
                        .result_types = t});
}

static void compare(Hlo *h, const Op *op)
{
    static const char *const direction[COMPARE_COUNT] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
    cvn_dtype dtype = op->operand[0]->type.dtype;
    const char *type = dtype == CVN_U32 || dtype == CVN_BOOL                    ? "UNSIGNED"
                       : dtype == CVN_I32 || dtype == CVN_I8 || dtype == CVN_I4 ? "SIGNED"
                                                                                : "FLOAT";
    plain_as(h, op, "compare",
             arena_printf(&h->arena,
                          "comparison_direction = #stablehlo<comparison_direction %s>, "
                          "compare_type = #stablehlo<comparison_type %s>",
                          direction[op->attr.compare], type));
}

static void broadcast_in_dim(Hlo *h, const Op *op)
{
    plain_as(h, op, "broadcast_in_dim",
             arena_printf(&h->arena, "broadcast_dimensions = %s", hlo_array(h, &op->attr.dims)));
}

static void transpose(Hlo *h, const Op *op)
{
    plain_as(h, op, "transpose",
             arena_printf(&h->arena, "permutation = %s", hlo_array(h, &op->attr.dims)));
}

static void slice(Hlo *h, const Op *op)
{
    plain_as(h, op, "slice",
             arena_printf(&h->arena, "start_indices = %s, limit_indices = %s, strides = %s",
                          hlo_array(h, &op->attr.start), hlo_array(h, &op->attr.limit),
                          hlo_array(h, &op->attr.stride)));
}

static void concatenate(Hlo *h, const Op *op)
{
    plain_as(h, op, "concatenate",
             arena_printf(&h->arena, "dimension = %" PRId64 " : i64", op->attr.axis));
}

static void pad(Hlo *h, const Op *op)
{
    plain_as(h, op, "pad",
             arena_printf(&h->arena,
                          "edge_padding_low = %s, edge_padding_high = %s, interior_padding = %s",
                          hlo_array(h, &op->attr.start), hlo_array(h, &op->attr.limit),
                          hlo_array(h, &op->attr.stride)));
}

static void reverse(Hlo *h, const Op *op)
{
    plain_as(h, op, "reverse",
             arena_printf(&h->arena, "dimensions = %s", hlo_array(h, &op->attr.dims)));
}

/* The starts of a dynamic slice have one type in StableHLO: i64 where ours differ. */
static void dynamic(Hlo *h, const Op *op, int first, const char *attrs)
{
    const char *operands = NULL, *types = NULL;
    bool same = true;
    for (int i = first; i < op->n_operands; i++)
        same &= op->operand[i]->type.dtype == op->operand[first]->type.dtype;
    for (int i = 0; i < op->n_operands; i++) {
        const char *text = hlo_ref(h, op->operand[i]);
        const char *type = hlo_tensor(h, &op->operand[i]->type);
        if (i >= first && !same) {
            const char *temp = hlo_temp(h);
            hlo_call(h, &(HloCall){.result = temp,
                                   .name = "convert",
                                   .operands = text,
                                   .operand_types = type,
                                   .result_types = "tensor<i64>"});
            text = temp;
            type = "tensor<i64>";
        }
        operands = i ? arena_printf(&h->arena, "%s, %s", operands, text) : text;
        types = i ? arena_printf(&h->arena, "%s, %s", types, type) : type;
    }
    hlo_call(h, &(HloCall){.result = hlo_results(h, op),
                           .name = op_info[op->kind].name,
                           .operands = operands,
                           .operand_types = types,
                           .attrs = attrs,
                           .result_types = hlo_result_type(h, op)});
}

static void dynamic_slice(Hlo *h, const Op *op)
{
    dynamic(h, op, 1, arena_printf(&h->arena, "slice_sizes = %s", hlo_array(h, &op->attr.sizes)));
}

static void dynamic_update_slice(Hlo *h, const Op *op)
{
    dynamic(h, op, 2, NULL);
}

static void device_id(Hlo *h, const Op *op)
{
    plain_as(h, op, "replica_id", NULL);
}

/* How each operation is written; NULL for composites. */
static HloFn *const table[OP_COUNT] = {
    [OP_PARAMETER] = parameter,
    [OP_CONSTANT] = constant,
    [OP_IOTA] = iota,
    [OP_NEGATE] = plain,
    [OP_ABS] = absolute,
    [OP_SIGN] = sign,
    [OP_EXPONENTIAL] = plain,
    [OP_EXPONENTIAL_MINUS_ONE] = plain,
    [OP_LOG] = plain,
    [OP_LOG_PLUS_ONE] = plain,
    [OP_SQRT] = plain,
    [OP_RSQRT] = plain,
    [OP_TANH] = plain,
    [OP_LOGISTIC] = plain,
    [OP_SINE] = plain,
    [OP_COSINE] = plain,
    [OP_FLOOR] = plain,
    [OP_NOT] = plain,
    [OP_IS_FINITE] = plain,
    [OP_CONVERT] = plain,
    [OP_ADD] = plain,
    [OP_SUBTRACT] = plain,
    [OP_MULTIPLY] = plain,
    [OP_DIVIDE] = plain,
    [OP_MAXIMUM] = plain,
    [OP_MINIMUM] = plain,
    [OP_POWER] = plain,
    [OP_REMAINDER] = plain,
    [OP_AND] = plain,
    [OP_OR] = plain,
    [OP_XOR] = plain,
    [OP_SHIFT_LEFT] = plain,
    [OP_SHIFT_RIGHT_LOGICAL] = plain,
    [OP_COMPARE] = compare,
    [OP_SELECT] = plain,
    [OP_CLAMP] = plain,
    [OP_BROADCAST_IN_DIM] = broadcast_in_dim,
    [OP_RESHAPE] = plain,
    [OP_TRANSPOSE] = transpose,
    [OP_SLICE] = slice,
    [OP_CONCATENATE] = concatenate,
    [OP_PAD] = pad,
    [OP_REVERSE] = reverse,
    [OP_DYNAMIC_SLICE] = dynamic_slice,
    [OP_DYNAMIC_UPDATE_SLICE] = dynamic_update_slice,
    [OP_GATHER] = hlo_gather,
    [OP_SCATTER] = hlo_scatter,
    [OP_SORT] = hlo_sort,
    [OP_REDUCE] = hlo_reduce,
    [OP_CUMSUM] = hlo_cumsum,
    [OP_DOT_GENERAL] = hlo_dot_general,
    [OP_ALL_REDUCE] = hlo_all_reduce,
    [OP_ALL_GATHER] = hlo_all_gather,
    [OP_REDUCE_SCATTER] = hlo_reduce_scatter,
    [OP_ALL_TO_ALL] = hlo_all_to_all,
    [OP_COLLECTIVE_PERMUTE] = hlo_collective_permute,
    [OP_PARTITION_ID] = device_id,
    [OP_OPTIMIZATION_BARRIER] = plain,
};

bool stablehlo_can_print(OpKind kind)
{
    return table[kind] != NULL;
}

/* One more than the largest device id that a collective names. */
static int64_t count_devices(const cvn_graph *g)
{
    int64_t n = 1;
    for (const Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->attr.groups.n; i++)
            if (op->attr.groups.v[i] >= n) /* an id of 2^63 - 1 is too many anyway */
                n = op->attr.groups.v[i] + (op->attr.groups.v[i] < INT64_MAX);
    return n;
}

/* The output computed into this parameter, or -1. */
static int alias_of(const cvn_graph *g, const cvn_value *parameter)
{
    for (int i = 0; i < g->n_outputs; i++)
        if (g->output[i].into == parameter)
            return i;
    return -1;
}

static void put_signature(Hlo *h, const cvn_graph *g)
{
    strbuf_puts(h->out, "  func.func public @main(");
    for (int i = 0; i < g->n_parameters; i++) {
        const cvn_value *v = g->parameter[i];
        int alias = alias_of(g, v);
        strbuf_printf(h->out, "%s%s: %s", i ? ", " : "", hlo_ref(h, v), hlo_tensor(h, &v->type));
        if (alias >= 0)
            strbuf_printf(h->out, " {tf.aliasing_output = %d : i32}", alias);
    }
    strbuf_puts(h->out, ") -> (");
    for (int i = 0; i < g->n_outputs; i++)
        strbuf_printf(h->out, "%s%s", i ? ", " : "", hlo_tensor(h, &g->output[i].value->type));
    strbuf_puts(h->out, ") {\n");
}

static void put_module(Hlo *h, const cvn_graph *g, int64_t n_devices)
{
    strbuf_printf(h->out,
                  "module @%s attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = "
                  "%" PRId64 " : i32} {\n",
                  lex_is_plain_name(g->name) ? g->name : "graph", n_devices);
    put_signature(h, g);
    for (const Op *op = g->first; op; op = op->next)
        table[op->kind](h, op);
    strbuf_puts(h->out, "    \"func.return\"(");
    for (int i = 0; i < g->n_outputs; i++)
        strbuf_printf(h->out, "%s%s", i ? ", " : "", hlo_ref(h, g->output[i].value));
    strbuf_puts(h->out, ") : (");
    for (int i = 0; i < g->n_outputs; i++)
        strbuf_printf(h->out, "%s%s", i ? ", " : "", hlo_tensor(h, &g->output[i].value->type));
    strbuf_puts(h->out, ") -> ()\n  }\n}\n");
}

int graph_print_stablehlo(StrBuf *out, const cvn_graph *g, const StableHloOptions *options,
                          cvn_err *err)
{
    cvn_err local = {0};
    Hlo h = {.out = out};
    cvn_graph *copy = graph_clone(g, &local);
    int64_t named = count_devices(g);
    int64_t n_devices = options && options->n_devices ? options->n_devices : named;
    if (n_devices < named || n_devices > INT32_MAX)
        err_set(&local, CVN_EINVAL,
                "graph '%s' names devices up to %" PRId64 ", but the module is for %" PRId64,
                g->name, named - 1, n_devices);
    if (!local.code && graph_decompose(copy, NULL, NULL, NULL, &local) == CVN_OK &&
        arena_init(&h.arena, &local) == CVN_OK) {
        h.name = names_choose(copy, &h.arena);
        put_module(&h, copy, n_devices);
        arena_free(&h.arena);
        if (out->failed)
            err_set(&local, CVN_EMEM, "no memory for the module of graph '%s'", g->name);
    }
    cvn_graph_free(copy);
    return local.code ? err_set_at(err, local.code, local.file, local.line, "%s", local.message)
                      : CVN_OK;
}
