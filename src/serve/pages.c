#include "serve/pages.h"

#include "base/num.h"

#include <string.h>

void pages_init(cvn_engine *e, int kept)
{
    const Steps *s = &e->steps;
    const size_t shards = (size_t)e->rt.mesh.n_devices,
                 texts = (size_t)e->options.slots + (size_t)kept;
    Pages *p = e->pages = arena_array(&e->arena, 1, sizeof *p);
    *p = (Pages){.size = s->page,
                 .each = s->positions / s->page,
                 .texts = (int)texts,
                 .pools = s->caches.pools,
                 .tables = s->caches.tables};
    const size_t entries = texts * (size_t)p->each;
    p->pool = arena_array(&e->arena, (size_t)p->pools, sizeof *p->pool);
    p->table = arena_array(&e->arena, (size_t)p->tables, sizeof *p->table);
    p->held = arena_array(&e->arena, texts, sizeof *p->held);
    p->shard = arena_array(&e->arena, texts, sizeof *p->shard);
    for (int i = 0; i < p->pools; i++) {
        const size_t all = (size_t)s->pages[i];
        PagePool *pool = &p->pool[i];
        pool->holders = arena_array(&e->arena, all, sizeof *pool->holders);
        pool->next = arena_array(&e->arena, all, sizeof *pool->next);
        pool->mark = arena_array(&e->arena, all, sizeof *pool->mark);
        pool->free = arena_array(&e->arena, shards, sizeof *pool->free);
    }
    for (int t = 0; t < p->tables; t++) {
        int32_t *page = arena_array(&e->arena, entries, sizeof *page);
        p->table[t] = (PageTable){&p->pool[s->caches.table[t].pool], page};
        memset(page, 0xff, entries * sizeof *page);
    }
}

void pages_divide(cvn_engine *e)
{
    Pages *p = e->pages;
    for (int k = 0; k < p->pools; k++) {
        PagePool *pool = &p->pool[k];
        pool->n = e->steps.pages[k] / e->shards;
        for (int64_t i = 0; i < e->steps.pages[k]; i++)
            pool->next[i] = (i + 1) % pool->n ? (int32_t)i + 1 : -1;
        for (int i = 0; i < e->shards; i++)
            pool->free[i] = (int32_t)(i * pool->n);
    }
    for (int i = 0; i < e->options.slots; i++)
        p->shard[i] = (int)(i / num_pieces(e->options.slots, e->shards));
}

void pages_bind(const cvn_engine *e, Program *p)
{
    for (int t = 0; t < e->pages->tables; t++)
        program_bind(p, ROLE_TABLE, t, e->pages->table[t].page);
}

void pages_leave(cvn_engine *e, int text, int table, int64_t i)
{
    const Pages *p = e->pages;
    PagePool *pool = p->table[table].pool;
    int32_t *place = &p->table[table].page[text * p->each + i], page = *place;
    *place = -1;
    if (page < 0 || --pool->holders[page])
        return;
    pool->next[page] = pool->free[page / pool->n];
    pool->free[page / pool->n] = page;
    const CachePool *caches = &e->steps.caches.pool[pool - p->pool];
    const int tensors = e->n_caches / e->steps.caches.n;
    for (int k = 0; k < caches->n * tensors && !e->options.reuse; k++)
        buffer_discard(&e->rt, runtime_buffer(&e->rt, ROLE_CACHE, caches->first * tensors + k),
                       page);
}

/* Texts that hold a text's page i of a table; 0: it holds none there. */
static int32_t holders(const Pages *p, int text, int table, int64_t i)
{
    int32_t page = p->table[table].page[text * p->each + i];
    return page < 0 ? 0 : p->table[table].pool->holders[page];
}

bool pages_own(const cvn_engine *e, int text, int64_t i)
{
    for (int t = 0; t < e->pages->tables; t++)
        if (holders(e->pages, text, t, i) != 1)
            return false;
    return true;
}

int64_t pages_cut(cvn_engine *e, int text, int64_t n)
{
    Pages *p = e->pages;
    bool shared = false;
    for (int t = 0; t < p->tables && n % p->size && p->held[text] > n / p->size; t++)
        shared = shared || holders(p, text, t, n / p->size) > 1;
    n -= shared ? n % p->size : 0;
    while (p->held[text] > num_pieces(n, p->size)) {
        p->held[text]--;
        for (int t = 0; t < p->tables; t++)
            pages_leave(e, text, t, p->held[text]);
    }
    return n;
}

