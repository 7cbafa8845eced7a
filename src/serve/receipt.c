#include "serve/receipt.h"

#include "base/crc32c.h"
#include "base/heap.h"
#include "base/json_file.h"
#include "base/protect.h"
#include "caravan/caravan.h"
#include "text/tokenizer.h"

#include <inttypes.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

void receipt_free(Receipt *r)
{
    free(r->token);
    *r = (Receipt){0};
}

void receipt_add(Receipt *r, const float *logits, int64_t vocab, int32_t token)
{
    ReceiptToken *more = heap_more(r->token, r->n, sizeof *more), *t;
    struct sha256_ctx sum;
    if (!more) {
        r->failed = true;
        return;
    }
    r->token = more;
    t = &more[r->n++];
    *t = (ReceiptToken){.id = token};
    cvn_logprobs(logits, vocab, token, &t->logprob, NULL, NULL, 0);
    uint32_t crc = crc32c(0, logits, (size_t)vocab * sizeof *logits);
    sha256_init(&sum);
    sha256_update(&sum, sizeof r->digest, r->digest);
    sha256_update(&sum, sizeof crc, (const uint8_t *)&crc);
    sha256_update(&sum, sizeof t->logprob, (const uint8_t *)&t->logprob);
    sha256_update(&sum, sizeof t->id, (const uint8_t *)&t->id);
    sha256_digest(&sum, sizeof r->digest, r->digest);
    for (int i = 0; i < 8; i++)
        t->chain = t->chain << 8 | r->digest[i];
}

/* ---- what it came from ---- */

static void to_hex(const uint8_t *digest, char text[2 * RECEIPT_DIGEST + 1])
{
    for (int i = 0; i < RECEIPT_DIGEST; i++)
        snprintf(text + (size_t)i * 2, 3, "%02x", digest[i]);
}

static json_t *digest_json(struct sha256_ctx *sum)
{
    uint8_t digest[RECEIPT_DIGEST];
    char text[2 * RECEIPT_DIGEST + 1];
    sha256_digest(sum, sizeof digest, digest);
    to_hex(digest, text);
    return json_string(text);
}

/* With its length, so that no two lists of texts are one. */
static void add_text(struct sha256_ctx *sum, const char *text, size_t n)
{
    uint64_t length = n;
    sha256_update(sum, sizeof length, (const uint8_t *)&length);
    sha256_update(sum, n, (const uint8_t *)text);
}

json_t *receipt_weights(const IoTensors *tensors)
{
    struct sha256_ctx sum;
    sha256_init(&sum);
    for (size_t i = 0; i < tensors->n; i++) {
        const IoTensor *t = &tensors->tensor[i];
        add_text(&sum, t->name, strlen(t->name));
        add_text(&sum, t->type, strlen(t->type));
        sha256_update(&sum, (size_t)t->rank * sizeof *t->dims, (const uint8_t *)t->dims);
        if (t->data)
            sha256_update(&sum, t->bytes, t->data);
        for (int k = 0; k < t->n_parts; k++)
            sha256_update(&sum, t->part[k].bytes, t->part[k].data);
    }
    return digest_json(&sum);
}

json_t *receipt_tokenizer(const Tokenizer *tokenizer)
{
    struct sha256_ctx sum;
    if (!tokenizer)
        return json_null();
    uint64_t hash = tokenizer_hash(tokenizer);
    sha256_init(&sum);
    sha256_update(&sum, sizeof hash, (const uint8_t *)&hash);
    for (int32_t id = 0; id < tokenizer_vocab_size(tokenizer); id++) {
        size_t n = 0;
        const char *piece = tokenizer_piece(tokenizer, id, &n);
        add_text(&sum, piece ? piece : "", piece ? n : 0);
    }
    return digest_json(&sum);
}

static json_t *template_json(const Tokenizer *tokenizer)
{
    struct sha256_ctx sum;
    const char *source = tokenizer ? tokenizer_chat_template(tokenizer) : NULL;
    if (!source)
        return json_null();
    sha256_init(&sum);
    add_text(&sum, source, strlen(source));
    return digest_json(&sum);
}

