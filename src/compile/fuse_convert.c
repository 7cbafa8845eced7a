/*
 * Conversions beside an operation whose kernel reads and writes any float dtype, computing in f32, become part of it:
 *
 *     %f = convert %x : f32 …
 *     %y = rope %f, … : f32 …          %h = rope %x, … : bf16 …
 *     %h = convert %y : bf16 …
 *
 * The bits are the same: what is read is widened, which is exact, and what is written is rounded once.
 */
#include "compile/fuse.h"
#include "compile/lower.h"

static bool is_half(cvn_dtype dtype)
{
    return dtype == CVN_BF16 || dtype == CVN_F16;
}

static bool converts(const Backend *backend, const Op *op)
{
    const Kernel *kernel = lower_kernel(backend, op);
    return kernel && kernel->converts;
}

/* A result that only a rounding reads is rounded where it is made. */
static void take_rounding(cvn_graph *g, const Backend *backend, const uint32_t *uses, Op *convert)
{
    cvn_value *exact = convert->operand[0], *rounded = convert->result[0];
    Op *op = exact->def;
    if (exact->type.dtype != CVN_F32 || !is_half(rounded->type.dtype) || uses[exact->id] != 1 ||
        exact->result != 0 || !converts(backend, op))
        return;
    graph_remove(g, convert);
    op->result[0] = rounded;
    rounded->def = op;
    rounded->result = 0;
}

/* What was widened for this operation alone is read as it is. */
static void take_widening(const Backend *backend, const uint32_t *uses, Op *op)
{
    Op *convert = op->n_operands > 0 ? op->operand[0]->def : NULL;
    if (!convert || convert->kind != OP_CONVERT || uses[op->operand[0]->id] != 1 ||
        op->operand[0]->type.dtype != CVN_F32 || !is_half(convert->operand[0]->type.dtype) ||
        !converts(backend, op))
        return;
    op->operand[0] = convert->operand[0];
}

void fuse_converts(cvn_graph *g, const Backend *backend, Arena *arena)
{
    const uint32_t *uses = graph_uses(g, arena);
    for (Op *op = g->first, *next; op; op = next) {
        next = op->next;
        if (op->kind == OP_CONVERT)
            take_rounding(g, backend, uses, op);
        else
            take_widening(backend, uses, op);
    }
    graph_remove_dead(g);
}
