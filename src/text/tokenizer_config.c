#include "text/tokenizer_config.h"

#include "base/file.h"
#include "base/json_file.h"
#include "text/chat_template.h"

#include <string.h>

static json_t *with_token(json_t *config, const char *key, const Tokenizer *tokenizer, int32_t id)
{
    size_t n = 0;
    const char *text = id >= 0 ? tokenizer_piece(tokenizer, id, &n) : NULL;
    json_t *token = n ? json_stringn(text, n) : NULL; /* NULL also where it is not UTF-8 */
    return token ? json_with(config, key, token) : config;
}

/* A string, or, where that for tools is another, a list of both. */
static json_t *template_of(const Tokenizer *tokenizer)
{
    const char *own = tokenizer_chat_template(tokenizer),
               *tools = tokenizer_tool_template(tokenizer);
    if (own && tools)
        return json_pack("[{s:s,s:s},{s:s,s:s}]", "name", "default", "template", own, "name",
                         "tool_use", "template", tools);
    return own ? json_string(own) : NULL;
}

/* The one built in, unless its tokens are those of every text, as Llama 2's. */
static json_t *built_in_of(const Tokenizer *tokenizer)
{
    ChatTemplate *chat;
    cvn_err none = {0};
    if (chat_template_open(tokenizer, NULL, &chat, &none))
        return NULL;
    bool marks = true;
    for (const ChatBuiltIn *row = chat_built_in; row->name; row++)
        if (strcmp(row->name, chat_template_name(chat)) == 0)
            marks = tokenizer_special(tokenizer, row->token[0]) != tokenizer_bos(tokenizer);
    json_t *source = marks ? json_string(chat_template_source(chat)) : NULL;
    chat_template_free(chat);
    return source;
}

int tokenizer_config_write(const Tokenizer *tokenizer, const char *folder, cvn_err *err)
{
    json_auto_t *config = json_pack("{s:s, s:b, s:[s,s]}", "tokenizer_class",
                                    "PreTrainedTokenizerFast", "clean_up_tokenization_spaces", 0,
                                    "model_input_names", "input_ids", "attention_mask");
    config = with_token(config, "bos_token", tokenizer, tokenizer_bos(tokenizer));
    config = with_token(config, "eos_token", tokenizer, tokenizer_eos(tokenizer));
    config = with_token(config, "pad_token", tokenizer, tokenizer_pad(tokenizer));
    json_t *template =
        tokenizer_chat_template(tokenizer) ? template_of(tokenizer) : built_in_of(tokenizer);
    if (template)
        config = json_with(config, "chat_template", template);
    return config ? json_file_write(file_path(folder, "tokenizer_config.json").text, config, err)
                  : err_set(err, CVN_EMEM, "no memory for tokenizer_config.json");
}
