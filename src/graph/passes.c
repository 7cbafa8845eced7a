#include "graph/passes.h"

#include "graph/decompose.h"
#include "graph/simplify.h"

static int simplify(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    (void)context;
    return graph_simplify(g, changed, err);
}

static int decompose(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    (void)context;
    return graph_decompose(g, NULL, NULL, changed, err);
}

static int dead(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    (void)context;
    (void)err;
    *changed = graph_remove_dead(g);
    return CVN_OK;
}

const GraphPass pass_simplify = {
    "simplify", "constant folding, common subexpressions, exact identities", simplify};

static const GraphPass pass_decompose = {"decompose", "replace composites by primitive operations",
                                         decompose};

static const GraphPass pass_dead = {"dead", "remove dead operations", dead};

const GraphPass *const graph_passes[] = {&pass_simplify, &pass_decompose, &pass_dead, NULL};

/* Verifies and dumps what `what` left. */
static int look(const cvn_graph *g, const PassOptions *options, const char *what, cvn_err *err)
{
    int code = graph_verify(g, err);
    return code || !options->dump ? code : dump_graph(options->dump, what, g, err);
}

int passes_run(cvn_graph *g, const GraphPass *const *pass, int n, const PassOptions *options,
               cvn_err *err)
{
    static const PassOptions none;
    int last_change = -1; /* the last pass that changed the graph */
    options = options ? options : &none;
    int code = look(g, options, "input", err);
    if (code)
        err_prefix(err, "before the first pass");
    for (int i = 0; i < n && code == CVN_OK; i++) {
        bool changed = false;
        bool done = false; /* it has run already, and what came after it changed nothing */
        for (int j = last_change > 0 ? last_change : 0; j < i; j++)
            done = done || pass[j] == pass[i];
        if (!done) {
            code = pass[i]->run(g, options->context, &changed, err);
            if (code)
                err_prefix(err, "pass %s", pass[i]->name);
            else if ((code = look(g, options, pass[i]->name, err)))
                err_prefix(err, "after pass %s", pass[i]->name);
        }
        if (changed)
            last_change = i;
        if (code == CVN_OK && options->report)
            options->report(pass[i], changed, g);
    }
    return code;
}
