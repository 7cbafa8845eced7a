/* A dialog on one row; what is cached is known by its ids. */
#include "caravan/session.h"

#include "serve/engine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct cvn_session {
    cvn_engine *e; /* borrowed */
    int row;
    int32_t *cached; /* [context] ids whose keys and values the row's cache holds, owned */
    int64_t n;       /* of cached; equals e->filled[row] while the row is ours */
    int64_t resets;  /* e->resets[row] when the row was last ours */
    cvn_session_stats stats;
};

int cvn_session_new(cvn_engine *e, int row, cvn_session **out, cvn_err *err)
{
    *out = NULL;
    if (e->options.no_generation)
        return err_set(err, CVN_EINVAL,
                       "the engine cannot generate; make it without options.no_generation");
    if (row < 0 || row >= e->options.rows)
        return err_set(err, CVN_EINVAL, "there is no row %d; the engine has %d", row,
                       e->options.rows);
    cvn_session *s = calloc(1, sizeof *s);
    int32_t *cached = calloc((size_t)e->options.context, sizeof *cached);
    if (!s || !cached) {
        free(s);
        free(cached);
        return err_set(err, CVN_EMEM, "no memory for a session of %" PRId64 " tokens",
                       e->options.context);
    }
    *s = (cvn_session){.e = e, .row = row, .cached = cached};
    cvn_session_reset(s);
    *out = s;
    return CVN_OK;
}

void cvn_session_free(cvn_session *s)
{
    if (!s)
        return;
    cvn_session_reset(s);
    free(s->cached);
    free(s);
}

void cvn_session_reset(cvn_session *s)
{
    engine_reset_row(s->e, s->row);
    engine_release_row(s->e, s->row);
    s->resets = s->e->resets[s->row];
    s->n = 0;
}

cvn_session_stats cvn_session_get_stats(const cvn_session *s)
{
    cvn_session_stats stats = s->stats;
    stats.cached = s->resets == s->e->resets[s->row] ? s->n : 0;
    stats.context = s->e->options.context;
    return stats;
}

/* How much of the prompt the cache begins with. The last token
 * is always computed, because what follows it is wanted. */
static int64_t common_prefix(const cvn_session *s, const cvn_request *request)
{
    int64_t most = request->n_prompt - 1 < s->n ? request->n_prompt - 1 : s->n, n = 0;
    while (n < most && s->cached[n] == request->prompt[n])
        n++;
    return n;
}

static bool is_set(const volatile int *interrupt)
{
    return interrupt && *interrupt;
}

static int interrupted(cvn_err *err)
{
    return err_set(err, CVN_EINTERRUPTED, "interrupted");
}

/* Computes what of the prompt is not cached, in sections, so that a long one can be interrupted. */
static int prefill(cvn_session *s, const cvn_request *request, const volatile int *interrupt,
                   cvn_err *err)
{
    cvn_engine *e = s->e;
    int64_t section = e->options.bucket[e->options.n_buckets - 1];
    while (s->n < request->n_prompt) {
        if (is_set(interrupt))
            return interrupted(err);
        int64_t left = request->n_prompt - s->n, part = left < section ? left : section;
        const int32_t *from = request->prompt + s->n;
        int code = engine_prefill(e, s->row, from, part, &request->sampling, err);
        if (code)
            return code;
        memcpy(s->cached + s->n, from, (size_t)part * sizeof *from);
        s->n += part;
    }
    return CVN_OK;
}

/* Hands tokens over and decodes the next until something ends the text. */
static int decode(cvn_session *s, const cvn_request *request, cvn_token_fn *on_token, void *context,
                  const volatile int *interrupt, cvn_session_result *result, cvn_err *err)
{
    cvn_engine *e = s->e;
    for (;;) {
        int32_t token = e->rows.tokens[s->row];
        result->n_tokens++;
        bool go_on = !on_token || on_token(context, 0, token);
        if (engine_ends(e, request, token, result->n_tokens, s->n, go_on, &result->finish))
            return CVN_OK;
        if (is_set(interrupt))
            return interrupted(err);
        int code = engine_decode(e, err);
        if (code)
            return code;
        s->cached[s->n++] = token;
    }
}

/* Goes back to the first `keep` tokens of what is cached. */
static void truncate_to(cvn_session *s, int64_t keep)
{
    s->n = keep;
    s->e->filled[s->row] = keep;
    s->e->rows.start[s->row] = (int32_t)keep;
    engine_set_seen(s->e, s->row, s->cached, keep);
}

int cvn_session_generate(cvn_session *s, const cvn_request *request, cvn_token_fn *on_token,
                         void *context, const volatile int *interrupt, cvn_session_result *result,
                         cvn_err *err)
{
    cvn_engine *e = s->e;
    *result = (cvn_session_result){.finish = CVN_FINISH_STOPPED};
    if (engine_check_request(request, 0, err))
        return CVN_EINVAL;
    if (request->max_tokens < 1)
        return err_set(err, CVN_EINVAL,
                       "an answer of %" PRId64 " tokens was asked for; give 1 or more",
                       request->max_tokens);
    if (s->resets != e->resets[s->row]) /* somebody else used the row */
        cvn_session_reset(s);
    if (request->n_prompt > e->options.context) {
        result->finish = CVN_FINISH_CONTEXT;
        return CVN_OK;
    }
    double begin = clock_seconds();
    result->reused = common_prefix(s, request);
    truncate_to(s, result->reused);
    int code = prefill(s, request, interrupt, err);
    result->computed = s->n - result->reused;
    double first = clock_seconds();
    result->prefill_seconds = first - begin;
    if (code == CVN_OK) {
        engine_set_active(e, s->row, true);
        code = decode(s, request, on_token, context, interrupt, result, err);
        engine_set_active(e, s->row, false);
        result->decode_seconds = clock_seconds() - first;
    }
    s->stats.turns++;
    s->stats.reused += result->reused;
    s->stats.computed += result->computed;
    s->stats.generated += result->n_tokens;
    s->stats.prefill_seconds += result->prefill_seconds;
    s->stats.decode_seconds += result->decode_seconds;
    return code;
}
