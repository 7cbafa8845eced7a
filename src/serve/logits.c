#include "serve/logits.h"

#include "base/helper.h"
#include "constrain/tokens.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What no logit outweighs, and no sum of logits and biases makes infinite. */
static const float NEVER = -1e9f;

static size_t vocab_of(const cvn_engine *e)
{
    return (size_t)model_vocab(e->model->io.desc);
}

void logits_init(cvn_engine *e)
{
    size_t slots = (size_t)e->options.slots, vocab = vocab_of(e);
    e->logits = arena_array(&e->arena, slots + 1, sizeof *e->logits);
    uint8_t *seen = arena_array(&e->arena, (slots + 1) * vocab, 1);
    for (size_t i = 0; i <= slots; i++)
        e->logits[i] = (SlotLogits){.seen = seen + i * vocab, .shown = true};
    for (size_t i = 0; i < slots; i++) {
        e->logits[i].bias = e->slots.bias + i * vocab;
        e->logits[i].mask = e->slots.mask + i * vocab;
    }
}

void logits_free(cvn_engine *e)
{
    helper_free(e->helper);
    for (int i = 0; e->logits && i <= e->options.slots; i++) {
        cvn_constrained_free(e->logits[i].text);
        free(e->logits[i].bits);
    }
    cvn_vocabulary_free(e->words);
}

static bool is_on(float x, float off)
{
    return x < off || x > off;
}

/* Whether a request asks for anything of the kind. */
static bool asks(const cvn_request *r)
{
    const cvn_sampling *s = &r->sampling;
    return r->n_bias || r->n_forced || r->min_tokens > 0 || r->on_logits || r->constraint ||
           is_on(s->presence_penalty, 0) || is_on(s->frequency_penalty, 0);
}

static int check_known(const cvn_engine *e, const char *what, const int32_t *token, int64_t n,
                       cvn_err *err)
{
    for (int64_t i = 0; i < n; i++)
        if (token[i] < 0 || token[i] >= model_vocab(e->model->io.desc))
            return err_set(err, CVN_EINVAL, "%s token %d is not in the vocabulary of %" PRId64,
                           what, (int)token[i], model_vocab(e->model->io.desc));
    return CVN_OK;
}

int logits_check(const cvn_engine *e, const cvn_request *r, cvn_err *err)
{
    const cvn_sampling *s = &r->sampling;
    if (!(fabsf(s->presence_penalty) <= 100) || !(fabsf(s->frequency_penalty) <= 100))
        return err_set(err, CVN_EINVAL,
                       "presence and frequency penalties are %g and %g; give -100 to 100",
                       (double)s->presence_penalty, (double)s->frequency_penalty);
    TRY(check_known(e, "end", r->end, r->n_end, err));
    if (!asks(r))
        return CVN_OK;
    if (!e->options.logits_processors)
        return err_set(err, CVN_EINVAL,
                       "the request has a constraint, biases, penalties, min_tokens, forced tokens "
                       "or asks for "
                       "logits; create the engine with options.logits_processors");
    if (r->constraint && !e->model->tokenizer)
        return err_set(err, CVN_EINVAL,
                       "the request has a constraint, but the model has no readable tokenizer%s%s",
                       e->model->tokenizer_err.code ? ": " : "", e->model->tokenizer_err.message);
    if (r->constraint && cvn_constraint_is_empty(r->constraint))
        return err_set(err, CVN_EINVAL, "no text satisfies the constraint of the request");
    TRY(check_known(e, "forced", r->forced, r->n_forced, err));
    for (int64_t i = 0; i < r->n_bias; i++) {
        TRY(check_known(e, "biased", &r->bias[i].token, 1, err));
        if (!(fabsf(r->bias[i].bias) <= 1e6f))
            return err_set(err, CVN_EINVAL, "the bias of token %d is %g; give -1e6 to 1e6",
                           (int)r->bias[i].token, (double)r->bias[i].bias);
    }
    return CVN_OK;
}

int logits_prepare(cvn_engine *e, const cvn_request *r, cvn_err *err)
{
    const SpecialIds *eos = model_ends(e->model->io.desc);
    if (!r->constraint || e->words)
        return CVN_OK;
    if (!e->helper && !(e->helper = helper_new(err)))
        return err->code;
    return vocabulary_of(e->model->tokenizer, (cvn_token)vocab_of(e), eos->id, (size_t)eos->n,
                         &e->words, err);
}

