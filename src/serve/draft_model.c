#include "serve/draft_model.h"

#include "base/num.h"
#include "serve/windows.h"

#include <inttypes.h>
#include <string.h>

int draft_model_open(DraftModel *d, const cvn_engine *of, cvn_err *err)
{
    const cvn_engine_options *o = &of->options;
    const Model *own = o->draft->io.desc, *config = of->model->io.desc;
    if (of->rt.mesh.n_devices > 1)
        return err_set(
            err, CVN_EUNSUPPORTED,
            "a draft model runs on one device only; leave out the mesh or the draft model");
    if (model_vocab(own) != model_vocab(config) || model_longest_context(own) < o->context)
        return err_set(err, CVN_EINVAL,
                       "the draft model has a vocabulary of %" PRId64 " and a context of %" PRId64
                       ", the model %" PRId64 " and %" PRId64
                       "; use a draft model with the same vocabulary, or a shorter context",
                       model_vocab(own), model_longest_context(own), model_vocab(config),
                       o->context);
    const cvn_engine_options options = {.slots = o->slots,
                                        .context = o->context,
                                        .threads = o->threads,
                                        .sampling = of->most >= SAMPLE_RANDOM,
                                        .filters = of->most >= SAMPLE_FILTER,
                                        .n_buckets = 3,
                                        .bucket = {4, 32, 256}};
    TRY(cvn_engine_new(o->draft, &options, &d->e, err));
    size_t slots = (size_t)o->slots;
    d->held = arena_array(&d->e->arena, slots, sizeof *d->held);
    d->request = arena_array(&d->e->arena, slots, sizeof *d->request);
    for (size_t i = 0; i < slots; i++)
        d->held[i] = arena_array(&d->e->arena, (size_t)o->context + 1, sizeof(int32_t));
    return CVN_OK;
}

void draft_model_close(DraftModel *d)
{
    cvn_engine_free(d->e, NULL);
}

/* A slot goes on from what it holds of the text, and draws as the engine's does. */
static void begin(DraftModel *d, const cvn_engine *of, int slot, const int32_t *text, int64_t n)
{
    int32_t *held = d->held[slot];
    int64_t same = 0, most = num_min(d->e->filled[slot], n - 1);
    while (same < most && held[same] == text[same])
        same++;
    same = windows_back(d->e, slot, same);
    engine_set_filled(d->e, slot, same);
    memcpy(held, text, (size_t)n * sizeof *held);
    d->request[slot] = (cvn_request){.prompt = held, .n_prompt = n};
    engine_copy_sampling(of, &d->e->slots, slot, slot);
}

int draft_model_propose(DraftModel *d, const cvn_engine *of, const int32_t *const *text,
                        const int64_t *n, int most, int32_t *const *draft, int *n_draft,
                        cvn_err *err)
{
    int slots = d->e->options.slots, active = 0;
    for (int slot = 0; slot < slots; slot++) {
        engine_set_active(d->e, slot, false);
        if (text[slot])
            begin(d, of, slot, text[slot], n[slot]);
    }
    for (int left = 1;
         left;) { /* what is new of the texts; each slot has then drawn its first draft */
        left = 0;
        for (int slot = 0; slot < slots; slot++)
            if (text[slot] && d->e->filled[slot] < d->request[slot].n_prompt)
                d->e->prompt[left++] = (SlotPrompt){.slot = slot, .request = &d->request[slot]};
        if (left)
            TRY(engine_prefill(d->e, d->e->prompt, left, NULL, err));
    }
    for (int slot = 0; slot < slots; slot++)
        engine_set_active(d->e, slot, text[slot] != NULL);
    for (int i = 0; i < most; i++) {
        if (i && active)
            TRY(engine_decode(d->e, err));
        active = 0;
        for (int slot = 0; slot < slots; slot++) {
            if (!d->e->slots.length[slot])
                continue;
            draft[slot][i] = d->held[slot][n[slot] + i] = d->e->slots.tokens[slot];
            n_draft[slot] = i + 1;
            active++;
            if (d->e->filled[slot] >= of->options.context)
                engine_set_active(d->e, slot, false);
        }
    }
    return CVN_OK;
}
