/*
 * The draft model (options.draft): a smaller model that drafts tokens, with slots of its own beside those of the engine. Its
 * cache is compared with the text, so that it computes only tokens that are new, and those that it drafted wrong:
 *
 *     text             the cat sat on a          (the draft drafted "the mat" behind "on")
 *     its slot holds    the cat sat on the        keeps 4 tokens, reads "a", and drafts what follows
 *
 * It draws as the slot does, with the random numbers of the places that it drafts: so drafts stand more often than two models
 * would agree by chance.
 */
#include "base/num.h"
#include "serve/pace.h"
#include "serve/pages.h"
#include "serve/speculate.h"
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
                                        .sampling = o->sampling || o->logits_processors,
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

/* A slot goes on from what it holds of the text, and draws as the engine's does. */
static void begin(DraftModel *d, const cvn_engine *of, int slot, int most)
{
    const SlotDraft *r = &of->speculation->slot[slot];
    int32_t *held = d->held[slot];
    int64_t same = 0, all = num_min(d->e->filled[slot], r->n - 1);
    while (same < all && held[same] == r->text[same])
        same++;
    same = windows_back(d->e, slot, same);
    pages_cut(d->e, slot, same);
    engine_set_filled(d->e, slot, same);
    memcpy(held, r->text, (size_t)r->n * sizeof *held);
    d->request[slot] =
        (cvn_request){.prompt = held, .n_prompt = r->n, .max_tokens = num_min(r->n_draft, most)};
    engine_copy_sampling(of, &d->e->slots, slot, slot);
}

static bool drafts(const cvn_engine *of, int slot)
{
    const SlotDraft *r = &of->speculation->slot[slot];
    return of->slots.length[slot] && r->kind == DRAFT_MODEL && r->n_draft;
}

int draft_model_propose(DraftModel *d, const cvn_engine *of, int most, cvn_err *err)
{
    cvn_engine *e = d->e;
    int slots = e->options.slots;
    for (int slot = 0; slot < slots; slot++) {
        e->slots.length[slot] = false;
        if (drafts(of, slot))
            begin(d, of, slot, most);
    }
    for (int left = 1; left;) { /* what is new of the texts; each has then drawn its first draft */
        left = 0;
        for (int slot = 0; slot < slots; slot++)
            if (drafts(of, slot) && e->filled[slot] < d->request[slot].n_prompt)
                e->prompt[left++] = (SlotPrompt){.slot = slot, .request = &d->request[slot]};
        if (left)
            TRY(engine_prefill(e, e->prompt, left, NULL, err));
    }
    for (int slot = 0; slot < slots; slot++)
        e->slots.length[slot] = drafts(of, slot);
    for (int i = 0; pace_decodes(e); i++) {
        if (i)
            TRY(engine_decode(e, err));
        for (int slot = 0; slot < slots; slot++) {
            SlotDraft *r = &of->speculation->slot[slot];
            const cvn_request *q = &d->request[slot];
            if (!e->slots.length[slot])
                continue;
            r->draft[i] = d->held[slot][q->n_prompt + i] = e->slots.tokens[slot];
            r->n_draft = i + 1;
            if (r->n_draft >= q->max_tokens || e->filled[slot] >= of->options.context)
                e->slots.length[slot] = false;
        }
    }
    return CVN_OK;
}
