#include "graph/text/names.h"

#include "base/map.h"
#include "graph/text/lex.h"

#include <inttypes.h>
#include <string.h>

/* v's own name, or that with a number, if another value has it; NULL if it has none to print.
   `taken`: names in use, and the number that was last put behind each. */
static char *choose_name(Map *taken, const cvn_value *v)
{
    if (!lex_is_plain_name(v->name))
        return NULL;
    bool added;
    uint64_t last = *map_put(taken, v->name, strlen(v->name), &added);
    char *name = arena_string(taken->arena, v->name);
    if (added)
        return name;
    while (!added) {
        name = arena_printf(taken->arena, "%s.%" PRIu64, v->name, ++last);
        map_put(taken, name, strlen(name), &added);
    }
    *map_get(taken, v->name, strlen(v->name)) = last;
    return name;
}

char **names_choose(const cvn_graph *g, const char *const *given, Arena *arena)
{
    Map taken;
    int64_t number = 0;
    bool added;
    map_init(&taken, arena);
    char **name = arena_array(arena, g->n_values + (size_t)1, sizeof *name);
    for (int i = 0; given && i < g->n_parameters; i++) {
        map_put(&taken, given[i], strlen(given[i]), &added);
        name[g->parameter[i]->id] = arena_string(arena, given[i]);
    }
    for (const Op *op = g->first; op; op = op->next) {
        for (int i = 0; i < op->n_results; i++, number++) {
            const cvn_value *v = op->result[i];
            if (name[v->id])
                continue;
            name[v->id] = choose_name(&taken, v);
            if (name[v->id])
                continue;
            do /* of a body, numbers are names of operands, too */
                name[v->id] = arena_printf(arena, "%" PRId64, number);
            while (map_get(&taken, name[v->id], strlen(name[v->id])) && ++number);
        }
    }
    return name;
}
