/*
 * What an engine computes on a mesh against what it computes on one device: log-probabilities of a text, and texts
 * that prompts of different lengths go on with, greedily.
 */
#ifndef CVN_TESTS_MESH_ANSWERS_H
#define CVN_TESTS_MESH_ANSWERS_H

#include "serve/engine.h"
#include "unit.h"

#include <math.h>

enum { ANSWER_TOKENS = 40, ANSWER_NEW = 12, ANSWER_TEXTS = 3 };

typedef struct Question {
    const char *variant;  /* of tests/data/llama, or the path of a folder */
    const char *quantize; /* while loading, or NULL */
    int rows, n_tokens;   /* of the engine; that are scored */
    int n_new;            /* of each text */
    int first,
        more; /* length of the first prompt, and of each by how much more than the one before */
    const char *device;   /* NULL: the CPU */
    int64_t context;      /* 0: 64 */
    const char *kv_cache; /* as in cvn_engine_options */
} Question;

typedef struct Answers {
    float logprob[ANSWER_TOKENS];
    int32_t argmax[ANSWER_TOKENS];
    int32_t text[ANSWER_TEXTS][ANSWER_NEW];
    int n[ANSWER_TEXTS];
} Answers;

static inline bool answers_collect(void *context, int request, int32_t token)
{
    Answers *a = context;
    a->text[request][a->n[request]++] = token;
    return true;
}

static inline cvn_model *answers_model(const char *variant, const char *quantize)
{
    char path[512];
    cvn_err err = {0};
    cvn_model *model = NULL;
    cvn_model_options options = {.dtype = CVN_F32, .no_tokenizer = true, .quantize = quantize};
    if (variant[0] == '/')
        snprintf(path, sizeof path, "%s", variant);
    else
        snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, variant);
    must(cvn_model_open(path, &options, &model, &err), &err);
    return model;
}

/* mesh NULL: one device. 0 or the error. */
static inline int answers_ask(const Question *q, const char *mesh, const char *layout, Answers *a,
                              cvn_err *err)
{
    cvn_model *model = answers_model(q->variant, q->quantize);
    cvn_engine *engine = NULL;
    cvn_engine_options options = {.slots = q->rows,
                                  .threads = 1,
                                  .scoring = true,
                                  .context = q->context ? q->context : 64,
                                  .kv_cache = q->kv_cache,
                                  .n_buckets = 1,
                                  .bucket = {16},
                                  .device = q->device,
                                  .mesh = mesh,
                                  .layout = layout};
    int32_t token[ANSWER_TOKENS];
    cvn_request request[ANSWER_TEXTS] = {0};
    cvn_result result[ANSWER_TEXTS];
    for (int i = 0; i < ANSWER_TOKENS; i++)
        token[i] = (int32_t)((i * 37 + 11) % cvn_model_vocab(model));
    for (int i = 0; i < ANSWER_TEXTS; i++)
        request[i] = (cvn_request){.prompt = token + i,
                                   .n_prompt = q->first + q->more * i,
                                   .max_tokens = q->n_new,
                                   .ignore_eos = true,
                                   .sampling = {.top_p = 1}};
    *a = (Answers){0};
    int rc = cvn_engine_new(model, &options, &engine, err);
    if (!rc)
        rc = cvn_engine_score(engine, token, q->n_tokens, a->logprob, a->argmax, err);
    if (!rc)
        rc = cvn_engine_generate(engine, request, ANSWER_TEXTS, answers_collect, a, NULL, result,
                                 err);
    cvn_engine_free(engine, NULL);
    cvn_model_free(model);
    return rc;
}

/* On this mesh they are those of one device, `whole`: log-probabilities to `most`, texts to the token. */
static inline void answers_check(const Question *q, const Answers *whole, const char *mesh,
                                 const char *layout, double most)
{
    Answers parts;
    cvn_err err = {0};
    if (answers_ask(q, mesh, layout, &parts, &err))
        fail_msg("%s on %s by %s: %s", q->variant, mesh, layout, err.message);
    for (int i = 1; i < q->n_tokens; i++) {
        double a = (double)whole->logprob[i], b = (double)parts.logprob[i];
        if (!(fabs(a - b) <= most * (1 + fabs(a))))
            fail_msg("%s on %s by %s: token %d scores %.7f, not %.7f", q->variant, mesh, layout, i,
                     b, a);
    }
    for (int t = 0; t < ANSWER_TEXTS; t++)
        if (parts.n[t] != q->n_new || whole->n[t] != q->n_new ||
            memcmp(whole->text[t], parts.text[t], sizeof whole->text[t]) != 0)
            fail_msg("%s on %s by %s: text %d differs", q->variant, mesh, layout, t);
}

#endif
