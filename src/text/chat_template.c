#include "text/chat_template.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>

enum {
    CUT = '\036'
}; /* of templates that are built in: parts what is encoded by itself, and is not written */

struct ChatTemplate {
    JinjaTemplate *plain; /* owned */
    JinjaTemplate *tools; /* owned: for conversations with tools; NULL: the same */
    char *name, *source;  /* owned */
    bool cuts;            /* its texts have CUT in them */
};

/* Roles that may be part of a marker. None of them is one by itself. */
static const char *const CHAT_ROLES[] = {"system",      "user",        "assistant", "tool",
                                         "developer",   "ipython",     "function",  "model",
                                         "environment", "observation", "documents", NULL};

static const char *const REASONING[] = {"reasoning_content", "thinking", "reasoning"};
enum { REASONINGS = sizeof REASONING / sizeof *REASONING };

static int open_one(const char *source, size_t n, JinjaTemplate **out, cvn_err *err)
{
    return source ? jinja_read(source, n, out, err) : CVN_OK;
}

static bool has_tokens(const Tokenizer *tokenizer, const ChatBuiltIn *row)
{
    return tokenizer_special(tokenizer, row->token[0]) >= 0 &&
           tokenizer_special(tokenizer, row->token[1]) >= 0;
}

static int open_built_in(ChatTemplate *chat, const ChatBuiltIn *row, cvn_err *err)
{
    chat->cuts = true;
    chat->name = strdup(row->name);
    chat->source = strdup(row->source);
    if (!chat->name || !chat->source)
        return err_set(err, CVN_EMEM, "no memory for a chat template");
    TRY(jinja_read(chat->source, strlen(chat->source), &chat->plain, err));
    char *to = chat->source;
    for (const char *from = row->source; *from; from++)
        if (*from != CUT)
            *to++ = *from;
    *to = '\0';
    return CVN_OK;
}

static int open_text(ChatTemplate *chat, const char *name, const char *text, size_t n, cvn_err *err)
{
    chat->name = strdup(name);
    chat->source = strndup(text, n);
    return chat->name && chat->source ? open_one(text, n, &chat->plain, err)
                                      : err_set(err, CVN_EMEM, "no memory for a chat template");
}

static int open_file(ChatTemplate *chat, const char *path, cvn_err *err)
{
    SCOPED(file_unmap) FileMap map = {0};
    TRY(file_map(&map, path, err));
    if (map.size > JINJA_MAX_SOURCE || !map.size || memchr(map.data, 0, map.size))
        return err_set(err, CVN_EFORMAT,
                       "'%s' must be the text of a chat template, of 1 to %d bytes", path,
                       JINJA_MAX_SOURCE);
    int code = open_text(chat, path, (const char *)map.data, map.size, err);
    if (code)
        err_prefix(err, "'%s'", path);
    return code;
}

static int open_choice(ChatTemplate *chat, const Tokenizer *tokenizer, const char *choice,
                       cvn_err *err)
{
    const ChatBuiltIn *row = chat_built_in;
    SCOPED(strbuf_free) StrBuf names = {0};
    for (; row->name && strcmp(row->name, choice) != 0; row++)
        strbuf_printf(&names, "%s%s", names.length ? ", " : "", row->name);
    if (row->name && !has_tokens(tokenizer, row))
        return err_set(err, CVN_EINVAL,
                       "the chat template %s uses the tokens %s and %s, which the tokenizer does "
                       "not both have; use the template and the tokenizer of the same model",
                       row->name, row->token[0], row->token[1]);
    if (row->name)
        return open_built_in(chat, row, err);
    if (!file_exists(choice))
        return err_set(err, CVN_EINVAL,
                       "'%s' is neither a file nor a built-in chat template; built in are %s",
                       choice, names.text ? names.text : "others");
    return open_file(chat, choice, err);
}

/* The tokenizer's own, or one that suits its tokens. */
static int open_own(ChatTemplate *chat, const Tokenizer *tokenizer, cvn_err *err)
{
    const char *own = tokenizer_chat_template(tokenizer),
               *tools = tokenizer_tool_template(tokenizer);
    const ChatBuiltIn *row = chat_built_in;
    if (own) {
        TRY(open_text(chat, "of the model", own, strlen(own), err));
        return open_one(tools, tools ? strlen(tools) : 0, &chat->tools, err);
    }
    while (row->name && !(row->found && has_tokens(tokenizer, row)))
        row++;
    return row->name ? open_built_in(chat, row, err)
                     : err_set(err, CVN_EUNSUPPORTED,
                               "the model has no chat template, and no built-in template fits its "
                               "tokens; give one with --chat-template FILE");
}

