#include "graph/stablehlo/stablehlo_impl.h"

#include "graph/decompose.h"
#include "graph/text/lex.h"
#include "graph/text/names.h"

#include <inttypes.h>
#include <string.h>

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
    hlo_op(h, op, "constant", NULL, arena_printf(&h->arena, "value = %s", dense));
}

/* StableHLO has abs and sign of signed numbers only. */
static void absolute(Hlo *h, const Op *op)
{
    hlo_op(h, op, op->result[0]->type.dtype == CVN_U32 ? "convert" : "abs", NULL, NULL);
}

static void sign(Hlo *h, const Op *op)
{
    const cvn_type *type = &op->result[0]->type;
    if (type->dtype != CVN_U32) {
        hlo_op(h, op, "sign", NULL, NULL);
        return;
    }
    const char *t = hlo_tensor(h, type), *one = hlo_splat(h, type, 1);
    hlo_call(h, &(HloCall){.result = hlo_results(h, op),
                           .name = "minimum",
                           .operands = arena_printf(&h->arena, "%s, %s", hlo_operands(h, op), one),
                           .operand_types = arena_printf(&h->arena, "%s, %s", t, t),
                           .result_types = t});
}

static void compare(Hlo *h, const Op *op)
{
    static const char *const direction[COMPARE_COUNT] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
    cvn_dtype dtype = op->operand[0]->type.dtype;
    const char *type = dtype == CVN_U32 || dtype == CVN_BOOL ? "UNSIGNED"
                       : dtype_is_float(dtype)               ? "FLOAT"
                                                             : "SIGNED";
    hlo_op(h, op, "compare", NULL,
           arena_printf(&h->arena,
                        "comparison_direction = #stablehlo<comparison_direction %s>, "
                        "compare_type = #stablehlo<comparison_type %s>",
                        direction[op->attr.compare], type));
}

/* The starts of a dynamic slice or update, operands first, first + 1, …, have one type in StableHLO: i64 where ours
   differ. */
static void dynamic(Hlo *h, const Op *op)
{
    const int first = op->kind == OP_DYNAMIC_SLICE ? 1 : 2;
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
                           .attrs = hlo_attrs(h, op),
                           .result_types = hlo_tensor(h, &op->result[0]->type)});
}

static void device_id(Hlo *h, const Op *op)
{
    hlo_op(h, op, "replica_id", NULL, NULL);
}

/* How operations are written that are more than their name, their operands and the plain attributes of attrs.def.
   Composites are not written: they have been decomposed, but for attention that is a loop. */
static HloFn *const table[OP_COUNT] = {
    [OP_PARAMETER] = parameter,
    [OP_CONSTANT] = constant,
    [OP_ABS] = absolute,
    [OP_SIGN] = sign,
    [OP_COMPARE] = compare,
    [OP_DYNAMIC_SLICE] = dynamic,
    [OP_DYNAMIC_UPDATE_SLICE] = dynamic,
    [OP_GATHER] = hlo_gather,
    [OP_SCATTER] = hlo_scatter,
    [OP_SORT] = hlo_sort,
    [OP_REDUCE] = hlo_reduce,
    [OP_CUMSUM] = hlo_cumsum,
    [OP_DOT_GENERAL] = hlo_dot_general,
    [OP_ALL_REDUCE] = hlo_collective,
    [OP_ALL_GATHER] = hlo_all_gather,
    [OP_OPTIMIZATION_BARRIER] = hlo_barrier,
    [OP_REDUCE_SCATTER] = hlo_collective,
    [OP_ALL_TO_ALL] = hlo_collective,
    [OP_COLLECTIVE_PERMUTE] = hlo_collective_permute,
    [OP_PARTITION_ID] = device_id,
    [OP_ATTENTION] = hlo_attention,
    [OP_ATTENTION_BACKWARD] = hlo_attention,
};

