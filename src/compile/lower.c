/* The order of lowering: what runs regions, outputs and donation, results over dying operands, places, steps, syncs. */
#include "compile/lower.h"

#include "base/threads.h"
#include "compile/lower_impl.h"
#include "compile/moves.h"
#include "compile/region_plan.h"

#include <assert.h>

const Kernel *lower_kernel(const KernelSet *backend, const Op *op)
{
    if (op_is_copy(op))
        return &move_copy;
    if (op->kind == OP_CONSTANT && op->attr.literal.splat)
        return &move_fill;
    return kernel_find(backend, op);
}

/* Everything but the places. */
static void make_step(const Lowering *lowering, int i, Step *step)
{
    Op *op = lowering->live.step[i];
    const Kernel *kernel = lowering->kernel[i];
    Arena *arena = &lowering->g->arena;
    StepPhase phase = lowering->live.phase[i];
    *step = (Step){.op = op,
                   .phase = phase,
                   .run = phase == STEP_START  ? kernel->start
                          : phase == STEP_DONE ? kernel->done
                          : kernel             ? kernel->run
                                               : lowering->backend->fallback,
                   .isa = kernel ? kernel->isa : NULL,
                   .kernel = kernel ? kernel->name : "interpreter",
                   .in = arena_array(arena, (size_t)op->n_operands + 1, sizeof(BufferRef)),
                   .out = arena_array(arena, (size_t)op->n_results + 1, sizeof(BufferRef)),
                   .in_place = kernel ? kernel->in_place : 0,
                   .fallback = !kernel,
                   .single = !kernel || kernel->single || phase == STEP_START,
                   .flops = op_flops(op),
                   .bytes = phase == STEP_START ? 0 : op_bytes(op)};
    /* Where one thread does a step in less time than threads need to meet, the steps around it need not wait for
       others at both of its ends, and steps like it follow each other without a sync. */
    const size_t tiny = lowering->backend->tiny;
    step->single = step->single || (op_info[op->kind].class_ != CLASS_COLLECTIVE &&
                                    step->bytes <= tiny && step->flops <= (double)tiny);
}

static void make_outputs(const Lowering *lowering, const Places *places, Plan *plan)
{
    cvn_graph *g = lowering->g;
    plan->n_outputs = g->n_outputs;
    plan->output = arena_array(&g->arena, (size_t)g->n_outputs + 1, sizeof *plan->output);
    for (int i = 0; i < g->n_outputs; i++) {
        const Output *output = &g->output[i];
        PlanOutput *made = &plan->output[i];
        *made = (PlanOutput){.type = output->value->type,
                             .ref = places_of(lowering, places, output->value),
                             .into = -1};
        for (int p = 0; output->into && p < g->n_parameters; p++)
            if (g->parameter[p] == output->into)
                made->into = p;
        if (made->ref.bytes == 0) { /* a root of no bytes has no place yet */
            made->ref = (BufferRef){.space = made->into < 0 ? SPACE_ARENA : SPACE_PARAMETER,
                                    .parameter = made->into < 0 ? 0 : made->into};
        }
        assert(made->into < 0 || (made->ref.space == SPACE_PARAMETER &&
                                  made->ref.parameter == made->into && made->ref.offset == 0));
    }
}

static int make_plan(Lowering *lowering, Plan *plan, cvn_err *err)
{
    size_t n_steps = (size_t)lowering->live.n_steps;
    cvn_graph *g = lowering->g;
    plan->n_parameters = g->n_parameters;
    plan->parameter = arena_array(&g->arena, (size_t)g->n_parameters + 1, sizeof *plan->parameter);
    for (int i = 0; i < g->n_parameters; i++) {
        const cvn_value *v = g->parameter[i];
        plan->parameter[i] = (PlanParameter){.name = v->def->attr.name,
                                             .type = v->type,
                                             .bytes = cvn_type_bytes(&v->type),
                                             .donated = lowering->donated[i]};
        plan->report.parameter_bytes += plan->parameter[i].bytes;
    }
    plan->n_steps = lowering->live.n_steps;
    plan->step = arena_array(&g->arena, n_steps + 1, sizeof *plan->step);
    for (int i = 0; i < plan->n_steps; i++) {
        Step *step = &plan->step[i];
        make_step(lowering, i, step);
        for (int d = 0;
             op_info[step->op->kind].class_ == CLASS_COLLECTIVE && d < step->op->attr.groups.n; d++)
            if (step->op->attr.groups.v[d] >= plan->n_devices)
                plan->n_devices = (int)step->op->attr.groups.v[d] + 1;
        plan->n_refs += step->op->n_operands + step->op->n_results + 1;
        if (op_is_copy(step->op)) {
            plan->report.n_copies++;
            plan->report.copied_bytes += cvn_type_bytes(&step->op->result[0]->type);
        }
    }
    Places places;
    places_init(lowering, plan, &places);
    TRY(places_choose(lowering, &places, plan, err));
    make_outputs(lowering, &places, plan);
    return CVN_OK;
}

/* Makes the plan of lowering->g; what it has allocated besides is in lowering->arena. */
static int lower(Lowering *lowering, const Link *link, Plan **out, cvn_err *err)
{
    cvn_graph *g = lowering->g;
    TRY(region_plan_all(g, lowering->backend, err));
    TRY(link ? schedule_graph(g, lowering->backend, *link, err) : CVN_OK);
    TRY(lower_outputs(lowering, err));
    const Liveness *live = &lowering->live;
    for (int i = 0; i < live->n_steps;
         i++) { /* results over operands that are read for the last time */
        const Op *op = live->step[i];
        for (int r = 0; r < op->n_results; r++)
            for (int k = 0; k < op->n_operands; k++) {
                cvn_value *root = live->alias[op->operand[k]->id].root;
                if (kernel_overwrites(lowering->kernel[i], op, r, k) && live->last[root->id] == i &&
                    blocks_join(&lowering->blocks, op->result[r], root))
                    break;
            }
    }
    *out = arena_alloc(&g->arena, sizeof **out);
    **out =
        (Plan){.graph = g, .name = g->name, .n_threads = lowering->n_threads, .made = clock_ns()};
    return make_plan(lowering, *out, err);
}

int lower_graph(cvn_graph *g, const KernelSet *backend, int n_threads, const Link *link, Plan **out,
                cvn_err *err)
{
    Lowering lowering = {.g = g, .backend = backend, .n_threads = n_threads};
    int rc = arena_begin(&lowering.arena, err);
    if (!rc)
        rc = lower(&lowering, link, out, err);
    arena_free(&lowering.arena);
    if (rc) {
        cvn_graph_free(g);
        *out = NULL;
    }
    return rc;
}
