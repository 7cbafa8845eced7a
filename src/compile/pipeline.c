/* The passes of a compilation, the way through them, and what is checked of the plan. */
#include "compile/pipeline.h"

#include "base/bytes.h"
#include "compile/fuse_linear.h"
#include "compile/lower.h"
#include "graph/decompose.h"

#include <assert.h>

static bool has_kernel(const Op *op, void *context)
{
    const CompileOptions *options = context;
    if (op->kind == OP_ATTENTION && options->split_attention)
        return false;
    return kernel_find(options->backend, op) != NULL;
}

static int decompose(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    CompileOptions options = *(const CompileOptions *)context;
    return graph_decompose(g, has_kernel, &options, changed, err);
}

static int fuse_linear(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    const CompileOptions *options = context; /* NULL: as caravan opt runs it */
    return graph_fuse_linear(g, options && options->op_by_op, changed, err);
}

static const GraphPass pass_fuse_linear = {
    "fuse_linear",
    "make one operation of products that share their input, and what stands next to them",
    fuse_linear};

static const GraphPass pass_decompose = {
    "decompose", "replace composites that the backend has no kernel for", decompose};

const GraphPass *const compile_passes[] = {&pass_fuse_linear, NULL};

/* The order matters: a composite is recognised whole before it is taken apart, and what comes out of taking
   it apart has constants to fold. */
static const GraphPass *const passes[] = {&pass_simplify, &pass_fuse_linear, &pass_decompose,
                                          &pass_simplify};

/* What a graph cannot be lowered without. */
static const GraphPass *const needed[] = {&pass_fuse_linear, &pass_decompose};

static int run_passes(cvn_graph *g, const CompileOptions *options, Dump *dump, cvn_err *err)
{
    PassOptions how = {.context = options, .dump = dump};
    if (options->op_by_op)
        return passes_run(g, needed, sizeof needed / sizeof *needed, &how, err);
    return passes_run(g, passes, sizeof passes / sizeof *passes, &how, err);
}

static int dump_plan(Dump *dump, const Plan *plan, cvn_err *err)
{
    StrBuf text = {0};
    if (dump->folder[0])
        plan_print(&text, plan);
    return dump_text(dump, "plan", &text, err);
}

static int check_memory(const Plan *plan, size_t limit, cvn_err *err)
{
    size_t need = plan->parameter_bytes + plan->constant_bytes + plan->arena_bytes;
    if (limit == 0 || need <= limit)
        return CVN_OK;
    return err_set(err, CVN_EMEM,
                   "'%s' needs %s (parameters %s, constants %s, temporaries %s) and the limit is "
                   "%s; lower the batch or the context, or raise the limit",
                   plan->name, bytes_text((double)need).text,
                   bytes_text((double)plan->parameter_bytes).text,
                   bytes_text((double)plan->constant_bytes).text,
                   bytes_text((double)plan->arena_bytes).text, bytes_text((double)limit).text);
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
    ScheduleOptions overlap = {.link = options->link, .memory_limit = options->memory_limit};
    bool blocking = options->blocking || options->op_by_op;
    rc = lower_graph(copy, options->backend, options->n_threads, blocking ? NULL : &overlap, &plan,
                     err);
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
