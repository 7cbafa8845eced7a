/*
 * The plan, replayed on a shadow of memory that records which byte of which value lies where: each step finds its
 * operands, outputs hold what the graph says, nothing else is written, and no two steps between two syncs get in each
 * other's way. O(steps * live buffers). The shadow is a set of spans that never overlap; a span says which
 * value the bytes of a place hold, and from which byte of it:
 *
 *     step 3 writes %x to arena 0 … 63         span arena 0-63: %x from 0
 *     step 5 writes %y to arena 32 … 95        span arena 0-31: %x from 0, span arena 32-95: %y from 0
 *     step 6 reads %x at arena 0 … 63          error: bytes 32-63 hold %y
 *
 * What a step should read is taken from the graph, not from what lowering believed: a view stands for bytes of
 * what it views, a copy for what it copied.
 */
#ifndef PLAN_VERIFY_H
#define PLAN_VERIFY_H

#include "compile/lower_blocks.h"
#include "compile/moves.h"
#include "compile/pipeline.h"
#include "compile/schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Span {
    BufferRef ref;
    const cvn_value *value; /* what lies here … */
    size_t from;            /* … from this byte of it */
} Span;

typedef struct Shadow {
    const Plan *plan;
    Span *span; /* [n] */
    int n, capacity;
    /* Steps that started collectives, in order; -1: it is done. */
    int flight[COLLECTIVES_IN_FLIGHT];
    int n_flight; /* of them, from the oldest that is not done */
    cvn_err *err;
} Shadow;

static inline int out_of_memory(const Shadow *shadow)
{
    return err_set(shadow->err, CVN_EMEM, "no memory to verify plan '%s'", shadow->plan->name);
}

static inline int add_span(Shadow *shadow, BufferRef ref, const cvn_value *value, size_t from)
{
    if (shadow->n == shadow->capacity) {
        int capacity = shadow->capacity ? shadow->capacity * 2 : 64;
        Span *more = realloc(shadow->span, (size_t)capacity * sizeof *more);
        if (!more)
            return out_of_memory(shadow);
        shadow->span = more;
        shadow->capacity = capacity;
    }
    shadow->span[shadow->n++] = (Span){ref, value, from};
    return CVN_OK;
}

/* What value v is bytes of, looking through views and copies; *from is its first byte in that. */
static inline const cvn_value *origin(const cvn_value *v, size_t *from)
{
    size_t offset;
    *from = 0;
    while (op_is_copy(v->def) || op_is_view(v->def, &offset)) {
        *from += op_is_copy(v->def) ? 0 : offset;
        v = v->def->operand[0];
    }
    return v;
}

/* v is NULL where the bytes hold no value any more. */
static inline int shadow_write(Shadow *shadow, const BufferRef *ref, const cvn_value *v)
{
    int rc;
    for (int i = shadow->n - 1; i >= 0; i--) {
        Span old = shadow->span[i];
        if (!ref_overlap(&old.ref, ref))
            continue;
        shadow->span[i] = shadow->span[--shadow->n];
        size_t begin = old.ref.offset, end = begin + old.ref.bytes;
        size_t cut = ref->offset, resume = ref->offset + ref->bytes;
        if (begin < cut) {
            BufferRef left = old.ref;
            left.bytes = cut - begin;
            if ((rc = add_span(shadow, left, old.value, old.from)))
                return rc;
        }
        if (end > resume) {
            BufferRef right = old.ref;
            right.offset = resume;
            right.bytes = end - resume;
            if ((rc = add_span(shadow, right, old.value, old.from + (resume - begin))))
                return rc;
        }
    }
    if (!v || ref->bytes == 0)
        return CVN_OK;
    size_t from;
    const cvn_value *value = origin(v, &from);
    return add_span(shadow, *ref, value, from);
}

