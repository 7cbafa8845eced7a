#include "graph/stablehlo/stablehlo_impl.h"

#include "graph/decompose.h"
#include "graph/text/lex.h"
#include "graph/text/names.h"

#include <inttypes.h>
#include <string.h>

void hlo_put_op(Hlo *h, const Op *op)
{
    if (op_record[op->kind].hlo)
        op_record[op->kind].hlo(h, op);
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

/* Composites that are printed as they are. */
static bool keeps(const Op *op, void *unused)
{
    return hlo_loops(op, unused) || hlo_has_floats(op);
}

int graph_print_stablehlo(StrBuf *out, const cvn_graph *g, const StableHloOptions *options,
                          cvn_err *err)
{
    cvn_err local = {0};
    Hlo h = {.out = out, .err = &local, .rows = options ? options->rows : 0};
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
    if (!local.code)
        hlo_scale_products(copy);
    if (!local.code && graph_decompose(copy, keeps, NULL, NULL, &local) == CVN_OK &&
        arena_begin(&h.arena, &local) == CVN_OK) {
        hlo_more_rows(copy, h.rows);
        h.name = names_choose(copy, NULL, &h.arena);
        hlo_fences_begin(&h, copy);
        put_module(&h, copy, n_devices, options ? options : &(StableHloOptions){.n_devices = 0});
        arena_free(&h.arena);
        if (out->failed)
            err_set(&local, CVN_EMEM, "no memory for the module of graph '%s'", g->name);
    }
    return local.code ? err_set_at(err, local.code, local.file, local.line, "%s", local.message)
                      : CVN_OK;
}
