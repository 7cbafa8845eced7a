/* Meshes and graphs from their text, which must be right. */
#ifndef TESTS_PARSED_H
#define TESTS_PARSED_H

#include "graph/text/text.h"
#include "shard/mesh.h"
#include "unit.h"

/* Lives as long as the test. */
static inline Mesh mesh_of(const char *text)
{
    static Arena arena;
    Mesh mesh;
    cvn_err err = {0};
    if (!arena.reserved && arena_init(&arena, &err))
        fail_msg("%s", err.message);
    must(mesh_parse(&mesh, text, &arena, &err), &err);
    return mesh;
}

static inline cvn_graph *graph_of(const char *text)
{
    cvn_err err = {0};
    cvn_graph *g = graph_parse(text, strlen(text), "test", &err);
    if (!g || graph_verify(g, &err))
        fail_msg("%s\n%s", err.message, text);
    return g;
}

#endif
