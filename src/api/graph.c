/* caravan/run.h: what is done with graphs without running them. */
#include "caravan/run.h"

#include "grad/grad.h"
#include "graph/passes.h"
#include "graph/stablehlo/stablehlo.h"
#include "graph/text/text.h"
#include "shard/passes.h"

int cvn_gradient(cvn_graph *g, cvn_value *loss, int n, cvn_value *const *wrt, cvn_value **out,
                 cvn_err *err)
{
    cvn_err mine = {0};
    return graph_gradient(g, loss, n, wrt, out, err ? err : &mine);
}

/* The text, or NULL where there is none. */
static char *finish(StrBuf *text, int code, cvn_err *err)
{
    if (code == CVN_OK && !text->failed && text->text)
        return text->text;
    if (code == CVN_OK)
        err_set(err, CVN_EMEM, "no memory to print a graph");
    strbuf_free(text);
    return NULL;
}

static int check(const cvn_graph *g, cvn_err *err)
{
    return g ? cvn_graph_check(g, err) : err_set(err, CVN_EINVAL, "there is no graph");
}

char *cvn_graph_print(const cvn_graph *g, cvn_err *err)
{
    StrBuf text = {0};
    int code = check(g, err);
    if (code == CVN_OK)
        graph_print(&text, g);
    return finish(&text, code, err);
}

char *cvn_graph_stablehlo(const cvn_graph *g, cvn_err *err)
{
    StrBuf text = {0};
    cvn_err mine = {0};
    int code = check(g, err);
    if (code == CVN_OK)
        code = graph_print_stablehlo(&text, g, NULL, err ? err : &mine);
    return finish(&text, code, err);
}

cvn_graph *cvn_partition(const cvn_graph *g, const char *mesh, cvn_err *err)
{
    static const GraphPass *const passes[] = {&pass_simplify, &pass_partition};
    cvn_err mine = {0};
    if (!err)
        err = &mine;
    cvn_graph *local = check(g, err) ? NULL : graph_clone(g, err);
    if (!local)
        return NULL;
    local->mesh = arena_string(&local->arena, mesh ? mesh : "");
    for (int i = 0; i < local->n_outputs; i++) { /* results are whole, as cvn_run gives them */
        cvn_value *v = local->output[i].value;
        if (!local->output[i].into)
            cvn_mark_sharding(local, v, &(cvn_spec){.rank = v->type.rank});
    }
    if (passes_run(local, passes, 2, NULL, err) == CVN_OK)
        return local;
    cvn_graph_free(local);
    return NULL;
}
