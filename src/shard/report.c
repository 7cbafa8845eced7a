/* The report of propagation: what came of the marks, as text. */
#include "shard/factors.h"
#include "shard/propagate.h"

#include <inttypes.h>

/* How values are called: as in the text form, but for numbers behind names that
 * are not unique. */
typedef struct Names {
    Arena arena;
    const char **name; /* [n_values] */
} Names;

static int name_values(Names *names, const cvn_graph *g)
{
    int64_t number = 0;
    if (arena_init(&names->arena, NULL))
        return CVN_EMEM;
    names->name = arena_array(&names->arena, g->n_values + (size_t)1, sizeof *names->name);
    for (const Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_results; i++, number++) {
            const cvn_value *v = op->result[i];
            names->name[v->id] = v->name ? arena_printf(&names->arena, "%%%s", v->name)
                                         : arena_printf(&names->arena, "%%%" PRId64, number);
        }
    return CVN_OK;
}

/* The step that gave this dimension its axes, the first one first: what the
 * chain goes on with. */
static const ShardOrigin *first_origin(const ShardResult *r, const cvn_value *v, int dim)
{
    const ShardOrigin *found = NULL;
    for (const ShardOrigin *o = r->origin[v->id]; o; o = o->next)
        if (o->dim == dim)
            found = o;
    return found;
}

/* What a chain goes on with behind a link; NULL: it ends here. */
static const ShardOrigin *next_origin(const ShardResult *r, const ShardOrigin *origin)
{
    bool ends = !origin->from || origin->kind == ORIGIN_EXCHANGE || origin->from_dim < 0;
    return ends ? NULL : first_origin(r, origin->from, origin->from_dim);
}

/* "multiply from %x; rms_norm from %h; mark on %tokens". Of
   a long chain the first links are told, and its end. */
static void print_chain(StrBuf *out, const ShardResult *r, const Names *names, const cvn_value *v,
                        const ShardOrigin *origin)
{
    enum { TOLD = 12, MOST_LINKS = 100000 };
    for (int i = 0; origin && i < MOST_LINKS; i++) {
        const ShardOrigin *next = next_origin(r, origin);
        bool mark = origin->kind == ORIGIN_MARK;
        if (i > TOLD && !next)
            strbuf_printf(out, "; %d more", i - TOLD);
        if (mark) {
            strbuf_printf(out, "%smark on %s", i ? "; " : "", names->name[v->id]);
            return;
        }
        if (i < TOLD || !next)
            strbuf_printf(out, "%s%s%s", i ? "; " : "",
                          origin->op ? op_info[origin->op->kind].name : "output",
                          origin->kind == ORIGIN_EXCHANGE ? " (partial sums scattered)" : "");
        bool from = origin->from && origin->kind != ORIGIN_EXCHANGE;
        if (from && (i < TOLD || !next))
            strbuf_printf(out, " from %s", names->name[origin->from->id]);
        v = origin->from;
        origin = next;
    }
}

static void print_value(StrBuf *out, const Mesh *mesh, const ShardResult *r, const Names *names,
                        const cvn_value *v)
{
    strbuf_printf(out, "%s: ", names->name[v->id]);
    type_print(out, &v->type);
    sharding_print(out, mesh, &r->sharding[v->id]);
    strbuf_putc(out, '\n');
    for (const ShardOrigin *o = r->origin[v->id]; o; o = o->next) {
        strbuf_printf(out, "    dim %d by ", o->dim);
        axes_print(out, mesh, &o->axes);
        strbuf_puts(out, ": ");
        print_chain(out, r, names, v, o);
        strbuf_putc(out, '\n');
    }
}

/* The tensors of an operation that have a factor, each with its spec. */
static void print_conflict(StrBuf *out, const Mesh *mesh, const ShardResult *r, const Names *names,
                           const ShardConflict *c)
{
    static const char *const why[] = {"split differently", "split differently",
                                      "split but needed whole", "split but needed whole"};
    Arena arena;
    if (arena_init(&arena, NULL)) {
        out->failed = true;
        return;
    }
    Rule rule = factor_rule(c->op, &arena);
    strbuf_printf(out, "%s (%s) is %s:", op_info[c->op->kind].name,
                  names->name[c->op->result[0]->id], why[rule.factor[c->factor].kind]);
    for (int t = 0; t < rule.n_tensors; t++) {
        const cvn_value *v = factor_tensor(c->op, t);
        for (int d = 0; d < v->type.rank; d++)
            for (int i = 0; i < rule.dim[t][d].n; i++) {
                if (rule.dim[t][d].factor[i] != c->factor)
                    continue;
                strbuf_printf(out, " %s dim %d ", names->name[v->id], d);
                sharding_print(out, mesh, &r->sharding[v->id]);
            }
    }
    strbuf_putc(out, '\n');
    arena_free(&arena);
}

void shard_report(StrBuf *out, const cvn_graph *g, const Mesh *mesh, const ShardResult *r)
{
    Names names;
    if (name_values(&names, g)) {
        out->failed = true;
        return;
    }
    strbuf_puts(out, "mesh ");
    mesh_print(out, mesh);
    strbuf_putc(out, '\n');
    for (const Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_results; i++)
            print_value(out, mesh, r, &names, op->result[i]);
    strbuf_printf(out, "%d conflicts\n", r->n_conflicts);
    for (int i = 0; i < r->n_conflicts; i++)
        print_conflict(out, mesh, r, &names, &r->conflict[i]);
    arena_free(&names.arena);
}
