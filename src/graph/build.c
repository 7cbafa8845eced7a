/*
 * What is built beside operations: outputs; and what the builders of operations share. A builder packs its arguments into
 * attributes and calls graph_add. All checking is in the functions of types; builders only guard what would be unsafe to
 * look at (NULL is never returned, so values are never NULL; after an error everything is the poison value and graph_add
 * does nothing).
 */
#include "graph/ops/ops.h"

Ints build_list(cvn_graph *g, int n, const int64_t *v)
{
    if (n > CVN_MAX_RANK) {
        graph_fail(g, CVN_EINVAL, "%d dimensions were given; at most %d", n, CVN_MAX_RANK);
        return (Ints){0};
    }
    return graph_ints(g, n, v);
}

Ints build_dims(cvn_graph *g, int n, const int *v)
{
    int64_t wide[CVN_MAX_RANK] = {0};
    for (int i = 0; i < n && i < CVN_MAX_RANK; i++)
        wide[i] = v[i];
    return build_list(g, n, wide);
}

void cvn_output(cvn_graph *g, cvn_value *v)
{
    cvn_output_into(g, v, NULL);
}

void cvn_output_into(cvn_graph *g, cvn_value *v, cvn_value *parameter)
{
    if (g->err.code)
        return;
    char a[TYPE_TEXT], b[TYPE_TEXT];
    if (parameter && parameter->def->kind != OP_PARAMETER)
        graph_fail(g, CVN_EINVAL, "an output can only be computed into a parameter, not into a %s",
                   op_info[parameter->def->kind].name);
    else if (parameter && !cvn_type_equal(&v->type, &parameter->type))
        graph_fail(g, CVN_ESHAPE, "an output %s cannot be computed into parameter '%s' of type %s",
                   type_text(&v->type, a, sizeof a), parameter->def->attr.name,
                   type_text(&parameter->type, b, sizeof b));
    for (int i = 0; i < g->n_outputs && parameter && !g->err.code; i++)
        if (g->output[i].into == parameter)
            graph_fail(g, CVN_EINVAL, "two outputs are computed into parameter '%s'",
                       parameter->def->attr.name);
    if (g->err.code)
        return;
    Output *list = graph_more(g, g->output, (size_t)g->n_outputs, sizeof *g->output);
    if (!list)
        return;
    g->output = list;
    g->output[g->n_outputs++] = (Output){.value = v, .into = parameter};
}

void build_results(cvn_graph *g, cvn_value *first, int n, cvn_value **out)
{
    for (int i = 0; i < n; i++)
        out[i] = first == g->poison ? first : first->def->result[i];
}
