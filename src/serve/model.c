/* Opening a model: files, the dtype that is computed
   with, tokenizer, and text in and out. */
#include "serve/model.h"

#include "io/model_names.h"

#include <stdlib.h>
#include <string.h>

/* The type that is computed in, and whether weights are rounded to fewer bits on their way. */
static int choose_types(cvn_model *m, const cvn_model_options *options, cvn_err *err)
{
    cvn_dtype dtype = options->dtype;
    if (dtype == CVN_DTYPE_COUNT)
        dtype = model_dtype(m->io.desc) == CVN_F32 ? CVN_F32 : CVN_BF16;
    if (dtype != CVN_F32 && dtype != CVN_BF16)
        return err_set(err, CVN_EUNSUPPORTED, "cannot compute in %s; use f32 or bf16",
                       cvn_dtype_name(dtype));
    m->dtype = dtype;
    QuantScheme scheme;
    if (!options->quantize) {
        io_keep_blocks(&m->io);
        return CVN_OK;
    }
    TRY(quant_parse(options->quantize, &scheme, err));
    m->quantize = arena_printf(&m->io.arena, "%s", options->quantize);
    return scheme.kind == QUANT_NONE ? CVN_OK : io_quantize(&m->io, scheme, err);
}

int model_open_tokenizer(cvn_model *m, const char *path, cvn_err *err)
{
    cvn_err *why = &m->tokenizer_err;
    if (tokenizer_open(path, &m->tokenizer, why) == CVN_EIO && m->io.adapter) {
        *why = (cvn_err){0}; /* adapters without a tokenizer have that of their model */
        tokenizer_open(m->io.path, &m->tokenizer, why);
    }
    if (why->code == CVN_EMEM)
        return err_set(err, CVN_EMEM, "%s", why->message);
    if (why->code && why->code != CVN_EIO)
        strbuf_printf(&m->warnings, "%s; only token ids are supported\n", why->message);
    int64_t n = m->tokenizer ? tokenizer_vocab_size(m->tokenizer) : 0;
    if (n > model_vocab(m->io.desc))
        strbuf_printf(
            &m->warnings,
            "%s: the tokenizer has %lld tokens, the model only %lld: some text cannot be scored\n",
            path, (long long)n, (long long)model_vocab(m->io.desc));
    return CVN_OK;
}

typedef struct Opening {
    cvn_model *m;
    const char *path;
    const cvn_model_options *options;
} Opening;

static int open_model(void *of, cvn_err *err)
{
    const Opening *o = of;
    const cvn_model_options *options = o->options;
    const char *path = o->path;
    cvn_model *m = o->m;
    TRY(io_open_as(&m->io, path, options->text_only ? IO_TEXT_ONLY : 0, err));
    m->open = true;
    for (const char *line = model_warnings(m->io.desc); *line;) {
        size_t n = strcspn(line, "\n");
        strbuf_printf(&m->warnings, "%s: %.*s\n", path, (int)n, line);
        line += n + (line[n] == '\n');
    }
    int code = choose_types(m, options, err);
    if (code || options->no_tokenizer)
        return code;
    if (options->tokenizer) /* that one, or none */
        return tokenizer_open(options->tokenizer, &m->tokenizer, err);
    return model_open_tokenizer(m, path, err);
}

int cvn_model_find(const char *name, char **path, cvn_err *err)
{
    FilePath found;
    bool here = file_exists(name);
    *path = NULL;
    if (!here && !model_names_find(name, &found))
        return err_set(err, CVN_EIO, "there is no file, folder or model %s%s%s", name,
                       model_names_of_hub(name) ? "; to fetch it: caravan pull " : "",
                       model_names_of_hub(name) ? name : "");
    *path = strdup(here ? name : found.text);
    return *path ? CVN_OK : err_set(err, CVN_EMEM, "no memory for a path");
}

int cvn_model_open(const char *path, const cvn_model_options *options, cvn_model **out,
                   cvn_err *err)
{
    static const cvn_model_options defaults = {.dtype = CVN_DTYPE_COUNT};
    cvn_err unseen = {0};
    err = err ? err : &unseen;
    options = options ? options : &defaults;
    *out = NULL;
    cvn_model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(err, CVN_EMEM, "no memory for a model");
    int code = protect(open_model, &(Opening){m, path, options}, "opening a model", err);
    if (code)
        cvn_model_free(m);
    else
        *out = m;
    return code;
}

void cvn_model_free(cvn_model *m)
{
    if (!m)
        return;
    tokenizer_free(m->tokenizer);
    if (m->open)
        io_close_model(&m->io);
    strbuf_free(&m->warnings);
    free(m);
}

