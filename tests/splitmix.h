/* A small random number generator for tests (Steele, Lea, Flood: SplitMix, OOPSLA 2014): seeded,
   printed when a test fails, the same everywhere. */
#ifndef CVN_TESTS_SPLITMIX_H
#define CVN_TESTS_SPLITMIX_H

#include <stdint.h>

static inline uint64_t splitmix(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A number in [0, n), n >= 1. */
static inline int draw(uint64_t *state, int n)
{
    return (int)(splitmix(state) % (uint64_t)n);
}

#endif
