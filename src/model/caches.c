#include "model/caches.h"

#include "model/block.h"

/* A layer's shape and window are the same as another's, or its shape is. */
static bool alike(const Model *m, int64_t a, int64_t b, bool windows)
{
    const Attention *x = &m->block[a].attention, *y = &m->block[b].attention;
    return x->kv_heads == y->kv_heads && x->head_dim == y->head_dim &&
           (!windows || model_window(m, a) == model_window(m, b));
}

/* The first layer that is like it, and how many are; *before: of them stand before it. */
static int64_t kind_of(const Model *m, int64_t layer, bool windows, int *n, int *before)
{
    int64_t first = layer;
    *n = *before = 0;
    for (int64_t i = m->layers - 1; i >= 0; i--)
        if (alike(m, i, layer, windows)) {
            first = i;
            *n += 1;
            *before += i < layer;
        }
    return first;
}

static int divisor(int a, int b)
{
    return b ? divisor(b, a % b) : a;
}

/* The caches that tables of a layer's shape share: as many as divides the layers of each kind. */
static int shared(const Model *m, int64_t layer, bool windows)
{
    int n = 0, of_kind, before;
    for (int64_t i = 0; i < m->layers; i++)
        if (alike(m, i, layer, false)) {
            kind_of(m, i, windows, &of_kind, &before);
            n = divisor(of_kind, n);
        }
    return n;
}

void model_caches(Caches *out, const Model *m, bool paged, Arena *arena)
{
    const size_t layers = (size_t)m->layers;
    *out = (Caches){.layer = arena_array(arena, layers, sizeof *out->layer),
                    .table = arena_array(arena, layers, sizeof *out->table),
                    .pool = arena_array(arena, layers, sizeof *out->pool)};
    for (int64_t i = 0; i < m->layers; i++) {
        const Attention *a = &m->block[i].attention;
        CacheLayer *l = &out->layer[i];
        int n, before;
        int64_t shape = kind_of(m, i, false, &n, &before), last = i - 1;
        l->pool = shape < i ? out->layer[shape].pool : out->pools++;
        CachePool *pool = &out->pool[l->pool];
        if (shape == i) {
            *pool = (CachePool){out->n, shared(m, i, paged), a->kv_heads, a->head_dim};
            out->n += pool->n;
        }
        kind_of(m, i, paged, &n, &before);
        l->cache = pool->first + before % pool->n;
        if (before % pool->n == 0) {
            l->table = out->tables++;
            out->table[l->table] = (CacheTable){l->pool, paged ? model_window(m, i) : 0};
            continue;
        }
        while (!alike(m, last, i, paged))
            last--;
        l->table = out->layer[last].table;
    }
}

int64_t cache_pool_bytes(const CachePool *pool, int64_t positions, cvn_dtype dtype)
{
    const int64_t scale = dtype == CVN_I8 ? (int64_t)sizeof(uint16_t) : 0; /* bf16 */
    return 2 * pool->n * positions * pool->heads *
           ((int64_t)cvn_dtype_bytes(dtype, pool->width) + scale);
}
