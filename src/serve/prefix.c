#include "serve/prefix.h"

#include "base/num.h"
#include "serve/pages.h"
#include "serve/windows.h"

#include <stdlib.h>
#include <string.h>

int prefix_texts(const cvn_engine *e)
{
    enum { LEAST = 8 };
    return e->options.reuse ? (int)num_max(e->options.slots, LEAST) : LEAST;
}

void prefix_init(cvn_engine *e)
{
    Prefix *p = e->prefix = arena_array(&e->arena, 1, sizeof *p);
    p->n = e->pages->texts - e->options.slots;
    p->kept = arena_array(&e->arena, (size_t)p->n, sizeof *p->kept);
}

void prefix_free(cvn_engine *e)
{
    for (int i = 0; e->prefix && i < e->prefix->n; i++)
        free((void *)(uintptr_t)e->prefix->kept[i].token);
}

/* What others may go on from of a text, slots before those that are kept. */
static Text text_at(const cvn_engine *e, int text)
{
    const Job *job = text < e->options.slots ? e->job[text] : NULL;
    if (text >= e->options.slots)
        return e->prefix->kept[text - e->options.slots];
    if (!job || !(e->options.reuse || job->owner))
        return (Text){0};
    bool all = e->chunk_invariant || job->owner;
    return (Text){.token = job->request.prompt,
                  .n = num_min(e->filled[text], job->n_prompt + (all ? job->result.n_tokens : 0)),
                  .owner = job->owner,
                  .salt = job->request.cache_salt,
                  .adapter = job->request.adapter};
}

/* How many of the first n tokens some text has, and which one: one that is kept, if there is. A text is compared only if it has the
   token that is one more than another had. */
static int64_t find(const cvn_engine *e, const Text *want, int64_t n, int *text)
{
    int64_t best = 0;
    *text = -1;
    for (int i = e->pages->texts - 1; i >= 0 && best < n; i--) {
        const Text t = text_at(e, i);
        int64_t same = 0, most = num_min(t.n, n);
        if (most <= best || t.owner != want->owner || t.salt != want->salt ||
            t.adapter != want->adapter || t.token[best] != want->token[best])
            continue;
        while (same < most && t.token[same] == want->token[same])
            same++;
        if (same > best) {
            best = same;
            *text = i;
        }
    }
    return best;
}

/* Whether a text may become a slot's, n tokens of which its prompt begins with: most of it is wanted, and what is written next is in no
   page that others hold. */
static bool becomes(const cvn_engine *e, int text, int64_t n)
{
    const int64_t size = e->pages->size;
    const Text t = text_at(e, text);
    return text >= e->options.slots && (t.owner || 2 * n > t.n) &&
           (n % size == 0 || pages_own(e, text, n / size));
}

bool prefix_take_slot(cvn_engine *e, const Job *job, int *slot, int64_t *keep)
{
    const cvn_request *r = &job->request;
    const Pages *p = e->pages;
    const Text want = {
        .token = r->prompt, .owner = job->owner, .salt = r->cache_salt, .adapter = r->adapter};
    int text;
    *slot = -1;
    int64_t n = find(e, &want, r->n_prompt - 1, &text);
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
    if (!pages_suffice(e, *slot, n ? text : *slot, shared, job))
        return false;
    engine_reset_slot(e, *slot);
    if (n && whole) {
        pages_exchange(e, text, *slot);
        windows_exchange(e, text, *slot);
        prefix_drop(e, text);
    } else if (n) {
        pages_share(e, text, *slot, shared);
        if (text >= e->options.slots)
            e->prefix->kept[text - e->options.slots].used = ++e->prefix->uses;
    }
    for (int own; job->owner && (own = prefix_own(e, job->owner)) >= 0;)
        prefix_drop(e, own);
    return true;
}

void prefix_keep(cvn_engine *e, int slot)
{
    const Text is = text_at(e, slot);
    int text;
    if (is.n < 1)
        return;
    if (find(e, &is, is.n, &text) == is.n && text >= e->options.slots) { /* it is there already */
        e->prefix->kept[text - e->options.slots].used = ++e->prefix->uses;
        return;
    }
    text = prefix_place(e);
    e->pages->shard[text] = e->pages->shard[slot];
    Text left = is;
    left.n = pages_cut(e, slot, is.n);
    pages_exchange(e, slot, text);
    windows_exchange(e, slot, text);
    prefix_put(e, text, left);
}

int prefix_own(const cvn_engine *e, const void *owner)
{
    int i = e->prefix->n - 1;
    while (i >= 0 && !(e->prefix->kept[i].n && e->prefix->kept[i].owner == owner))
        i--;
    return i < 0 ? -1 : i + e->options.slots;
}

int prefix_place(cvn_engine *e)
{
    int oldest = 0;
    for (int i = 1; i < e->prefix->n; i++)
        oldest = e->prefix->kept[i].used < e->prefix->kept[oldest].used ? i : oldest;
    prefix_drop(e, oldest + e->options.slots);
    return oldest + e->options.slots;
}

bool prefix_put(cvn_engine *e, int text, Text is)
{
    int32_t *token = malloc((size_t)is.n * sizeof *token);
    if (!token) {
        prefix_drop(e, text);
        return false;
    }
    memcpy(token, is.token, (size_t)is.n * sizeof *token);
    is.token = token;
    is.used = ++e->prefix->uses;
    e->prefix->kept[text - e->options.slots] = is;
    return true;
}

void prefix_drop(cvn_engine *e, int text)
{
    Text *t = &e->prefix->kept[text - e->options.slots];
    free((void *)(uintptr_t)t->token);
    *t = (Text){0};
    pages_cut(e, text, 0);
}

bool prefix_give_up(cvn_engine *e, int shard)
{
    const Pages *p = e->pages;
    int oldest = -1;
    for (int i = e->options.slots; i < p->texts; i++)
        if (p->held[i] && p->shard[i] == shard &&
            (oldest < 0 || text_at(e, i).used < text_at(e, oldest).used))
            oldest = i;
    if (oldest < 0)
        return false;
    Text *t = &e->prefix->kept[oldest - e->options.slots];
    t->n = num_min(t->n, pages_cut(e, oldest, (p->held[oldest] - 1) * p->size));
    if (!t->n)
        prefix_drop(e, oldest);
    return true;
}

bool prefix_hold(cvn_engine *e, int text, int64_t n)
{
    while (!pages_hold(e, text, n))
        if (!prefix_give_up(e, e->pages->shard[text]))
            return false;
    return true;
}
