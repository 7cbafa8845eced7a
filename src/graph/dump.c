/* Numbered text files. Writing over those of an earlier run is what is wanted. */
#include "graph/dump.h"

#include "base/file.h"
#include "graph/text/text.h"

#include <stdio.h>
#include <string.h>

int dump_init(Dump *dump, const char *dir, const char *graph, cvn_err *err)
{
    *dump = (Dump){0};
    if (!dir)
        return CVN_OK;
    char name[128] = "graph"; /* the graph's, with nothing in it that a path could stumble over */
    size_t n = 0;
    for (const char *c = graph ? graph : ""; *c && n + 1 < sizeof name; c++)
        name[n++] = strchr("/\\. ", *c) ? '_' : *c;
    if (n)
        name[n] = 0;
    int length = snprintf(dump->folder, sizeof dump->folder, graph ? "%s/%s" : "%s", dir, name);
    if (length < 0 || (size_t)length + 64 >= sizeof dump->folder)
        return err_set(err, CVN_EINVAL, "the dump folder's name '%s' is too long", dir);
    int rc = file_make_folder(dir, err);
    return rc ? rc : file_make_folder(dump->folder, err);
}

int dump_text(Dump *dump, const char *what, StrBuf *text, cvn_err *err)
{
    char path[PATH_MAX + 160];
    int rc = CVN_OK;
    if (dump->folder[0]) {
        snprintf(path, sizeof path, "%s/%02d-%s.txt", dump->folder, dump->number++, what);
        rc = text->failed ? err_set(err, CVN_EMEM, "no memory for the text of '%s'", path)
                          : file_write(path, text->text, text->length, err);
    }
    strbuf_free(text);
    return rc;
}

int dump_graph(Dump *dump, const char *what, const cvn_graph *g, cvn_err *err)
{
    StrBuf text = {0};
    if (!dump->folder[0])
        return CVN_OK;
    graph_print(&text, g);
    return dump_text(dump, what, &text, err);
}
