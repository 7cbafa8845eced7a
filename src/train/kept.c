#include "train/kept.h"

#include "graph/signature.h"

RematPolicy kept_policy(int index)
{
    return (RematPolicy)(index % REMAT_POLICY_COUNT);
}

/* What a value is made of again, where that is no more bytes: itself, or what it is converted from. */
static cvn_value *source_of(cvn_value *v)
{
    for (;;) {
        const Op *op = v->def;
        bool same = op->kind == OP_CONVERT || op->kind == OP_RESHAPE || op->kind == OP_TRANSPOSE ||
                    op->kind == OP_BROADCAST_IN_DIM;
        if (!same || cvn_type_bytes(&op->operand[0]->type) > cvn_type_bytes(&v->type))
            return v;
        v = op->operand[0];
    }
}

int kept_cut(cvn_graph *g, const Op *last, const cvn_value *text, RematPolicy policy, bool forward,
             cvn_err *err)
{
    enum { DEPENDS = 1, WANTED = 2 };
    uint32_t n_values = g->n_values;
    char *is = arena_array(&g->arena, n_values, sizeof *is); /* of values of the forward pass */
    Op *behind = g->first; /* the parameters, which stand in their order */
    int n = 0;
    TRY(cvn_graph_check(g, err));
    is[text->id] = DEPENDS;
    while (behind->kind == OP_PARAMETER)
        behind = behind->next;
    for (const Op *op = g->first; op != last->next; op = op->next)
        for (int i = 0; i < op->n_operands; i++)
            for (int k = 0; k < op->n_results && is[op->operand[i]->id]; k++)
                is[op->result[k]->id] = DEPENDS;
    for (const Op *op = last->next; op; op = op->next)
        for (int i = 0; i < op->n_operands; i++)
            if (is[op->operand[i]->id])
                is[source_of(op->operand[i])->id] |= WANTED;
    for (const Op *op = g->first; op != last->next; op = op->next)
        for (int k = 0; k < op->n_results; k++) {
            cvn_value *v = op->result[k];
            if (v == text || v->id >= n_values || !(is[v->id] & WANTED))
                continue;
            if (!forward)
                graph_insert_before(g, behind);
            cvn_value *kept = cvn_parameter(g, arena_printf(&g->arena, "kept.%d", n), v->type);
            graph_role(kept, ROLE_KEPT, n++ * REMAT_POLICY_COUNT + (int)policy);
            graph_insert_before(g, NULL);
            if (forward)
                cvn_output_into(g, v, kept);
            else
                graph_replace(v, kept);
        }
    graph_resolve(g);
    return cvn_graph_check(g, err);
}
