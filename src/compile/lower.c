/* The order of lowering: outputs and donation, results over dying operands, places, steps, syncs. */
#include "compile/lower.h"

#include "compile/lower_internal.h"
#include "compile/memory.h"
#include "compile/moves.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

const Kernel *lower_kernel(const Backend *backend, const Op *op)
{
    if (op_is_copy(op))
        return &move_copy;
    if (op->kind == OP_CONSTANT && op->attr.literal.splat)
        return &move_fill;
    for (int i = 0; i < backend->n_kernels; i++) {
        const Kernel *kernel = backend->kernel[i];
        if (kernel->kind == op->kind && (!kernel->match || kernel->match(op)))
            return kernel;
    }
    return NULL;
}

/* Lets results be written over operands that are read for the last time, where kernels can. */
static void join_in_place(Lowering *lowering)
{
    const Liveness *live = &lowering->live;
    for (int i = 0; i < live->n_steps; i++) {
        const Kernel *kernel = lowering->kernel[i];
        const Op *op = live->step[i];
        for (int k = 0; kernel && k < op->n_operands && k < 32; k++) {
            cvn_value *root = live->alias[op->operand[k]->id].root;
            if ((kernel->in_place >> k & 1) && live->last[root->id] == i &&
                blocks_join(&lowering->blocks, op->result[0], root))
                break;
        }
    }
}

/* The places of roots and of scratch, as they are found. */
typedef struct Places {
    BufferRef *root;    /* [n_values] by id of roots */
    Lifetime *lifetime; /* [n] */
    int *of;            /* [n_values] by id of representatives: its index in lifetime, or -1 */
    int *scratch;       /* [n_steps] index in lifetime, or -1 */
    int n;
} Places;

