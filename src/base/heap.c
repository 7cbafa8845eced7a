#include "base/heap.h"

#include <stdbool.h>
#include <stdlib.h>

void *heap_more(void *array, size_t n, size_t size)
{
    enum { FIRST = 16 };
    bool full = n == 0 || (n >= FIRST && (n & (n - 1)) == 0);
    return full ? reallocarray(array, n ? 2 * n : FIRST, size) : array;
}
