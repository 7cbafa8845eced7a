#include "grad/remat.h"

const char *const remat_policy_names[REMAT_POLICY_COUNT] = {
    [REMAT_NONE] = "none", [REMAT_SELECTIVE] = "selective", [REMAT_BLOCK] = "block"};

/* What rematerialization does with a value in the current block. */
typedef enum Fate {
    FATE_OUTSIDE, /* the value is not part of this block */
    FATE_KEPT,    /* the value is kept: the block's input, or what the policy keeps */
    FATE_AGAIN,   /* the value is computed again where it is needed */
    FATE_NEEDED   /* the value is computed again, because the backward pass needs it */
} Fate;

typedef struct Remat {
    cvn_graph *g;
    RematPolicy policy;
    Op *backward;
    uint32_t n_values;   /* when it began: younger values are copies */
    unsigned char *fate; /* [n_values] by id: a Fate */
    cvn_value **again;   /* [n_values] by id: the copy, or the barrier of a kept value */
} Remat;

static Fate fate_of(const Remat *r, const cvn_value *v)
{
    return v->id < r->n_values ? (Fate)r->fate[v->id] : FATE_OUTSIDE;
}

/* A product that is rounded is kept in its rounded form, since nothing reads the product itself. */
static bool is_kept(const Remat *r, const Op *op)
{
    if (op->kind == OP_CONVERT)
        op = op->operand[0]->def;
    return r->policy == REMAT_SELECTIVE &&
           (op->kind == OP_DOT_GENERAL || op->kind == OP_GROUPED_DOT || op->kind == OP_ATTENTION);
}

/* Marks what depends on the block's input, up to its output, which belongs to the next block. */
static void mark_block(Remat *r, const cvn_value *input, const cvn_value *output)
{
    r->fate[input->id] = FATE_KEPT;
    for (const Op *op = input->def->next; op && op != output->def; op = op->next) {
        bool inside = false;
        for (int i = 0; i < op->n_operands; i++)
            inside = inside || fate_of(r, op->operand[i]) != FATE_OUTSIDE;
        for (int i = 0; i < op->n_results && inside; i++)
            r->fate[op->result[i]->id] = is_kept(r, op) ? FATE_KEPT : FATE_AGAIN;
    }
}

/* Marks what the backward pass needs and what that is made of; returns the first operation that does
   so, or NULL. */
static Op *mark_needed(Remat *r, const cvn_value *input, const cvn_value *output)
{
    Op *first = NULL;
    for (Op *op = r->backward; op; op = op->next) {
        for (int i = 0; i < op->n_operands; i++) {
            if (fate_of(r, op->operand[i]) < FATE_AGAIN)
                continue;
            r->fate[op->operand[i]->id] = FATE_NEEDED;
            first = first ? first : op;
        }
    }
    for (const Op *op = output->def->prev; first && op != input->def; op = op->prev) {
        bool needed = false;
        for (int i = 0; i < op->n_results; i++)
            needed = needed || fate_of(r, op->result[i]) == FATE_NEEDED;
        for (int i = 0; i < op->n_operands && needed; i++)
            if (fate_of(r, op->operand[i]) == FATE_AGAIN)
                r->fate[op->operand[i]->id] = FATE_NEEDED;
    }
    return first;
}

/* The value that stands for v in the copy of a block. */
static cvn_value *copy_of(Remat *r, cvn_value *v)
{
    if (fate_of(r, v) == FATE_OUTSIDE)
        return v;
    if (!r->again[v->id])
        r->again[v->id] = cvn_optimization_barrier(r->g, v); /* kept */
    return r->again[v->id];
}

/* Copies an operation of which a result is needed. */
static void copy_op(Remat *r, const Op *op)
{
    cvn_graph *g = r->g;
    bool needed = false;
    for (int i = 0; i < op->n_results; i++)
        needed = needed || fate_of(r, op->result[i]) == FATE_NEEDED;
    if (!needed)
        return;
    cvn_value **operand = arena_array(&g->arena, (size_t)op->n_operands, sizeof *operand);
    for (int i = 0; i < op->n_operands; i++)
        operand[i] = copy_of(r, op->operand[i]);
    cvn_value *copy = graph_add_like(g, op, operand);
    for (int i = 0; i < op->n_results && copy != g->poison; i++)
        r->again[op->result[i]->id] = copy->def->result[i];
}

static void remat_block(Remat *r, const cvn_value *input, const cvn_value *output)
{
    cvn_graph *g = r->g;
    mark_block(r, input, output);
    Op *first = mark_needed(r, input, output);
    if (first) {
        bool is_first = first == r->backward;
        Op *before = first->prev;
        graph_insert_before(g, first);
        for (const Op *op = input->def->next; op != output->def && !g->err.code; op = op->next)
            copy_op(r, op);
        graph_insert_before(g, NULL);
        /* The backward pass, which begins where the copies were put, uses them. The copies themselves stay as they are. */
        for (Op *op = g->err.code ? NULL : first; op; op = op->next)
            for (int i = 0; i < op->n_operands; i++)
                if (fate_of(r, op->operand[i]) == FATE_NEEDED)
                    op->operand[i] = r->again[op->operand[i]->id];
        if (is_first && before)
            r->backward = before->next;
    }
    for (const Op *op = input->def; op && op != output->def->next; op = op->next)
        for (int i = 0; i < op->n_results; i++) {
            r->fate[op->result[i]->id] = FATE_OUTSIDE;
            r->again[op->result[i]->id] = NULL;
        }
}

int graph_remat(cvn_graph *g, RematPolicy policy, int n_blocks, cvn_value *const *boundary,
                Op *backward, cvn_err *err)
{
    TRY(cvn_graph_check(g, err));
    if (policy == REMAT_NONE || n_blocks < 1 || !backward)
        return CVN_OK;
    int next = 0; /* boundary; all should come in order, before the backward pass */
    for (const Op *op = g->first; op && op != backward && next <= n_blocks; op = op->next)
        next += op == boundary[next]->def;
    if (next <= n_blocks)
        return err_set(err, CVN_EINVAL,
                       "the values that cut graph '%s' into blocks are not in execution order, "
                       "before its backward pass",
                       g->name);
    size_t n = g->n_values + (size_t)1;
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    Remat r = {.g = g,
               .policy = policy,
               .backward = backward,
               .n_values = g->n_values,
               .fate = arena_alloc(&arena, n),
               .again = arena_array(&arena, n, sizeof(cvn_value *))};
    for (int i = 0; i < n_blocks && !g->err.code; i++)
        remat_block(&r, boundary[i], boundary[i + 1]);
    return cvn_graph_check(g, err);
}
