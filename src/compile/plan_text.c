/* Plans for people to read. */
#include "compile/fused.h"
#include "compile/plan.h"
#include "graph/region.h"

/* "f32[2] at arena+64" */
static void print_place(StrBuf *out, const Plan *plan, const cvn_type *type, const BufferRef *ref)
{
    type_print(out, type);
    if (ref->space == SPACE_PARAMETER)
        strbuf_printf(out, " at %s", plan->parameter[ref->parameter].name);
    else
        strbuf_puts(out, ref->space == SPACE_CONSTANT ? " at constant" : " at arena");
    if (ref->space != SPACE_PARAMETER || ref->offset)
        strbuf_printf(out, "+%zu", ref->offset);
}

static void print_step(StrBuf *out, const Plan *plan, int i)
{
    const Step *step = &plan->step[i];
    static const char *const phase[] = {"", " start", " done"};
    strbuf_printf(out, "%5d %s %s%s", i, step->sync ? "sync" : "    ", op_info[step->op->kind].name,
                  phase[step->phase]);
    for (int k = 0; k < step->op->n_operands; k++) {
        strbuf_puts(out, k ? ", " : " ");
        print_place(out, plan, op_in(step->op, k), &step->in[k]);
    }
    strbuf_puts(out, " ->");
    for (int k = 0; k < step->op->n_results; k++) {
        strbuf_puts(out, k ? ", " : " ");
        print_place(out, plan, op_out(step->op, k), &step->out[k]);
    }
    if (step->scratch.bytes)
        strbuf_printf(out, ", scratch %zu at arena+%zu", step->scratch.bytes, step->scratch.offset);
    strbuf_printf(out, "    [%s%s] %.0f flops, %zu bytes\n", step->kernel,
                  step->single ? ", one thread" : "", step->flops, step->bytes);
    if (step->op->fused) {
        strbuf_puts(out, "           of ");
        body_print_name(out, step->op->fused->body);
        strbuf_putc(out, '\n');
    }
}

int plan_fallbacks(const Plan *plan, StrBuf *names)
{
    bool named[OP_COUNT] = {false};
    int n = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        OpKind kind = plan->step[i].op->kind;
        if (!plan->step[i].fallback)
            continue;
        if (names && !named[kind])
            strbuf_printf(names, "%s%s", n ? ", " : "", op_info[kind].name);
        named[kind] = true;
        n++;
    }
    return n;
}

void plan_print(StrBuf *out, const Plan *plan)
{
    double flops = 0, bytes = 0;
    strbuf_printf(out, "plan of %s, for %d threads\n\n", plan->name, plan->n_threads);
    for (int i = 0; i < plan->n_parameters; i++) {
        const PlanParameter *parameter = &plan->parameter[i];
        strbuf_printf(out, "parameter %d %s: ", i, parameter->name);
        type_print(out, &parameter->type);
        strbuf_printf(out, ", %zu bytes%s", parameter->bytes,
                      parameter->donated ? ", donated" : "");
        if (parameter->rows) {
            strbuf_puts(out, ", panels of ");
            type_print(out, &parameter->plain);
        }
        strbuf_putc(out, '\n');
    }
    strbuf_puts(out, "\n step\n");
    for (int i = 0; i < plan->n_steps; i++) {
        print_step(out, plan, i);
        flops += plan->step[i].flops;
        bytes += (double)plan->step[i].bytes;
    }
    strbuf_putc(out, '\n');
    for (int i = 0; i < plan->n_outputs; i++) {
        strbuf_printf(out, "output %d: ", i);
        print_place(out, plan, &plan->output[i].type, &plan->output[i].ref);
        strbuf_putc(out, '\n');
    }
    strbuf_printf(out,
                  "\n%d steps, %d syncs, %d copies (%zu bytes), %.0f flops, %.0f bytes moved\n"
                  "memory: parameters %zu, constants %zu, arena %zu in %d buffers "
                  "(no placement could do with less than %zu)\n",
                  plan->n_steps, plan->report.n_syncs, plan->report.n_copies,
                  plan->report.copied_bytes, flops, bytes, plan->report.parameter_bytes,
                  plan->constant_bytes, plan->arena_bytes, plan->report.n_buffers,
                  plan->report.arena_lower_bound);
    int fallbacks = plan_fallbacks(plan, NULL);
    if (fallbacks == 0)
        return;
    strbuf_printf(out, "%d without a kernel, interpreted by one thread: ", fallbacks);
    plan_fallbacks(plan, out);
    strbuf_putc(out, '\n');
}