const char *cvn_model_warnings(const cvn_model *m)
{
    return m->warnings.text ? m->warnings.text : "";
}

int64_t cvn_model_context(const cvn_model *m)
{
    return model_context(m->io.desc);
}

int64_t cvn_model_vocab(const cvn_model *m)
{
    return model_vocab(m->io.desc);
}

int64_t cvn_model_width(const cvn_model *m)
{
    return model_width(m->io.desc);
}

cvn_dtype cvn_model_dtype(const cvn_model *m)
{
    return m->dtype;
}

bool cvn_model_has_tokenizer(const cvn_model *m)
{
    return m->tokenizer != NULL;
}

int32_t cvn_model_bos(const cvn_model *m)
{
    return m->tokenizer ? tokenizer_bos(m->tokenizer) : -1;
}

int32_t cvn_model_eos(const cvn_model *m)
{
    return m->tokenizer ? tokenizer_eos(m->tokenizer) : -1;
}

/* Refuses what needs a tokenizer where there is none. */
static int need_tokenizer(const cvn_model *m, cvn_err *err)
{
    if (m->tokenizer)
        return CVN_OK;
    return err_set(err, CVN_EINVAL, "the model has no tokenizer that can be read%s%s",
                   m->tokenizer_err.code ? ": " : "", m->tokenizer_err.message);
}

int cvn_model_encode(const cvn_model *m, const char *text, size_t n, unsigned flags, int32_t **ids,
                     int64_t *n_ids, cvn_err *err)
{
    *ids = NULL;
    *n_ids = 0;
    TokenIds list = {0};
    TRY(need_tokenizer(m, err));
    int code = tokenizer_encode(m->tokenizer, text, n,
                                (flags & CVN_ENCODE_BOS ? (unsigned)TOKENIZER_BOS : 0) |
                                    (flags & CVN_ENCODE_SPECIAL ? (unsigned)TOKENIZER_SPECIAL : 0),
                                &list, err);
    if (!code && list.failed)
        code = err_set(err, CVN_EMEM, "no memory for the ids of %zu bytes of text", n);
    if (code) {
        token_ids_free(&list);
        return code;
    }
    *ids = list.id;
    *n_ids = (int64_t)list.n;
    return CVN_OK;
}

int cvn_model_decode(const cvn_model *m, const int32_t *ids, int64_t n, char **text, size_t *length,
                     cvn_err *err)
{
    *text = NULL;
    *length = 0;
    StrBuf out = {0};
    TRY(need_tokenizer(m, err));
    strbuf_add(&out, "", 0);
    int code = tokenizer_decode(m->tokenizer, ids, (size_t)n, 0, &out, err);
    if (!code && out.failed)
        code = err_set(err, CVN_EMEM, "no memory for the text of %lld ids", (long long)n);
    if (code) {
        strbuf_free(&out);
        return code;
    }
    *text = out.text;
    *length = out.length;
    return CVN_OK;
}

struct cvn_decoder {
    Decoder decoder;
    StrBuf text; /* of the last call */
};

int cvn_decoder_new(const cvn_model *m, unsigned flags, cvn_decoder **out, cvn_err *err)
{
    *out = NULL;
    TRY(need_tokenizer(m, err));
    cvn_decoder *d = *out = calloc(1, sizeof *d);
    if (!d)
        return err_set(err, CVN_EMEM, "no memory for a decoder");
    decoder_init(&d->decoder, m->tokenizer,
                 (flags & CVN_DECODE_SPECIAL ? (unsigned)TOKENIZER_SPECIAL : 0) |
                     (flags & CVN_DECODE_CONTINUE ? (unsigned)TOKENIZER_CONTINUE : 0));
    return CVN_OK;
}

void cvn_decoder_free(cvn_decoder *decoder)
{
    if (decoder)
        strbuf_free(&decoder->text);
    free(decoder);
}

int cvn_decoder_push(cvn_decoder *d, const int32_t *ids, int64_t n, bool end, const char **text,
                     size_t *length, cvn_err *err)
{
    strbuf_free(&d->text);
    strbuf_puts(&d->text, "");
    for (int64_t i = 0; i < n; i++)
        TRY(decoder_push(&d->decoder, ids[i], &d->text, err));
    if (end)
        decoder_flush(&d->decoder, &d->text);
    if (d->text.failed)
        return err_set(err, CVN_EMEM, "no memory for the text of %lld ids", (long long)n);
    *text = d->text.text;
    *length = d->text.length;
    return CVN_OK;
}
