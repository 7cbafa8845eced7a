/* Graphs in text from arbitrary bytes. What is accepted is a legal graph, prints as a text that reads
 * back as the same text, and stays legal when simplified and decomposed; each of these prints too. */
#include "graph/decompose.h"
#include "graph/simplify.h"
#include "graph/stablehlo/stablehlo.h"
#include "graph/text/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Prints, reads, verifies; and prints once more. */
static void round_trip(const cvn_graph *g)
{
    StrBuf text = {0}, again = {0};
    graph_print(&text, g);
    cvn_graph *copy = graph_parse(text.text, text.length, "printed", NULL);
    if (!copy || graph_verify(copy, NULL))
        abort();
    graph_print(&again, copy);
    if (text.length != again.length || memcmp(text.text, again.text, text.length) != 0)
        abort();
    cvn_graph_free(copy);
    strbuf_free(&text);
    strbuf_free(&again);
}

/* True for a graph whose transformations are quick: a concatenation of thousands, say, is legal. */
static bool is_small(const cvn_graph *g)
{
    return g->n_ops < 200;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cvn_err err = {0};
    cvn_graph *g = graph_parse((const char *)data, size, "fuzz", &err);
    if (!g) {
        if (err.code == CVN_OK || !err.message[0])
            abort();
        return 0;
    }
    if (graph_verify(g, NULL))
        abort();
    round_trip(g);
    if (is_small(g)) {
        StrBuf module = {0};
        graph_print_stablehlo(&module, g, NULL, &err);
        strbuf_free(&module);
        if (graph_simplify(g, NULL, NULL) || graph_verify(g, NULL))
            abort();
        round_trip(g);
        if (graph_decompose(g, NULL, NULL, NULL, &err) == CVN_OK) {
            if (graph_verify(g, NULL) || graph_simplify(g, NULL, NULL) || graph_verify(g, NULL))
                abort();
            round_trip(g);
        }
    }
    cvn_graph_free(g);
    return 0;
}
