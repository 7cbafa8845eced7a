#include "graph/signature.h"

cvn_value *graph_role(cvn_value *parameter, Role role, int index)
{
    parameter->role = (int)role;
    parameter->index = index;
    return parameter;
}

void graph_output_role(cvn_graph *g, Role role, int index)
{
    if (g->err.code || g->n_outputs == 0)
        return;
    Output *last = &g->output[g->n_outputs - 1];
    last->role = (int)role;
    last->index = index;
}

void signature_of(Signature *s, const cvn_graph *g, Arena *arena)
{
    *s = (Signature){.n_parameters = g->n_parameters, .n_outputs = g->n_outputs};
    s->parameter = arena_array(arena, (size_t)g->n_parameters, sizeof *s->parameter);
    s->donated = arena_array(arena, (size_t)g->n_parameters, sizeof *s->donated);
    s->output = arena_array(arena, (size_t)g->n_outputs, sizeof *s->output);
    s->into = arena_array(arena, (size_t)g->n_outputs, sizeof *s->into);
    for (int i = 0; i < g->n_parameters; i++)
        s->parameter[i] = (Binding){(Role)g->parameter[i]->role, g->parameter[i]->index};
    for (int i = 0; i < g->n_outputs; i++) {
        const Output *o = &g->output[i];
        s->output[i] = (Binding){(Role)o->role, o->index};
        s->into[i] = -1;
        for (int k = 0; k < g->n_parameters && o->into; k++)
            if (g->parameter[k] == o->into) {
                s->into[i] = k;
                s->donated[k] = true;
                s->output[i] = s->parameter[k];
            }
    }
}

static int find(const Binding *binding, int n, Role role, int index)
{
    for (int i = 0; i < n; i++)
        if (binding[i].role == role && binding[i].index == index)
            return i;
    return -1;
}

int signature_parameter(const Signature *s, Role role, int index)
{
    return find(s->parameter, s->n_parameters, role, index);
}

int signature_output(const Signature *s, Role role, int index)
{
    return find(s->output, s->n_outputs, role, index);
}
