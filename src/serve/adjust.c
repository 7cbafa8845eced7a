#include "serve/adjust.h"

#include "constrain/tokens.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What no logit outweighs, and no sum of logits and biases makes infinite. */
static const float NEVER = -1e9f;

static size_t vocab_of(const cvn_engine *e)
{
    return (size_t)e->model->io.config.vocab;
}

void adjust_init(cvn_engine *e)
{
    size_t rows = (size_t)e->options.rows, vocab = vocab_of(e);
    e->adjust = arena_array(&e->arena, rows + 1, sizeof *e->adjust);
    uint8_t *seen = arena_array(&e->arena, (rows + 1) * vocab, 1);
    for (size_t i = 0; i <= rows; i++)
        e->adjust[i] = (RowAdjust){.seen = seen + i * vocab, .added = e->rows.bias + i * vocab};
    e->adjust[rows].added = NULL;
}

void adjust_free(cvn_engine *e)
{
    for (int i = 0; e->adjust && i <= e->options.rows; i++) {
        cvn_constrained_free(e->adjust[i].text);
        free(e->adjust[i].base);
        free(e->adjust[i].mask);
        free(e->adjust[i].made);
    }
    cvn_vocabulary_free(e->words);
}

static bool is_on(float x, float off)
{
    return x < off || x > off;
}

bool adjust_wanted(const cvn_engine *e, const cvn_request *r)
{
    const cvn_sampling *s = &r->sampling;
    bool penalty = e->options.adjust && s->repeat_penalty > 0 && is_on(s->repeat_penalty, 1);
    return r->n_bias || r->min_tokens > 0 || r->on_logits || r->constraint || penalty ||
           is_on(s->presence_penalty, 0) || is_on(s->frequency_penalty, 0);
}

int adjust_check(const cvn_engine *e, const cvn_request *r, cvn_err *err)
{
    const cvn_sampling *s = &r->sampling;
    if (!(fabsf(s->presence_penalty) <= 100) || !(fabsf(s->frequency_penalty) <= 100))
        return err_set(err, CVN_EINVAL,
                       "presence and frequency penalties are %g and %g; give -100 to 100",
                       (double)s->presence_penalty, (double)s->frequency_penalty);
    for (int64_t i = 0; i < r->n_end; i++)
        if (r->end[i] < 0 || r->end[i] >= e->model->io.config.vocab)
            return err_set(err, CVN_EINVAL, "end token %d is not in the vocabulary of %" PRId64,
                           (int)r->end[i], e->model->io.config.vocab);
    if (!adjust_wanted(e, r))
        return CVN_OK;
    if (!e->options.adjust)
        return err_set(err, CVN_EINVAL,
                       "the request has a constraint, biases, penalties, min_tokens or wants "
                       "logits; make the engine with options.adjust");
    if (r->constraint && !e->model->tokenizer)
        return err_set(err, CVN_EINVAL,
                       "the request has a constraint, and the model no tokenizer that could be "
                       "read%s%s",
                       e->model->tokenizer_err.code ? ": " : "", e->model->tokenizer_err.message);
    if (r->constraint && cvn_constraint_is_empty(r->constraint))
        return err_set(err, CVN_EINVAL, "nothing fulfils the constraint of the request");
    for (int64_t i = 0; i < r->n_bias; i++) {
        if (r->bias[i].token < 0 || r->bias[i].token >= e->model->io.config.vocab)
            return err_set(err, CVN_EINVAL,
                           "token %d has a bias and is not in the vocabulary of %" PRId64,
                           (int)r->bias[i].token, e->model->io.config.vocab);
        if (!(fabsf(r->bias[i].bias) <= 1e6f))
            return err_set(err, CVN_EINVAL, "the bias of token %d is %g; give -1e6 to 1e6",
                           (int)r->bias[i].token, (double)r->bias[i].bias);
    }
    return CVN_OK;
}

int adjust_prepare(cvn_engine *e, const cvn_request *r, cvn_err *err)
{
    const SpecialIds *eos = &e->model->io.config.eos;
    if (!r->constraint || e->words)
        return CVN_OK;
    return vocabulary_of(e->model->tokenizer, (cvn_token)vocab_of(e), eos->id, (size_t)eos->n,
                         &e->words, err);
}

