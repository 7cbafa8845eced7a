#include "graph/passes.h"

#include "base/file.h"
#include "graph/decompose.h"
#include "graph/simplify.h"
#include "graph/text.h"

#include <stdio.h>
#include <stdlib.h>

static int decompose(cvn_graph *g, bool *changed, cvn_err *err)
{
    return graph_decompose(g, NULL, NULL, changed, err);
}

static int dead(cvn_graph *g, bool *changed, cvn_err *err)
{
    (void)err;
    *changed = graph_remove_dead(g);
    return CVN_OK;
}

const GraphPass graph_passes[] = {
    {"simplify", "fold constants, merge equal operations, apply identities that are exact",
     graph_simplify},
    {"decompose", "replace composites by the plain operations they stand for", decompose},
    {"dead", "drop operations that no output needs", dead},
    {NULL, NULL, NULL},
};

int graph_dump(const cvn_graph *g, const char *folder, int number, const char *name, cvn_err *err)
{
    char file[120];
    StrBuf text = {0};
    snprintf(file, sizeof file, "%02d-%s.txt", number, name);
    int code = file_make_folder(folder, err);
    char *path = file_join(folder, file);
    graph_print(&text, g);
    if (code == CVN_OK)
        code = path && !text.failed ? file_write(path, text.text, text.length, err)
                                    : err_set(err, CVN_EMEM, "no memory to write %s", file);
    free(path);
    strbuf_free(&text);
    return code;
}

/* Verifies and dumps what a pass left; number 0 is the input. */
static int look(const cvn_graph *g, const PassOptions *options, int number, const char *name,
                cvn_err *err)
{
    int code = graph_verify(g, err);
    if (code) {
        err_prefix(err, number ? "after pass %s" : "before the first pass", name);
        return code;
    }
    return options && options->dump ? graph_dump(g, options->dump, number, name, err) : CVN_OK;
}

int passes_run(cvn_graph *g, const GraphPass *const *pass, int n, const PassOptions *options,
               cvn_err *err)
{
    int code = look(g, options, 0, "input", err);
    for (int i = 0; i < n && code == CVN_OK; i++) {
        bool changed = false;
        code = pass[i]->run(g, &changed, err);
        if (code) {
            err_prefix(err, "pass %s", pass[i]->name);
            break;
        }
        code = look(g, options, i + 1, pass[i]->name, err);
        if (code == CVN_OK && options && options->report)
            options->report(pass[i], changed, g, options->context);
    }
    return code;
}
