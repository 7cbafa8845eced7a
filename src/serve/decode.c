#include "serve/decode.h"

#include "base/num.h"
#include "serve/logits.h"

#include <inttypes.h>
#include <string.h>

/* ---- programs ---- */

static int make_size(cvn_engine *e, int at, int64_t tokens, cvn_err *err)
{
    ModelStep step = steps_chunk(&e->steps, tokens, 1);
    for (int m = 0; m <= (int)e->most; m++) {
        step.sample = (SampleMode)m;
        TRY(engine_make_step(e, &e->decoding->step[m][at], &step, &e->decoding->in, err));
    }
    return CVN_OK;
}

int decode_make_whole(cvn_engine *e, cvn_err *err)
{
    size_t slots = (size_t)e->options.slots;
    Decoding *d = e->decoding = arena_array(&e->arena, 1, sizeof *d);
    d->draft = arena_array(&e->arena, slots, sizeof *d->draft);
    d->n_draft = arena_array(&e->arena, slots, sizeof *d->n_draft);
    d->place = arena_array(&e->arena, slots, sizeof *d->place);
    engine_make_inputs(e, &d->in, num_max(e->options.slots, DRAFTED_TOKENS), 1);
    d->n = 1;
    return make_size(e, 0, e->options.slots, err);
}

int decode_make(cvn_engine *e, bool drafts, cvn_err *err)
{
    Decoding *d = e->decoding;
    const int64_t slots = e->options.slots;
    int64_t most = drafts ? DRAFTED_TOKENS / e->shards * e->shards : 0, size[DECODE_SIZES];
    EngineStep whole[SAMPLE_MODE_COUNT];
    int n = 0;
    for (int64_t tokens = e->shards; tokens < num_max(slots, most); tokens *= 2)
        size[n++] = tokens;
    size[n++] = num_max(slots, most);
    for (int m = 0; m <= (int)e->most; m++)
        whole[m] = d->step[m][0];
    d->n = 0;
    for (int i = 0; i < n; i++) {
        bool passed = slots <= size[i] && (i == 0 || slots > size[i - 1]);
        for (int m = 0; m <= (int)e->most && passed; m++)
            d->step[m][d->n] = whole[m];
        d->n += passed;
        if (size[i] != slots)
            TRY(make_size(e, d->n++, size[i], err));
    }
    return CVN_OK;
}

void decode_free(cvn_engine *e)
{
    for (int m = 0; e->decoding && m < SAMPLE_MODE_COUNT; m++)
        for (int i = 0; i < DECODE_SIZES; i++)
            engine_free_step(&e->decoding->step[m][i]);
}

/* ---- runs ---- */

/* Tokens of a size that lie in each shard. */
static int64_t tokens_of_shard(const cvn_engine *e, int size)
{
    return num_pieces(e->decoding->step[0][size].slots, e->shards);
}

int decode_size(const cvn_engine *e, int64_t drafts)
{
    const Decoding *d = e->decoding;
    int64_t most = 0;
    int size = 0;
    memset(e->load, 0, (size_t)e->shards * sizeof *e->load);
    for (int slot = 0; slot < e->options.slots; slot++) {
        int *load = &e->load[engine_slot_shard(e, slot)];
        *load += e->slots.length[slot] ? 1 + (int)num_min(d->n_draft[slot], drafts) : 0;
        most = num_max(most, *load);
    }
    while (size < d->n && tokens_of_shard(e, size) < most)
        size++;
    return size < d->n ? size : -1;
}

