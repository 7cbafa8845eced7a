/* What an engine answers to a request, kept so that two engines can be held against each other: tokens, and digests of the logits that
 * each was drawn from. */
#ifndef CVN_TESTS_ANSWER_H
#define CVN_TESTS_ANSWER_H

#include "serve/engine.h"
#include "unit.h"

enum { ANSWER_MOST = 160 };

typedef struct Answer {
    int32_t token[ANSWER_MOST];
    uint64_t logits[ANSWER_MOST]; /* of those that answer_see has seen */
    int n, seen;
    cvn_result result;
} Answer;

static inline uint64_t logits_digest(const float *logits, int64_t n)
{
    uint64_t hash = 1;
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &logits[i], sizeof bits);
        hash = hash * UINT64_C(0x9e3779b97f4a7c15) + bits;
    }
    return hash;
}

static inline bool answer_hear(void *context, int id, int32_t token)
{
    Answer *a = context;
    (void)id;
    assert_true(a->n < ANSWER_MOST);
    a->token[a->n++] = token;
    return true;
}

static inline void answer_end(void *context, int id, const cvn_result *result)
{
    Answer *a = context;
    (void)id;
    a->result = *result;
}

static int64_t answer_vocab; /* of the models */

/* A request's on_logits. */
static inline void answer_see(void *context, int id, const float *logits, int32_t token)
{
    Answer *a = context;
    (void)id;
    (void)token;
    assert_int_equal(a->seen, a->n);
    a->logits[a->seen++] = logits_digest(logits, answer_vocab);
}

/* Returns the request's id. */
static inline int answer_submit(cvn_engine *e, const cvn_request *request, Answer *answer)
{
    cvn_err err = {0};
    const cvn_listener listener = {answer_hear, answer_end, answer};
    int id;
    must(cvn_engine_submit(e, request, &listener, &id, &err), &err);
    return id;
}

/* Returns how many requests have not ended. */
static inline int engine_step(cvn_engine *e)
{
    cvn_err err = {0};
    int left;
    must(cvn_engine_step(e, &left, &err), &err);
    return left;
}

/* One of tests/data/llama. */
static inline cvn_model *open_variant(const char *variant, cvn_dtype dtype, const char *quantize)
{
    cvn_err err = {0};
    cvn_model *model;
    char path[512];
    const cvn_model_options options = {.dtype = dtype, .quantize = quantize, .no_tokenizer = true};
    snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, variant);
    must(cvn_model_open(path, &options, &model, &err), &err);
    answer_vocab = cvn_model_vocab(model);
    return model;
}

#endif
