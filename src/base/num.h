/* Arithmetic on counts and sizes that C has no function for. Nothing here overflows where the result fits. */
#ifndef CVN_BASE_NUM_H
#define CVN_BASE_NUM_H

#include <stddef.h>
#include <stdint.h>

static inline int64_t num_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t num_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* n / unit, rounded up: how many pieces of `unit` make up n >= 0. */
static inline int64_t num_pieces(int64_t n, int64_t unit)
{
    return n / unit + (n % unit != 0);
}

/* n >= 0 rounded up to whole units. */
static inline int64_t num_round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

/* The greatest common divisor of a, b >= 0; of 0 and b it is b. */
static inline int64_t num_gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* What tensors in one block are laid out by, so that no two share a line of the cache. */
enum { CACHE_LINE = 64 };

/* Bytes rounded up to whole units: cache lines, pages. */
static inline size_t num_padded(size_t bytes, size_t unit)
{
    return bytes + (unit - bytes % unit) % unit;
}

#endif
