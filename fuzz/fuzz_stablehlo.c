/* Modules in StableHLO from arbitrary bytes. What is accepted is a legal graph, and where it is small the module that is printed of
   it is read as a graph of the same parameters and outputs. */
#include "graph/stablehlo/stablehlo.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SMALL = 300 };

static void there_and_back(const cvn_graph *g)
{
    StrBuf module = {0};
    if (graph_print_stablehlo(&module, g, NULL, NULL) == CVN_OK) {
        cvn_err err = {0};
        cvn_graph *again = graph_read_stablehlo(module.text, module.length, "printed", &err);
        if (!again || graph_verify(again, NULL) || again->n_parameters != g->n_parameters ||
            again->n_outputs != g->n_outputs)
            abort();
        for (int i = 0; i < g->n_outputs; i++)
            if (!cvn_type_equal(&again->output[i].value->type, &g->output[i].value->type))
                abort();
        cvn_graph_free(again);
    }
    strbuf_free(&module);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cvn_err err = {0};
    cvn_graph *g = graph_read_stablehlo((const char *)data, size, "fuzz", &err);
    if (!g) {
        if (err.code == CVN_OK || !err.message[0])
            abort();
        return 0;
    }
    if (graph_verify(g, NULL))
        abort();
    if (g->n_ops < SMALL)
        there_and_back(g);
    cvn_graph_free(g);
    return 0;
}
