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

int steps_room(Steps *s, const Runtime *rt, int64_t largest, uint64_t memory, cvn_err *err)
{
    const int64_t devices = rt->mesh.n_devices;
    s->page = rt->info.page ? rt->info.page : s->context + largest;
    s->positions = num_round_up(num_max(s->context, largest), s->page);
    s->pages = s->slots * (s->positions / s->page);
    if (!memory)
        return CVN_OK;
    int64_t bytes = kv_cache_bytes(s->model.model, 1, s->page, s->kv_int8 ? CVN_I8 : s->compute);
    int64_t n = bytes > 0 ? (int64_t)(memory / (uint64_t)bytes) / devices * devices : 0;
    if (n < devices * (s->positions / s->page))
        return err_set(err, CVN_EMEM,
                       "the KV cache may take %s, and one text of %" PRId64
                       " tokens takes %s; raise --kv-memory or lower --context",
                       bytes_text((double)memory).text, s->context,
                       bytes_text((double)(devices * bytes * (s->positions / s->page))).text);
    s->pages = num_min(n, s->pages);
    return CVN_OK;
}

/* A window before the end of the prompt, and one before what was decoded last; and a chunk that is being read. */
void steps_hold(const Steps *s, Runtime *rt)
{
    const Model *model = s->model.model;
    int caches = s->kv_int8 ? MODEL_CACHES_INT8 : MODEL_CACHES;
    int64_t more = 2 * WINDOW_SLACK + WINDOW_STEP + num_max(2 * s->page, s->positions - s->context);
    for (int i = 0; rt->info.discards && i < model_caches(model, s->kv_int8); i++) {
        Buffer *cache = runtime_buffer(rt, ROLE_CACHE, i);
        int64_t window = model_window(model, i / caches);
        double kept = 2.0 * (double)window + (double)more;
        if (cache && window && kept < (double)s->positions)
            cache->held = kept / (double)s->positions;
    }
}

ModelStep steps_chunk(const Steps *s, int64_t rows, int64_t seq)
{
    return (ModelStep){.slots = s->slots,
                       .batch = rows,
                       .seq = seq,
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
