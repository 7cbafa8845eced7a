/* A dialog whose text is kept. */
#include "serve/session.h"

#include "serve/prefix.h"
#include "serve/scheduler.h"

#include <inttypes.h>
#include <stdlib.h>

int cvn_session_new(cvn_engine *e, cvn_session **out, cvn_err *err)
{
    *out = NULL;
    if (e->options.no_generation)
        return err_set(err, CVN_EINVAL,
                       "the engine cannot generate; create it without options.no_generation");
    cvn_session *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, CVN_EMEM, "no memory for a session");
    s->e = e;
    *out = s;
    return CVN_OK;
}

void cvn_session_free(cvn_session *s)
{
    if (s)
        cvn_session_reset(s);
    free(s);
}

void cvn_session_reset(cvn_session *s)
{
    int text = prefix_own(s->e, s);
    if (text >= 0)
        prefix_drop(s->e, text);
}

cvn_session_stats cvn_session_get_stats(const cvn_session *s)
{
    cvn_session_stats stats = s->stats;
    int text = prefix_own(s->e, s);
    stats.cached = text >= 0 ? s->e->prefix->kept[text - s->e->options.slots].n : 0;
    stats.context = s->e->options.context;
    return stats;
}

int cvn_session_generate(cvn_session *s, const cvn_request *request, cvn_token_fn *on_token,
                         void *context, const volatile int *interrupt, cvn_session_result *result,
                         cvn_err *err)
{
    cvn_engine *e = s->e;
    *result = (cvn_session_result){.finish = CVN_FINISH_STOPPED};
    if (request->max_tokens < 1)
        return err_set(err, CVN_EINVAL, "max_tokens is %" PRId64 "; give 1 or more",
                       request->max_tokens);
    if (request->n_prompt > e->options.context) {
        result->finish = CVN_FINISH_CONTEXT;
        return CVN_OK;
    }
    cvn_result r = {0};
    int code = generate_all(e, s, request, 1, on_token, context, interrupt, &r, err);
    *result = (cvn_session_result){.n_tokens = r.n_tokens,
                                   .reused = r.reused,
                                   .computed = r.computed,
                                   .finish = r.finish,
                                   .prefill_seconds = r.first_seconds,
                                   .decode_seconds = r.total_seconds - r.first_seconds};
    s->stats.turns++;
    s->stats.reused += result->reused;
    s->stats.computed += result->computed;
    s->stats.generated += result->n_tokens;
    s->stats.prefill_seconds += result->prefill_seconds;
    s->stats.decode_seconds += result->decode_seconds;
    return code;
}
