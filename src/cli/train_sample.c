#include "cli/train_sample.h"

#include "caravan/engine.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 200 };

typedef struct Generated {
    int32_t id[MOST_TOKENS];
    int64_t n;
} Generated;

static bool on_token(void *context, int request, int32_t token)
{
    Generated *g = context;
    (void)request;
    if (g->n < MOST_TOKENS)
        g->id[g->n++] = token;
    return true;
}

/* The prompt's ids; a model whose tokenizer has no begin of text starts from a line end. */
static int encode(const cvn_model *model, const char *prompt, int32_t **ids, int64_t *n,
                  cvn_err *err)
{
    int code = cvn_model_encode(model, prompt, strlen(prompt), true, ids, n, err);
    if (code || *n > 0)
        return code;
    free(*ids);
    return cvn_model_encode(model, "\n", 1, true, ids, n, err);
}

static int generate(const cvn_model *model, cvn_engine *engine, const char *prompt,
                    const volatile int *stop, char **text, cvn_err *err)
{
    int32_t *ids = NULL;
    size_t length;
    Generated generated = {0};
    cvn_result result;
    cvn_request request = {.sampling = {.temperature = 0.7F, .top_p = 0.95F, .seed = 1}};
    int code = encode(model, prompt, &ids, &request.n_prompt, err);
    int64_t room = cvn_model_context(model) - request.n_prompt;
    request.prompt = ids;
    request.max_tokens = room < MOST_TOKENS ? room : MOST_TOKENS;
    if (code == CVN_OK)
        code = cvn_engine_generate(engine, &request, 1, on_token, &generated, stop, &result, err);
    if (code == CVN_OK)
        code = cvn_model_decode(model, generated.id, generated.n, text, &length, err);
    free(ids);
    return code;
}

int train_sample(const char *folder, const char *prompt, int threads, const volatile int *stop,
                 char **text, cvn_err *err)
{
    cvn_model *model;
    cvn_engine *engine;
    cvn_engine_options options = cvn_engine_defaults();
    options.threads = threads;
    options.sampling = options.filters = true;
    *text = NULL;
    TRY(cvn_model_open(folder, &(cvn_model_options){.dtype = CVN_DTYPE_COUNT}, &model, err));
    options.context = cvn_model_context(model) < 1024 ? cvn_model_context(model) : 1024;
    int code = cvn_engine_new(model, &options, &engine, err);
    if (code == CVN_OK) {
        code = generate(model, engine, prompt, stop, text, err);
        cvn_engine_free(engine, NULL);
    }
    cvn_model_free(model);
    return code;
}
