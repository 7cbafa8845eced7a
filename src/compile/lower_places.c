/*
 * Places. Lifetimes come from the blocks, places from the planner; but when the planner may reuse a buffer at
 * once, threads have to wait for each other that otherwise would not:
 *
 *     step 2  q = x . wq, scratch at 0        step 3 may only touch the scratch at 0 when all threads are
 *     step 3  k = x . wk, scratch at 0        done with step 2
 *
 * So lifetimes are rounded up to the stretches between the syncs that a machine of endless memory would need;
 * unless that makes the arena noticeably larger.
 */
#include "base/num.h"
#include "compile/lower_impl.h"
#include "compile/moves.h"

#include <string.h>

/* Lays out the constants, with their contents; either is NULL when only the size is asked for. */
static size_t place_constants(const cvn_graph *g, char *constants, Places *places)
{
    size_t used = 0;
    for (const Op *op = g->first; op; op = op->next) {
        if (op->kind != OP_CONSTANT || op_is_step(op))
            continue;
        const cvn_type *type = &op->result[0]->type;
        const Literal *literal = &op->attr.literal;
        size_t bytes = cvn_type_bytes(type);
        if (places)
            places->root[op->result[0]->id] =
                (BufferRef){.space = SPACE_CONSTANT, .offset = used, .bytes = bytes};
        char *to = constants ? constants + used : NULL;
        if (to && literal->splat)
            move_splat(to, type->dtype, cvn_type_elements(type), literal->data, 0, bytes);
        else if (to && bytes)
            memcpy(to, literal->data, bytes);
        used += num_padded(bytes, MEMORY_ALIGN);
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
        size_t scratch = kernel ? kernel_scratch(kernel, op, lowering->n_threads) : 0;
        places->scratch[i] = -1;
        if (scratch) {
            places->scratch[i] = places->n;
            places->lifetime[places->n++] = (Lifetime){.bytes = scratch, .first = i, .last = i};
        }
    }
}

void places_init(Lowering *lowering, Plan *plan, Places *places)
{
    cvn_graph *g = lowering->g;
    const Liveness *live = &lowering->live;
    Arena *scratch = &lowering->arena;
    size_t n_values = g->n_values, n_steps = (size_t)live->n_steps;
    size_t most = n_steps; /* buffers: the scratch of every step, and all results */
    for (size_t i = 0; i < n_steps; i++)
        most += (size_t)live->step[i]->n_results;
    *places = (Places){.root = arena_array(scratch, n_values + 1, sizeof *places->root),
                       .lifetime = arena_array(scratch, most + 1, sizeof *places->lifetime),
                       .of = arena_array(scratch, n_values + 1, sizeof *places->of),
                       .scratch = arena_array(scratch, n_steps + 1, sizeof *places->scratch)};
    for (size_t i = 0; i < n_values; i++) {
        places->of[i] = -1;
        places->root[i].space = SPACE_ARENA; /* of values without bytes */
    }
    for (int i = 0; i < g->n_parameters; i++)
        places->root[g->parameter[i]->id] = (BufferRef){
            .space = SPACE_PARAMETER, .parameter = i, .bytes = plan->parameter[i].bytes};
    plan->constant_bytes = place_constants(g, NULL, NULL);
    char *raw = arena_alloc(&g->arena, plan->constant_bytes + MEMORY_ALIGN);
    char *constants = raw + (MEMORY_ALIGN - (uintptr_t)raw % MEMORY_ALIGN) % MEMORY_ALIGN;
    place_constants(g, constants, places);
    plan->constants = constants;
    find_lifetimes(lowering, places);
    plan->report.n_buffers = places->n;
}

BufferRef places_of(const Lowering *lowering, const Places *places, const cvn_value *v)
{
    Alias alias = lowering->live.alias[v->id];
    BufferRef ref = places->root[alias.root->id];
    ref.offset += alias.offset;
    ref.bytes = cvn_type_bytes(&v->type);
    return ref;
}

/* Writes the offsets as they are now into roots and steps. */
static void set_refs(const Lowering *lowering, Places *places, Plan *plan)
{
    for (int i = 0; i < plan->n_steps; i++) {
        Step *step = &plan->step[i];
        for (int k = 0; k < step->op->n_operands; k++) /* roots of operands are set already */
            step->in[k] = places_of(lowering, places, step->op->operand[k]);
        for (int k = 0; k < step->op->n_results; k++) {
            const cvn_value *v = step->op->result[k];
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
            step->out[k] = *ref;
        }
        step->scratch = (BufferRef){.space = SPACE_ARENA};
        if (places->scratch[i] >= 0) {
            const Lifetime *lifetime = &places->lifetime[places->scratch[i]];
            step->scratch.offset = lifetime->offset;
            step->scratch.bytes = lifetime->bytes;
        }
    }
}

/* Rounds lifetimes up to whole stretches between syncs. */
static void stretch(const Plan *plan, int n, Lifetime *lifetime, Arena *arena)
{
    int *begin = arena_array(arena, (size_t)plan->n_steps + 1, sizeof *begin);
    int *end = arena_array(arena, (size_t)plan->n_steps + 1, sizeof *end);
    for (int i = 0; i < plan->n_steps; i++)
        begin[i] = i == 0 || plan->step[i].sync ? i : begin[i - 1];
    for (int i = plan->n_steps - 1; i >= 0; i--)
        end[i] = i == plan->n_steps - 1 || plan->step[i + 1].sync ? i : end[i + 1];
    for (int i = 0; i < n; i++) {
        lifetime[i].first = begin[lifetime[i].first];
        if (lifetime[i].last < plan->n_steps)
            lifetime[i].last = end[lifetime[i].last];
    }
}

int places_choose(Lowering *lowering, Places *places, Plan *plan, cvn_err *err)
{
    MemoryPlan tight, loose;
    TRY(memory_plan(places->lifetime, places->n, &tight, err));
    Arena *scratch = &lowering->arena;
    Lifetime *packed = places->lifetime;
    places->lifetime = arena_copy(scratch, packed, ((size_t)places->n + 1) * sizeof *packed);
    /* Every buffer in bytes of its own: what is left to wait for are results that are read. */
    size_t offset = 0;
    for (int i = 0; i < places->n; i++) {
        places->lifetime[i].offset = offset;
        offset += num_padded(places->lifetime[i].bytes, MEMORY_ALIGN);
    }
    set_refs(lowering, places, plan);
    lower_syncs(plan, scratch);
    stretch(plan, places->n, places->lifetime, scratch);
    TRY(memory_plan(places->lifetime, places->n, &loose, err));
    bool affordable = loose.total <= tight.total + tight.total / 16 + STRETCH_FREE_BYTES;
    if (!affordable)
        places->lifetime = packed;
    plan->arena_bytes = affordable ? loose.total : tight.total;
    plan->report.arena_lower_bound = tight.lower_bound;
    set_refs(lowering, places, plan);
    lower_syncs(plan, scratch);
    return CVN_OK;
}
