#include "constrain/ids.h"

#include <stdlib.h>

static int by_id(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

size_t ids_sort(uint32_t *list, size_t n)
{
    size_t kept = 0;
    if (n > 1)
        qsort(list, n, sizeof *list, by_id);
    for (size_t i = 0; i < n; i++)
        if (!kept || list[kept - 1] != list[i])
            list[kept++] = list[i];
    return kept;
}

bool ids_have(const uint32_t *list, size_t n, uint32_t id)
{
    return n && bsearch(&id, list, n, sizeof *list, by_id);
}
