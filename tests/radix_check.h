/* A radix tree against a list of sequences: what bytes say is done to both, and both must answer alike. */
#ifndef CVN_RADIX_CHECK_H
#define CVN_RADIX_CHECK_H

#include "serve/radix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RADIX_ROWS = 6, RADIX_MOST = 12 };

typedef struct RadixPlain {
    int32_t token[RADIX_MOST];
    int64_t n;
    int whose; /* of the lists of salts and adapters */
    bool busy;
    int64_t used;
} RadixPlain;

static inline int64_t radix_shared(const RadixPlain *p, int whose, const int32_t *token, int64_t n)
{
    int64_t i = 0;
    while (p->whose == whose && i < n && i < p->n && p->token[i] == token[i])
        i++;
    return i;
}

static inline void radix_must(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "a radix tree and a list differ: %s\n", what);
    abort();
}

/* Bytes: what to do and to which row, then tokens of an alphabet of three. */
static inline void radix_check(const uint8_t *data, size_t size)
{
    static const uint64_t salts[] = {0, UINT64_MAX, UINT64_MAX};
    static const int adapters[] = {0, 0, 1};
    RadixPlain plain[RADIX_ROWS] = {0};
    Arena arena;
    Radix tree;
    if (arena_init(&arena, NULL))
        return;
    radix_init(&tree, RADIX_ROWS, &arena);
    for (int i = 0; i < RADIX_ROWS; i++)
        plain[i].used = -i;
    int64_t now = 0;
    for (size_t at = 0; at < size; now++) {
        int what = data[at] % 4, row = data[at] / 4 % RADIX_ROWS;
        int whose = data[at] / 4 / RADIX_ROWS % 3, adapter = adapters[whose];
        uint64_t salt = salts[whose];
        RadixPlain *p = &plain[row], asked = {.whose = whose};
        if (++at < size && (what == 0 || what == 3))
            asked.n = data[at++] % (RADIX_MOST + 1);
        for (int i = 0; i < asked.n; i++)
            asked.token[i] = at < size ? data[at++] % 3 : 0;
        if (what == 0) {
            radix_set(&tree, row, salt, adapter, NULL, 0); /* its tokens move */
            memcpy(p->token, asked.token, sizeof p->token);
            p->n = asked.n;
            p->whose = whose;
            radix_set(&tree, row, salt, adapter, p->token, p->n);
        } else if (what == 1) {
            p->busy = !p->busy;
            radix_set_busy(&tree, row, p->busy);
        } else if (what == 2) {
            p->used = now + 1;
            radix_use(&tree, row);
        } else {
            int64_t most = 0;
            bool idle = false;
            for (int i = 0; i < RADIX_ROWS; i++) {
                int64_t n = radix_shared(&plain[i], whose, asked.token, asked.n);
                idle = n > most ? !plain[i].busy : idle || (n == most && !plain[i].busy);
                most = n > most ? n : most;
            }
            int found;
            radix_must(radix_find(&tree, salt, adapter, asked.token, asked.n, &found) == most,
                       "how many");
            radix_must((found >= 0) == (most > 0), "whether");
            radix_must(found < 0 ||
                           radix_shared(&plain[found], whose, asked.token, asked.n) == most,
                       "who");
            radix_must(found < 0 || plain[found].busy != idle, "who is free");
        }
        int oldest = -1;
        for (int i = 0; i < RADIX_ROWS; i++)
            if (!plain[i].busy && (oldest < 0 || plain[i].used < plain[oldest].used))
                oldest = i;
        radix_must(radix_oldest(&tree) == oldest, "the oldest");
    }
    arena_free(&arena);
}

#endif
