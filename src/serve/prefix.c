#include "serve/prefix.h"

#include "base/num.h"
#include "serve/pages.h"
#include "serve/windows.h"

#include <string.h>

int prefix_texts(const cvn_engine *e)
{
    enum { LEAST = 8 };
    return e->options.reuse ? (int)num_max(e->options.slots, LEAST) : 0;
}

void prefix_init(cvn_engine *e)
{
    size_t texts = (size_t)e->pages->texts;
    Prefix *p = e->prefix = arena_array(&e->arena, 1, sizeof *p);
    radix_init(&p->radix, (int)texts, &e->arena);
    p->token = arena_array(&e->arena, texts, sizeof *p->token);
    p->n = arena_array(&e->arena, texts, sizeof *p->n);
    p->salt = arena_array(&e->arena, texts, sizeof *p->salt);
    p->adapter = arena_array(&e->arena, texts, sizeof *p->adapter);
    for (size_t i = 0; i < texts; i++)
        p->token[i] = arena_array(&e->arena, (size_t)e->options.context, sizeof(int32_t));
    for (int i = 0; i < e->options.slots; i++)
        radix_set_busy(&p->radix, i, true);
}

/* Whether a text may become a slot's, n tokens of which its prompt begins with: most of it is wanted, and what is written next is in no
   page that others hold. */
static bool becomes(const cvn_engine *e, int text, int64_t n)
{
    const Pages *p = e->pages;
    const int32_t *row = p->table + text * p->each;
    return text >= e->options.slots && 2 * n > e->prefix->radix.slot[text].n &&
           (n % p->size == 0 || p->holders[row[n / p->size]] == 1);
}

bool prefix_take_slot(cvn_engine *e, const cvn_request *r, int *slot, int64_t *keep)
{
    const Pages *p = e->pages;
    int text;
    *slot = -1;
    int64_t n =
        radix_find(&e->prefix->radix, r->cache_salt, r->adapter, r->prompt, r->n_prompt - 1, &text);
    bool whole = text >= 0 && becomes(e, text, n);
    n -= whole ? 0 : n % p->size;
    n = text >= 0 && n > 0 ? windows_back(e, text, n) : 0;
    if (n)
        *slot = engine_free_slot(e, p->shard[text]);
    if (*slot < 0) {
        n = 0;
        *slot = engine_free_slot(e, -1);
    }
    *keep = n;
    int64_t shared = num_pieces(n, p->size);
    if (!pages_suffice(e, *slot, n ? text : *slot, shared, engine_may_fill(e, r)))
        return false;
    engine_reset_slot(e, *slot);
    if (n && whole) {
        prefix_forget(e, text);
        pages_exchange(e, text, *slot);
        windows_exchange(e, text, *slot);
    } else if (n) {
        pages_share(e, text, *slot, shared);
    }
    return true;
}

void prefix_begin(cvn_engine *e, int slot, const cvn_request *request)
{
    Prefix *p = e->prefix;
    memcpy(p->token[slot], request->prompt, (size_t)request->n_prompt * sizeof **p->token);
    p->n[slot] = request->n_prompt;
    p->salt[slot] = request->cache_salt;
    p->adapter[slot] = request->adapter;
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
    int64_t n = num_min(e->filled[slot], p->n[slot]);
    int same, text = radix_oldest(&p->radix);
    uint64_t salt = p->salt[slot];
    int adapter = p->adapter[slot];
    int32_t *token = p->token[slot];
    prefix_forget(e, slot);
    if (n < 1)
        return;
    if (radix_find(&p->radix, salt, adapter, token, n, &same) == n && same >= e->options.slots) {
        radix_use(&p->radix, same); /* it is kept already */
        return;
    }
    pages_cut(e, text, 0);
    prefix_forget(e, text);
    n = pages_cut(e, slot, n);
    pages_exchange(e, slot, text);
    windows_exchange(e, slot, text);
    e->pages->shard[text] = e->pages->shard[slot];
    p->token[slot] = p->token[text];
    p->token[text] = token;
    radix_set(&p->radix, text, salt, adapter, token, n);
    radix_use(&p->radix, text);
}

void prefix_forget(cvn_engine *e, int text)
{
    e->prefix->n[text] = 0;
    radix_set(&e->prefix->radix, text, 0, 0, NULL, 0);
}

bool prefix_give_up(cvn_engine *e, int shard)
{
    const Pages *p = e->pages;
    const Radix *radix = e->prefix ? &e->prefix->radix : NULL;
    int text = radix ? radix->oldest : -1;
    while (text >= 0 && !(text >= e->options.slots && p->held[text] && p->shard[text] == shard))
        text = radix->slot[text].newer;
    if (text < 0)
        return false;
    prefix_forget(e, text);
    pages_cut(e, text, 0);
    return true;
}

/* Whether a text that nobody works on gave its pages up. */
static bool give_up(cvn_engine *e, int shard)
{
    const Pages *p = e->pages;
    if (prefix_give_up(e, shard))
        return true;
    for (int slot = 0; slot < e->options.slots; slot++)
        if (!p->promised[slot] && !e->slots.length[slot] && p->held[slot] &&
            p->shard[slot] == shard) {
            engine_reset_slot(e, slot);
            return true;
        }
    return false;
}

int prefix_hold(cvn_engine *e, int slot, int64_t n, cvn_err *err)
{
    while (!pages_hold(e, slot, n))
        if (!give_up(e, e->pages->shard[slot]))
            return err_set(err, CVN_EMEM, "all pages of the KV cache are taken; raise --kv-memory");
    return CVN_OK;
}