/* Contents of the constants that the plan keeps; returns bytes so far. */
static size_t keep_constant(char *constants, size_t used, const Op *op)
{
    const cvn_type *type = &op->result[0]->type;
    const Literal *literal = &op->attr.literal;
    size_t bytes = cvn_type_bytes(type);
    if (constants && literal->splat)
        move_splat(constants + used, type->dtype, cvn_type_elements(type), literal->data, 0, bytes);
    else if (constants && bytes)
        memcpy(constants + used, literal->data, bytes);
    return used + (bytes + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
}

/* Lays out the constants; `places` is NULL when only their size is asked for. */
static size_t place_constants(const cvn_graph *g, char *constants, Places *places)
{
    size_t used = 0;
    for (const Op *op = g->first; op; op = op->next) {
        if (op->kind != OP_CONSTANT || op_is_step(op))
            continue;
        size_t bytes = cvn_type_bytes(&op->result[0]->type);
        if (places)
            places->root[op->result[0]->id] =
                (BufferRef){.space = SPACE_CONSTANT, .offset = used, .bytes = bytes};
        used = keep_constant(constants, used, op);
    }
    return used;
}

/* Collects lifetimes of the blocks in the arena, and of scratch. */
static void find_lifetimes(const Lowering *lowering, Places *places)
{
    const Liveness *live = &lowering->live;
    for (int i = 0; i < live->n_steps; i++) {
        const Op *op = live->step[i];
        for (int k = 0; k < op->n_results; k++) {
            const cvn_value *v = op->result[k];
            uint32_t block = block_of(&lowering->blocks, v);
            if (lowering->blocks.parameter[block] >= 0)
                continue;
            if (places->of[block] < 0) {
                places->of[block] = places->n;
                places->lifetime[places->n++] =
                    (Lifetime){.bytes = cvn_type_bytes(&v->type), .first = i, .last = i};
            }
            Lifetime *lifetime = &places->lifetime[places->of[block]];
            if (live->last[v->id] > lifetime->last)
                lifetime->last = live->last[v->id];
        }
        const Kernel *kernel = lowering->kernel[i];
        size_t scratch = kernel && kernel->scratch ? kernel->scratch(op, lowering->n_threads) : 0;
        places->scratch[i] = -1;
        if (scratch) {
            places->scratch[i] = places->n;
            places->lifetime[places->n++] = (Lifetime){.bytes = scratch, .first = i, .last = i};
        }
    }
}

static int place(const Lowering *lowering, Plan *plan, Places *places, cvn_err *err)
{
    cvn_graph *g = lowering->g;
    const Liveness *live = &lowering->live;
    for (int i = 0; i < g->n_parameters; i++)
        places->root[g->parameter[i]->id] = (BufferRef){
            .space = SPACE_PARAMETER, .parameter = i, .bytes = plan->parameter[i].bytes};
    plan->constant_bytes = place_constants(g, NULL, NULL);
    char *raw = arena_alloc(&g->arena, plan->constant_bytes + MEMORY_ALIGN);
    char *constants = raw + (MEMORY_ALIGN - (uintptr_t)raw % MEMORY_ALIGN) % MEMORY_ALIGN;
    place_constants(g, constants, places);
    plan->constants = constants;

    find_lifetimes(lowering, places);
    MemoryPlan memory;
    int rc = memory_plan(places->lifetime, places->n, &memory, err);
    if (rc)
        return rc;
    plan->arena_bytes = memory.total;
    plan->arena_lower_bound = memory.lower_bound;
    plan->n_buffers = places->n;
    for (int i = 0; i < live->n_steps; i++)
        for (int k = 0; k < live->step[i]->n_results; k++) {
            const cvn_value *v = live->step[i]->result[k];
            uint32_t block = block_of(&lowering->blocks, v);
            int parameter = lowering->blocks.parameter[block];
            BufferRef *ref = &places->root[v->id];
            *ref = (BufferRef){.space = SPACE_ARENA, .bytes = cvn_type_bytes(&v->type)};
            if (parameter >= 0) {
                ref->space = SPACE_PARAMETER;
                ref->parameter = parameter;
            } else {
                ref->offset = places->lifetime[places->of[block]].offset;
            }
        }
    return CVN_OK;
}

static BufferRef ref_of(const Lowering *lowering, const Places *places, const cvn_value *v)
{
    Alias alias = lowering->live.alias[v->id];
    BufferRef ref = places->root[alias.root->id];
    ref.offset += alias.offset;
    ref.bytes = cvn_type_bytes(&v->type);
    return ref;
}

static void make_step(const Lowering *lowering, const Places *places, int i, Step *step)
{
    Op *op = lowering->live.step[i];
    const Kernel *kernel = lowering->kernel[i];
    Arena *arena = &lowering->g->arena;
    *step = (Step){.op = op,
                   .run = kernel ? kernel->run : lowering->backend->fallback,
                   .kernel = kernel ? kernel->name : "interpreter",
                   .in = arena_array(arena, (size_t)op->n_operands + 1, sizeof(BufferRef)),
                   .out = arena_array(arena, (size_t)op->n_results + 1, sizeof(BufferRef)),
                   .in_place = kernel ? kernel->in_place : 0,
                   .single = !kernel || kernel->single,
                   .flops = op_flops(op),
                   .bytes = op_bytes(op)};
    for (int k = 0; k < op->n_operands; k++)
        step->in[k] = ref_of(lowering, places, op->operand[k]);
    for (int k = 0; k < op->n_results; k++)
        step->out[k] = ref_of(lowering, places, op->result[k]);
    if (places->scratch[i] >= 0) {
        const Lifetime *lifetime = &places->lifetime[places->scratch[i]];
        step->scratch =
            (BufferRef){.space = SPACE_ARENA, .offset = lifetime->offset, .bytes = lifetime->bytes};
    }
}

static void make_parameters(const Lowering *lowering, Plan *plan)
{
    cvn_graph *g = lowering->g;
    plan->n_parameters = g->n_parameters;
    plan->parameter = arena_array(&g->arena, (size_t)g->n_parameters + 1, sizeof *plan->parameter);
    for (int i = 0; i < g->n_parameters; i++) {
        const cvn_value *v = g->parameter[i];
        plan->parameter[i] = (PlanParameter){.name = v->def->attr.name,
                                             .type = v->type,
                                             .bytes = cvn_type_bytes(&v->type),
                                             .donated = lowering->donated[i]};
        plan->parameter_bytes += plan->parameter[i].bytes;
    }
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
                             .ref = ref_of(lowering, places, output->value),
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
    cvn_graph *g = lowering->g;
    Arena *scratch = &lowering->arena;
    size_t n_values = g->n_values, n_steps = (size_t)lowering->live.n_steps;
    size_t most = n_steps; /* buffers: the scratch of every step, and all results */
    for (size_t i = 0; i < n_steps; i++)
        most += (size_t)lowering->live.step[i]->n_results;
    Places places = {.root = arena_array(scratch, n_values + 1, sizeof *places.root),
                     .lifetime = arena_array(scratch, most + 1, sizeof *places.lifetime),
                     .of = arena_array(scratch, n_values + 1, sizeof *places.of),
                     .scratch = arena_array(scratch, n_steps + 1, sizeof *places.scratch)};
    for (size_t i = 0; i < n_values; i++) {
        places.of[i] = -1;
        places.root[i].space = SPACE_ARENA; /* of values without bytes */
    }
    make_parameters(lowering, plan);
    int rc = place(lowering, plan, &places, err);
    if (rc)
        return rc;
    plan->n_steps = lowering->live.n_steps;
    plan->step = arena_array(&g->arena, n_steps + 1, sizeof *plan->step);
    for (int i = 0; i < plan->n_steps; i++) {
        Step *step = &plan->step[i];
        make_step(lowering, &places, i, step);
        plan->n_refs += step->op->n_operands + step->op->n_results + 1;
        if (op_is_copy(step->op)) {
            plan->n_copies++;
            plan->copied_bytes += step->out[0].bytes;
        }
    }
    make_outputs(lowering, &places, plan);
    return lower_syncs(plan, err);
}

int lower_graph(cvn_graph *g, const Backend *backend, int n_threads, Plan **out, cvn_err *err)
{
    *out = NULL;
    Lowering lowering = {.g = g, .backend = backend, .n_threads = n_threads};
    int rc = arena_init(&lowering.arena, err);
    if (rc) {
        cvn_graph_free(g);
        return rc;
    }
    rc = lower_outputs(&lowering, err);
    if (!rc) {
        join_in_place(&lowering);
        Plan *plan = arena_alloc(&g->arena, sizeof *plan);
        *plan = (Plan){.graph = g, .name = g->name, .n_threads = n_threads};
        rc = make_plan(&lowering, plan, err);
        *out = rc ? NULL : plan;
    }
    arena_free(&lowering.arena);
    if (rc)
        cvn_graph_free(g);
    return rc;
}
