/*
 * What the devices can do, found out by programs that do nothing else: bytes that are read and written, operations of products.
 */
#include "base/err.h"
#include "pjrt/devices.h"

#include <stdlib.h>
#include <string.h>

/* x + 1 where x lies, or a product of n x n matrices: what there is to do of it in *work. */
static cvn_graph *ceiling_graph(const Devices *c, CeilingKind kind, double *work, cvn_err *err)
{
    static const cvn_dtype dtype[CEILINGS] = {CVN_F32, CVN_F32, CVN_BF16, CVN_I8};
    bool slow = strncmp(c->kind, "cpu", 3) == 0;
    int64_t n = slow ? 1024 : 8192;
    const cvn_dot_dims dims = {.n_contract = 1, .lhs_contract = {1}, .rhs_contract = {0}};
    cvn_graph *g = cvn_graph_new("ceiling", err);
    if (!g)
        return NULL;
    if (kind == COPIES) {
        int64_t elements = slow ? 1 << 24 : 1 << 28;
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, elements));
        cvn_output_into(g, cvn_add(g, x, cvn_splat(g, x->type, 1)), x);
        *work = 8 * (double)elements;
    } else {
        cvn_value *a = cvn_parameter(g, "a", CVN_TYPE(dtype[kind], n, n));
        cvn_value *b = cvn_parameter(g, "b", CVN_TYPE(dtype[kind], n, n));
        cvn_output(g,
                   cvn_dot_general(g, a, b, &dims, kind == PRODUCTS_INT8 ? CVN_I32 : dtype[kind]));
        *work = 2 * (double)n * (double)n * (double)n;
    }
    return g;
}

static int ceiling_program(Devices *c, CeilingKind kind, double *work, cvn_err *err)
{
    const Mesh mesh = {.n_devices = c->n};
    cvn_graph *g = ceiling_graph(c, kind, work, err);
    if (!g || cvn_graph_check(g, err) || c->ceiling[kind]) {
        cvn_graph_free(g);
        return c->ceiling[kind] ? CVN_OK : err->code;
    }
    bool partitions = c->plugin.partitions;
    c->plugin.partitions = false; /* every device does the same */
    int code = pjrt_compile(c, g, NULL, &mesh, NULL, &c->ceiling[kind], err);
    c->plugin.partitions = partitions;
    cvn_graph_free(g);
    if (code)
        c->ceiling[kind] = NULL;
    return code;
}

/* Operations or bytes per second of all devices of this process, measured over about so many seconds; 0: the measurement failed. */
static double measure(Devices *c, CeilingKind kind, double seconds)
{
    double work = 0, all = 0, spent = 0;
    cvn_err err = {0};
    if (c->n == 0 || ceiling_program(c, kind, &work, &err))
        return 0;
    const Executable *x = c->ceiling[kind];
    int n = x->signature.n_parameters;
    Memory *memory = calloc((size_t)(c->n * n), sizeof *memory);
    SCOPED(scoped_free) Argument *argument = calloc((size_t)(c->n * n), sizeof *argument);
    int code = memory && argument ? CVN_OK : CVN_EMEM;
    for (int i = 0; i < c->n * n && !code; i++) {
        memory[i].type = x->parameter[i % n];
        argument[i].memory = &memory[i];
        code = pjrt_zeros(c, i / n, &memory[i], &err);
    }
    for (int run = 0; !code && (run < 2 || spent < seconds);
         run++) { /* the first run is not counted */
        code = pjrt_run(c, x, argument, NULL, &err);
        code = code ? code : pjrt_wait(c, &err);
        all += run ? work * c->n : 0;
        spent += run ? c->running.seconds : 0;
    }
    for (int i = 0; i < c->n * n && memory; i++)
        plugin_destroy(&c->plugin, PJRT_BUFFER_DESTROY, memory[i].buffer);
    free(memory);
    return code || spent <= 0 ? 0 : all / spent;
}

double pjrt_peak(Devices *c, cvn_dtype dtype, double seconds)
{
    return measure(c,
                   dtype == CVN_BF16 ? PRODUCTS_BF16
                   : dtype == CVN_I8 ? PRODUCTS_INT8
                                     : PRODUCTS_F32,
                   seconds);
}

double pjrt_reads(Devices *c, double seconds)
{
    return measure(c, COPIES, seconds);
}
