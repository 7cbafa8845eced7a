#include "text/token_ids.h"

#include <stdlib.h>

void token_ids_free(TokenIds *ids)
{
    free(ids->id);
    *ids = (TokenIds){0};
}

static void grow_ids(TokenIds *ids)
{
    size_t capacity = ids->capacity ? ids->capacity * 2 : 64;
    int32_t *id = ids->failed ? NULL : realloc(ids->id, capacity * sizeof *id);
    if (!id) {
        ids->failed = true;
        return;
    }
    ids->id = id;
    ids->capacity = capacity;
}

void token_ids_add(TokenIds *ids, int32_t id)
{
    if (ids->n == ids->capacity)
        grow_ids(ids);
    if (!ids->failed)
        ids->id[ids->n++] = id;
}
