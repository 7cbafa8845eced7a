/*
 * Applies the rules until nothing changes.
 *
 * A round is one walk in execution order. At each operation, with its operands already redirected:
 * fold, then the rules of its kind, then common subexpressions; the first that gives a value wins.
 * Because operands come first, a chain collapses in one round:
 *
 *     %1 = transpose %x {1,0}      stays, now dead
 *     %2 = transpose %1 {1,0}      -> %x
 *     %3 = add %2, splat -0.0      -> %x, since %2 is %x by now
 *
 * New operations stand before the one they replace and are looked at in the next round. Every rule
 * leaves less to do (see simplify_rules.h), so rounds come to an end; a bound on their number makes
 * that certain, and stopping early leaves a legal graph.
 *
 * Outputs: a value that is an output is not replaced by a parameter, and one that is computed into
 * a parameter's memory shares no value with another output; both would have to be copied again.
 */
#include "graph/simplify.h"

#include "graph/cse.h"
#include "graph/fold.h"
#include "graph/simplify_rules.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ROUNDS = 100 };

/* What a value is besides an operand. */
enum { ROLE_OUTPUT = 1, ROLE_INTO = 2 };

typedef struct Simplify {
    cvn_graph *g;        /* borrowed */
    Cse cse;             /* operations seen in this round */
    unsigned char *role; /* [n_roles] by value id, owned; the ids after that have no role */
    uint32_t n_roles;
    bool changed; /* in this round */
} Simplify;

static unsigned role_of(const Simplify *s, const cvn_value *v)
{
    return v->id < s->n_roles ? s->role[v->id] : 0;
}

/* Notes which values are outputs, as replacements stand now. */
static int find_roles(Simplify *s, cvn_err *err)
{
    const cvn_graph *g = s->g;
    if (s->n_roles < g->n_values) {
        free(s->role);
        s->n_roles = g->n_values;
        s->role = malloc(s->n_roles);
        if (!s->role) {
            s->n_roles = 0;
            return err_set(err, CVN_EMEM, "no memory to simplify graph '%s'", g->name);
        }
    }
    if (s->n_roles)
        memset(s->role, 0, s->n_roles);
    for (int i = 0; i < g->n_outputs; i++)
        s->role[graph_forwarded(g->output[i].value)->id] |=
            (unsigned char)(ROLE_OUTPUT | (g->output[i].into ? ROLE_INTO : 0));
    return CVN_OK;
}

/* Whether uses of `old` may use `by` instead. */
static bool may_replace(const Simplify *s, const cvn_value *old, const cvn_value *by, bool fresh)
{
    if (fresh)
        return true;
    if (old->spec && !spec_equal(old->spec, by->spec))
        return false;
    unsigned a = role_of(s, old), b = role_of(s, by);
    if (a && by->def->kind == OP_PARAMETER)
        return false;
    return !(a && b && ((a | b) & ROLE_INTO));
}

/* Puts `by` in the place of `old` if that is legal. Values with an id of at least `first_new` were
   made for it: they take over its spec and name, and if it was an output their id gets its role. */
static int replace(Simplify *s, cvn_value *old, cvn_value *by, uint32_t first_new, bool *done,
                   cvn_err *err)
{
    bool fresh = by->id >= first_new;
    *done = by != old && may_replace(s, old, by, fresh);
    if (!*done)
        return CVN_OK;
    if (fresh) {
        by->spec = old->spec;
        if (!by->name)
            by->name = old->name;
    }
    unsigned role = role_of(s, old);
    graph_replace(old, by);
    s->changed = true;
    return role ? find_roles(s, err) : CVN_OK;
}

static cvn_value *apply_rules(cvn_graph *g, SimplifyRule *const *rule, const Op *op,
                              cvn_value *found)
{
    for (int i = 0; i < RULES_PER_KIND && rule[i] && !found; i++)
        found = rule[i](g, op);
    return found;
}

static int visit(Simplify *s, Op *op, cvn_err *err)
{
    cvn_graph *g = s->g;
    graph_resolve_op(op);
    graph_insert_before(g, op);
    cvn_at(g, op->file, op->line);
    bool done = false;
    if (op->n_results == 1) {
        uint32_t first_new = g->n_values;
        cvn_value *found = fold_op(g, op); /* what can take the place of the only result, or NULL */
        found = apply_rules(g, simplify_math_rules[op->kind], op, found);
        found = apply_rules(g, simplify_shape_rules[op->kind], op, found);
        if (!found && class_is_elementwise(op_info[op->kind].class_))
            found = simplify_broadcast_operands(g, op);
        TRY(cvn_graph_check(g, err));
        int code = found ? replace(s, op->result[0], found, first_new, &done, err) : CVN_OK;
        if (done || code)
            return code;
    }
    const Op *earlier = cse_find(&s->cse, op);
    for (int i = 0; earlier && i < op->n_results; i++)
        TRY(replace(s, op->result[i], earlier->result[i], g->n_values, &done, err));
    return CVN_OK;
}

static int simplify_round(Simplify *s, cvn_err *err)
{
    cvn_graph *g = s->g;
    int64_t before = g->n_ops;
    graph_remove_dead(g);
    s->changed = g->n_ops < before;
    int code = find_roles(s, err);
    for (Op *op = g->first; op && code == CVN_OK; op = op->next)
        code = visit(s, op, err);
    graph_insert_before(g, NULL);
    graph_resolve(g);
    cse_free(&s->cse);
    graph_remove_dead(g);
    return code;
}

static void release(void *of)
{
    Simplify *s = of;
    cse_free(&s->cse);
    free(s->role);
}

int graph_simplify(cvn_graph *g, bool *changed, cvn_err *err)
{
    TRY(cvn_graph_check(g, err));
    Simplify s = {.g = g};
    const char *file = g->file;
    int line = g->line, code = CVN_OK;
    bool any = false;
    SCOPED(cleanup_run) Cleanup cleanup;
    cleanup_push(&cleanup, release, &s);
    for (int round = 0; round < MOST_ROUNDS && code == CVN_OK; round++) {
        code = simplify_round(&s, err);
        any |= s.changed;
        if (!s.changed)
            break;
    }
    cvn_at(g, file, line);
    if (changed)
        *changed = any;
    return code;
}