int chat_template_open(const Tokenizer *tokenizer, const char *choice, ChatTemplate **out,
                       cvn_err *err)
{
    *out = NULL;
    ChatTemplate *chat = calloc(1, sizeof *chat);
    if (!chat)
        return err_set(err, CVN_EMEM, "no memory for a chat template");
    int rc = choice ? open_choice(chat, tokenizer, choice, err) : open_own(chat, tokenizer, err);
    if (rc)
        chat_template_free(chat);
    else
        *out = chat;
    return rc;
}

void chat_template_free(ChatTemplate *chat)
{
    if (!chat)
        return;
    jinja_free(chat->plain);
    jinja_free(chat->tools);
    free(chat->name);
    free(chat->source);
    free(chat);
}

const char *chat_template_name(const ChatTemplate *chat)
{
    return chat->name;
}

const char *chat_template_source(const ChatTemplate *chat)
{
    return chat->source;
}

/* ---- what a template is given ---- */

/* A copy without the members that are null, and with the reasoning under the names that templates read. */
static json_t *copy_message(const json_t *message)
{
    json_t *copy = json_object(), *value;
    const char *key;
    const json_t *reasoning = NULL;
    for (size_t i = 0; i < REASONINGS && !reasoning; i++) {
        reasoning = json_object_get(message, REASONING[i]);
        reasoning = json_is_null(reasoning) ? NULL : reasoning;
    }
    if (reasoning && !json_object_get(message, "thinking"))
        json_object_set(copy, "thinking", (json_t *)reasoning);
    json_object_foreach((json_t *)message, key, value)
    {
        if (!json_is_null(value))
            json_object_set(copy, key, value);
    }
    if (reasoning)
        json_object_set(copy, REASONING[0], (json_t *)reasoning);
    return copy;
}

static int check(const ChatInput *input, cvn_err *err)
{
    const struct {
        const char *name;
        const json_t *list;
    } lists[] = {
        {"messages", input->messages}, {"tools", input->tools}, {"documents", input->documents}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        bool right = !lists[i].list || json_is_array(lists[i].list);
        for (size_t k = 0; right && k < json_array_size(lists[i].list); k++)
            right = json_is_object(json_array_get(lists[i].list, k));
        if (!right)
            return err_set(err, CVN_EINVAL, "'%s' is not a list of objects", lists[i].name);
    }
    if (json_array_size(input->messages) == 0)
        return err_set(err, CVN_EINVAL, "the conversation has no message");
    if (input->variables && !json_is_object(input->variables))
        return err_set(err, CVN_EINVAL, "the variables of a chat template must be a JSON object");
    if (input->continues && input->generation_prompt)
        return err_set(
            err, CVN_EINVAL,
            "continuing the last message and starting a new one exclude each other; choose one");
    return CVN_OK;
}

static void set_token(json_t *own, const Tokenizer *tokenizer, const char *name, int32_t id)
{
    size_t n;
    const char *piece = id < 0 ? NULL : tokenizer_piece(tokenizer, id, &n);
    json_t *text = piece ? json_stringn(piece, n) : NULL; /* NULL also where it is not UTF-8 */
    if (text)
        json_object_set_new(own, name, text);
}

/* ---- a message that is to be continued ---- */

static const char TAG[] = "CONTINUE_FINAL_MESSAGE_TAG ";

/* The text that the last message ends with: that of the member, or of its last part that has one. */
static json_t *last_text(json_t *message, const char *member, json_t **holder, const char **key)
{
    json_t *value = json_object_get(message, member);
    *holder = message;
    *key = member;
    for (size_t i = json_array_size(value); i-- > 0;) {
        json_t *part = json_array_get(value, i);
        *holder = part;
        *key = "text";
        if (json_object_get(part, "text"))
            return json_object_get(part, "text");
    }
    return value;
}