/* Ends of text have this bias, or, for 0, what the request itself gives them. */
static void set_end(const cvn_engine *e, SlotLogits *a, float bias)
{
    const cvn_request *r = a->request;
    const SpecialIds *eos = model_ends(e->model->io.desc);
    for (int64_t i = 0; i < eos->n + r->n_end; i++) {
        int32_t id = i < eos->n ? eos->id[i] : r->end[i - eos->n];
        float sum = bias;
        for (int64_t k = 0; k < r->n_bias; k++)
            sum += r->bias[k].token == id ? r->bias[k].bias : 0;
        if (id < 0 || (size_t)id >= vocab_of(e))
            continue;
        a->bias[id] = sum;
    }
}

/* Whether there is memory for a text. */
static bool has_room(const cvn_engine *e, SlotLogits *a)
{
    size_t words = CVN_MASK_WORDS(vocab_of(e));
    a->bits = a->bits ? a->bits : malloc(2 * words * sizeof *a->bits);
    if (!a->bits)
        return err_set(&a->err, CVN_EMEM, "no memory for the constraint of a request") == CVN_OK;
    a->had = a->bits + words;
    return true;
}

/* The bits after a text; returns how many tokens they let come, 2 for more, and the one if it is one. */
static int make_bits(const cvn_engine *e, SlotLogits *a, cvn_constrained *text, int32_t *last)
{
    const cvn_request *r = a->request;
    int n = 0;
    if (cvn_constrained_mask(text, a->bits, &a->err))
        return 0;
    for (int64_t i = 0; i < r->n_end && cvn_constrained_complete(text); i++)
        a->bits[r->end[i] / 32] |= 1u << (r->end[i] % 32);
    for (size_t w = 0; w < CVN_MASK_WORDS(vocab_of(e)) && n < 2; w++) {
        uint32_t bits = a->bits[w];
        *last = bits ? (int32_t)(w * 32) + __builtin_ctz(bits) : *last;
        n += !bits ? 0 : bits & (bits - 1) ? 2 : 1;
    }
    if (!n)
        err_set(&a->err, CVN_EUNSUPPORTED,
                "no token of the vocabulary continues this text under its constraint");
    return n;
}