/* What is added to the logits of a row, where they are allowed. */
static float *bias_of(const RowAdjust *a)
{
    return a->text ? a->base : a->added;
}

static bool allows(const RowAdjust *a, int32_t token)
{
    return a->mask[token / 32] >> (token % 32) & 1;
}

/* Where the token is allowed its logit gets what was added to its bias. */
static void show(RowAdjust *a, int32_t token)
{
    if (a->text && allows(a, token))
        a->added[token] = a->base[token];
}

/* Ends of text have this bias, or, for 0, what the request itself gives them. */
static void set_end(const cvn_engine *e, RowAdjust *a, float bias)
{
    const cvn_request *r = a->request;
    const SpecialIds *eos = &e->model->io.config.eos;
    for (int64_t i = 0; i < eos->n + r->n_end; i++) {
        int32_t id = i < eos->n ? eos->id[i] : r->end[i - eos->n];
        float sum = bias;
        for (int64_t k = 0; k < r->n_bias; k++)
            sum += r->bias[k].token == id ? r->bias[k].bias : 0;
        if (id < 0 || (size_t)id >= vocab_of(e))
            continue;
        bias_of(a)[id] = sum;
        show(a, id);
    }
}

/* Whether there is memory for a text. */
static bool has_room(const cvn_engine *e, RowAdjust *a)
{
    size_t vocab = vocab_of(e);
    a->base = a->base ? a->base : malloc(vocab * sizeof *a->base);
    a->mask = a->mask ? a->mask : malloc(CVN_MASK_WORDS(vocab) * sizeof *a->mask);
    a->made = a->made ? a->made : malloc(CVN_MASK_WORDS(vocab) * sizeof *a->made);
    if (a->base && a->mask && a->made)
        return true;
    err_set(&a->err, CVN_EMEM, "no memory for the constraint of a request");
    return false;
}

static void begin_text(const cvn_engine *e, RowAdjust *a)
{
    if (!has_room(e, a))
        return;
    memset(a->base, 0, vocab_of(e) * sizeof *a->base);
    memset(a->mask, 0, CVN_MASK_WORDS(vocab_of(e)) * sizeof *a->mask);
    for (size_t i = 0; i < vocab_of(e); i++)
        a->added[i] = -INFINITY;
    cvn_constrained_new(a->request->constraint, e->words, &a->text, &a->err);
}

/* The mask after what the text is; false with a->err set where there is none. *n: tokens in it, *only: the last of them. */
static bool make_mask(RowAdjust *a, size_t vocab, cvn_constrained *text, int *n, int32_t *only)
{
    const cvn_request *r = a->request;
    *n = 0;
    if (cvn_constrained_mask(text, a->made, &a->err))
        return false;
    for (int64_t i = 0; i < r->n_end && cvn_constrained_complete(text); i++)
        a->made[r->end[i] / 32] |= 1u << (r->end[i] % 32);
    for (size_t w = 0; w < CVN_MASK_WORDS(vocab); w++) {
        *only = a->made[w] ? (int32_t)(w * 32) + __builtin_ctz(a->made[w]) : *only;
        *n += __builtin_popcount(a->made[w]);
    }
    if (!*n)
        err_set(&a->err, CVN_EUNSUPPORTED, "no token of the vocabulary goes on with this text");
    return *n > 0;
}

/* Lets only those tokens through with which the text goes on. What was let through before and is again stays as it lies: most
   of a vocabulary, within a string. */
static void put_mask(const cvn_engine *e, RowAdjust *a)
{
    size_t vocab = vocab_of(e);
    int n;
    if (!make_mask(a, vocab, a->text, &n, &a->only))
        return;
    a->only = n == 1 ? a->only : -1;
    for (size_t w = 0; w < CVN_MASK_WORDS(vocab); w++)
        for (uint32_t change = a->made[w] ^ a->mask[w]; change; change &= change - 1) {
            size_t i = w * 32 + (size_t)__builtin_ctz(change);
            a->added[i] = a->made[w] >> (i % 32) & 1 ? a->base[i] : -INFINITY;
        }
    uint32_t *before = a->mask;
    a->mask = a->made;
    a->made = before;
}