/* Puts the tag behind the text of the last message. *text, the text without it, is to be freed. */
static int tag_last(json_t *messages, const char *member, StrBuf *text, cvn_err *err)
{
    json_t *holder, *message = json_array_get(messages, json_array_size(messages) - 1);
    json_t *whole = json_deep_copy(message);
    const char *key;
    json_array_set_new(messages, json_array_size(messages) - 1, whole);
    const json_t *value = last_text(whole, member, &holder, &key);
    if (!json_is_string(value))
        return err_set(err, CVN_EINVAL, "the last message has no text in '%.40s' to continue",
                       member);
    strbuf_add(text, json_string_value(value), json_string_length(value));
    SCOPED(strbuf_free) StrBuf tagged = {0};
    strbuf_add(&tagged, json_string_value(value), json_string_length(value));
    strbuf_puts(&tagged, TAG);
    json_t *new = tagged.failed || text->failed ? NULL : json_stringn(tagged.text, tagged.length);
    bool reasons = false;
    for (size_t i = 0; i < REASONINGS; i++)
        reasons |= holder == whole && strcmp(key, REASONING[i]) == 0;
    for (size_t i = 0; new &&reasons &&i < REASONINGS; i++)
        if (json_object_get(whole, REASONING[i]))
            json_object_set(whole, REASONING[i], new);
    return new &&json_object_set_new(holder, key, new) == 0
               ? CVN_OK
               : err_set(err, CVN_EMEM, "no memory for a message");
}

static bool ends_in_space(const JinjaText *out)
{
    size_t n = out->text.length;
    return n && strchr(" \t\n\r\f\v", out->text.text[n - 1]) != NULL;
}

/* Ends the rendered text where the tag stands; white space in front of it goes where the template dropped that behind. */
static int cut_at_tag(JinjaText *out, cvn_err *err)
{
    const size_t word = sizeof TAG - 2, n = out->text.length;
    const char *text = n ? out->text.text : "";
    size_t at = n;
    for (size_t i = 0; i + word <= n; i++)
        if (memcmp(text + i, TAG, word) == 0)
            at = i;
    if (at == n)
        return err_set(err, CVN_EINVAL,
                       "the chat template changes the last message, so it cannot be continued");
    bool whole = at + word < n && text[at + word] == ' ';
    out->text.length = out->mark.length = out->generated.length = at;
    while (!whole && ends_in_space(out))
        out->mark.length = out->generated.length = --out->text.length;
    return CVN_OK;
}

/* ---- rendering ---- */

/* The variables of one rendering; both are new. */
static int make_variables(const ChatInput *input, const Tokenizer *tokenizer, json_t **data,
                          json_t **own, StrBuf *tagged, cvn_err *err)
{
    json_t *messages = json_array();
    *data = input->variables ? json_copy((json_t *)input->variables) : json_object();
    *own = json_object();
    for (size_t i = 0; i < json_array_size(input->messages); i++)
        json_array_append_new(messages, copy_message(json_array_get(input->messages, i)));
    bool whole = json_array_size(messages) == json_array_size(input->messages);
    int rc = whole ? CVN_OK : err_set(err, CVN_EMEM, "no memory for the conversation");
    if (!rc && input->continues)
        rc = tag_last(messages, input->continues, tagged, err);
    json_object_set_new(*data, "tools",
                        input->tools ? json_incref((json_t *)input->tools) : json_null());
    json_object_set_new(*data, "documents",
                        input->documents ? json_incref((json_t *)input->documents) : json_null());
    json_object_set_new(*data, "add_generation_prompt", json_boolean(input->generation_prompt));
    if (json_object_set_new(*data, "messages", messages) && !rc)
        rc = err_set(err, CVN_EMEM, "no memory for the conversation");
    set_token(*own, tokenizer, "bos_token", tokenizer_bos(tokenizer));
    set_token(*own, tokenizer, "eos_token", tokenizer_eos(tokenizer));
    set_token(*own, tokenizer, "pad_token", tokenizer_pad(tokenizer));
    return rc;
}

int chat_template_render(const ChatTemplate *chat, const Tokenizer *tokenizer,
                         const ChatInput *input, JinjaText *out, cvn_err *err)
{
    json_t *data = NULL, *own = NULL;
    SCOPED(strbuf_free) StrBuf tagged = {0};
    TRY(check(input, err));
    int rc = make_variables(input, tokenizer, &data, &own, &tagged, err);
    if (!rc) {
        const JinjaInput variables = {.data = data,
                                      .own = own,
                                      .now = input->now,
                                      .own_key = "role",
                                      .own_words = CHAT_ROLES};
        rc = jinja_render(input->tools && chat->tools ? chat->tools : chat->plain, &variables, out,
                          err);
    }
    if (!rc && input->continues)
        rc = cut_at_tag(out, err);
    json_decref(data);
    json_decref(own);
    return rc;
}

/* Where the text goes on behind the next cut, at or before n; *end: where the part in front of it ends. */
static size_t next_part(const ChatTemplate *chat, const JinjaText *text, size_t at, size_t n,
                        size_t *end)
{
    *end = n;
    for (size_t i = at; chat->cuts && i < n && *end == n; i++)
        if (text->text.text[i] == CUT && text->mark.text[i] == JINJA_OWN)
            *end = i;
    return *end < n ? *end + 1 : n;
}