void hlo_put_op(Hlo *h, const Op *op)
{
    if (table[op->kind])
        table[op->kind](h, op);
    else
        hlo_op(h, op, op_info[op->kind].name, NULL, hlo_attrs(h, op));
    hlo_fences_pass(h, op);
}

/* " {tf.aliasing_output = 0 : i32, sdy.sharding = …}", or nothing. */
static void put_argument_attrs(Hlo *h, int alias, const char *sharding)
{
    if (alias < 0 && !sharding)
        return;
    strbuf_puts(h->out, " {");
    if (alias >= 0)
        strbuf_printf(h->out, "tf.aliasing_output = %d : i32%s", alias, sharding ? ", " : "");
    if (sharding)
        strbuf_printf(h->out, "sdy.sharding = #sdy.sharding<@mesh, %s>", sharding);
    strbuf_putc(h->out, '}');
}

static void put_module(Hlo *h, const cvn_graph *g, int64_t n_devices, const StableHloOptions *o)
{
    strbuf_printf(h->out,
                  "module @%s attributes {mhlo.num_partitions = %" PRId64
                  " : i32, mhlo.num_replicas = %" PRId64 " : i32} {\n",
                  lex_is_plain_name(g->name) ? g->name : "graph", o->mesh ? n_devices : 1,
                  o->mesh ? 1 : n_devices);
    if (o->mesh)
        strbuf_printf(h->out, "  sdy.mesh @mesh = %s\n", o->mesh);
    strbuf_puts(h->out, "  func.func public @main(");
    for (int i = 0; i < g->n_parameters; i++) {
        const cvn_value *v = g->parameter[i];
        int alias = -1; /* the first output computed into it */
        for (int k = g->n_outputs - 1; k >= 0; k--)
            alias = g->output[k].into == v ? k : alias;
        strbuf_printf(h->out, "%s%s: %s", i ? ", " : "", hlo_ref(h, v), hlo_tensor(h, &v->type));
        put_argument_attrs(h, alias, o->mesh ? o->parameter[i] : NULL);
    }
    strbuf_puts(h->out, ") -> (");
    for (int i = 0; i < g->n_outputs; i++) {
        strbuf_printf(h->out, "%s%s", i ? ", " : "", hlo_tensor(h, &g->output[i].value->type));
        put_argument_attrs(h, -1, o->mesh ? o->output[i] : NULL);
    }
    strbuf_puts(h->out, ") {\n");
    for (const Op *op = g->first; op; op = op->next)
        hlo_put_op(h, op);
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
    Hlo h = {.out = out, .err = &local};
    SCOPED(graph_release) cvn_graph *copy = graph_clone(g, &local);
    int64_t named = 1; /* one more than the largest id of a device that a collective names */
    for (const Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->attr.groups.n; i++)
            if (op->attr.groups.v[i] >= named) /* an id of 2^63 - 1 is too many anyway */
                named = op->attr.groups.v[i] + (op->attr.groups.v[i] < INT64_MAX);
    int64_t n_devices = options && options->n_devices ? options->n_devices : named;
    if (n_devices < named || n_devices > INT32_MAX)
        err_set(&local, CVN_EINVAL,
                "graph '%s' names devices up to %" PRId64 ", but the module is for %" PRId64,
                g->name, named - 1, n_devices);
    if (!local.code && graph_decompose(copy, hlo_loops, NULL, NULL, &local) == CVN_OK &&
        arena_begin(&h.arena, &local) == CVN_OK) {
        hlo_more_rows(copy, options ? options->rows : 0);
        h.name = names_choose(copy, &h.arena);
        hlo_fences_begin(&h, copy);
        put_module(&h, copy, n_devices, options ? options : &(StableHloOptions){.n_devices = 0});
        arena_free(&h.arena);
        if (out->failed)
            err_set(&local, CVN_EMEM, "no memory for the module of graph '%s'", g->name);
    }
    return local.code ? err_set_at(err, local.code, local.file, local.line, "%s", local.message)
                      : CVN_OK;
}
