/* A map from text to plan. */
#include "compile/cache.h"

#include "graph/text/text.h"

int cache_init(Cache *cache, const CompileOptions *options, cvn_err *err)
{
    *cache = (Cache){.options = *options};
    TRY(arena_init(&cache->arena, err));
    map_init(&cache->plans, &cache->arena);
    return CVN_OK;
}

void cache_free(Cache *cache)
{
    for (size_t i = 0; i < cache->plans.capacity; i++) {
        const MapEntry *entry = &cache->plans.slot[i];
        if (entry->key)
            plan_free((Plan *)(uintptr_t)entry->value);
    }
    arena_free(&cache->arena);
    *cache = (Cache){0};
}

int cache_get(Cache *cache, const cvn_graph *g, const signed char *layout, const Plan **out,
              cvn_err *err)
{
    *out = NULL;
    TRY(cvn_graph_check(g, err));
    StrBuf text = {0};
    SCOPED(cleanup_run) Cleanup cleanup;
    cleanup_push(&cleanup, strbuf_release, &text);
    graph_print(&text, g);
    for (int i = 0; layout && i < g->n_parameters; i++)
        strbuf_putc(&text, (char)('1' + layout[i]));
    if (text.failed || !text.text)
        return err_set(err, CVN_EMEM, "no memory for the text of graph '%s'", g->name);
    const uint64_t *found = map_get(&cache->plans, text.text, text.length);
    if (found) {
        cache->hits++;
        *out = (const Plan *)(uintptr_t)*found;
        return CVN_OK;
    }
    Plan *plan;
    cache->compilations++;
    CompileOptions options = cache->options;
    options.layout = layout;
    TRY(compile_graph(g, &options, &plan, err));
    *map_put(&cache->plans, text.text, text.length, NULL) = (uint64_t)(uintptr_t)plan;
    graph_keep(plan->graph);
    *out = plan;
    return CVN_OK;
}
