/*
 * Compiled graphs, kept: the same graph is compiled once for a device, however often it is asked for.
 *
 * A graph is known by its text, in which everything that matters shows: operations, types, constants, donation.
 * The text is hashed to find it and compared whole to be sure. A cache serves one kind of device: its backend,
 * number of threads and other options are given once.
 *
 * The counters are how it is shown that decoding any number of tokens compiles once.
 */
#ifndef CVN_COMPILE_CACHE_H
#define CVN_COMPILE_CACHE_H

#include "base/map.h"
#include "compile/pipeline.h"

typedef struct Cache {
    CompileOptions options; /* of all plans in it */
    Arena arena;            /* of the map */
    Map plans;              /* text of a graph -> Plan *, owned */
    int64_t compilations;   /* graphs that had to be compiled, with or without success */
    int64_t hits;           /* graphs that were there */
} Cache;

int cache_init(Cache *cache, const CompileOptions *options, cvn_err *err);

/* Frees the plans too. A cache of {0} may be freed. */
void cache_free(Cache *cache);

/* The plan of g, compiled now if it never was. It belongs to the cache. One caller at a time. How parameters lie
   (CompileOptions.layout) is part of what a plan is known by. */
int cache_get(Cache *cache, const cvn_graph *g, const signed char *layout, const Plan **out,
              cvn_err *err);

#endif