/* The bytes of a constant that the plan keeps must be the literal's. */
static inline int check_constant(const Shadow *shadow, const BufferRef *ref, const cvn_value *value,
                                 size_t from, const char *who)
{
    const Literal *literal = &value->def->attr.literal;
    const char *kept = (const char *)shadow->plan->constants + ref->offset;
    size_t bytes = cvn_type_bytes(&value->type);
    bool same = value->def->kind == OP_CONSTANT && from + ref->bytes <= bytes &&
                ref->offset + ref->bytes <= shadow->plan->constant_bytes;
    if (same && literal->splat) {
        char *full = malloc(bytes + 1);
        if (!full)
            return out_of_memory(shadow);
        move_splat(full, value->type.dtype, cvn_type_elements(&value->type), literal->data, 0,
                   bytes);
        same = memcmp(full + from, kept, ref->bytes) == 0;
        free(full);
    } else if (same) {
        same = memcmp((const char *)literal->data + from, kept, ref->bytes) == 0;
    }
    if (!same)
        return err_set(shadow->err, CVN_EINVAL, "%s reads a constant that is not there", who);
    return CVN_OK;
}

static inline int shadow_read(const Shadow *shadow, const BufferRef *ref, const cvn_value *v,
                              const char *who)
{
    size_t from, good = 0;
    const cvn_value *value = origin(v, &from);
    if (ref->bytes == 0)
        return CVN_OK;
    if (ref->space == SPACE_CONSTANT)
        return check_constant(shadow, ref, value, from, who);
    for (int i = 0; i < shadow->n; i++) {
        const Span *span = &shadow->span[i];
        if (!ref_overlap(&span->ref, ref))
            continue;
        size_t begin = span->ref.offset > ref->offset ? span->ref.offset : ref->offset;
        size_t span_end = span->ref.offset + span->ref.bytes, end = ref->offset + ref->bytes;
        end = span_end < end ? span_end : end;
        if (span->value != value ||
            span->from + (begin - span->ref.offset) != from + (begin - ref->offset))
            return err_set(shadow->err, CVN_EINVAL,
                           "%s reads value %" PRIu32 ", but value %" PRIu32 " lies there", who,
                           value->id, span->value->id);
        good += end - begin;
    }
    if (good != ref->bytes)
        return err_set(shadow->err, CVN_EINVAL,
                       "%s reads %zu bytes of value %" PRIu32 ", of which only %zu were written",
                       who, ref->bytes, value->id, good);
    return CVN_OK;
}

/* Inside its memory, aligned, and where it is written, writable. */
static inline bool ref_legal(const Plan *plan, const BufferRef *ref, size_t bytes, bool write)
{
    size_t size = plan->arena_bytes;
    if (ref->space == SPACE_PARAMETER) {
        if (ref->parameter < 0 || ref->parameter >= plan->n_parameters)
            return false;
        const PlanParameter *parameter = &plan->parameter[ref->parameter];
        if (write && !parameter->donated)
            return false;
        size = parameter->bytes;
    } else if (ref->space == SPACE_CONSTANT) {
        size = plan->constant_bytes;
    }
    return ref->bytes == bytes && ref->offset % 64 == 0 && ref->offset <= size &&
           ref->bytes <= size - ref->offset && !(write && bytes && ref->space == SPACE_CONSTANT);
}

/* May result k lie over operand i? */
static inline bool step_overwrites(const Step *step, int k, int i)
{
    const Kernel kernel = {.in_place = step->in_place};
    return kernel_overwrites(&kernel, step->op, k, i);
}

/* The places of one step, by themselves. */
static inline bool step_legal(const Plan *plan, const Step *step)
{
    const Op *op = step->op;
    for (int i = 0; i < op->n_operands; i++)
        if (!ref_legal(plan, &step->in[i], cvn_type_bytes(&op->operand[i]->type), false) ||
            ref_overlap(&step->in[i], &step->scratch))
            return false;
    for (int k = 0; k < op->n_results; k++) {
        const BufferRef *out = &step->out[k];
        if (!ref_legal(plan, out, cvn_type_bytes(&op->result[k]->type), true) ||
            ref_overlap(out, &step->scratch))
            return false;
        for (int j = 0; j < k; j++)
            if (ref_overlap(out, &step->out[j]))
                return false;
        for (int i = 0; i < op->n_operands; i++) {
            const BufferRef *in = &step->in[i];
            bool exact = out->offset == in->offset && out->bytes == in->bytes;
            if (ref_overlap(out, in) && !(exact && step_overwrites(step, k, i)))
                return false;
        }
    }
    return step->run &&
           (step->scratch.bytes == 0 || ref_legal(plan, &step->scratch, step->scratch.bytes, true));
}

