/*
 * A dialog on an engine, its KV cache kept from one call to the next.
 *
 *     cvn_session *session;
 *     cvn_session_new(engine, &session, &err);
 *     ids = whole dialog so far;
 *     cvn_session_generate(session, &request, on_token, context, &interrupt, &result, &err);
 *     ids = ids + answer + next turn;          and so on
 *
 * Every call is given the whole dialog. What it has in common with the beginning of what is cached
 * is not computed again, so appending a turn costs that turn, and going back or editing costs what
 * comes after the first difference:
 *
 *     cached   A B C D E F
 *     prompt   A B C D X Y Z        A B C D are reused, X Y Z computed
 *
 * The text is the same as if the dialog were computed from nothing. Several sessions may live on one engine, and calls of
 * cvn_engine_generate may come between. A session has no slot while nobody asks; where its memory is needed by others, or more
 * sessions live than an engine keeps texts (8, or with options.reuse as many as slots), the one used longest ago computes its dialog anew.
 */
#ifndef CARAVAN_SESSION_H
#define CARAVAN_SESSION_H

#include "caravan/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cvn_session cvn_session;

/* The engine must outlive the session. */
int cvn_session_new(cvn_engine *engine, cvn_session **out, cvn_err *err);
void cvn_session_free(cvn_session *session);

typedef struct cvn_session_result {
    int64_t n_tokens; /* generated, the end token included */
    int64_t reused;   /* tokens of the prompt that were in the cache already */
    int64_t computed; /* tokens of the prompt that were not */
    cvn_finish finish;
    double prefill_seconds; /* until the first token (TTFT) */
    double decode_seconds;  /* from the first token to the last */
} cvn_session_result;

/*
 * Goes on from request->prompt, the whole dialog. 0 in these cases, told apart by result->finish:
 *
 *     CVN_FINISH_EOS      the model ended its text
 *     CVN_FINISH_STOPPED  on_token returned false
 *     CVN_FINISH_LENGTH   max_tokens were generated
 *     CVN_FINISH_CONTEXT  the context is full. With n_tokens > 0 the answer was cut short; with
 *                         n_tokens == 0 the prompt leaves no room for one: nothing was computed
 *                         and the cache is as it was. Drop the oldest turns, begin anew, or
 *                         make an engine with a longer context.
 *
 * `interrupt` (may be NULL) is looked at between steps: nonzero ends the call with
 * CVN_EINTERRUPTED, the result filled in. After that, and after any error, the cache holds what was
 * computed and the session can go on. on_token is called with request 0.
 */
int cvn_session_generate(cvn_session *session, const cvn_request *request, cvn_token_fn *on_token,
                         void *context, const volatile int *interrupt, cvn_session_result *result,
                         cvn_err *err);

/* Forgets the dialog and gives its memory back. */
void cvn_session_reset(cvn_session *session);

/* Writes what the cache holds, with its tokens, to a file (safetensors); and takes it from one, instead of what it held,
 * if that is of the same model computed in the same way, and whole: else it says so and the cache is as it was. The next call of
 * cvn_session_generate computes what the file did not hold, so that a file of another dialog does no harm. On an engine of one
 * slot, and one process: CVN_EUNSUPPORTED. */
int cvn_session_save(const cvn_session *session, const char *path, cvn_err *err);
int cvn_session_load(cvn_session *session, const char *path, cvn_err *err);

/* Over the life of the session. */
typedef struct cvn_session_stats {
    int64_t cached;                         /* tokens in the cache now */
    int64_t context;                        /* tokens that fit */
    int64_t turns;                          /* calls that computed something */
    int64_t reused, computed, generated;    /* sums of the results' */
    double prefill_seconds, decode_seconds; /* sums of the results' */
} cvn_session_stats;

cvn_session_stats cvn_session_get_stats(const cvn_session *session);

#ifdef __cplusplus
}
#endif
#endif
