/*
 * Generating for many requests on a few rows (continuous batching). A row that ends takes the next
 * waiting request while the others go on:
 *
 *     rows     steps →
 *     0        P0 d d d d E P3 d d d d …
 *     1        P1 d d E P2 d d d d d d …          P prefill, d decode, E end token
 *
 * Looking at tokens may be dear where they are not in host memory, so ends are looked for every
 * eos_interval steps; what a row decoded past its end is dropped, at most eos_interval - 1 tokens.
 */
#include "serve/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One call of cvn_engine_generate. */
typedef struct Run {
    cvn_engine *e;
    const cvn_request *request;
    cvn_result *result;
    int n, next;      /* requests; the first that has not started */
    int *row_of;      /* [rows] request that the row works on, or -1 */
    int32_t *history; /* [eos_interval, rows] tokens of the steps since the last look */
    cvn_token_fn *on_token;
    void *context;
    const volatile int *interrupt;
    double begin; /* of the call */
} Run;

static bool interrupted(const Run *run)
{
    return run->interrupt && *run->interrupt;
}

bool engine_is_eos(const cvn_engine *e, int32_t token)
{
    const SpecialIds *eos = &e->model->io.config.eos;
    for (int i = 0; i < eos->n; i++)
        if (eos->id[i] == token)
            return true;
    return false;
}

bool engine_ends(const cvn_engine *e, const cvn_request *request, int32_t token, int64_t n_tokens,
                 int64_t filled, bool go_on, cvn_finish *why)
{
    if (!request->ignore_eos && engine_is_eos(e, token))
        *why = CVN_FINISH_EOS;
    else if (!go_on)
        *why = CVN_FINISH_STOPPED;
    else if (n_tokens >= request->max_tokens)
        *why = CVN_FINISH_LENGTH;
    else if (filled >= e->options.context)
        *why = CVN_FINISH_CONTEXT;
    else
        return false;
    return true;
}

static void finish(Run *run, int row, cvn_finish why)
{
    cvn_result *result = &run->result[run->row_of[row]];
    result->finish = why;
    engine_set_active(run->e, row, false);
    engine_reset_row(run->e, row);
    engine_release_row(run->e, row);
    run->row_of[row] = -1;
}

/* Hands a token over; true while the row goes on. `filled` is its cache's fill when the token was
 * drawn. */
static bool take_token(Run *run, int row, int32_t token, int64_t filled)
{
    int r = run->row_of[row];
    const cvn_request *request = &run->request[r];
    cvn_result *result = &run->result[r];
    double now = clock_seconds() - run->begin;
    if (result->n_tokens == 0)
        result->first_seconds = now;
    result->n_tokens++;
    result->total_seconds = now;
    bool go_on = !run->on_token || run->on_token(run->context, r, token);
    cvn_finish why;
    if (!engine_ends(run->e, request, token, result->n_tokens, filled, go_on, &why))
        return true;
    finish(run, row, why);
    return false;
}

/* Gives every free row a request, until there are none. */
static int fill_rows(Run *run, cvn_err *err)
{
    cvn_engine *e = run->e;
    for (int row = 0; row < e->options.rows; row++) {
        while (run->row_of[row] < 0 && run->next < run->n && !interrupted(run)) {
            int r = run->next++;
            const cvn_request *request = &run->request[r];
            if (request->max_tokens < 1)
                continue;
            double begin = clock_seconds();
            engine_reset_row(e, row);
            int code =
                engine_prefill(e, row, request->prompt, request->n_prompt, &request->sampling, err);
            if (code)
                return code;
            run->result[r].prefill_seconds = clock_seconds() - begin;
            run->row_of[row] = r;
            engine_set_active(e, row, true);
            take_token(run, row, e->rows.tokens[row], e->filled[row]);
        }
    }
    return CVN_OK;
}

/* Steps until the next look: no row may outrun its
   context or its limit. 0 when no row is active. */
static int64_t steps_ahead(const Run *run)
{
    const cvn_engine *e = run->e;
    int64_t steps = e->options.eos_interval;
    bool any = false;
    for (int row = 0; row < e->options.rows; row++) {
        int r = run->row_of[row];
        if (r < 0)
            continue;
        any = true;
        int64_t room = e->options.context - e->filled[row];
        int64_t left = run->request[r].max_tokens - run->result[r].n_tokens;
        steps = room < steps ? room : steps;
        steps = left < steps ? left : steps;
    }
    return any ? steps : 0;
}

