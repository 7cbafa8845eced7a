/*
 * Conversions beside an operation whose kernel reads or writes any float dtype, computing in f32, are its prologue and
 * epilogue:
 *
 *     %f = convert %x : f32 …
 *     %y = rope %f, … : f32 …          %h = rope %x, … : bf16 …
 *     %h = convert %y : bf16 …
 *
 * The bits are the same: what is read is widened, which is exact, and what is written is rounded once. A rounding that
 * cannot join goes where what it rounds is made, so that both may be in one fusion and the exact tensor is never written.
 */
#include "compile/fuse_impl.h"

static bool is_half(cvn_dtype dtype)
{
    return dtype == CVN_BF16 || dtype == CVN_F16;
}

/* A result that only a rounding reads is rounded where it is made, or right behind. */
static void take_rounding(Fuse *f, Op *convert)
{
    cvn_value *exact = convert->operand[0];
    Op *op = exact->def;
    if (exact->type.dtype != CVN_F32 || !is_half(convert->result[0]->type.dtype) ||
        f->uses[exact->id] != 1 || op->kind == OP_PARAMETER)
        return;
    graph_remove(f->g, convert);
    if (exact->result != 0 || !kernel_fuses(f->backend, op, EPILOGUE_CONVERT)) {
        graph_put_before(f->g, convert, op->next);
        return;
    }
    op->result[0] = convert->result[0];
    fuse_own_results(op);
}

void fuse_convert(Fuse *f, Op *op)
{
    cvn_value *v = op->n_operands > 0 ? op->operand[0] : NULL;
    if (op->kind == OP_CONVERT)
        take_rounding(f, op);
    else if (v && v->def->kind == OP_CONVERT && f->uses[v->id] == 1 && v->type.dtype == CVN_F32 &&
             is_half(v->def->operand[0]->type.dtype) &&
             kernel_fuses(f->backend, op, PROLOGUE_CONVERT))
        op->operand[0] = v->def->operand[0]; /* widened for it alone: it is read as it is */
}
