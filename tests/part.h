/*
 * Which rows of a long table a test goes through. CVN_WHOLE=1 takes all of them; else each nth is taken, and, where runs are slow,
 * in a build with sanitizers, each 4 nth. Number rows so that neighbours differ in what matters: (layout + variant), not layout alone.
 */
#ifndef CVN_TESTS_PART_H
#define CVN_TESTS_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static inline bool in_part(size_t row, size_t nth)
{
    return getenv("CVN_WHOLE") || row % (SANITIZED ? 4 * nth : nth) == 0;
}

#endif
