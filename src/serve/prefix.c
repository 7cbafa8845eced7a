#include "serve/prefix.h"

#include "base/num.h"

#include <string.h>

/* Fewer tokens than this are computed faster than found. */
enum { WORTH_COPYING = 8 };

void prefix_init(cvn_engine *e)
{
    size_t rows = (size_t)e->options.rows;
    Prefix *p = e->prefix = arena_array(&e->arena, 1, sizeof *p);
    radix_init(&p->radix, e->options.rows, &e->arena);
    p->token = arena_array(&e->arena, rows, sizeof *p->token);
    p->n = arena_array(&e->arena, rows, sizeof *p->n);
    p->salt = arena_array(&e->arena, rows, sizeof *p->salt);
    p->adapter = arena_array(&e->arena, rows, sizeof *p->adapter);
    for (size_t i = 0; i < rows; i++)
        p->token[i] = arena_array(&e->arena, (size_t)e->options.context, sizeof(int32_t));
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

int prefix_free_row(cvn_engine *e)
{
    return e->prefix && e->parts == 1 ? radix_oldest(&e->prefix->radix) : engine_free_row(e);
}

int prefix_take_row(cvn_engine *e, const cvn_request *request, int64_t *keep)
{
    const Radix *radix = &e->prefix->radix;
    int best, row = prefix_free_row(e);
    *keep = radix_find(radix, request->cache_salt, request->adapter, request->prompt,
                       request->n_prompt - 1, &best);
    if (best >= 0 && !e->job[best] && (best == row || *keep * 2 > radix->row[best].n))
        return best;
    if (best >= 0 && *keep >= WORTH_COPYING && copy_row(e, best, row, *keep))
        return row;
    *keep = 0;
    return row;
}

void prefix_begin(cvn_engine *e, int row, const cvn_request *request)
{
    Prefix *p = e->prefix;
    prefix_forget(e, row);
    p->n[row] = request ? request->n_prompt : 0;
    if (request) {
        memcpy(p->token[row], request->prompt, (size_t)request->n_prompt * sizeof **p->token);
        p->salt[row] = request->cache_salt;
        p->adapter[row] = request->adapter;
    }
    radix_set_busy(&p->radix, row, true);
    radix_use(&p->radix, row);
    prefix_read(e, row);
}

void prefix_read(cvn_engine *e, int row)
{
    Prefix *p = e->prefix;
    int64_t n = num_min(e->filled[row], p->n[row]);
    radix_set(&p->radix, row, p->salt[row], p->adapter[row], p->token[row], n);
}

/* What was decoded behind the prompt does not count. */
void prefix_end(cvn_engine *e, int row)
{
    Prefix *p = e->prefix;
    if (p->n[row])
        engine_set_filled(e, row, p->radix.row[row].n);
    radix_set_busy(&p->radix, row, false);
}

void prefix_forget(cvn_engine *e, int row)
{
    radix_set(&e->prefix->radix, row, 0, 0, NULL, 0);
}
