/* Union-find over roots, guarded by a pairwise check of lifetimes. Sets are small, so pairs are few. */
#include "compile/lower_blocks.h"

#include "compile/fused.h"

bool kernel_overwrites(const Kernel *kernel, const Op *op, int k, int i)
{
    if (!kernel || i >= 32)
        return false;
    const Fused *fused = kernel_fused(op);
    if (fused->over)
        return fused->over[k] >> i & 1;
    if (op->kind == OP_ROPE && (fused->transposed == 1 || fused->transposed == 2))
        return false; /* it is elsewhere that elements go */
    return k == 0 && kernel->in_place >> i & 1;
}

void blocks_init(AliasSets *blocks, const cvn_graph *g, const Liveness *live,
                 const Kernel *const *kernel, const bool *donated, Arena *arena)
{
    size_t n = g->n_values;
    *blocks = (AliasSets){.live = live,
                          .kernel = kernel,
                          .root = arena_array(arena, n, sizeof *blocks->root),
                          .parent = arena_array(arena, n, sizeof *blocks->parent),
                          .next = arena_array(arena, n, sizeof *blocks->next),
                          .tail = arena_array(arena, n, sizeof *blocks->tail),
                          .frozen = arena_array(arena, n, sizeof *blocks->frozen),
                          .parameter = arena_array(arena, n, sizeof *blocks->parameter)};
    for (Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_results; i++) {
            uint32_t id = op->result[i]->id;
            if (live->alias[id].root == op->result[i])
                blocks->root[id] = op->result[i];
            blocks->parent[id] = blocks->tail[id] = id;
            blocks->next[id] = NO_VALUE;
            blocks->parameter[id] = -1;
            blocks->frozen[id] = live->def[id] < 0;
        }
    for (int i = 0; i < g->n_parameters; i++)
        if (donated[i]) {
            uint32_t id = g->parameter[i]->id;
            blocks->frozen[id] = false;
            blocks->parameter[id] = i;
        }
}

uint32_t block_of(const AliasSets *blocks, const cvn_value *root)
{
    uint32_t id = root->id;
    while (blocks->parent[id] != id) {
        blocks->parent[id] = blocks->parent[blocks->parent[id]];
        id = blocks->parent[id];
    }
    return id;
}

/* True when the step that writes `result` may write it over `operand`, whose last reader it is: every
   operand of the step in that memory must be the whole of it, and one the kernel allows. */
static bool may_overwrite(const AliasSets *blocks, const cvn_value *result,
                          const cvn_value *operand)
{
    const Liveness *live = blocks->live;
    const Kernel *kernel = blocks->kernel[live->def[result->id]];
    const Op *op = result->def;
    for (int i = 0; i < op->n_operands; i++) {
        if (live->alias[op->operand[i]->id].root != operand)
            continue;
        if (!kernel_overwrites(kernel, op, result->result, i) || !covers_root(live, op->operand[i]))
            return false;
    }
    return true;
}

static bool is_operand(const Liveness *live, const Op *op, const cvn_value *root)
{
    for (int i = 0; i < op->n_operands; i++)
        if (live->alias[op->operand[i]->id].root == root)
            return true;
    return false;
}

static bool may_share(const AliasSets *blocks, const cvn_value *a, const cvn_value *b)
{
    const Liveness *live = blocks->live;
    if (cvn_type_bytes(&a->type) != cvn_type_bytes(&b->type))
        return false;
    if (live->def[a->id] > live->def[b->id]) {
        const cvn_value *swap = a;
        a = b;
        b = swap;
    }
    if (live->last[a->id] < live->def[b->id])
        return true;
    /* A split collective reads its operand until it is done, and by then devices may have written it. */
    for (int i = live->def[b->id] + 1; i < live->done[b->id]; i++)
        if (is_operand(live, live->step[i], a))
            return false;
    return live->last[a->id] == live->done[b->id] && live->def[a->id] < live->def[b->id] &&
           is_operand(live, b->def, a) && may_overwrite(blocks, b, a);
}

bool blocks_join(AliasSets *blocks, const cvn_value *a, const cvn_value *b)
{
    uint32_t left = block_of(blocks, a), right = block_of(blocks, b);
    if (left == right)
        return true;
    if (blocks->frozen[left] || blocks->frozen[right] ||
        (blocks->parameter[left] >= 0 && blocks->parameter[right] >= 0))
        return false;
    for (uint32_t i = left; i != NO_VALUE; i = blocks->next[i])
        for (uint32_t j = right; j != NO_VALUE; j = blocks->next[j])
            if (!may_share(blocks, blocks->root[i], blocks->root[j]))
                return false;
    if (blocks->parameter[right] >= 0) { /* the parameter stays the representative */
        uint32_t swap = left;
        left = right;
        right = swap;
    }
    blocks->parent[right] = left;
    blocks->next[blocks->tail[left]] = right;
    blocks->tail[left] = blocks->tail[right];
    return true;
}
