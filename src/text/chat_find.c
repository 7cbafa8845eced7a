/*
 * Which chat format a model folder has. A chat template is a program in Jinja; we do not run it, we know
 * the formats of this family and look for the marks that tell them apart.
 */
#include "base/file.h"
#include "base/json_file.h"
#include "text/chat.h"
#include "text/tokenizer_impl.h"

#include <stdlib.h>
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

/* "chat_template": a string, or a list of {"name", "template"} of which "default" counts. */
static const char *config_template(const json_t *config)
{
    const json_t *value = json_object_get(config, "chat_template");
    const json_t *entry;
    size_t i;
    json_array_foreach(value, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(entry, "template"));
    }
    return json_string_value(value);
}

/* A template that is a file of its own, as a heap string; NULL where there is none. */
static int read_template(const char *folder, char **text, cvn_err *err)
{
    *text = NULL;
    FileMap map = {0};
    const FilePath path = file_path(folder, "chat_template.jinja");
    int rc = file_exists(path.text) ? file_map(&map, path.text, err) : CVN_OK;
    if (!rc && map.size) {
        *text = strndup((const char *)map.data, map.size);
        if (!*text)
            rc = err_set(err, CVN_EMEM, "no memory for '%s'", path.text);
    }
    file_unmap(&map);
    return rc;
}

static int by_config(const char *folder, const Tokenizer *tokenizer, ChatFormat *format,
                     cvn_err *err)
{
    const FilePath path = file_path(folder, "tokenizer_config.json");
    json_t *config = NULL;
    int rc = CVN_OK;
    if (file_exists(path.text)) {
        config = json_object_read(path.text, err);
        rc = config ? CVN_OK : CVN_EFORMAT;
    }
    const char *text = config_template(config);
    if (!rc)
        rc = text ? by_template(folder, text, format, err)
                  : by_tokens(folder, tokenizer, format, err);
    json_decref(config);
    return rc;
}

int chat_format_find(const char *folder, const Tokenizer *tokenizer, ChatFormat *format,
                     cvn_err *err)
{
    char *text;
    int rc = read_template(folder, &text, err);
    const char *template = text ? text : tokenizer->chat_template;
    if (!rc && template)
        rc = by_template(folder, template, format, err);
    else if (!rc)
        rc = by_config(folder, tokenizer, format, err);
    free(text);
    return rc;
}