/* Makes the slot's mask that of its text. */
static void show(const cvn_engine *e, SlotLogits *a)
{
    size_t vocab = vocab_of(e);
    int n = a->shown || a->err.code ? 0 : make_bits(e, a, a->text, &a->only);
    if (!n)
        return;
    a->only = n == 1 ? a->only : -1;
    a->shown = true;
    for (size_t w = 0; w < CVN_MASK_WORDS(vocab); w++) {
        if (a->bits[w] == a->had[w]) /* as most of a vocabulary, within a string */
            continue;
        a->had[w] = a->bits[w];
        for (size_t i = w * 32; i < vocab && i < w * 32 + 32;
             i += 8) { /* eight bits become bytes */
            uint64_t eight = a->bits[w] >> (i % 32) & 0xff;
            eight = eight * 0x0101010101010101u & 0x8040201008040201u;
            eight = (eight + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
            memcpy(a->mask + i, &eight, vocab - i < 8 ? vocab - i : 8);
        }
    }
}

static int make_each_mask(void *of, cvn_err *err)
{
    cvn_engine *e = of;
    (void)err;
    for (int i = 0; i < e->options.slots; i++) {
        SlotLogits *a = &e->logits[i];
        bool shown = a->shown;
        show(e, a);
        if (!shown && a->run)
            memcpy(a->run, a->mask, vocab_of(e));
    }
    return CVN_OK;
}

/* Runs on the helper thread. Where memory runs out, what constraints know is of no use any more. */
static void make_masks(void *of)
{
    cvn_engine *e = of;
    cvn_err err = {0};
    if (protect(make_each_mask, e, "computing the allowed tokens", &err))
        for (int i = 0; i < e->options.slots; i++)
            if (e->logits[i].text)
                e->logits[i].err = err;
}

void logits_start(cvn_engine *e)
{
    bool any = false;
    for (int i = 0; e->helper && i < e->options.slots; i++)
        any = any || !e->logits[i].shown;
    if (any)
        helper_start(e->helper, make_masks, e);
}

void logits_wait(cvn_engine *e)
{
    if (e->helper)
        helper_wait(e->helper);
    for (int i = 0; e->logits && i < e->options.slots; i++)
        e->logits[i].run = NULL;
}

/* A token is in the text. */
static void note(const cvn_engine *e, SlotLogits *a, int32_t token)
{
    const cvn_request *r = a->request;
    if (++a->drawn == r->min_tokens)
        set_end(e, a, 0);
    a->bias[token] -= r->sampling.frequency_penalty;
    a->bias[token] -= a->seen[token] ? 0 : r->sampling.presence_penalty;
    a->seen[token] = 1;
    if (!a->text || a->err.code || engine_ends(e, r, token) ||
        cvn_constrained_advance(a->text, token, &a->err))
        return;
    a->shown = false;
    a->only = -1;
    if (cvn_constrained_is_quick(a->text))
        show(e, a);
}

void logits_begin(cvn_engine *e, int slot, const cvn_request *r, int64_t drawn)
{
    SlotLogits *a = &e->logits[slot];
    if (a->request) { /* what it left */
        memset(a->bias, 0, vocab_of(e) * sizeof *a->bias);
        memset(a->mask, 1, vocab_of(e));
        memset(a->seen, 0, vocab_of(e));
        cvn_constrained_free(a->text);
        a->text = NULL;
    }
    a->request = r && asks(r) ? r : NULL;
    a->drawn = 0;
    a->shown = true;
    a->logits = NULL;
    if (r)
        a->err = (cvn_err){0};
    if (!a->request)
        return;
    for (int64_t i = 0; i < r->n_bias; i++)
        a->bias[r->bias[i].token] += r->bias[i].bias;
    if (r->min_tokens > 0)
        set_end(e, a, NEVER);
    if (r->constraint && has_room(e, a) &&
        cvn_constrained_new(r->constraint, e->words, &a->text, &a->err) == CVN_OK) {
        a->shown = false;
        memset(a->had, 0xff, CVN_MASK_WORDS(vocab_of(e)) * sizeof *a->had); /* all may come */
    }
    for (int64_t i = r->n_prompt - drawn; i < r->n_prompt; i++)
        note(e, a, r->prompt[i]);
    show(e, a);
}

int32_t logits_drawn(cvn_engine *e, int slot, int32_t token, const float *logits)
{
    SlotLogits *a = &e->logits[slot];
    show(e, a);
    for (int32_t i = 0; a->text && !a->err.code && !a->mask[token]; i++)
        if (a->mask[i])
            token = i;
    if (a->drawn < a->request->n_forced)
        token = a->request->forced[a->drawn];
    a->logits = a->request->on_logits ? logits : NULL;
    note(e, a, token);
    return token;
}

/* A slot's state, to be moved on without it; false: there is no memory. */
static bool copy_state(const cvn_engine *e, const SlotLogits *from, SlotLogits *to)
{
    to->request = from->request;
    to->drawn = from->drawn;
    to->err = (cvn_err){0};
    memcpy(to->seen, from->seen, vocab_of(e));
    if (!from->text)
        return true;
    if (!has_room(e, to) || !(to->text = cvn_constrained_clone(from->text)))
        return false;
    memcpy(to->had, from->had, CVN_MASK_WORDS(vocab_of(e)) * sizeof *to->had);
    return true;
}

int logits_forced(cvn_engine *e, int slot, int32_t *token, int most)
{
    SlotLogits *a = &e->logits[slot];
    int32_t next = a->only;
    int n = 0, allowed = 1;
    if (!a->request || !a->text || a->err.code || next < 0)
        return 0;
    show(e, a); /* whose bits are those of others from here on */
    cvn_constrained *text = cvn_constrained_clone(a->text);
    while (text && n < most && allowed == 1 && !engine_ends(e, a->request, next)) {
        token[n++] = next;
        if (cvn_constrained_advance(text, next, NULL))
            break;
        allowed = make_bits(e, a, text, &next);
    }
    a->err = (cvn_err){0}; /* whoever comes there will meet it again */
    cvn_constrained_free(text);
    return n;
}

void logits_copy(cvn_engine *e, int slot, float *bias, uint8_t *mask)
{
    SlotLogits *a = &e->logits[slot];
    a->run = mask;
    memcpy(bias, a->bias, vocab_of(e) * sizeof *bias);
    memcpy(mask, a->mask, vocab_of(e));
}

int logits_ahead(cvn_engine *e, int slot, const int32_t *token, int n, float *bias, uint8_t *mask)
{
    SlotLogits *own = &e->logits[slot], *a = &e->logits[e->options.slots];
    size_t vocab = vocab_of(e);
    int i = 0;
    show(e, own);
    memcpy(bias, own->bias, vocab * sizeof *bias);
    memcpy(mask, own->mask, vocab);
    if (own->err.code || !copy_state(e, own, a))
        return 0;
    a->bias = bias;
    a->mask = mask;
    for (; i < n && a->mask[token[i]] && !engine_ends(e, a->request, token[i]); i++) {
        a->bias = memcpy(a->bias + vocab, a->bias, vocab * sizeof *bias);
        a->mask = memcpy(a->mask + vocab, a->mask, vocab);
        note(e, a, token[i]);
        show(e, a);
        if (a->err.code)
            break;
    }
    cvn_constrained_free(a->text);
    a->text = NULL;
    a->shown = true;
    return i;
}
