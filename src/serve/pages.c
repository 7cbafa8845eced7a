#include "serve/pages.h"

#include "base/num.h"

void pages_init(cvn_engine *e, int kept)
{
    const Steps *s = &e->steps;
    const size_t all = (size_t)s->pages, shards = (size_t)e->rt.mesh.n_devices,
                 texts = (size_t)e->options.slots + (size_t)kept;
    Pages *p = e->pages = arena_array(&e->arena, 1, sizeof *p);
    *p = (Pages){.size = s->page, .each = s->positions / s->page, .texts = (int)texts};
    p->table = arena_array(&e->arena, texts * (size_t)p->each, sizeof *p->table);
    p->held = arena_array(&e->arena, texts, sizeof *p->held);
    p->shard = arena_array(&e->arena, texts, sizeof *p->shard);
    p->holders = arena_array(&e->arena, all, sizeof *p->holders);
    p->next = arena_array(&e->arena, all, sizeof *p->next);
    p->mark = arena_array(&e->arena, all, sizeof *p->mark);
    p->free = arena_array(&e->arena, shards, sizeof *p->free);
    for (size_t i = 0; i < texts * (size_t)p->each; i++)
        p->table[i] = -1;
    e->slots.table = p->table;
}

void pages_divide(cvn_engine *e)
{
    Pages *p = e->pages;
    p->n = e->steps.pages / e->shards;
    for (int64_t i = 0; i < e->steps.pages; i++)
        p->next[i] = (i + 1) % p->n ? (int32_t)i + 1 : -1;
    for (int i = 0; i < e->shards; i++)
        p->free[i] = (int32_t)(i * p->n);
    for (int i = 0; i < e->options.slots; i++)
        p->shard[i] = engine_slot_shard(e, i);
}

void pages_leave(cvn_engine *e, int text, int64_t i)
{
    Pages *p = e->pages;
    int32_t *place = &p->table[text * p->each + i], page = *place;
    *place = -1;
    if (page < 0 || --p->holders[page])
        return;
    p->next[page] = p->free[page / p->n];
    p->free[page / p->n] = page;
    for (int k = 0; k < e->n_caches && !e->options.reuse; k++)
        buffer_discard(&e->rt, runtime_buffer(&e->rt, ROLE_CACHE, k), page, 0, p->size);
}

int64_t pages_cut(cvn_engine *e, int text, int64_t n)
{
    Pages *p = e->pages;
    const int32_t *row = p->table + text * p->each;
    if (n % p->size && p->held[text] > n / p->size && row[n / p->size] >= 0 &&
        p->holders[row[n / p->size]] > 1)
        n -= n % p->size;
    while (p->held[text] > num_pieces(n, p->size))
        pages_leave(e, text, --p->held[text]);
    return n;
}

bool pages_hold(cvn_engine *e, int slot, int64_t n)
{
    Pages *p = e->pages;
    int32_t *free = &p->free[p->shard[slot]];
    while (p->held[slot] < num_pieces(n, p->size)) {
        int32_t page = *free;
        if (page < 0)
            return false;
        *free = p->next[page];
        p->holders[page] = 1;
        p->table[slot * p->each + p->held[slot]++] = page;
    }
    return true;
}

/* The first n pages of a text that were not counted yet. */
static int64_t count(Pages *p, int text, int64_t n)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t page = p->table[text * p->each + i];
        found += page >= 0 && p->mark[page] != p->marks;
        if (page >= 0)
            p->mark[page] = p->marks;
    }
    return found;
}

/* Pages that a request is about to take, beside those that it holds: for what it reads, or one. */
static int64_t about_to(const cvn_engine *e, const Job *job, int64_t held)
{
    const int64_t size = e->pages->size;
    int64_t most = num_min(job->n_prompt + num_min(job->request.max_tokens, e->options.context),
                           e->options.context);
    int64_t soon = num_max(num_pieces(job->request.n_prompt + 1, size), held + 1);
    return num_max(num_min(soon, num_pieces(most, size)) - held, 0);
}

bool pages_suffice(cvn_engine *e, int slot, int text, int64_t shared, const Job *job)
{
    Pages *p = e->pages;
    p->marks++;
    int64_t taken = count(p, text, shared), more = about_to(e, job, shared);
    for (int i = 0; i < e->options.slots; i++)
        if (i != slot && p->shard[i] == p->shard[slot]) {
            taken += count(p, i, p->held[i]);
            more += e->job[i] ? about_to(e, e->job[i], p->held[i]) : 0;
        }
    return taken + more <= p->n;
}

double pages_used(cvn_engine *e)
{
    Pages *p = e->pages;
    int64_t used = 0;
    p->marks++;
    for (int slot = 0; slot < e->options.slots; slot++)
        used += e->job[slot] ? count(p, slot, p->held[slot]) : 0;
    return (double)used / (double)e->steps.pages;
}

void pages_share(cvn_engine *e, int text, int slot, int64_t n)
{
    Pages *p = e->pages;
    for (int64_t i = 0; i < n; i++) {
        int32_t page = p->table[text * p->each + i];
        if (page >= 0)
            p->holders[page]++;
        p->table[slot * p->each + i] = page;
    }
    p->held[slot] = n;
}

void pages_exchange(cvn_engine *e, int a, int b)
{
    Pages *p = e->pages;
    for (int64_t i = 0, n = num_max(p->held[a], p->held[b]); i < n; i++) {
        int32_t page = p->table[a * p->each + i];
        p->table[a * p->each + i] = p->table[b * p->each + i];
        p->table[b * p->each + i] = page;
    }
    int64_t held = p->held[a];
    p->held[a] = p->held[b];
    p->held[b] = held;
}