/* A slot's tokens from `at` on, with all that drawing after each of them needs. */
static void stage(cvn_engine *e, int slot, int64_t at, SampleMode mode)
{
    Decoding *d = e->decoding;
    Inputs *in = &d->in;
    const Inputs *own = &e->slots;
    size_t vocab = (size_t)model_vocab(e->model->io.desc);
    bool processed = mode == SAMPLE_PROCESSED;
    float *bias = processed ? in->bias + (size_t)at * vocab : NULL;
    uint8_t *mask = processed ? in->mask + (size_t)at * vocab : NULL;
    if (processed && d->n_draft[slot])
        d->n_draft[slot] = logits_ahead(e, slot, d->draft[slot], d->n_draft[slot], bias, mask);
    else if (processed)
        logits_copy(e, slot, bias, mask);
    d->place[slot] = at;
    for (int i = 0; i <= d->n_draft[slot]; i++, at++) {
        in->tokens[at] = i ? d->draft[slot][i - 1] : own->tokens[slot];
        in->slot[at] = slot;
        in->start[at] = own->start[slot] + i;
        in->length[at] = 1;
        engine_copy_select(e, in, at, slot);
        engine_copy_sampling(e, in, at, slot);
        if (!in->seen)
            continue;
        uint8_t *seen = in->seen + (size_t)at * vocab;
        memcpy(seen, i ? seen - vocab : own->seen + (size_t)slot * vocab, vocab);
        seen[in->tokens[at]] = 1;
    }
}

/* Tokens of nobody, which go nowhere. */
static void clear(Inputs *in, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        in->tokens[i] = in->start[i] = in->length[i] = 0;
        in->slot[i] = -1;
        in->temperature[i] = 0;
        in->top_p[i] = in->penalty[i] = 1;
    }
}

int decode_run(cvn_engine *e, cvn_err *err)
{
    Decoding *d = e->decoding;
    SampleMode mode = engine_mode(e);
    int size = decode_size(e, INT32_MAX);
    EngineStep *step = &d->step[mode][size];
    clear(&d->in, step->slots);
    for (int shard = 0; shard < e->shards; shard++)
        e->load[shard] = (int)(shard * tokens_of_shard(e, size));
    for (int slot = 0; slot < e->options.slots; slot++) {
        int *at = &e->load[engine_slot_shard(e, slot)];
        d->place[slot] = -1;
        if (!e->slots.length[slot])
            continue;
        stage(e, slot, *at, mode);
        *at += 1 + d->n_draft[slot];
    }
    program_set_pending(&step->program, ROLE_MASK, e->helper);
    program_set_pending(&step->plain, ROLE_MASK, e->helper);
    double begin = clock_seconds();
    logits_start(e);
    int code = engine_run(e, step, &d->in, err);
    logits_wait(e);
    double seconds = clock_seconds() - begin;
    if (code)
        return code;
    if (e->speculation)
        TRY(cluster_share(e->options.cluster, &seconds, sizeof seconds, err));
    d->seconds[size] += d->seconds[size] > 0 ? (seconds - d->seconds[size]) * 0.2 : seconds;
    d->next = engine_output(step, ROLE_NEXT);
    d->logits = mode == SAMPLE_PROCESSED ? engine_output(step, ROLE_LOGITS) : NULL;
    e->stats.decode_seconds += seconds;
    return CVN_OK;
}

int32_t decode_take(cvn_engine *e, int slot, int i)
{
    const Decoding *d = e->decoding;
    int64_t at = d->place[slot] + i, vocab = model_vocab(e->model->io.desc);
    engine_set_filled(e, slot, e->filled[slot] + 1);
    e->stats.decoded_tokens++;
    engine_draw(e, slot, d->next[at], d->logits ? d->logits + at * vocab : NULL);
    return e->slots.tokens[slot];
}

int engine_decode(cvn_engine *e, cvn_err *err)
{
    for (int i = 0; i < e->options.slots; i++) {
        e->decoding->n_draft[i] = 0;
        if (e->slots.length[i] && e->filled[i] >= e->options.context)
            return err_set(err, CVN_EINVAL, "the context of slot %d is full: %" PRId64, i,
                           e->options.context);
    }
    TRY(decode_run(e, err));
    for (int i = 0; i < e->options.slots; i++)
        if (e->slots.length[i])
            decode_take(e, i, 0);
    e->stats.decodes++;
    return CVN_OK;
}
