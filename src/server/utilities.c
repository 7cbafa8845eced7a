/* Text to tokens and back, and conversations to text: what is asked about prompts, without an answer. */
#include "server/routes.h"

static json_t *ids_json(const TokenIds *ids)
{
    json_t *array = json_array();
    for (size_t i = 0; i < ids->n; i++)
        json_array_append_new(array, json_integer(ids->id[i]));
    return array;
}

int answer_count_tokens(Server *s, Ask *a, json_t **out, Refusal *why)
{
    if (fields_read(&fields_count_tokens, a, s->options.lenient, why) ||
        prompt_of_messages(s, a, why))
        return why->status;
    *out = json_pack("{s:I}", "input_tokens", (json_int_t)a->input.prompt->n);
    return 200;
}

int answer_tokenize(Server *s, Ask *a, json_t **out, Refusal *why)
{
    if (fields_read(&fields_tokenize, a, s->options.lenient, why))
        return why->status;
    if (a->input.prompts && a->input.messages)
        return refuse(why, 400, "prompt", "send either a prompt or messages, not both");
    if (a->input.prompts && !json_is_string(a->input.prompts))
        return refuse(why, 400, "prompt", "the prompt is not a string");
    if (a->input.messages ? prompt_of_messages(s, a, why) : prompts_of_completion(s, a, why))
        return why->status;
    const TokenIds *ids = a->input.prompt;
    *out = json_pack("{s:I,s:I,s:o}", "count", (json_int_t)ids->n, "max_model_len",
                     (json_int_t)a->served->context, "tokens", ids_json(ids));
    json_t *pieces = a->output.return_token_strs ? json_array() : json_null();
    for (size_t i = 0; i < ids->n && a->output.return_token_strs; i++) {
        size_t n = 0;
        const char *piece = tokenizer_piece(a->served->tokenizer, ids->id[i], &n);
        json_array_append_new(pieces, json_text_of(piece, n));
    }
    json_object_set_new(*out, "token_strs", pieces);
    return 200;
}

int answer_detokenize(Server *s, Ask *a, json_t **out, Refusal *why)
{
    if (fields_read(&fields_detokenize, a, s->options.lenient, why) || find_model(s, a, why))
        return why->status;
    if (!a->served->tokenizer)
        return refuse(why, 400, "tokens", "the model has no tokenizer");
    if (!a->input.prompts || (json_array_size(a->input.prompts) &&
                              !json_is_integer(json_array_get(a->input.prompts, 0))))
        return refuse(why, 400, "tokens", "tokens is not an array of token ids");
    StrBuf text = {0};
    if (json_array_size(a->input.prompts)) {
        if (prompts_of_completion(s, a, why))
            return why->status;
        cvn_err err = {0};
        if (tokenizer_decode(a->served->tokenizer, a->input.prompt->id, a->input.prompt->n,
                             TOKENIZER_SPECIAL, &text, &err)) {
            strbuf_free(&text);
            return refuse(why, 400, "tokens", "%s", err.message);
        }
    }
    *out = json_pack("{s:o}", "prompt", json_text_of(text.text, text.length));
    strbuf_free(&text);
    return 200;
}

int answer_apply_template(Server *s, Ask *a, json_t **out, Refusal *why)
{
    if (fields_read(&fields_apply_template, a, s->options.lenient, why) ||
        prompt_of_messages(s, a, why))
        return why->status;
    StrBuf text = {0};
    tokenizer_decode(a->served->tokenizer, a->input.prompt->id, a->input.prompt->n,
                     TOKENIZER_SPECIAL, &text, NULL);
    *out = json_pack("{s:o}", "prompt", json_text_of(text.text, text.length));
    strbuf_free(&text);
    return 200;
}