static int decode_some(Run *run, int64_t steps, cvn_err *err)
{
    cvn_engine *e = run->e;
    int rows = e->options.rows;
    for (int64_t s = 0; s < steps; s++) {
        int code = engine_decode(e, err);
        if (code)
            return code;
        memcpy(run->history + s * rows, e->rows.tokens, (size_t)rows * sizeof *run->history);
    }
    for (int row = 0; row < rows; row++)
        for (int64_t s = 0; s < steps && run->row_of[row] >= 0; s++)
            if (!take_token(run, row, run->history[s * rows + row],
                            e->filled[row] - (steps - 1 - s)))
                e->stats.wasted_tokens += steps - 1 - s;
    return CVN_OK;
}

int engine_check_request(const cvn_request *r, int i, cvn_err *err)
{
    const cvn_sampling *s = &r->sampling;
    if (!r->prompt || r->n_prompt < 1)
        return err_set(err, CVN_EINVAL, "prompt %d has no tokens", i);
    if (!(s->temperature >= 0) || isinf(s->temperature) ||
        (s->temperature > 0 && s->temperature < 1e-3f))
        return err_set(err, CVN_EINVAL, "a temperature of %g is not 0, nor 0.001 or more",
                       (double)s->temperature);
    if (s->temperature > 0 && !(s->top_p > 0))
        return err_set(err, CVN_EINVAL,
                       "a top-p of %g leaves no token; give one above 0, 1 for all",
                       (double)s->top_p);
    if (s->top_k < 0 || isnan(s->top_p) || s->top_p < 0 || !(s->min_p >= 0) || s->min_p > 1)
        return err_set(
            err, CVN_EINVAL,
            "top-k %d, top-p %g, min-p %g: expected top-k >= 0, top-p >= 0, min-p in 0 to 1",
            (int)s->top_k, (double)s->top_p, (double)s->min_p);
    if (!(s->repeat_penalty >= 0) || isinf(s->repeat_penalty))
        return err_set(err, CVN_EINVAL, "a repeat penalty of %g is no positive number",
                       (double)s->repeat_penalty);
    return CVN_OK;
}

static int run_all(Run *run, cvn_err *err)
{
    for (;;) {
        int code = fill_rows(run, err);
        if (code)
            return code;
        if (interrupted(run))
            return err_set(err, CVN_EINTERRUPTED, "interrupted");
        int64_t steps = steps_ahead(run);
        if (!steps)
            return CVN_OK;
        code = decode_some(run, steps, err);
        if (code)
            return code;
    }
}

int cvn_engine_generate(cvn_engine *e, const cvn_request *request, int n, cvn_token_fn *on_token,
                        void *context, const volatile int *interrupt, cvn_result *result,
                        cvn_err *err)
{
    if (e->options.no_generation)
        return err_set(err, CVN_EINVAL,
                       "the engine cannot generate; make it without options.no_generation");
    for (int i = 0; i < n; i++)
        if (engine_check_request(&request[i], i, err))
            return CVN_EINVAL;
    size_t rows = (size_t)e->options.rows;
    Run run = {.e = e,
               .request = request,
               .result = result,
               .n = n,
               .row_of = calloc(rows, sizeof *run.row_of),
               .history = calloc(rows * (size_t)e->options.eos_interval, sizeof *run.history),
               .on_token = on_token,
               .context = context,
               .interrupt = interrupt,
               .begin = clock_seconds()};
    int code = CVN_OK;
    if (run.row_of && run.history) {
        for (int i = 0; i < n; i++)
            result[i] = (cvn_result){.finish = CVN_FINISH_LENGTH};
        for (size_t i = 0; i < rows; i++)
            run.row_of[i] = -1;
        code = run_all(&run, err);
        for (int i = 0; i < (int)rows; i++)
            if (run.row_of[i] >= 0)
                finish(&run, i, CVN_FINISH_STOPPED);
    } else {
        code = err_set(err, CVN_EMEM, "no memory for %zu rows", rows);
    }
    free(run.row_of);
    free(run.history);
    return code;
}
