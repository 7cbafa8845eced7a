/*
 * Which of the formats built in a model's is, for what cannot carry out its chat template (text/chat_template.h): its
 * template is looked at for the marks that tell the formats of this family apart.
 */
#include "text/chat.h"

#include <string.h>

/* A template has both marks; the first row that fits decides. */
static const struct {
    ChatFormat format;
    const char *marks[2];
} TEMPLATE[] = {
    {CHAT_R1, {"<｜Assistant｜>", "<think>\\n"}},
    {CHAT_R1_OPEN, {"<｜Assistant｜>", "</think>"}},
    {CHAT_LLAMA31, {"<|start_header_id|>", "builtin_tools"}},
    {CHAT_LLAMA32, {"<|start_header_id|>", "Cutting Knowledge Date"}},
    {CHAT_LLAMA3, {"<|start_header_id|>", "<|eot_id|>"}},
    {CHAT_LLAMA2, {"[INST]", "<<SYS>>"}},
};

/* Without a template: a tokenizer with all of these tokens. */
static const struct {
    ChatFormat format;
    const char *tokens[2];
} TOKENS[] = {
    {CHAT_R1, {"<｜User｜>", "<｜Assistant｜>"}},
    {CHAT_LLAMA3_META, {"<|start_header_id|>", "<|eot_id|>"}},
    {CHAT_LLAMA2, {"<s>", "</s>"}},
};

static int by_template(const char *folder, const char *text, ChatFormat *format, cvn_err *err)
{
    for (size_t i = 0; i < sizeof TEMPLATE / sizeof *TEMPLATE; i++) {
        if (strstr(text, TEMPLATE[i].marks[0]) && strstr(text, TEMPLATE[i].marks[1])) {
            *format = TEMPLATE[i].format;
            return CVN_OK;
        }
    }
    return err_set(
        err, CVN_EUNSUPPORTED,
        "the chat template of '%s' is not one of Llama 2, Llama 3 to 3.3 or R1; name a chat "
        "format, or give the prompt as text",
        folder);
}

static int by_tokens(const char *folder, const Tokenizer *tokenizer, ChatFormat *format,
                     cvn_err *err)
{
    for (size_t i = 0; i < sizeof TOKENS / sizeof *TOKENS; i++) {
        if (tokenizer_special(tokenizer, TOKENS[i].tokens[0]) >= 0 &&
            tokenizer_special(tokenizer, TOKENS[i].tokens[1]) >= 0) {
            *format = TOKENS[i].format;
            return CVN_OK;
        }
    }
    return err_set(
        err, CVN_EUNSUPPORTED,
        "'%s' has no chat template and its tokenizer has the tokens of no chat format; name a "
        "chat format, or give the prompt as text",
        folder);
}

const char *chat_own_template(const Tokenizer *tokenizer)
{
    ChatFormat format;
    cvn_err none = {0};
    if (by_tokens("", tokenizer, &format, &none) || format != CHAT_LLAMA3_META ||
        tokenizer_bos(tokenizer) < 0)
        return NULL;
    return "{{ bos_token }}{% for message in messages %}"
           "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + "
           "message['content'] | trim + '<|eot_id|>' }}{% endfor %}"
           "{% if add_generation_prompt %}"
           "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}";
}

int chat_format_find(const char *folder, const Tokenizer *tokenizer, ChatFormat *format,
                     cvn_err *err)
{
    const char *text = tokenizer_chat_template(tokenizer);
    return text ? by_template(folder, text, format, err)
                : by_tokens(folder, tokenizer, format, err);
}