/* True when b must wait for a. */
static inline bool steps_conflict(const Step *a, const Step *b)
{
    if (a->single && b->single)
        return false;
    if (ref_overlap(&a->scratch, &b->scratch))
        return true;
    for (int k = 0; k < a->op->n_results; k++) {
        for (int j = 0; j < b->op->n_results; j++)
            if (ref_overlap(&a->out[k], &b->out[j]))
                return true;
        if (ref_overlap(&a->out[k], &b->scratch))
            return true;
        for (int i = 0; i < b->op->n_operands; i++)
            if (ref_overlap(&a->out[k], &b->in[i]))
                return true;
    }
    for (int i = 0; i < a->op->n_operands; i++) {
        if (ref_overlap(&a->in[i], &b->scratch))
            return true;
        for (int j = 0; j < b->op->n_results; j++)
            if (ref_overlap(&a->in[i], &b->out[j]))
                return true;
    }
    for (int k = 0; k < b->op->n_operands + b->op->n_results; k++) {
        const BufferRef *ref = k < b->op->n_operands ? &b->in[k] : &b->out[k - b->op->n_operands];
        if (ref_overlap(&a->scratch, ref))
            return true;
    }
    return false;
}

/* Between start and end nobody writes a collective's operand, or touches its result. */
static inline int check_flight(const Shadow *shadow, int i, const char *who)
{
    const Plan *plan = shadow->plan;
    const Step *step = &plan->step[i];
    for (int f = 0; f < shadow->n_flight; f++) {
        if (shadow->flight[f] < 0 || plan->step[shadow->flight[f]].op == step->op)
            continue;
        const Step *start = &plan->step[shadow->flight[f]];
        bool touched = ref_overlap(&step->scratch, &start->in[0]) ||
                       ref_overlap(&step->scratch, &start->out[0]);
        for (int k = 0; k < step->op->n_results; k++)
            touched = touched || ref_overlap(&step->out[k], &start->in[0]) ||
                      ref_overlap(&step->out[k], &start->out[0]);
        for (int k = 0; k < step->op->n_operands; k++)
            touched = touched || ref_overlap(&step->in[k], &start->out[0]);
        if (touched)
            return err_set(shadow->err, CVN_EINVAL,
                           "%s touches the memory of a collective under way since step %d", who,
                           shadow->flight[f]);
    }
    return CVN_OK;
}

/* Keeps account of what is under way: every collective takes a place among those, also one that ends at once. */
static inline int follow_flight(Shadow *shadow, int i, const char *who)
{
    const Step *step = &shadow->plan->step[i];
    if (step->phase != STEP_DONE) {
        if (shadow->n_flight == COLLECTIVES_IN_FLIGHT)
            return err_set(shadow->err, CVN_EINVAL, "%s is one collective under way too many", who);
        shadow->flight[shadow->n_flight++] = step->phase == STEP_START ? i : -1;
        return CVN_OK;
    }
    int at = 0;
    while (at < shadow->n_flight &&
           (shadow->flight[at] < 0 || shadow->plan->step[shadow->flight[at]].op != step->op))
        at++;
    if (at == shadow->n_flight)
        return err_set(shadow->err, CVN_EINVAL, "%s ends what has not started", who);
    shadow->flight[at] = -1;
    int past = 0;
    while (past < shadow->n_flight && shadow->flight[past] < 0)
        past++;
    shadow->n_flight -= past;
    memmove(shadow->flight, shadow->flight + past,
            (size_t)shadow->n_flight * sizeof *shadow->flight);
    return CVN_OK;
}