bool pages_hold(cvn_engine *e, int slot, int64_t n)
{
    Pages *p = e->pages;
    while (p->held[slot] < num_pieces(n, p->size)) {
        const int64_t i = p->held[slot];
        for (int t = 0; t < p->tables; t++) {
            PagePool *pool = p->table[t].pool;
            int32_t *free = &pool->free[p->shard[slot]], page = *free;
            if (page < 0) {
                while (t-- > 0)
                    pages_leave(e, slot, t, i);
                return false;
            }
            *free = pool->next[page];
            pool->holders[page] = 1;
            p->table[t].page[slot * p->each + i] = page;
        }
        p->held[slot]++;
    }
    return true;
}

/* ---- counting ---- */

static void begin_count(Pages *p)
{
    p->marks++;
    for (int i = 0; i < p->pools; i++)
        p->pool[i].counted = 0;
}

/* Adds the first n pages of a text that were not counted yet. */
static void count(Pages *p, int text, int64_t n)
{
    for (int t = 0; t < p->tables; t++)
        for (int64_t i = 0; i < n; i++) {
            int32_t page = p->table[t].page[text * p->each + i];
            PagePool *pool = p->table[t].pool;
            pool->counted += page >= 0 && pool->mark[page] != p->marks;
            if (page >= 0)
                pool->mark[page] = p->marks;
        }
}

/* Adds those that a request is about to take, beside the first n of a text that it holds: for what it reads, or one. */
static void count_soon(cvn_engine *e, const Job *job, int text, int64_t n)
{
    Pages *p = e->pages;
    int64_t most = num_min(job->n_prompt + num_min(job->request.max_tokens, e->options.context),
                           e->options.context);
    int64_t soon = num_max(num_pieces(job->request.n_prompt + 1, p->size), n + 1);
    soon = num_max(num_min(soon, num_pieces(most, p->size)) - n, 0);
    for (int t = 0; t < p->tables; t++) {
        int64_t left = e->steps.most[t];
        for (int64_t i = 0; i < n; i++)
            left -= p->table[t].page[text * p->each + i] >= 0;
        p->table[t].pool->counted += num_min(soon, num_max(left, 0));
    }
}

bool pages_suffice(cvn_engine *e, int slot, int text, int64_t shared, const Job *job)
{
    Pages *p = e->pages;
    begin_count(p);
    count(p, text, shared);
    count_soon(e, job, text, shared);
    for (int i = 0; i < e->options.slots; i++)
        if (i != slot && p->shard[i] == p->shard[slot]) {
            count(p, i, p->held[i]);
            if (e->job[i])
                count_soon(e, e->job[i], i, p->held[i]);
        }
    for (int i = 0; i < p->pools; i++)
        if (p->pool[i].counted > p->pool[i].n)
            return false;
    return true;
}

double pages_used(cvn_engine *e)
{
    Pages *p = e->pages;
    int64_t used = 0, all = 0;
    begin_count(p);
    for (int slot = 0; slot < e->options.slots; slot++)
        count(p, slot, e->job[slot] ? p->held[slot] : 0);
    for (int i = 0; i < p->pools; i++) {
        used += p->pool[i].counted;
        all += e->steps.pages[i];
    }
    return (double)used / (double)all;
}

void pages_share(cvn_engine *e, int text, int slot, int64_t n)
{
    Pages *p = e->pages;
    for (int t = 0; t < p->tables; t++)
        for (int64_t i = 0; i < n; i++) {
            int32_t page = p->table[t].page[text * p->each + i];
            if (page >= 0)
                p->table[t].pool->holders[page]++;
            p->table[t].page[slot * p->each + i] = page;
        }
    p->held[slot] = n;
}

void pages_exchange(cvn_engine *e, int a, int b)
{
    Pages *p = e->pages;
    for (int t = 0; t < p->tables; t++)
        for (int64_t i = 0, n = num_max(p->held[a], p->held[b]); i < n; i++) {
            int32_t *row = p->table[t].page, page = row[a * p->each + i];
            row[a * p->each + i] = row[b * p->each + i];
            row[b * p->each + i] = page;
        }
    int64_t held = p->held[a];
    p->held[a] = p->held[b];
    p->held[b] = held;
}
