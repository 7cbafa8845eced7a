/* caravan/run.h: what is done with graphs without running them. */
#include "caravan/run.h"

#include "grad/grad.h"
#include "graph/passes.h"
#include "graph/stablehlo/stablehlo.h"
#include "graph/text/text.h"
#include "shard/passes.h"

typedef struct Gradient {
    cvn_graph *g;
    cvn_value *loss;
    int n;
    cvn_value *const *wrt;
    cvn_value **out;
} Gradient;

static int differentiate(void *of, cvn_err *err)
{
    const Gradient *d = of;
    return graph_gradient(d->g, d->loss, d->n, d->wrt, d->out, err);
}

int cvn_gradient(cvn_graph *g, cvn_value *loss, int n, cvn_value *const *wrt, cvn_value **out,
                 cvn_err *err)
{
    Gradient d = {g, loss, n, wrt, out};
    return protect(differentiate, &d, "differentiating a graph", err);
}

static int check(const cvn_graph *g, cvn_err *err)
{
    return g ? cvn_graph_check(g, err) : err_set(err, CVN_EINVAL, "there is no graph");
}

int cvn_graph_parameters(const cvn_graph *g)
{
    return g->n_parameters;
}

cvn_value *cvn_graph_parameter(const cvn_graph *g, int i)
{
    return g->parameter[i];
}

const char *cvn_graph_parameter_name(const cvn_graph *g, int i)
{
    return g->parameter[i]->def->attr.name;
}

int cvn_graph_outputs(const cvn_graph *g)
{
    return g->n_outputs;
}

cvn_value *cvn_graph_output(const cvn_graph *g, int i)
{
    return g->output[i].value;
}

int cvn_graph_output_into(const cvn_graph *g, int i)
{
    for (int p = 0; g->output[i].into && p < g->n_parameters; p++)
        if (g->parameter[p] == g->output[i].into)
            return p;
    return -1;
}

typedef struct Parsing {
    const char *text, *name;
    size_t n;
    bool stablehlo;
    cvn_graph *graph;
} Parsing;

static int parse(void *of, cvn_err *err)
{
    Parsing *p = of;
    p->graph = (p->stablehlo ? graph_read_stablehlo : graph_parse)(p->text, p->n, p->name, err);
    return p->graph ? CVN_OK : err->code;
}

cvn_graph *cvn_graph_parse(const char *text, size_t n, const char *name, cvn_err *err)
{
    Parsing p = {.text = text, .name = name, .n = n};
    return protect(parse, &p, "reading a graph", err) ? NULL : p.graph;
}

cvn_graph *cvn_graph_from_stablehlo(const char *text, size_t n, const char *name, cvn_err *err)
{
    Parsing p = {.text = text, .name = name, .n = n, .stablehlo = true};
    return protect(parse, &p, "reading a module", err) ? NULL : p.graph;
}

typedef struct Printing {
    const cvn_graph *g;
    StrBuf text;
    bool stablehlo;
} Printing;

static int print(void *of, cvn_err *err)
{
    Printing *p = of;
    if (check(p->g, err))
        return err->code;
    if (p->stablehlo)
        return graph_print_stablehlo(&p->text, p->g, NULL, err);
    graph_print(&p->text, p->g);
    return CVN_OK;
}

static char *print_either(const cvn_graph *g, bool stablehlo, cvn_err *err)
{
    Printing p = {.g = g, .stablehlo = stablehlo};
    int code = protect(print, &p, "printing a graph", err);
    if (code == CVN_OK && !p.text.failed && p.text.text)
        return p.text.text;
    if (code == CVN_OK)
        err_set(err, CVN_EMEM, "no memory to print a graph");
    strbuf_free(&p.text);
    return NULL;
}

char *cvn_graph_print(const cvn_graph *g, cvn_err *err)
{
    return print_either(g, false, err);
}

char *cvn_graph_stablehlo(const cvn_graph *g, cvn_err *err)
{
    return print_either(g, true, err);
}

typedef struct Cutting {
    const cvn_graph *g;
    const char *mesh;
    cvn_graph *local;
} Cutting;

static int cut(void *of, cvn_err *err)
{
    static const GraphPass *const passes[] = {&pass_simplify, &pass_partition};
    Cutting *c = of;
    cvn_graph *local = check(c->g, err) ? NULL : graph_clone(c->g, err);
    if (!local)
        return err->code;
    local->mesh = arena_string(&local->arena, c->mesh ? c->mesh : "");
    for (int i = 0; i < local->n_outputs; i++) { /* results are whole, as cvn_run gives them */
        cvn_value *v = local->output[i].value;
        if (!local->output[i].into)
            cvn_mark_sharding(local, v, &(cvn_spec){.rank = v->type.rank});
    }
    if (passes_run(local, passes, 2, NULL, err) == CVN_OK)
        c->local = local;
    else
        cvn_graph_free(local);
    return err->code;
}

cvn_graph *cvn_partition(const cvn_graph *g, const char *mesh, cvn_err *err)
{
    Cutting c = {.g = g, .mesh = mesh};
    return protect(cut, &c, "cutting a graph", err) ? NULL : c.local;
}
