/*
 * In which caches, and by which table of pages, layers keep their keys and values.
 *
 * A table says which pages a slot has, for layers that look back alike: over all positions, or through windows of one size. Pages
 * behind a window go back to a pool (serve/windows.h), of which there is one for each shape of cache, and any table of that shape
 * takes them. A page is thus as large for each table: all tables of a pool have equally many layers, the greatest number that divides
 * the layers of each kind, and their i-th layers share a cache.
 *
 *     layer      0       1       2       3       4       5         all but 2 and 5 have a window
 *     table      0       0       1       2       2       1         of two layers each, of one pool
 *     cache      0       1       0       0       1       1         a page of table 2: the same rows of caches 0 and 1
 *
 * Devices that do not read caches by pages have a cache for each layer, and one table for each shape.
 */
#ifndef CVN_MODEL_CACHES_H
#define CVN_MODEL_CACHES_H

#include "base/arena.h"
#include "model/model.h"

typedef struct CacheLayer {
    int table, cache, pool;
} CacheLayer;

typedef struct CacheTable {
    int pool;
    int64_t window; /* tokens; 0: all */
} CacheTable;

typedef struct CachePool {
    int first, n;         /* of its caches */
    int64_t heads, width; /* of keys, and of as many values; in 8 bits a head has a scale */
} CachePool;

typedef struct Caches {
    CacheLayer *layer; /* [layers] */
    CacheTable *table; /* [tables] */
    CachePool *pool;   /* [pools] */
    int tables, pools, n;
} Caches;

/* Tensors of a cache: of keys and of values, and in 8 bits the scales of both. */
enum { MODEL_CACHES = 2, MODEL_CACHES_INT8 = 4 };

/* paged: windows count. The arrays are the arena's. */
void model_caches(Caches *out, const Model *model, bool paged, Arena *arena);

/* Bytes of so many positions in all caches of a pool. */
int64_t cache_pool_bytes(const CachePool *pool, int64_t positions, cvn_dtype dtype);

#endif