void adjust_begin(cvn_engine *e, int row, const cvn_request *r)
{
    RowAdjust *a = &e->adjust[row];
    if (a->request) { /* what it left */
        memset(a->added, 0, vocab_of(e) * sizeof(float));
        memset(a->seen, 0, vocab_of(e));
        cvn_constrained_free(a->text);
        a->text = NULL;
    }
    a->request = r && adjust_wanted(e, r) ? r : NULL;
    a->drawn = 0;
    a->logits = NULL;
    if (r)
        a->err = (cvn_err){0};
    if (!a->request)
        return;
    if (r->constraint)
        begin_text(e, a);
    for (int64_t i = 0; i < r->n_bias; i++) /* of a text nothing is allowed yet */
        bias_of(a)[r->bias[i].token] += r->bias[i].bias;
    if (r->min_tokens > 0)
        set_end(e, a, NEVER);
    if (a->text)
        put_mask(e, a);
}

/* A token is in the text. */
static void note(const cvn_engine *e, RowAdjust *a, int32_t token)
{
    const cvn_request *r = a->request;
    if (++a->drawn == r->min_tokens)
        set_end(e, a, 0);
    float *bias = bias_of(a);
    bias[token] -= r->sampling.frequency_penalty;
    bias[token] -= a->seen[token] ? 0 : r->sampling.presence_penalty;
    a->seen[token] = 1;
    show(a, token);
    if (a->text && !a->err.code && !engine_ends(e, r, token) &&
        cvn_constrained_advance(a->text, token, &a->err) == CVN_OK)
        put_mask(e, a);
}

int32_t adjust_drawn(cvn_engine *e, int row, int32_t token, const float *logits)
{
    RowAdjust *a = &e->adjust[row];
    for (int32_t i = 0; a->text && !a->err.code && !allows(a, token); i++)
        if (allows(a, i))
            token = i;
    a->logits = a->request->on_logits ? logits : NULL;
    note(e, a, token);
    return token;
}

/* A row's state, to be moved on without it; false: there is no memory. */
static bool copy_state(const cvn_engine *e, const RowAdjust *from, RowAdjust *to)
{
    size_t vocab = vocab_of(e);
    to->request = from->request;
    to->drawn = from->drawn;
    to->err = (cvn_err){0};
    memcpy(to->seen, from->seen, vocab);
    if (!from->text)
        return true;
    if (!has_room(e, to) || !(to->text = cvn_constrained_clone(from->text)))
        return false;
    memcpy(to->base, from->base, vocab * sizeof *to->base);
    memcpy(to->mask, from->mask, CVN_MASK_WORDS(vocab) * sizeof *to->mask);
    return true;
}

int adjust_forced(cvn_engine *e, int row, int32_t *token, int most)
{
    RowAdjust *a = &e->adjust[row];
    int32_t next = a->only;
    int n = 0, allowed = 1;
    if (!a->request || !a->text || a->err.code || next < 0)
        return 0;
    cvn_constrained *text = cvn_constrained_clone(a->text);
    while (text && n < most && allowed == 1 && !engine_ends(e, a->request, next)) {
        token[n++] = next;
        if (cvn_constrained_advance(text, next, NULL) ||
            !make_mask(a, vocab_of(e), text, &allowed, &next))
            break;
    }
    a->err = (cvn_err){0}; /* whoever comes there will meet it again */
    cvn_constrained_free(text);
    return n;
}

int adjust_ahead(cvn_engine *e, int row, const int32_t *token, int n, float *bias)
{
    const RowAdjust *own = &e->adjust[row];
    RowAdjust *a = &e->adjust[e->options.rows];
    size_t vocab = vocab_of(e);
    int i = 0;
    memcpy(bias, own->added, vocab * sizeof *bias);
    if (!own->request)
        memset(bias + vocab, 0, (size_t)n * vocab * sizeof *bias);
    if (!own->request || own->err.code || !copy_state(e, own, a))
        return own->request ? 0 : n;
    for (a->added = bias; i < n && !engine_ends(e, a->request, token[i]); i++) {
        if (a->text && !allows(a, token[i]))
            break;
        memcpy(a->added + vocab, a->added, vocab * sizeof *bias);
        a->added += vocab;
        note(e, a, token[i]);
        if (a->err.code)
            break;
    }
    cvn_constrained_free(a->text);
    a->text = NULL;
    return i;
}
