/* The passes of a compilation, the way through them, and what is checked of the plan. */
#include "compile/pipeline.h"

#include "compile/fuse.h"
#include "compile/fuse_linear.h"
#include "compile/lower.h"
#include "compile/pack.h"
#include "graph/decompose.h"

#include <assert.h>
#include <string.h>

static bool has_kernel(const Op *op, void *context)
{
    const CompileOptions *options = context;
    if (op->kind == OP_ATTENTION && options->split_attention)
        return false;
    return kernel_find(options->backend, op) != NULL;
}

static int decompose(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    CompileOptions options = *((const Compile *)context)->options;
    return graph_decompose(g, has_kernel, &options, changed, err);
}

static int pack(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    const Compile *compile = context;
    signed char *layout = compile->layout;
    if (compile->free_layout) {
        layout = arena_array(&g->arena, (size_t)g->n_parameters + 1, sizeof *layout);
        memset(layout, PACK_FREE, (size_t)g->n_parameters);
    }
    return layout ? graph_pack(g, layout, changed, err) : CVN_OK;
}

static int fuse_linear(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    const Compile *compile = context;
    return graph_fuse_linear(g, compile->options->op_by_op, changed, err);
}

static int fuse(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    return fuse_graph(g, ((const Compile *)context)->options->backend, changed, err);
}

static const GraphPass pass_pack = {
    "pack", "store weights of matrix products in the layout of the kernels", pack};

static const GraphPass pass_fuse_linear = {
    "fuse_linear", "make one of products that share their input", fuse_linear};

static const GraphPass pass_decompose = {
    "decompose", "replace composites that the backend has no kernel for", decompose};

static const GraphPass pass_fuse = {
    "fuse", "group operations into regions that the back end executes as one", fuse};

const GraphPass *const compile_passes[] = {&pass_pack, &pass_fuse_linear, &pass_fuse, NULL};

/* The order matters: a composite is recognised whole before it is taken apart, and what comes out of taking
   it apart has constants to fold. */
static const GraphPass *const passes[] = {&pass_simplify,  &pass_pack,     &pass_fuse_linear,
                                          &pass_decompose, &pass_simplify, &pass_fuse};

/* What a graph cannot be lowered without. */
static const GraphPass *const needed[] = {&pass_pack, &pass_fuse_linear, &pass_decompose};

int compile_graph(const cvn_graph *g, const CompileOptions *options, Plan **out, cvn_err *err)
{
    *out = NULL;
    assert(options->backend && options->n_threads >= 1);
    Dump dump;
    TRY(dump_init(&dump, options->dump_dir, g->name, err));
    SCOPED(graph_release) cvn_graph *copy = graph_clone(g, err);
    if (!copy)
        return CVN_EINVAL;
    size_t n = (size_t)g->n_parameters;
    Compile compile = {.options = options};
    if (options->layout)
        compile.layout = arena_copy(&copy->arena, options->layout, n);
    PassOptions how = {.context = &compile, .dump = &dump};
    TRY(options->op_by_op ? passes_run(copy, needed, sizeof needed / sizeof *needed, &how, err)
                          : passes_run(copy, passes, sizeof passes / sizeof *passes, &how, err));
    Plan *plan;
    bool blocking = options->blocking || options->op_by_op;
    cvn_graph *ready = copy; /* the plan's from here on */
    copy = NULL;
    TRY(lower_graph(ready, options->backend, options->n_threads, blocking ? NULL : &options->link,
                    &plan, err));
    plan->op_by_op = options->op_by_op;
    int rc = pack_describe(plan, g, compile.layout, err);
    if (!rc && dump.folder[0]) {
        StrBuf text = {0};
        plan_print(&text, plan);
        rc = dump_text(&dump, "plan", &text, err);
    }
    if (rc)
        plan_free(plan);
    else
        *out = plan;
    return rc;
}