int chat_template_ids(const ChatTemplate *chat, const Tokenizer *tokenizer, const JinjaText *text,
                      size_t n, TokenIds *ids, cvn_err *err)
{
    size_t before = ids->n, end;
    int rc = CVN_OK;
    for (size_t at = 0, next; at < n && !rc; at = next) {
        next = next_part(chat, text, at, n, &end);
        rc = tokenizer_encode_marked(tokenizer, text->text.text + at, text->mark.text + at,
                                     end - at, ids, err);
    }
    ids->n = rc ? before : ids->n;
    return rc;
}

int chat_template_encode(const ChatTemplate *chat, const Tokenizer *tokenizer,
                         const ChatInput *input, TokenIds *ids, StrBuf *text, cvn_err *err)
{
    SCOPED(jinja_text_free) JinjaText out = {0};
    TRY(chat_template_render(chat, tokenizer, input, &out, err));
    size_t n = out.text.length, end;
    TRY(chat_template_ids(chat, tokenizer, &out, n, ids, err));
    for (size_t at = 0, next; text && at < n; at = next) {
        next = next_part(chat, &out, at, n, &end);
        strbuf_add(text, out.text.text + at, end - at);
    }
    return CVN_OK;
}

/* ---- what a template says of answers ---- */

/* Where a text goes on behind the last byte of the messages and white space. */
static size_t behind_data(const JinjaText *out)
{
    const char *last = memrchr(out->mark.text, JINJA_DATA, out->mark.length);
    size_t from = last ? (size_t)(last - out->mark.text) + 1 : out->text.length;
    while (from < out->text.length && strchr(" \n", out->text.text[from]))
        from++;
    return from;
}

/* Behind the arguments {"cvn_x": 1} of a call, or the end. */
static size_t behind_arguments(const JinjaText *out)
{
    const char *name = memmem(out->text.text, out->text.length, "\"cvn_x\"", 7);
    size_t from = name ? (size_t)(name - out->text.text) : out->text.length;
    while (from < out->text.length && out->text.text[from] != '}')
        from++;
    return from < out->text.length ? from + 1 : from;
}

/* The special token that stands behind the message of an assistant, a text or, where `calls`, a call of a tool, or -1. Behind a call
 * only where nothing is between it and the arguments: gpt-oss' <|call|>, where others go on with braces and tags. */
static int32_t turn_end(const ChatTemplate *chat, const Tokenizer *tokenizer, bool calls)
{
    static const struct tm then = {.tm_year = 124, .tm_mday = 1};
    json_t *call = json_pack("[{s:s,s:s,s:{s:s,s:{s:i}}}]", "id", "call00000", "type", "function",
                             "function", "name", "f", "arguments", "cvn_x", 1);
    json_t *messages = calls
                           ? json_pack("[{s:s,s:s},{s:s,s:s,s:O}]", "role", "user", "content", "a",
                                       "role", "assistant", "content", "", "tool_calls", call)
                           : json_pack("[{s:s,s:s},{s:s,s:s}]", "role", "user", "content", "a",
                                       "role", "assistant", "content", "b");
    const ChatInput input = {.messages = messages, .now = &then};
    JinjaText out = {0};
    SCOPED(token_ids_free) TokenIds ids = {0};
    int32_t end = -1;
    if (messages && chat_template_render(chat, tokenizer, &input, &out, NULL) == CVN_OK &&
        out.text.length) {
        size_t from = calls ? behind_arguments(&out) : behind_data(&out);
        size_t n = 0;
        const char *piece = NULL;
        if (from < out.text.length &&
            tokenizer_encode(tokenizer, out.text.text + from, out.text.length - from,
                             TOKENIZER_SPECIAL, &ids, NULL) == CVN_OK &&
            ids.n)
            piece = tokenizer_piece(tokenizer, ids.id[0], &n);
        if (piece && tokenizer_special(tokenizer, piece) == ids.id[0])
            end = ids.id[0];
    }
    json_decref(call);
    json_decref(messages);
    jinja_text_free(&out);
    return end;
}

size_t chat_template_stops(const ChatTemplate *chat, const Tokenizer *tokenizer, int32_t stops[4])
{
    const int32_t ends[] = {tokenizer_eos(tokenizer), turn_end(chat, tokenizer, false),
                            turn_end(chat, tokenizer, true)};
    size_t n = 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        bool known = ends[i] < 0;
        for (size_t k = 0; k < n; k++)
            known |= stops[k] == ends[i];
        if (!known)
            stops[n++] = ends[i];
    }
    return n;
}
