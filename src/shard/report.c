/* The report of propagation, as text: the shardings that follow from the marks. */
#include "graph/factors.h"
#include "graph/text/names.h"
#include "shard/propagate.h"

/* What the report is made from. */
typedef struct Report {
    StrBuf *out;
    const Mesh *mesh;
    const ShardResult *found;
    Arena arena; /* scratch */
    char **name; /* [n_values] as in the text form, without the % */
} Report;

const ShardOrigin *shard_origin_before(const ShardResult *r, const ShardOrigin *origin)
{
    const ShardOrigin *found = NULL;
    if (!origin->from || origin->kind == ORIGIN_EXCHANGE || origin->from_dim < 0)
        return NULL;
    /* The first step that gave that dimension its axes: what the chain goes on with. */
    for (const ShardOrigin *o = r->origin[origin->from->id]; o; o = o->next)
        if (o->dim == origin->from_dim)
            found = o;
    return found;
}

/* "multiply from %x; rms_norm from %h; mark on %tokens". Of
   a long chain the first links are told, and its end. */
static void print_chain(const Report *r, const cvn_value *v, const ShardOrigin *origin)
{
    enum { TOLD = 12, MOST_LINKS = 100000 };
    StrBuf *out = r->out;
    for (int i = 0; origin && i < MOST_LINKS; i++) {
        const ShardOrigin *next = shard_origin_before(r->found, origin);
        bool mark = origin->kind == ORIGIN_MARK;
        if (i > TOLD && !next)
            strbuf_printf(out, "; %d more", i - TOLD);
        if (mark) {
            strbuf_printf(out, "%smark on %%%s", i ? "; " : "", r->name[v->id]);
            return;
        }
        if (i < TOLD || !next)
            strbuf_printf(out, "%s%s%s", i ? "; " : "",
                          origin->op ? op_info[origin->op->kind].name : "output",
                          origin->kind == ORIGIN_EXCHANGE ? " (partial sums scattered)" : "");
        bool from = origin->from && origin->kind != ORIGIN_EXCHANGE;
        if (from && (i < TOLD || !next))
            strbuf_printf(out, " from %%%s", r->name[origin->from->id]);
        v = origin->from;
        origin = next;
    }
}

/* The tensors of an operation that have a factor, each with its spec. */
static void print_conflict(Report *r, const ShardConflict *c)
{
    StrBuf *out = r->out;
    Rule rule = factor_rule(c->op, &r->arena);
    bool whole = rule.factor[c->factor].kind >= FACTOR_WHOLE;
    strbuf_printf(out, "%s (%%%s) is %s:", op_info[c->op->kind].name, r->name[c->op->result[0]->id],
                  whole ? "split but needed whole" : "split differently");
    for (int t = 0; t < rule.n_tensors; t++) {
        const cvn_value *v = factor_tensor(c->op, t);
        for (int d = 0; d < v->type.rank; d++)
            for (int i = 0; i < rule.dim[t][d].n; i++) {
                if (rule.dim[t][d].factor[i] != c->factor)
                    continue;
                strbuf_printf(out, " %%%s dim %d ", r->name[v->id], d);
                sharding_print(out, r->mesh, &r->found->sharding[v->id]);
            }
    }
    strbuf_putc(out, '\n');
}

void shard_report(StrBuf *out, const cvn_graph *g, const Mesh *mesh, const ShardResult *found)
{
    Report r = {.out = out, .mesh = mesh, .found = found};
    if (arena_begin(&r.arena, NULL)) {
        out->failed = true;
        return;
    }
    r.name = names_choose(g, NULL, &r.arena);
    strbuf_puts(out, "mesh ");
    mesh_print(out, mesh);
    strbuf_putc(out, '\n');
    for (const Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_results; i++) {
            const cvn_value *v = op->result[i];
            strbuf_printf(out, "%%%s: ", r.name[v->id]);
            type_print(out, &v->type);
            sharding_print(out, mesh, &found->sharding[v->id]);
            strbuf_putc(out, '\n');
            for (const ShardOrigin *o = found->origin[v->id]; o; o = o->next) {
                strbuf_printf(out, "    dim %d by ", o->dim);
                axes_print(out, mesh, &o->axes);
                strbuf_puts(out, ": ");
                print_chain(&r, v, o);
                strbuf_putc(out, '\n');
            }
        }
    strbuf_printf(out, "%d conflicts\n", found->n_conflicts);
    for (int i = 0; i < found->n_conflicts; i++)
        print_conflict(&r, &found->conflict[i]);
    arena_free(&r.arena);
}
