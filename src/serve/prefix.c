#include "serve/prefix.h"

#include "base/num.h"

#include <string.h>

/* Fewer tokens than this are computed faster than found. */
enum { WORTH_COPYING = 8 };

void prefix_init(cvn_engine *e)
{
    size_t rows = (size_t)e->options.rows;
    e->prefix = arena_array(&e->arena, rows, sizeof *e->prefix);
    for (size_t i = 0; i < rows; i++)
        e->prefix[i].token =
            arena_array(&e->arena, (size_t)e->options.context + 1, sizeof(int32_t));
}

/* Tokens that a row's cache holds of the prompt. */
static int64_t shared(const cvn_engine *e, int row, const cvn_request *request)
{
    const PrefixRow *p = &e->prefix[row];
    int64_t most = num_min(request->n_prompt - 1, num_min(p->n, e->filled[row])), n = 0;
    if (p->salt != request->cache_salt)
        return 0;
    while (n < most && p->token[n] == request->prompt[n])
        n++;
    return n;
}

/* Positions [0, n) of a row into another, on all devices. Rows must be of one part. */
static bool copy_row(cvn_engine *e, int from, int to, int64_t n)
{
    if (e->parts != 1)
        return false;
    for (int i = 0; i < e->n_caches; i++) {
        const Buffer *cache = runtime_buffer(&e->rt, ROLE_CACHE, i);
        const cvn_type *t = &cache->local; /* [rows, kv_heads, positions, width] */
        if (cache->layout != LAYOUT_PLAIN || t->rank != 4)
            return false;
        size_t position = cvn_dtype_bytes(t->dtype, t->dim[3]);
        size_t head = position * (size_t)t->dim[2], row = head * (size_t)t->dim[1];
        for (int d = 0; d < e->rt.info.n_local; d++) {
            char *base = buffer_address(&e->rt, cache, d);
            if (!base || t->dim[0] != e->options.rows)
                return false;
            for (int64_t h = 0; h < t->dim[1]; h++)
                memcpy(base + row * (size_t)to + head * (size_t)h,
                       base + row * (size_t)from + head * (size_t)h, position * (size_t)n);
        }
    }
    return true;
}

static int oldest_row(const cvn_engine *e)
{
    int oldest = -1;
    for (int i = 0; i < e->options.rows; i++)
        if (!e->job[i] && (oldest < 0 || e->prefix[i].used < e->prefix[oldest].used))
            oldest = i;
    return oldest;
}

int prefix_take_row(cvn_engine *e, const cvn_request *request, int64_t *keep)
{
    int best = -1;
    *keep = 0;
    for (int i = 0; i < e->options.rows; i++) {
        int64_t n = shared(e, i, request);
        /* of rows that share as much, one that is free */
        if (n > *keep || (n && n == *keep && e->job[best] && !e->job[i])) {
            *keep = n;
            best = i;
        }
    }
    int row = e->parts == 1 ? oldest_row(e) : engine_free_row(e);
    if (best < 0)
        return row;
    if (!e->job[best] && (best == row || *keep * 2 > e->prefix[best].n))
        return best;
    if (*keep >= WORTH_COPYING && row != best && copy_row(e, best, row, *keep))
        return row;
    *keep = 0;
    return row;
}

void prefix_begin(cvn_engine *e, int row, const cvn_request *request)
{
    PrefixRow *p = &e->prefix[row];
    memcpy(p->token, request->prompt, (size_t)request->n_prompt * sizeof *p->token);
    p->n = request->n_prompt;
    p->salt = request->cache_salt;
    p->used = ++e->requests;
}

void prefix_add(cvn_engine *e, int row, int32_t token)
{
    PrefixRow *p = &e->prefix[row];
    if (p->n && p->n <= e->options.context)
        p->token[p->n++] = token;
}

/* What was decoded behind the last token that was handed over does not count. */
void prefix_end(cvn_engine *e, int row)
{
    PrefixRow *p = &e->prefix[row];
    int64_t n = num_min(p->n, e->filled[row]);
    p->n = n;
    engine_set_filled(e, row, n);
}