static json_t *text_or_null(const char *text)
{
    return text && strcmp(text, "none") != 0 ? json_string(text) : json_null();
}

int receipt_model(const cvn_engine *e, json_t **out, cvn_err *err)
{
    *out = NULL;
    if (e->adapters.n || e->options.mesh || e->model->io.adapter)
        return err_set(err, CVN_EUNSUPPORTED,
                       "a receipt says one model on one device; leave adapters and --mesh out");
    json_t *program = json_pack(
        "{s:s,s:s,s:s,s:s,s:o,s:o,s:o,s:I}", "version", CVN_VERSION, "kernels", e->rt.info.kind,
        "numerics", e->options.numerics ? e->options.numerics : "fast", "dtype",
        cvn_dtype_name(e->model->dtype), "quantize", text_or_null(e->model->quantize), "kv_cache",
        text_or_null(e->options.kv_cache), "activations", text_or_null(e->options.activations),
        "context", (json_int_t)e->options.context);
    *out = json_pack("{s:i,s:o,s:o,s:o,s:o}", "receipt", 1, "weights",
                     receipt_weights(&e->model->io.tensors), "tokenizer",
                     receipt_tokenizer(e->model->tokenizer), "template",
                     template_json(e->model->tokenizer), "program", program);
    return *out ? CVN_OK : err_set(err, CVN_EMEM, "no memory for a receipt");
}

/* Reals as they are: JSON has doubles, which hold every float. */
static json_t *request_json(const cvn_request *q)
{
    const cvn_sampling *s = &q->sampling;
    json_t *prompt = json_array();
    bool drawn = !q->constraint && !q->n_bias && !q->n_forced && !q->min_tokens;
    for (int64_t i = 0; i < q->n_prompt; i++)
        prompt = json_append(prompt, json_integer(q->prompt[i]));
    return json_pack("{s:o,s:b,s:b,s:f,s:i,s:f,s:f,s:f,s:f,s:f,s:I}", "prompt", prompt, "drawn",
                     drawn, "ignore_eos", q->ignore_eos, "temperature", (double)s->temperature,
                     "top_k", (int)s->top_k, "top_p", (double)s->top_p, "min_p", (double)s->min_p,
                     "repeat_penalty", (double)s->repeat_penalty, "presence_penalty",
                     (double)s->presence_penalty, "frequency_penalty", (double)s->frequency_penalty,
                     "seed", (json_int_t)s->seed);
}

json_t *receipt_json(const Receipt *r, const json_t *model, const cvn_request *request)
{
    char text[2 * RECEIPT_DIGEST + 1], chain[17];
    json_t *all = json_deep_copy(model), *tokens = json_array(), *logprobs = json_array(),
           *chains = json_array();
    to_hex(r->digest, text);
    for (size_t i = 0; i < r->n; i++) {
        snprintf(chain, sizeof chain, "%016" PRIx64, r->token[i].chain);
        tokens = json_append(tokens, json_integer(r->token[i].id));
        logprobs = json_append(logprobs, json_real((double)r->token[i].logprob));
        chains = json_append(chains, json_string(chain));
    }
    all = json_with(all, "request", request_json(request));
    all = json_with(all, "tokens", tokens);
    all = json_with(all, "logprobs", logprobs);
    all = json_with(all, "chain", chains);
    return json_with(all, "logits", json_string(text));
}

int receipt_line(const Receipt *r, const json_t *model, const cvn_request *request, StrBuf *lines,
                 cvn_err *err)
{
    json_auto_t *all = r->failed ? NULL : receipt_json(r, model, request);
    SCOPED(scoped_free) char *line = all ? json_dumps(all, JSON_COMPACT) : NULL;
    if (line)
        strbuf_printf(lines, "%s\n", line);
    return line && !lines->failed ? CVN_OK : err_set(err, CVN_EMEM, "no memory for a receipt");
}

/* ---- computing it again ---- */

typedef struct Replay {
    Receipt again;
    int64_t vocab;
} Replay;

static void hear(void *context, int id, const float *logits, int32_t token)
{
    Replay *r = context;
    (void)id;
    receipt_add(&r->again, logits, r->vocab, token);
}

