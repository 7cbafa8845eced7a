/*
 * Elementwise results that are needed again much later are computed again, where that costs no more memory than it
 * saves: what they are made of is needed there anyway, or takes fewer bytes.
 *
 *     %g = convert %half                   (f32 of bf16)
 *     %s = logistic %g
 *     %y = dot_general (multiply %g, %s) …
 *     …                                    a product or more: %g and %s would wait in memory
 *     %d = multiply %dy, %s        ->      %g' = convert %half,  %s' = logistic %g',  %d = multiply %dy, %s'
 *
 * The copies join the region of what reads them, so that neither pass writes or reads %g and %s: of SwiGLU only the
 * two products are kept. The bits are the same.
 *
 * Time is counted in epochs: one ends with every operation that is neither elementwise nor free. A value has readers
 * in an epoch; those of a later one than its own get a copy, if all of its readers that are that late are elementwise.
 */
#include "compile/fuse_impl.h"
#include "compile/liveness.h"

typedef struct Recompute {
    cvn_graph *g;
    const KernelSet *backend;
    uint32_t n_values; /* when it began */
    int *epoch;        /* [n_values] in which a value is made */
    int *until;        /* [n_values] the last epoch that reads what has this root */
} Recompute;

/* Does a copy in that epoch keep fewer bytes waiting for it than it saves? */
static bool is_cheaper(const Recompute *a, const Op *op, int epoch)
{
    size_t more = 0;
    for (int i = 0; i < op->n_operands; i++) {
        const cvn_value *root = op_root_of(op->operand[i]);
        if (root->id >= a->n_values || root->def->kind == OP_PARAMETER)
            return false; /* what an output is written over may be gone */
        if (root->def->kind != OP_CONSTANT && a->until[root->id] < epoch)
            more += cvn_type_bytes(&root->type);
    }
    return more < cvn_type_bytes(&op->result[0]->type);
}

static bool reads(const Op *op, const cvn_value *v)
{
    for (int i = 0; i < op->n_operands; i++)
        if (op->operand[i] == v)
            return true;
    return false;
}

/* Readers of one value, in order. */
enum { MOST_READERS = 16 };

typedef struct Readers {
    Op *op[MOST_READERS];
    int epoch[MOST_READERS], n;
} Readers;

/* False where v has to lie in memory in any case: something that is not elementwise reads it late, or the caller. */
static bool find_readers(const Recompute *a, const cvn_value *v, const Op *after, Readers *r)
{
    for (int i = 0; i < a->g->n_outputs; i++)
        if (op_root_of(a->g->output[i].value) == v)
            return false;
    int epoch = a->epoch[v->id];
    r->n = 0;
    for (Op *op = after->next; op; op = op->next) {
        if (op->result[0]->id < a->n_values)
            epoch = a->epoch[op->result[0]->id];
        if (epoch > a->until[v->id])
            break;
        for (int i = 0; i < op->n_operands; i++)
            if (op->operand[i] != v && op_root_of(op->operand[i]) == v)
                return false; /* by way of a view */
        if (!reads(op, v))
            continue;
        if (r->n == MOST_READERS || !tile_takes(a->backend, op))
            return false;
        r->op[r->n] = op;
        r->epoch[r->n++] = epoch;
    }
    return true;
}

/* Gives the readers of each later epoch a copy. */
static void copy_for(Recompute *a, const Op *op, const Readers *r)
{
    cvn_value *v = op->result[0], *copy = NULL;
    for (int i = 0; i < r->n; i++) {
        if (r->epoch[i] == a->epoch[v->id] || !is_cheaper(a, op, r->epoch[i]))
            continue;
        if (!copy || r->epoch[i] != r->epoch[i - 1]) {
            graph_insert_before(a->g, r->op[i]);
            copy = graph_add_like(a->g, op, op->operand);
            for (int k = 0; k < op->n_operands; k++) {
                int *until = &a->until[op_root_of(op->operand[k])->id];
                *until = *until > r->epoch[i] ? *until : r->epoch[i];
            }
        }
        for (int k = 0; k < r->op[i]->n_operands; k++)
            if (r->op[i]->operand[k] == v)
                r->op[i]->operand[k] = copy;
    }
    graph_insert_before(a->g, NULL);
}

void fuse_recompute(Fuse *f)
{
    cvn_graph *g = f->g;
    Recompute recompute = {.g = g, .backend = f->backend, .n_values = g->n_values};
    Recompute *a = &recompute;
    int epoch = 0;
    size_t offset;
    a->epoch = arena_array(f->arena, a->n_values, sizeof *a->epoch);
    a->until = arena_array(f->arena, a->n_values, sizeof *a->until);
    for (const Op *op = g->first; op; op = op->next) {
        bool large = false; /* small tensors do not count: they end no epoch and are never copied */
        for (int i = 0; i < op->n_results; i++)
            large = large || cvn_type_elements(&op->result[i]->type) >= TILE_LEAST;
        bool is_free = op->kind == OP_PARAMETER || op->kind == OP_CONSTANT ||
                       op->kind == OP_BROADCAST_IN_DIM || op_is_view(op, &offset);
        epoch += large && !is_free && !tile_takes(f->backend, op);
        for (int i = 0; i < op->n_operands; i++)
            a->until[op_root_of(op->operand[i])->id] = epoch;
        for (int i = 0; i < op->n_results; i++)
            a->epoch[op->result[i]->id] = a->until[op->result[i]->id] = epoch;
    }
    for (int i = 0; i < g->n_outputs; i++)
        a->until[op_root_of(g->output[i].value)->id] = epoch + 1;
    for (Op *op = g->last, *prev; op; op = prev) { /* readers first: their copies are readers too */
        prev = op->prev;
        Readers r;
        if (op->n_results == 0 || op->result[0]->id >= a->n_values || !tile_takes(a->backend, op) ||
            a->until[op->result[0]->id] == a->epoch[op->result[0]->id])
            continue;
        if (find_readers(a, op->result[0], op, &r))
            copy_for(a, op, &r);
    }
    graph_remove_dead(g);
}
