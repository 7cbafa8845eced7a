/* Embeddings, as OpenAI has them: of each text numbers that texts of like meaning have alike. */
#include "server/internal.h"

#include <stdlib.h>

static int finish(Server *s, Ask *a, Refusal *why)
{
    if (prompts_of_texts(s, a, "input", why))
        return why->status;
    if (!a->served->engine->options.pooling)
        return refuse(why, 400, NULL, "this server does not serve embeddings");
    int64_t width = cvn_model_width(a->served->model);
    a->sampling.max_tokens = 0;
    if (a->output.dimensions && a->output.dimensions != width)
        return refuse(why, 400, "dimensions",
                      "dimensions is %lld; the model supports only its own %lld",
                      (long long)a->output.dimensions, (long long)width);
    return 0;
}

static json_t *base64_json(const void *data, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = data;
    StrBuf out = {0};
    strbuf_add(&out, "", 0);
    for (size_t i = 0; i < n; i += 3) {
        size_t left = n - i;
        unsigned bits = (unsigned)in[i] << 16 | (left > 1 ? (unsigned)in[i + 1] << 8 : 0) |
                        (left > 2 ? in[i + 2] : 0);
        for (size_t k = 0; k < 4; k++)
            strbuf_putc(&out, k <= left ? digits[bits >> (18 - 6 * k) & 63] : '=');
    }
    json_t *json = json_stringn_nocheck(out.text ? out.text : "", out.length);
    strbuf_free(&out);
    return json;
}

static json_t *numbers_json(const float *x, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, json_real((double)x[i]));
    return array;
}

static json_t *whole(const Exchange *x)
{
    size_t width = (size_t)cvn_model_width(x->ask.served->model);
    json_int_t tokens = exchange_usage(x).prompt;
    json_t *data = json_array();
    for (int i = 0; i < x->ask.input.n_prompts; i++)
        json_array_append_new(
            data,
            json_pack("{s:s,s:i,s:o}", "object", "embedding", "index", i, "embedding",
                      x->ask.output.base64 ? base64_json(x->prompts.embedding[i],
                                                         width * sizeof **x->prompts.embedding)
                                           : numbers_json(x->prompts.embedding[i], width)));
    return json_pack("{s:s,s:o,s:s,s:{s:I,s:I}}", "object", "list", "data", data, "model",
                     answers_as(x), "usage", "prompt_tokens", tokens, "total_tokens", tokens);
}

const Dialect dialect_embeddings = {.path = "/v1/embeddings",
                                    .fields = &fields_embeddings,
                                    .name = "embeddings",
                                    .finish = finish,
                                    .whole = whole};