static int read_ids(const json_t *list, const char *what, int64_t vocab, int32_t **out, size_t *n,
                    cvn_err *err)
{
    *n = json_array_size(list);
    *out = calloc(*n + 1, sizeof **out);
    if (!*out)
        return err_set(err, CVN_EMEM, "no memory for %zu tokens", *n);
    for (size_t i = 0; i < *n; i++) {
        const json_t *id = json_array_get(list, i);
        int64_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value >= vocab)
            return err_set(err, CVN_EFORMAT, "\"%s\"[%zu] must be a token id, less than %" PRId64,
                           what, i, vocab);
        (*out)[i] = (int32_t)value;
    }
    return *n ? CVN_OK : err_set(err, CVN_EFORMAT, "\"%s\" is empty", what);
}

static double real_of(const json_t *request, const char *name)
{
    return json_number_value(json_object_get(request, name));
}

static void compare(const json_t *receipt, const Receipt *again, ReceiptDifference *out)
{
    const json_t *tokens = json_object_get(receipt, "tokens"),
                 *logprobs = json_object_get(receipt, "logprobs"),
                 *chain = json_object_get(receipt, "chain");
    out->n = json_array_size(tokens);
    for (out->at = 0; out->at < out->n; out->at++) {
        const char *digits = json_string_value(json_array_get(chain, out->at));
        out->was =
            (ReceiptToken){.id = (int32_t)json_integer_value(json_array_get(tokens, out->at)),
                           .logprob = (float)json_number_value(json_array_get(logprobs, out->at)),
                           .chain = digits ? strtoull(digits, NULL, 16) : 0};
        out->is = out->at < again->n ? again->token[out->at] : (ReceiptToken){.id = -1};
        if (out->was.id != out->is.id || out->was.chain != out->is.chain ||
            memcmp(&out->was.logprob, &out->is.logprob, sizeof(float)) != 0)
            return;
    }
}

int receipt_replay(cvn_engine *e, const json_t *receipt, ReceiptDifference *out, cvn_err *err)
{
    const json_t *q = json_object_get(receipt, "request");
    int64_t vocab = model_vocab(e->model->io.desc);
    SCOPED(scoped_free) int32_t *prompt = NULL;
    SCOPED(scoped_free) int32_t *token = NULL;
    size_t n_prompt, n;
    TRY(read_ids(json_object_get(q, "prompt"), "prompt", vocab, &prompt, &n_prompt, err));
    TRY(read_ids(json_object_get(receipt, "tokens"), "tokens", vocab, &token, &n, err));
    bool drawn = json_is_true(json_object_get(q, "drawn"));
    Replay replay = {.vocab = vocab};
    const cvn_request request = {
        .prompt = prompt,
        .n_prompt = (int64_t)n_prompt,
        .max_tokens = (int64_t)n,
        .ignore_eos = !drawn || json_is_true(json_object_get(q, "ignore_eos")),
        .forced = token,
        .n_forced = drawn ? 0 : (int64_t)n,
        .on_logits = hear,
        .sampling = {.temperature = drawn ? (float)real_of(q, "temperature") : 0,
                     .top_k = (int32_t)real_of(q, "top_k"),
                     .top_p = (float)real_of(q, "top_p"),
                     .min_p = (float)real_of(q, "min_p"),
                     .repeat_penalty = (float)real_of(q, "repeat_penalty"),
                     .presence_penalty = (float)real_of(q, "presence_penalty"),
                     .frequency_penalty = (float)real_of(q, "frequency_penalty"),
                     .seed = (uint64_t)json_integer_value(json_object_get(q, "seed"))}};
    int code = cvn_engine_submit(e, &request, &(cvn_listener){.context = &replay}, NULL, err);
    for (int left = 1; left && !code;)
        code = cvn_engine_step(e, &left, err);
    if (!code && replay.again.failed)
        code = err_set(err, CVN_EMEM, "no memory for a receipt");
    if (!code)
        compare(receipt, &replay.again, out);
    receipt_free(&replay.again);
    return code;
}
