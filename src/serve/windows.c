#include "serve/windows.h"

#include "base/num.h"
#include "serve/pages.h"

void windows_init(cvn_engine *e)
{
    const Model *model = e->model->io.desc;
    bool any = false;
    for (int64_t i = 0; i < model_layers(model); i++)
        any = any || model_window(model, i);
    if (any && e->rt.info.discards)
        e->window = arena_array(&e->arena, (size_t)e->pages->texts, sizeof *e->window);
}

/* The first position of a layer's cache that a text needs which goes on from n. */
static int64_t first_needed(const cvn_engine *e, int64_t layer, int64_t n)
{
    int64_t window = e->window ? model_window(e->model->io.desc, layer) : 0;
    return window ? num_max(n - window + 1 - WINDOW_SLACK, 0) : 0;
}

/* Pages with positions from `from` to what a text that goes on from n needs: their memory, of all layers that have a window, and where
   all have one, the pages. */
static void give_back(cvn_engine *e, int slot, int64_t from, int64_t n)
{
    const Pages *p = e->pages;
    int64_t layers = model_layers(e->model->io.desc), all = p->held[slot];
    for (int i = 0; i < e->n_caches; i++) {
        int64_t to =
            num_min(first_needed(e, i / (e->n_caches / layers), n) / p->size, p->held[slot]);
        all = num_min(all, to);
        for (int64_t k = from / p->size; k < to; k++) {
            int32_t page = p->table[slot * p->each + k];
            if (page < 0 || p->holders[page] > 1)
                continue;
            buffer_discard(&e->rt, runtime_buffer(&e->rt, ROLE_CACHE, i), page, 0, p->size);
            e->window[slot].gone = true;
        }
    }
    for (int64_t k = from / p->size; k < all; k++) {
        pages_leave(e, slot, k);
        e->window[slot].gone = true;
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
    w->filled = num_max(n, w->filled);
    w->read = num_max(num_min(n, w->prompt), w->read);
    if (w->read >= w->done[0] + WINDOW_STEP) {
        give_back(e, slot, 0, w->read);
        w->done[0] = w->read;
    }
    if (w->filled > w->read && w->filled >= num_max(w->done[1], w->read) + WINDOW_STEP) {
        give_back(e, slot, w->read, w->filled);
        w->done[1] = w->filled;
    }
}

void windows_begin(cvn_engine *e, int slot, int64_t prompt, int64_t keep)
{
    if (!e->window)
        return;
    SlotWindow *w = &e->window[slot];
    *w = (SlotWindow){.prompt = prompt, .read = keep, .filled = keep, .least = keep};
    for (int64_t i = 0; i < model_layers(e->model->io.desc); i++) {
        int64_t window = model_window(e->model->io.desc, i);
        w->gone = w->gone || (window && keep >= window);
    }
    give_back(e, slot, 0, keep);
    w->done[0] = keep;
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
