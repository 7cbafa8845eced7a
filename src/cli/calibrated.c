#include "cli/calibrated.h"

#include "base/num.h"
#include "base/rng.h"
#include "caravan/engine.h"
#include "text/tokenizer.h"

#include <stdlib.h>

enum { ROWS = 16 /* generated together */ };

/* ---- a text of the model's own making ---- */

typedef struct Texts {
    int32_t *id; /* [pieces, length] */
    int64_t *n;  /* [pieces] that are there */
    int64_t length;
} Texts;

static bool take(void *context, int request, int32_t token)
{
    Texts *t = context;
    t->id[request * t->length + t->n[request]++] = token;
    return true;
}

/* Each piece begins as texts do (without a token for that, with one that is drawn) and is sampled from there: the same for the same
   model, however many threads there are. */
static int generate(const IoModel *model, Texts *t, int64_t pieces, cvn_engine *engine,
                    const volatile int *interrupt, cvn_err *err)
{
    const SpecialIds *begins = model_begins(model->desc);
    SCOPED(scoped_free) cvn_request *request = calloc((size_t)pieces, sizeof *request);
    SCOPED(scoped_free) cvn_result *result = calloc((size_t)pieces, sizeof *result);
    if (!request || !result)
        return err_set(err, CVN_EMEM, "no memory for generated text");
    for (int64_t i = 0; i < pieces; i++) {
        int32_t *first = &t->id[i * t->length];
        uint32_t drawn;
        rng_bits(rng_key(0, "own text"), (uint64_t)i, 1, &drawn);
        *first = begins->n ? begins->id[0] : (int32_t)(drawn % model_vocab(model->desc));
        t->n[i] = 1;
        request[i] =
            (cvn_request){.prompt = first,
                          .n_prompt = 1,
                          .max_tokens = t->length - 1,
                          .ignore_eos = true,
                          .sampling = {.temperature = 1, .top_p = 0.95f, .seed = (uint64_t)i},
                          .adapter = -1};
    }
    return cvn_engine_generate(engine, request, (int)pieces, take, t, interrupt, result, err);
}

static int own_text(int64_t n, const char *from, const IoModel *model, int threads,
                    const volatile int *interrupt, TokenIds *ids, cvn_err *err)
{
    const int64_t length = num_min(num_min(CALIBRATION_PIECE, model_context(model->desc)), n);
    const int64_t pieces = n / length;
    cvn_engine_options options = cvn_engine_defaults();
    cvn_model *opened = NULL;
    cvn_engine *engine = NULL;
    Texts t = {.length = length};
    options.slots = (int)num_min(ROWS, pieces);
    options.context = length;
    options.threads = threads;
    options.sampling = true;
    t.id = malloc((size_t)(pieces * length) * sizeof *t.id);
    t.n = calloc((size_t)pieces, sizeof *t.n);
    const cvn_model_options how = {
        .dtype = CVN_DTYPE_COUNT, .no_tokenizer = true, .text_only = model_within(model->desc)};
    int code = t.id && t.n ? CVN_OK : err_set(err, CVN_EMEM, "no memory for generated text");
    if (code == CVN_OK)
        code = cvn_model_open(from, &how, &opened, err);
    if (code == CVN_OK)
        code = cvn_engine_new(opened, &options, &engine, err);
    if (code == CVN_OK)
        code = generate(model, &t, pieces, engine, interrupt, err);
    if (engine)
        cvn_engine_free(engine, NULL);
    cvn_model_free(opened);
    free(t.n);
    if (code != CVN_OK)
        free(t.id);
    else
        *ids = (TokenIds){.id = t.id, .n = (size_t)(pieces * length)};
    return code;
}

/* ---- a file ---- */

static int text_of_file(const char *path, const char *from, const IoModel *model, TokenIds *ids,
                        cvn_err *err)
{
    SCOPED(file_unmap) FileMap map = {0};
    Tokenizer *t;
    TRY(file_map(&map, path, err));
    TRY(tokenizer_open(from, &t, err));
    int code = tokenizer_encode(t, (const char *)map.data, map.size, TOKENIZER_BOS, ids, err);
    tokenizer_free(t);
    TRY(code);
    if (ids->n < 2)
        return err_set(err, CVN_EINVAL, "'%s' is too short for calibration", path);
    for (size_t i = 0; i < ids->n; i++)
        if (ids->id[i] >= model_vocab(model->desc))
            return err_set(err, CVN_EINVAL,
                           "'%s' has a token that is not in the model's vocabulary", path);
    return CVN_OK;
}

int calibrated_by(const char *text, int64_t n, const char *from, const IoModel *model,
                  QuantScheme scheme, int threads, const volatile int *interrupt, Calibration **out,
                  cvn_err *err)
{
    SCOPED(token_ids_free) TokenIds ids = {0};
    TRY(*text ? text_of_file(text, from, model, &ids, err)
              : own_text(n, from, model, threads, interrupt, &ids, err));
    return calibration_open(out,
                            &(CalibrationOptions){.model = model,
                                                  .id = ids.id,
                                                  .n = num_min((int64_t)ids.n, n),
                                                  .scheme = scheme,
                                                  .threads = threads,
                                                  .interrupt = interrupt},
                            err);
}
