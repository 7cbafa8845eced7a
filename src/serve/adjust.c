#include "serve/adjust.h"

#include <inttypes.h>
#include <math.h>
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
    e->adjust = arena_array(&e->arena, rows, sizeof *e->adjust);
    uint8_t *seen = arena_array(&e->arena, rows * vocab, 1);
    for (size_t i = 0; i < rows; i++)
        e->adjust[i].seen = seen + i * vocab;
}

static bool is_on(float x, float off)
{
    return x < off || x > off;
}

bool adjust_wanted(const cvn_engine *e, const cvn_request *r)
{
    const cvn_sampling *s = &r->sampling;
    bool penalty = e->options.adjust && s->repeat_penalty > 0 && is_on(s->repeat_penalty, 1);
    return r->n_bias || r->min_tokens > 0 || r->on_logits || penalty ||
           is_on(s->presence_penalty, 0) || is_on(s->frequency_penalty, 0);
}

int adjust_check(const cvn_engine *e, const cvn_request *r, cvn_err *err)
{
    const cvn_sampling *s = &r->sampling;
    if (!(fabsf(s->presence_penalty) <= 100) || !(fabsf(s->frequency_penalty) <= 100))
        return err_set(err, CVN_EINVAL,
                       "presence and frequency penalties are %g and %g; give -100 to 100",
                       (double)s->presence_penalty, (double)s->frequency_penalty);
    if (!adjust_wanted(e, r))
        return CVN_OK;
    if (!e->options.adjust)
        return err_set(err, CVN_EINVAL,
                       "the request has biases, penalties, min_tokens or wants logits; make the "
                       "engine with options.adjust");
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

static float *bias_of(const cvn_engine *e, int row)
{
    return e->rows.bias + (size_t)row * vocab_of(e);
}

/* Ends of text have this bias, or, for 0, what the request itself gives them. */
static void set_end(cvn_engine *e, int row, float bias)
{
    const cvn_request *r = e->adjust[row].request;
    const SpecialIds *eos = &e->model->io.config.eos;
    for (int i = 0; i < eos->n; i++) {
        float sum = bias;
        for (int64_t k = 0; k < r->n_bias; k++)
            sum += r->bias[k].token == eos->id[i] ? r->bias[k].bias : 0;
        if (eos->id[i] >= 0 && (size_t)eos->id[i] < vocab_of(e))
            bias_of(e, row)[eos->id[i]] = sum;
    }
}

void adjust_begin(cvn_engine *e, int row, const cvn_request *r)
{
    RowAdjust *a = &e->adjust[row];
    if (a->request) { /* what it left */
        memset(bias_of(e, row), 0, vocab_of(e) * sizeof(float));
        memset(a->seen, 0, vocab_of(e));
    }
    a->request = r && adjust_wanted(e, r) ? r : NULL;
    a->drawn = 0;
    a->logits = NULL;
    if (!a->request)
        return;
    for (int64_t i = 0; i < r->n_bias; i++)
        bias_of(e, row)[r->bias[i].token] += r->bias[i].bias;
    if (r->min_tokens > 0)
        set_end(e, row, NEVER);
}

void adjust_drawn(cvn_engine *e, int row, int32_t token, const float *logits)
{
    RowAdjust *a = &e->adjust[row];
    const cvn_request *r = a->request;
    a->logits = r->on_logits ? logits : NULL;
    if (++a->drawn == r->min_tokens)
        set_end(e, row, 0);
    float *bias = bias_of(e, row);
    bias[token] -= r->sampling.frequency_penalty;
    bias[token] -= a->seen[token] ? 0 : r->sampling.presence_penalty;
    a->seen[token] = 1;
}