/* What a step reads is there, and then what it writes. The result of a collective is there at its end; where it is
   not written over the operand, its memory holds nothing until then. */
static inline int verify_values(Shadow *shadow, const Step *step, const char *who)
{
    int rc;
    for (int k = 0; k < step->op->n_operands; k++)
        if ((rc = shadow_read(shadow, &step->in[k], step->op->operand[k], who)))
            return rc;
    if ((rc = shadow_write(shadow, &step->scratch, NULL)))
        return rc;
    bool starts = step->phase == STEP_START;
    for (int k = 0; k < step->op->n_results; k++)
        if (!starts || !ref_overlap(&step->out[k], &step->in[0]))
            if ((rc = shadow_write(shadow, &step->out[k], starts ? NULL : step->op->result[k])))
                return rc;
    return CVN_OK;
}

static inline int verify_steps(Shadow *shadow)
{
    const Plan *plan = shadow->plan;
    int since = 0, rc; /* the first step after the last sync */
    for (int i = 0; i < plan->n_steps; i++) {
        const Step *step = &plan->step[i];
        char who[96];
        snprintf(who, sizeof who, "step %d (%s)", i, op_info[step->op->kind].name);
        if (!step_legal(plan, step))
            return err_set(shadow->err, CVN_EINVAL, "the places of %s are not legal", who);
        since = step->sync ? i : since;
        for (int j = since; j < i; j++)
            if (steps_conflict(&plan->step[j], step))
                return err_set(shadow->err, CVN_EINVAL, "%s does not wait for step %d", who, j);
        if ((rc = check_flight(shadow, i, who)))
            return rc;
        if (step->phase != STEP_WHOLE || (shadow->n_flight && op_is_exchange(step->op)))
            if ((rc = follow_flight(shadow, i, who)))
                return rc;
        if ((rc = verify_values(shadow, step, who)))
            return rc;
    }
    if (shadow->n_flight)
        return err_set(shadow->err, CVN_EINVAL, "the collective of step %d never ends",
                       shadow->flight[0]);
    return CVN_OK;
}

static inline int verify_outputs(const Shadow *shadow)
{
    const Plan *plan = shadow->plan;
    for (int i = 0; i < plan->n_outputs; i++) {
        const PlanOutput *output = &plan->output[i];
        char who[32];
        snprintf(who, sizeof who, "output %d", i);
        bool at_home = output->into < 0 || (output->ref.space == SPACE_PARAMETER &&
                                            output->ref.parameter == output->into);
        if (!at_home || output->ref.space == SPACE_CONSTANT ||
            !ref_legal(plan, &output->ref, cvn_type_bytes(&output->type), true))
            return err_set(shadow->err, CVN_EINVAL, "the place of %s is not legal", who);
        int rc = shadow_read(shadow, &output->ref, plan->graph->output[i].value, who);
        if (rc)
            return rc;
    }
    return CVN_OK;
}

static inline int verify(Shadow *shadow)
{
    const Plan *plan = shadow->plan;
    int rc;
    for (int i = 0; i < plan->n_parameters; i++) {
        BufferRef whole = {SPACE_PARAMETER, i, 0, plan->parameter[i].bytes};
        if ((rc = shadow_write(shadow, &whole, plan->graph->parameter[i])))
            return rc;
    }
    rc = verify_steps(shadow);
    return rc ? rc : verify_outputs(shadow);
}

static inline int plan_verify(const Plan *plan, cvn_err *err)
{
    Shadow shadow = {.plan = plan, .err = err};
    int rc = verify(&shadow);
    free(shadow.span);
    if (rc)
        err_prefix(err, "plan '%s'", plan->name);
    return rc;
}

/* compile_graph, and its plan replayed. */
static inline int compile_verified(const cvn_graph *g, const CompileOptions *options, Plan **plan,
                                   cvn_err *err)
{
    int rc = compile_graph(g, options, plan, err);
    if (rc || (rc = plan_verify(*plan, err)) == CVN_OK)
        return rc;
    plan_free(*plan);
    *plan = NULL;
    return rc;
}

#endif
