#include "serve/prefix.h"

#include "base/num.h"
#include "serve/windows.h"

#include <string.h>

/* Fewer tokens than this are computed faster than found. */
enum { WORTH_COPYING = 8 };

void prefix_init(cvn_engine *e)
{
    size_t slots = (size_t)e->options.slots;
    Prefix *p = e->prefix = arena_array(&e->arena, 1, sizeof *p);
    radix_init(&p->radix, e->options.slots, &e->arena);
    p->token = arena_array(&e->arena, slots, sizeof *p->token);
    p->n = arena_array(&e->arena, slots, sizeof *p->n);
    p->salt = arena_array(&e->arena, slots, sizeof *p->salt);
    p->adapter = arena_array(&e->arena, slots, sizeof *p->adapter);
    for (size_t i = 0; i < slots; i++)
        p->token[i] = arena_array(&e->arena, (size_t)e->options.context, sizeof(int32_t));
}

/* Positions [0, n) of a slot into another, on all devices; of layers with a window those that what follows needs. Slots must
   be of one shard. */
static bool copy_slot(cvn_engine *e, int from, int to, int64_t n)
{
    if (e->shards != 1)
        return false;
    for (int i = 0; i < e->n_caches; i++) {
        const Buffer *cache = runtime_buffer(&e->rt, ROLE_CACHE, i);
        const cvn_type *t = &cache->local; /* [slots, kv_heads, positions, width] */
        if (cache->layout != LAYOUT_PLAIN || t->rank != 4)
            return false;
        size_t position = cvn_dtype_bytes(t->dtype, t->dim[3]);
        size_t head = position * (size_t)t->dim[2], slot = head * (size_t)t->dim[1];
        int64_t layers = model_layers(e->model->io.desc);
        size_t skipped = position * (size_t)windows_first(e, i / (e->n_caches / layers), n);
        for (int d = 0; d < e->rt.info.n_local; d++) {
            char *base = buffer_address(&e->rt, cache, d);
            if (!base || t->dim[0] != e->options.slots)
                return false;
            for (int64_t h = 0; h < t->dim[1]; h++)
                memcpy(base + slot * (size_t)to + head * (size_t)h + skipped,
                       base + slot * (size_t)from + head * (size_t)h + skipped,
                       position * (size_t)n - skipped);
        }
    }
    return true;
}

int prefix_free_slot(cvn_engine *e)
{
    return e->prefix && e->shards == 1 ? radix_oldest(&e->prefix->radix) : engine_free_slot(e);
}

int prefix_take_slot(cvn_engine *e, const cvn_request *request, int64_t *keep)
{
    const Radix *radix = &e->prefix->radix;
    int best, slot = prefix_free_slot(e);
    *keep = radix_find(radix, request->cache_salt, request->adapter, request->prompt,
                       request->n_prompt - 1, &best);
    if (best >= 0 && *keep > 0 && !(*keep = windows_back(e, best, *keep)))
        best = -1;
    if (best >= 0 && !e->job[best] && (best == slot || *keep * 2 > radix->slot[best].n))
        return best;
    if (best >= 0 && *keep >= WORTH_COPYING && copy_slot(e, best, slot, *keep))
        return slot;
    *keep = 0;
    return slot;
}

void prefix_begin(cvn_engine *e, int slot, const cvn_request *request)
{
    Prefix *p = e->prefix;
    prefix_forget(e, slot);
    p->n[slot] = request ? request->n_prompt : 0;
    if (request) {
        memcpy(p->token[slot], request->prompt, (size_t)request->n_prompt * sizeof **p->token);
        p->salt[slot] = request->cache_salt;
        p->adapter[slot] = request->adapter;
    }
    radix_set_busy(&p->radix, slot, true);
    radix_use(&p->radix, slot);
    prefix_read(e, slot);
}

void prefix_read(cvn_engine *e, int slot)
{
    Prefix *p = e->prefix;
    int64_t n = num_min(e->filled[slot], p->n[slot]);
    radix_set(&p->radix, slot, p->salt[slot], p->adapter[slot], p->token[slot], n);
}

void prefix_add(cvn_engine *e, int slot, int32_t token)
{
    Prefix *p = e->prefix;
    if (e->chunk_invariant && p->n[slot] && p->n[slot] < e->options.context)
        p->token[slot][p->n[slot]++] = token;
}

/* What lies behind these tokens in the cache does not count. */
void prefix_end(cvn_engine *e, int slot)
{
    Prefix *p = e->prefix;
    if (p->n[slot]) {
        prefix_read(e, slot);
        engine_set_filled(e, slot, p->radix.slot[slot].n);
    }
    radix_set_busy(&p->radix, slot, false);
}

void prefix_forget(cvn_engine *e, int slot)
{
    radix_set(&e->prefix->radix, slot, 0, 0, NULL, 0);
}
