/* A list on the heap that grows, as arena_more does in an arena. */
#ifndef CVN_BASE_HEAP_H
#define CVN_BASE_HEAP_H

#include <stddef.h>

/* The array of n elements with room for one more: it moves when it is full (at n = 16, 32, 64, …). NULL when memory ran
   out, and the array is as it was.

       Row *more = heap_more(list, n, sizeof *list);      NULL and 0 at first
       if (!more)
           …
       list = more;
       list[n++] = x; */
void *heap_more(void *array, size_t n, size_t size);

#endif
