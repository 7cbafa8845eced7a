#include "serve/steps.h"

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

/* A window before the end of the prompt, and one before what was decoded last; and a chunk that is being read. */
void steps_hold(const Steps *s, Runtime *rt)
{
    const Model *model = s->model.model;
    int caches = s->kv_int8 ? MODEL_CACHES_INT8 : MODEL_CACHES;
    int64_t more = 2 * WINDOW_SLACK + WINDOW_STEP + s->positions - s->context;
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
                       .context = s->positions,
                       .longest = s->context,
                       .compute = s->compute,
                       .output = STEP_SAMPLE,
                       .kv_int8 = s->kv_int8,
                       .int8_inputs = s->int8_inputs,
                       .penalty = s->penalty,
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
