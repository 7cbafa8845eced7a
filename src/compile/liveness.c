/* One walk over the operations finds steps, roots and lifetimes. */
#include "compile/liveness.h"

bool op_is_step(const Op *op)
{
    size_t offset, bytes = 0;
    if (op->kind == OP_PARAMETER || op_is_view(op, &offset))
        return false;
    for (int i = 0; i < op->n_results; i++)
        bytes += cvn_type_bytes(&op->result[i]->type);
    if (op->kind == OP_CONSTANT)
        return op->attr.literal.splat && bytes > CONSTANT_KEPT_BYTES;
    return bytes > 0;
}

static void use(Liveness *live, const cvn_value *v, int step)
{
    uint32_t root = live->alias[v->id].root->id;
    if (step > live->last[root])
        live->last[root] = step;
}

static void add_results(Liveness *live, const Op *op, int step)
{
    size_t offset;
    bool view = op_is_view(op, &offset);
    for (int i = 0; i < op->n_results; i++) {
        cvn_value *v = op->result[i];
        live->def[v->id] = live->done[v->id] = live->last[v->id] = step;
        live->alias[v->id] = (Alias){v, 0};
        if (view) {
            Alias from = live->alias[op->operand[0]->id];
            live->alias[v->id] = (Alias){from.root, from.offset + offset};
        }
    }
}

static void add_step(Liveness *live, Op *op, StepPhase phase)
{
    for (int i = 0; i < op->n_operands; i++)
        use(live, op->operand[i], live->n_steps);
    live->phase[live->n_steps] = phase;
    live->step[live->n_steps++] = op;
}

void liveness_find(const cvn_graph *g, Arena *arena, Liveness *out)
{
    size_t n = g->n_values;
    size_t most = 2 * (size_t)g->n_ops;
    *out = (Liveness){.step = arena_array(arena, most, sizeof *out->step),
                      .phase = arena_array(arena, most, sizeof *out->phase),
                      .done = arena_array(arena, n, sizeof *out->done),
                      .alias = arena_array(arena, n, sizeof *out->alias),
                      .def = arena_array(arena, n, sizeof *out->def),
                      .last = arena_array(arena, n, sizeof *out->last)};
    for (Op *op = g->first; op; op = op->next) {
        for (Op *start = op->starts; start; start = start->next_start) { /* before this one */
            add_results(out, start, out->n_steps);
            add_step(out, start, STEP_START);
        }
        if (op->split) { /* it has started: its result is there from here on */
            for (int i = 0; i < op->n_results; i++) {
                uint32_t id = op->result[i]->id;
                out->done[id] = out->last[id] = out->n_steps;
            }
            add_step(out, op, STEP_DONE);
            continue;
        }
        bool is_step = op_is_step(op);
        add_results(out, op, is_step ? out->n_steps : -1);
        if (is_step)
            add_step(out, op, STEP_WHOLE);
    }
    for (int i = 0; i < g->n_outputs; i++)
        use(out, g->output[i].value, out->n_steps);
}

bool covers_root(const Liveness *live, const cvn_value *v)
{
    Alias alias = live->alias[v->id];
    return alias.offset == 0 && cvn_type_bytes(&alias.root->type) == cvn_type_bytes(&v->type);
}
