#include "serve/steps.h"

#include "base/bytes.h"
#include "base/num.h"

#include <inttypes.h>

/* The published ones, and below them what keeps a turn of a dialog from paying for 128 tokens. */
int steps_buckets(int64_t context, int64_t bucket[CVN_MAX_BUCKETS])
{
    static const int64_t buckets[] = {16, 32, 64, 128, 256, 384, 512};
    enum { BUCKETS = sizeof buckets / sizeof buckets[0] };
    int n = 0;
    do
        bucket[n] = buckets[n];
    while (bucket[n++] < context && n < BUCKETS);
    return n;
}

/* Pages that a text holds of a table, n positions being in n / page + 2 at most: of one with a window, what is before the end of its prompt and
   before what was decoded last, or, while the prompt is read, a chunk. What is behind is given back by pages. */
static int64_t most_pages(const Steps *s, int64_t window, int64_t largest)
{
    const int64_t kept = window + WINDOW_SLACK + s->page, all = s->positions / s->page;
    int64_t reading = (kept + largest) / s->page + 2, decoding = 2 * (kept / s->page + 2) + 1;
    return window ? num_min(all, num_max(reading, decoding)) : all;
}

int steps_room(Steps *s, Runtime *rt, int64_t largest, uint64_t memory, cvn_err *err)
{
    const int64_t devices = rt->mesh.n_devices;
    const uint64_t MOST = UINT64_C(1) << 48;
    Caches *c = &s->caches;
    const int64_t longest = num_max(s->context, largest);
    s->page = rt->info.page ? rt->info.page : longest;
    s->positions = num_round_up(longest, s->page);
    model_caches(c, s->model.model, rt->info.page > 0, &rt->arena);
    s->pages = arena_array(&rt->arena, (size_t)c->pools, sizeof *s->pages);
    s->most = arena_array(&rt->arena, (size_t)c->tables, sizeof *s->most);
    int64_t text = 0, all = s->slots * (s->positions / s->page);
    for (int i = 0; i < c->tables; i++) {
        s->most[i] = most_pages(s, c->table[i].window, largest);
        s->pages[c->table[i].pool] += s->most[i];
    }
    for (int i = 0; i < c->pools; i++)
        text +=
            s->pages[i] * cache_pool_bytes(&c->pool[i], s->page, s->kv_int8 ? CVN_I8 : s->compute);
    if (memory && memory / (uint64_t)devices < (uint64_t)text)
        return err_set(err, CVN_EMEM,
                       "the KV cache may take %s, and one text of %" PRId64
                       " tokens takes %s; raise --kv-memory or lower --context",
                       bytes_text((double)memory).text, s->context,
                       bytes_text((double)(devices * text)).text);
    const int64_t room = (int64_t)(memory < MOST ? memory : MOST);
    for (int i = 0; i < c->pools; i++) {
        int64_t tables = 0, n = room / text * s->pages[i] + room % text * s->pages[i] / text;
        for (int t = 0; t < c->tables; t++)
            tables += c->table[t].pool == i;
        s->pages[i] =
            memory ? num_min(n / devices * devices, tables * all) : s->slots * s->pages[i];
    }
    s->apart = !rt->info.page && c->tables == 1 && s->pages[0] >= s->slots;
    return CVN_OK;
}

ModelStep steps_chunk(const Steps *s, int64_t rows, int64_t seq)
{
    return (ModelStep){.slots = s->slots,
                       .batch = rows,
                       .seq = seq,
                       .caches = &s->caches,
                       .pages = s->pages,
                       .page = s->page,
                       .context = s->positions,
                       .longest = s->context,
                       .compute = s->compute,
                       .output = STEP_SAMPLE,
                       .kv_int8 = s->kv_int8,
                       .int8_inputs = s->int8_inputs,
                       .ranks = s->ranks,
                       .adapted = s->adapted};
}

ModelStep steps_decode(const Steps *s)
{
    ModelStep step = steps_chunk(s, s->slots, 1);
    if (s->apart)
        step.pages = NULL;
    return step;
}

int steps_shards(const Runtime *rt)
{
    const Buffer *cache = runtime_buffer(rt, ROLE_CACHE, 0);
    return cache ? buffer_row_shards(cache) : 1;
}

ProgramOptions steps_options(Steps *s)
{
    return (ProgramOptions){
        .mark = layout_mark, .context = &s->model, .layout = s->model.layout, .whole_inputs = true};
}
