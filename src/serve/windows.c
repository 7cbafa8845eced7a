#include "serve/windows.h"

#include "base/num.h"
#include "serve/pages.h"

/* The size of a table's window; 0: it has none, or pages are not given back. */
static int64_t window_of(const cvn_engine *e, int table)
{
    return e->window ? e->steps.caches.table[table].window : 0;
}

void windows_init(cvn_engine *e)
{
    bool any = false;
    for (int t = 0; t < e->pages->tables; t++)
        any = any || e->steps.caches.table[t].window;
    if (any)
        e->window = arena_array(&e->arena, (size_t)e->pages->texts, sizeof *e->window);
}

/* The pages that lie, from position `from` on, before what a text that goes on from n needs. */
static void give_back(cvn_engine *e, int slot, int64_t from, int64_t n)
{
    const Pages *p = e->pages;
    for (int t = 0; t < p->tables; t++) {
        int64_t window = window_of(e, t), needed = n - window + 1 - WINDOW_SLACK;
        int64_t to = window ? num_min(num_max(needed, 0) / p->size, p->held[slot]) : 0;
        for (int64_t k = num_pieces(from, p->size); k < to; k++) {
            pages_leave(e, slot, t, k);
            e->window[slot].gone = true;
        }
    }
}

void windows_fill(cvn_engine *e, int slot, int64_t n)
{
    if (!e->window)
        return;
    SlotWindow *w = &e->window[slot];
    if (n == 0) {
        *w = (SlotWindow){0};
        return;
    }
    const int64_t size = e->pages->size;
    const bool more = n / size > w->filled / size; /* pages than it had */
    w->filled = num_max(n, w->filled);
    w->read = num_max(num_min(n, w->prompt), w->read);
    if (!more)
        return;
    give_back(e, slot, 0, w->read);
    give_back(e, slot, w->read, w->filled);
}

void windows_begin(cvn_engine *e, int slot, int64_t prompt, int64_t keep)
{
    if (!e->window)
        return;
    SlotWindow *w = &e->window[slot];
    *w = (SlotWindow){.prompt = prompt, .read = keep, .filled = keep, .least = keep};
    for (int t = 0; t < e->pages->tables; t++)
        w->gone = w->gone || (window_of(e, t) && keep >= window_of(e, t));
    give_back(e, slot, 0, keep);
}

void windows_take(cvn_engine *e, int text, int64_t n)
{
    for (int64_t at = 0; at < n;) {
        at = num_min(at + e->pages->size, n);
        pages_hold(e, text, at);
        windows_begin(e, text, 0, n);
    }
}

int64_t windows_back(const cvn_engine *e, int slot, int64_t n)
{
    const SlotWindow *w = e->window ? &e->window[slot] : NULL;
    if (!w || !w->gone)
        return n;
    bool near_read = n <= w->read && n >= w->read - WINDOW_SLACK;
    bool held = n >= w->least && (near_read || n >= w->filled - WINDOW_SLACK);
    return held ? n : 0;
}

void windows_exchange(cvn_engine *e, int a, int b)
{
    if (!e->window)
        return;
    SlotWindow w = e->window[a];
    e->window[a] = e->window[b];
    e->window[b] = w;
}
