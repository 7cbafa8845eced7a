/* Numbered text files. Writing over those of an earlier run is what is wanted. */
#include "compile/dump.h"

#include "base/file.h"
#include "graph/text.h"

#include <stdio.h>
#include <string.h>

int dump_init(Dump *dump, const char *dir, const char *graph, cvn_err *err)
{
    *dump = (Dump){0};
    if (!dir)
        return CVN_OK;
    char name[128] = "graph"; /* the graph's, with nothing in it that a path could stumble over */
    size_t n = 0;
    for (const char *c = graph; *c && n + 1 < sizeof name; c++)
        name[n++] = strchr("/\\. ", *c) ? '_' : *c;
    if (n)
        name[n] = 0;
    int length = snprintf(dump->folder, sizeof dump->folder, "%s/%s", dir, name);
    if (length < 0 || (size_t)length + 64 >= sizeof dump->folder)
        return err_set(err, CVN_EINVAL, "the dump folder's name '%s' is too long", dir);
    int rc = file_make_folder(dir, err);
    return rc ? rc : file_make_folder(dump->folder, err);
}

/* Writes buf to the next file, and frees it. */
static int write_next(Dump *dump, const char *what, StrBuf *buf, cvn_err *err)
{
    char path[PATH_MAX + 160];
    snprintf(path, sizeof path, "%s/%02d-%s.txt", dump->folder, dump->number++, what);
    int rc = buf->failed ? err_set(err, CVN_EMEM, "no memory for the text of '%s'", path)
                         : file_write(path, buf->text, buf->length, err);
    strbuf_free(buf);
    return rc;
}

int dump_graph(Dump *dump, const char *pass, const cvn_graph *g, cvn_err *err)
{
    if (!dump->folder[0])
        return CVN_OK;
    StrBuf buf = {0};
    graph_print(&buf, g);
    return write_next(dump, pass, &buf, err);
}

int dump_plan(Dump *dump, const Plan *plan, cvn_err *err)
{
    if (!dump->folder[0])
        return CVN_OK;
    StrBuf buf = {0};
    plan_print(&buf, plan);
    return write_next(dump, "plan", &buf, err);
}
