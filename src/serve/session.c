/* A dialog on one slot; what is cached is known by its ids. */
#include "serve/session.h"

#include "base/num.h"
#include "serve/windows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int cvn_session_new(cvn_engine *e, int slot, cvn_session **out, cvn_err *err)
{
    *out = NULL;
    if (e->options.no_generation)
        return err_set(err, CVN_EINVAL,
                       "the engine cannot generate; create it without options.no_generation");
    if (slot < 0 || slot >= e->options.slots)
        return err_set(err, CVN_EINVAL, "slot %d does not exist; the engine has %d", slot,
                       e->options.slots);
    cvn_session *s = calloc(1, sizeof *s);
    int32_t *cached = calloc((size_t)e->options.context + 1, sizeof *cached);
    if (!s || !cached) {
        free(s);
        free(cached);
        return err_set(err, CVN_EMEM, "no memory for a session of %" PRId64 " tokens",
                       e->options.context);
    }
    *s = (cvn_session){.e = e, .kept = {.slot = slot, .resets = -1}, .cached = cached};
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

bool session_is_ours(const cvn_session *s)
{
    return s->kept.resets == s->e->resets[s->kept.slot];
}

void cvn_session_reset(cvn_session *s)
{
    if (session_is_ours(s))
        engine_reset_slot(s->e, s->kept.slot);
    s->kept.n = 0;
}

cvn_session_stats cvn_session_get_stats(const cvn_session *s)
{
    cvn_session_stats stats = s->stats;
    stats.cached = session_is_ours(s) ? s->kept.n : 0;
    stats.context = s->e->options.context;
    return stats;
}

/* One call. */
typedef struct Answer {
    cvn_session *s;
    cvn_token_fn *on_token;
    cvn_logits_fn *on_logits;
    void *context;
    int64_t at; /* of the next token in the dialog */
    cvn_result result;
    int left; /* 1 until it has ended */
} Answer;

static bool hear(void *context, int id, int32_t token)
{
    Answer *a = context;
    (void)id;
    a->s->cached[a->at++] =
        token; /* the last one, which no cache holds, may be beyond the context */
    return !a->on_token || a->on_token(a->context, 0, token);
}

static void see(void *context, int id, const float *logits, int32_t token)
{
    Answer *a = context;
    (void)id;
    a->on_logits(a->context, 0, logits, token);
}

static void end(void *context, int id, const cvn_result *result)
{
    Answer *a = context;
    (void)id;
    a->result = *result;
    a->left = 0;
}

int cvn_session_generate(cvn_session *s, const cvn_request *request, cvn_token_fn *on_token,
                         void *context, const volatile int *interrupt, cvn_session_result *result,
                         cvn_err *err)
{
    cvn_engine *e = s->e;
    *result = (cvn_session_result){.finish = CVN_FINISH_STOPPED};
    if (e->queue.busy)
        return err_set(err, CVN_EINVAL,
                       "a step callback may submit and cancel requests, but not generate");
    if (request->max_tokens < 1)
        return err_set(err, CVN_EINVAL, "max_tokens is %" PRId64 "; give 1 or more",
                       request->max_tokens);
    if (request->n_prompt > e->options.context) {
        result->finish = CVN_FINISH_CONTEXT;
        return CVN_OK;
    }
    TRY(engine_check_request(e, request, 0, err));
    Answer a = {.s = s,
                .on_token = on_token,
                .on_logits = request->on_logits,
                .context = context,
                .at = request->n_prompt,
                .left = 1};
    cvn_request heard = *request;
    heard.on_logits = request->on_logits ? see : NULL;
    const cvn_listener listener = {hear, end, &a};
    /* What of the prompt the cache begins with; the last token is always computed, because what follows it is wanted. */
    int64_t most = session_is_ours(s) ? num_min(request->n_prompt - 1, s->kept.n) : 0;
    for (s->kept.n = 0; s->kept.n < most && s->cached[s->kept.n] == request->prompt[s->kept.n];)
        s->kept.n++;
    s->kept.n = windows_back(e, s->kept.slot, s->kept.n);
    memcpy(s->cached, request->prompt, (size_t)request->n_prompt * sizeof *s->cached);
    int id, code = scheduler_submit(e, &heard, &listener, &s->kept, &id, err);
    if (code == CVN_OK) {
        code = scheduler_run(e, &a.left, interrupt, err);
        if (a.left)
            cvn_engine_cancel(e, id, NULL);
    }
    const cvn_result *r = &a.result;
    *result = (cvn_session_result){.n_tokens = r->n_tokens,
                                   .reused = r->reused,
                                   .computed = r->computed,
                                   .finish = r->finish,
                                   .prefill_seconds = r->first_seconds,
                                   .decode_seconds = r->total_seconds - r->first_seconds};
    s->stats.turns++;
    s->stats.reused += result->reused;
    s->stats.computed += result->computed;
    s->stats.generated += result->n_tokens;
    s->stats.prefill_seconds += result->prefill_seconds;
    s->stats.decode_seconds += result->decode_seconds;
    return code;
}
