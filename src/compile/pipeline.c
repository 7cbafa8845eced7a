/* The table of passes and the walk through it. */
#include "compile/pipeline.h"

#include "compile/dump.h"
#include "compile/fuse_linear.h"
#include "compile/lower.h"
#include "graph/decompose.h"
#include "graph/simplify.h"

#include <assert.h>

static int pass_simplify(cvn_graph *g, const CompileOptions *options, bool *changed, cvn_err *err)
{
    (void)options;
    return graph_simplify(g, changed, err);
}

static bool has_kernel(const Op *op, void *context)
{
    const CompileOptions *options = context;
    if (op->kind == OP_ATTENTION && options->split_attention)
        return false;
    return lower_kernel(options->backend, op) != NULL;
}

static int pass_decompose(cvn_graph *g, const CompileOptions *options, bool *changed, cvn_err *err)
{
    CompileOptions copy = *options;
    return graph_decompose(g, has_kernel, &copy, changed, err);
}

static int pass_fuse(cvn_graph *g, const CompileOptions *options, bool *changed, cvn_err *err)
{
    (void)options;
    return graph_fuse_linear(g, changed, err);
}

/* The order matters: a composite is recognised whole before it is taken apart, and what comes out of taking
   it apart has constants to fold. */
const Pass pipeline_passes[] = {
    {"simplify", pass_simplify, false},
    {"fuse_linear", pass_fuse, false},
    {"decompose", pass_decompose, true},
    {"simplify", pass_simplify, false},
};
const int pipeline_n_passes = sizeof pipeline_passes / sizeof pipeline_passes[0];

static int run_passes(cvn_graph *g, const CompileOptions *options, Dump *dump, cvn_err *err)
{
    int rc = graph_verify(g, err);
    if (!rc)
        rc = dump_graph(dump, "input", g, err);
    bool stale =
        true; /* something changed since simplify last ran: there is something to do for it */
    for (int i = 0; i < pipeline_n_passes && !rc; i++) {
        const Pass *pass = &pipeline_passes[i];
        bool changed = false;
        if ((pass->run == pass_simplify && !stale) || (options->op_by_op && !pass->needed))
            continue;
        rc = pass->run(g, options, &changed, err);
        stale = changed && pass->run != pass_simplify;
        if (!rc)
            rc = graph_verify(g, err);
        if (rc)
            err_prefix(err, "pass %s", pass->name);
        else
            rc = dump_graph(dump, pass->name, g, err);
    }
    return rc;
}

static int check_memory(const Plan *plan, size_t limit, cvn_err *err)
{
    size_t need = plan->parameter_bytes + plan->constant_bytes + plan->arena_bytes;
    if (limit == 0 || need <= limit)
        return CVN_OK;
    return err_set(
        err, CVN_EMEM,
        "'%s' needs %.1f MiB (parameters %.1f + constants %.1f + temporaries %.1f), but the "
        "limit is %.1f MiB; lower the batch or the context, or raise the limit",
        plan->name, (double)need / 0x1p20, (double)plan->parameter_bytes / 0x1p20,
        (double)plan->constant_bytes / 0x1p20, (double)plan->arena_bytes / 0x1p20,
        (double)limit / 0x1p20);
}

int compile_graph(const cvn_graph *g, const CompileOptions *options, Plan **out, cvn_err *err)
{
    *out = NULL;
    assert(options->backend && options->n_threads >= 1);
    Dump dump;
    int rc = dump_init(&dump, options->dump_dir, g->name, err);
    if (rc)
        return rc;
    cvn_graph *copy = graph_clone(g, err);
    if (!copy)
        return CVN_EINVAL;
    rc = run_passes(copy, options, &dump, err);
    if (rc) {
        cvn_graph_free(copy);
        return rc;
    }
    Plan *plan;
    rc = lower_graph(copy, options->backend, options->n_threads, &plan, err);
    if (rc)
        return rc;
    plan->op_by_op = options->op_by_op;
    rc = dump_plan(&dump, plan, err);
    if (!rc && options->verify_plan)
        rc = plan_verify(plan, err);
    if (!rc)
        rc = check_memory(plan, options->memory_limit, err);
    if (rc)
        plan_free(plan);
    else
        *out = plan;
    return rc;
}
