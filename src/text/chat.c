#include "text/chat.h"

#include "base/json_file.h"
#include "text/json_text.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <string.h>

/* DeepSeek's markers have U+FF5C for bars. */
static const char R1_USER[] = "<｜User｜>";
static const char R1_ASSISTANT[] = "<｜Assistant｜>";

typedef enum ChatFamily { FAMILY_LLAMA2, FAMILY_LLAMA3, FAMILY_R1 } ChatFamily;

static const struct {
    const char *name;
    ChatFamily family;
    bool strip;  /* white space at the ends of messages is dropped */
    bool dates;  /* a system message that begins with two dates; tools and tool calls */
    bool tools;  /* messages of tools */
    bool thinks; /* the prompt ends in <think> */
} FORMAT[CHAT_N] = {
    [CHAT_LLAMA2] = {"llama2", FAMILY_LLAMA2, true, false, false, false},
    [CHAT_LLAMA3] = {"llama3", FAMILY_LLAMA3, true, false, false, false},
    [CHAT_LLAMA3_META] = {"llama3-meta", FAMILY_LLAMA3, false, false, true, false},
    [CHAT_LLAMA31] = {"llama3.1", FAMILY_LLAMA3, true, true, true, false},
    [CHAT_LLAMA32] = {"llama3.2", FAMILY_LLAMA3, true, true, true, false},
    [CHAT_R1] = {"r1", FAMILY_R1, false, false, false, true},
    [CHAT_R1_OPEN] = {"r1-open", FAMILY_R1, false, false, false, false},
};

/* What a conversation is written to. The first failure makes everything after it do nothing. */
typedef struct Writer {
    const Tokenizer *tokenizer; /* borrowed */
    TokenIds *ids;              /* borrowed */
    StrBuf *text;               /* borrowed, or NULL */
    StrBuf part;                /* owned: text that is encoded as one */
    cvn_err *err;               /* borrowed */
    int rc;                     /* the first failure */
} Writer;

static void write_id(Writer *w, int32_t id, const char *name)
{
    size_t length = 0;
    const char *piece = id < 0 ? NULL : tokenizer_piece(w->tokenizer, id, &length);
    if (w->rc)
        return;
    if (!piece) {
        w->rc = err_set(
            w->err, CVN_EINVAL,
            "the tokenizer has no token %s, which the chat format needs; use the format and "
            "the tokenizer of the same model",
            name);
        return;
    }
    token_ids_add(w->ids, id);
    if (w->text)
        strbuf_add(w->text, piece, length);
}

static void write_marker(Writer *w, const char *name)
{
    write_id(w, tokenizer_special(w->tokenizer, name), name);
}

static void write_bos(Writer *w)
{
    write_id(w, tokenizer_bos(w->tokenizer), "that begins a text");
}

static void write_eos(Writer *w)
{
    write_id(w, tokenizer_eos(w->tokenizer), "that ends a text");
}

/* Encodes n bytes as one plain text. */
static void write_text(Writer *w, const char *text, size_t n)
{
    if (!w->rc)
        w->rc = tokenizer_encode(w->tokenizer, text, n, TOKENIZER_PLAIN, w->ids, w->err);
    if (w->text)
        strbuf_add(w->text, text, n);
}

static void write_part(Writer *w)
{
    if (w->part.failed && !w->rc)
        w->rc = err_set(w->err, CVN_EMEM, "no memory for a message");
    write_text(w, w->part.length ? w->part.text : "", w->part.length);
    strbuf_clear(&w->part);
}

static bool is_role(const ChatMessage *message, const char *role)
{
    return strcmp(message->role, role) == 0;
}

static const char *text_of(const ChatMessage *message)
{
    return message->length ? message->content : "";
}

static bool is_tool(const ChatMessage *message)
{
    return is_role(message, "tool") || is_role(message, "ipython");
}

/* What Python's str.strip drops: white space, and the separators 1C to 1F. */
static bool is_strip_space(const char *text, int length)
{
    uint32_t point = length ? utf8_point(text, length) : 0;
    return unicode_class(point) == UNICODE_SPACE || (point >= 0x1c && point <= 0x1f);
}

static void strip(const char **text, size_t *n)
{
    while (*n > 0) {
        int length = utf8_length(*text, *n);
        if (!is_strip_space(*text, length))
            break;
        *text += length;
        *n -= (size_t)length;
    }
    while (*n > 0) {
        size_t begin = *n - 1;
        while (begin > 0 && *n - begin < 4 && ((unsigned char)(*text)[begin] & 0xc0) == 0x80)
            begin--;
        int length = utf8_length(*text + begin, *n - begin);
        if ((size_t)length != *n - begin || !is_strip_space(*text + begin, length))
            break;
        *n = begin;
    }
}

static void content_of(ChatFormat format, const ChatMessage *message, const char **text, size_t *n)
{
    *text = text_of(message);
    *n = message->length;
    if (FORMAT[format].strip)
        strip(text, n);
}

/* ---- Llama 3 ---- */

static void write_header(Writer *w, const char *role)
{
    write_marker(w, "<|start_header_id|>");
    write_text(w, role, strlen(role));
    write_marker(w, "<|end_header_id|>");
    write_text(w, "\n\n", 2);
}

static void add_tools(Writer *w, const json_t *tools)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_text(json_array_get(tools, i), 4, &w->part);
        strbuf_puts(&w->part, "\n\n");
    }
}

static const char HOW_TO_CALL[] = "Respond in the format {\"name\": function name, \"parameters\": "
                                  "dictionary of argument name and its "
                                  "value}.Do not use variables.\n\n";

/* The system message of 3.1 and later. Takes the first message when it is a system message. */
static size_t write_system(Writer *w, ChatFormat format, const ChatMessage *messages, size_t n,
                           const ChatOptions *options, const json_t *tools)
{
    write_header(w, "system");
    if (tools)
        strbuf_puts(&w->part, "Environment: ipython\n");
    strbuf_puts(&w->part, "Cutting Knowledge Date: December 2023\nToday Date: ");
    strbuf_puts(&w->part, options->date ? options->date : "26 Jul 2024");
    strbuf_puts(&w->part, "\n\n");
    if (tools && options->tools_in_system) {
        strbuf_puts(&w->part,
                    "You have access to the following functions. To call a function, please "
                    "respond with JSON for a function call.");
        strbuf_puts(&w->part, HOW_TO_CALL);
        add_tools(w, tools);
    }
    bool given = n > 0 && is_role(&messages[0], "system");
    if (given) {
        const char *text;
        size_t length;
        content_of(format, &messages[0], &text, &length);
        strbuf_add(&w->part, text, length);
    }
    write_part(w);
    write_marker(w, "<|eot_id|>");
    return given;
}

/* The user's first message with the tools in front of it. */
static void write_tools(Writer *w, ChatFormat format, const ChatMessage *message,
                        const json_t *tools)
{
    const char *text;
    size_t length;
    if (!message) {
        if (!w->rc)
            w->rc = err_set(
                w->err, CVN_EINVAL,
                "tools go into the first user message, and there is none; add one or put the "
                "tools into the system message");
        return;
    }
    write_header(w, "user");
    strbuf_puts(
        &w->part,
        "Given the following functions, please respond with a JSON for a function call with its "
        "proper arguments that best answers the given prompt.\n\n");
    strbuf_puts(&w->part, HOW_TO_CALL);
    add_tools(w, tools);
    content_of(format, message, &text, &length);
    strbuf_add(&w->part, text, length);
    write_part(w);
    write_marker(w, "<|eot_id|>");
}

/* {"name": "f", "parameters": {...}} */
static void add_call(Writer *w, const ChatMessage *message)
{
    const char *arguments = message->tool_arguments ? message->tool_arguments : "{}";
    json_auto_t *root = json_object_parse("tool_arguments", arguments, strlen(arguments), w->err);
    if (!root && !w->rc)
        w->rc = CVN_EFORMAT;
    strbuf_printf(&w->part, "{\"name\": \"%s\", \"parameters\": ", message->tool_name);
    if (root)
        json_text(root, 0, &w->part);
    strbuf_putc(&w->part, '}');
}

static void write_llama3_message(Writer *w, ChatFormat format, const ChatMessage *message)
{
    const char *text;
    size_t length;
    write_header(w, is_tool(message) ? "ipython" : message->role);
    content_of(format, message, &text, &length);
    if (message->tool_name)
        add_call(w, message);
    else if (is_tool(message) && FORMAT[format].dates)
        json_text_string(text_of(message), message->length, &w->part);
    else
        strbuf_add(&w->part, text, length);
    write_part(w);
    write_marker(w, "<|eot_id|>");
}

static void write_llama3(Writer *w, ChatFormat format, const ChatMessage *messages, size_t n,
                         const ChatOptions *options, const json_t *tools)
{
    size_t i = 0;
    if (!options->follows) {
        write_bos(w);
        if (FORMAT[format].dates)
            i = write_system(w, format, messages, n, options, tools);
        if (tools && !options->tools_in_system) {
            write_tools(w, format, i < n ? &messages[i] : NULL, tools);
            i++;
        }
    }
    for (; i < n && !w->rc; i++)
        write_llama3_message(w, format, &messages[i]);
    if (options->generation_prompt)
        write_header(w, "assistant");
}

/* ---- Llama 2 ---- */

static bool has_tag(const ChatMessage *message)
{
    static const char *const tags[] = {"[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (memmem(text_of(message), message->length, tags[i], strlen(tags[i])))
            return true;
    return false;
}

/* [INST] user [/INST] assistant, encoded as one text. */
static void write_llama2(Writer *w, const ChatMessage *messages, size_t n,
                         const ChatOptions *options)
{
    SCOPED(strbuf_free) StrBuf user = {0};
    for (size_t i = 0; i < n && !w->rc; i++) {
        bool system = i == 0 && !options->follows && is_role(&messages[0], "system");
        if (system) {
            strbuf_puts(&user, "<<SYS>>\n");
            strbuf_add(&user, text_of(&messages[0]), messages[0].length);
            strbuf_puts(&user, "\n<</SYS>>\n\n");
            continue;
        }
        const char *text;
        size_t length;
        strbuf_add(&user, text_of(&messages[i]), messages[i].length);
        text = user.length ? user.text : "";
        length = user.length;
        strip(&text, &length);
        strbuf_puts(&w->part, "[INST] ");
        strbuf_add(&w->part, text, length);
        strbuf_puts(&w->part, " [/INST]");
        strbuf_clear(&user);
        write_bos(w);
        if (i + 1 == n) {
            write_part(w);
            break;
        }
        content_of(CHAT_LLAMA2, &messages[++i], &text, &length);
        strbuf_putc(&w->part, ' ');
        strbuf_add(&w->part, text, length);
        strbuf_putc(&w->part, ' ');
        write_part(w);
        write_eos(w);
    }
    if (user.failed && !w->rc)
        w->rc = err_set(w->err, CVN_EMEM, "no memory for a message");
}

/* ---- R1 ---- */

static void write_r1(Writer *w, ChatFormat format, const ChatMessage *messages, size_t n,
                     const ChatOptions *options)
{
    static const char close[] = "</think>";
    const ChatMessage *system = NULL;
    for (size_t i = 0; i < n; i++)
        if (is_role(&messages[i], "system"))
            system = &messages[i];
    if (!options->follows) {
        write_bos(w);
        if (system)
            write_text(w, text_of(system), system->length);
    }
    for (size_t i = 0; i < n && !w->rc; i++) {
        const char *text = text_of(&messages[i]);
        size_t length = messages[i].length;
        if (is_role(&messages[i], "system"))
            continue;
        bool user = is_role(&messages[i], "user");
        write_marker(w, user ? R1_USER : R1_ASSISTANT);
        for (const char *found; !user && (found = memmem(text, length, close, sizeof close - 1));) {
            length -= (size_t)(found + sizeof close - 1 - text);
            text = found + sizeof close - 1;
        }
        write_text(w, text, length);
        if (!user)
            write_eos(w);
    }
    if (!options->generation_prompt)
        return;
    write_marker(w, R1_ASSISTANT);
    if (FORMAT[format].thinks) {
        write_marker(w, "<think>");
        write_text(w, "\n", 1);
    }
}

/* ---- what a format can express ---- */

static int check_message(ChatFormat format, const ChatMessage *message, size_t i,
                         const ChatOptions *options, cvn_err *err)
{
    const char *name = FORMAT[format].name;
    bool known =
        is_role(message, "system") || is_role(message, "user") || is_role(message, "assistant");
    if (!known && !(is_tool(message) && FORMAT[format].tools))
        return err_set(
            err, CVN_EINVAL,
            "message %zu has role '%.40s'; chat format %s knows system, user%s assistant%s", i + 1,
            message->role, name, FORMAT[format].tools ? "," : " and",
            FORMAT[format].tools ? ", tool and ipython" : "");
    if (message->tool_name && (!is_role(message, "assistant") || !FORMAT[format].dates))
        return err_set(
            err, CVN_EINVAL,
            "message %zu calls a tool; that is for the assistant in chat formats llama3.1 and "
            "llama3.2",
            i + 1);
    if (FORMAT[format].family == FAMILY_LLAMA2 && !options->tags_as_text && has_tag(message))
        return err_set(
            err, CVN_EINVAL,
            "message %zu holds [INST], [/INST], <<SYS>> or <</SYS>>, which Llama 2 would take for "
            "marks of its chat format; take them out",
            i + 1);
    return CVN_OK;
}

/* Llama 2: system first if at all, then user and assistant in turn; the user last when an answer is
 * wanted. */
static int check_turns(const ChatMessage *messages, size_t n, const ChatOptions *options,
                       cvn_err *err)
{
    size_t first = n > 0 && !options->follows && is_role(&messages[0], "system");
    bool right = n > first;
    for (size_t i = first; i < n; i++)
        right &= is_role(&messages[i], (i - first) % 2 ? "assistant" : "user");
    if (right && options->generation_prompt)
        right = is_role(&messages[n - 1], "user");
    return right ? CVN_OK
                 : err_set(err, CVN_EINVAL,
                           "chat format llama2 needs user and assistant in turn, the user first "
                           "and last, "
                           "and a system message only at the beginning");
}

static int check(ChatFormat format, const ChatMessage *messages, size_t n,
                 const ChatOptions *options, cvn_err *err)
{
    int rc = CVN_OK;
    for (size_t i = 0; !rc && i < n; i++)
        rc = check_message(format, &messages[i], i, options, err);
    if (!rc && FORMAT[format].family == FAMILY_LLAMA2)
        rc = check_turns(messages, n, options, err);
    if (!rc && options->tools && !FORMAT[format].dates)
        rc = err_set(err, CVN_EINVAL, "chat format %s has no tools; llama3.1 and llama3.2 have",
                     FORMAT[format].name);
    return rc;
}

static int parse_tools(const char *text, json_t **tools, cvn_err *err)
{
    json_error_t where;
    *tools = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_array(*tools)) {
        json_decref(*tools);
        *tools = NULL;
        return err_set(err, CVN_EFORMAT, "tools must be a JSON array of function descriptions: %s",
                       where.text);
    }
    return CVN_OK;
}

int chat_encode(ChatFormat format, const Tokenizer *tokenizer, const ChatMessage *messages,
                size_t n, const ChatOptions *options, TokenIds *ids, StrBuf *text, cvn_err *err)
{
    size_t before = ids->n;
    json_t *tools = NULL;
    Writer w = {.tokenizer = tokenizer, .ids = ids, .text = text, .err = err};
    w.rc = check(format, messages, n, options, err);
    if (!w.rc && options->tools)
        w.rc = parse_tools(options->tools, &tools, err);
    if (!w.rc && FORMAT[format].family == FAMILY_LLAMA3)
        write_llama3(&w, format, messages, n, options, tools);
    else if (!w.rc && FORMAT[format].family == FAMILY_LLAMA2)
        write_llama2(&w, messages, n, options);
    else if (!w.rc)
        write_r1(&w, format, messages, n, options);
    if (!w.rc && (ids->failed || (text && text->failed)))
        w.rc = err_set(err, CVN_EMEM, "no memory for the conversation");
    if (w.rc)
        ids->n = before;
    json_decref(tools);
    strbuf_free(&w.part);
    return w.rc;
}

/* ---- names, stops ---- */

size_t chat_stops(ChatFormat format, const Tokenizer *tokenizer, int32_t stops[4])
{
    static const char *const llama3[] = {"<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"};
    size_t n = 0;
    if (FORMAT[format].family != FAMILY_LLAMA3) {
        if (tokenizer_eos(tokenizer) >= 0)
            stops[n++] = tokenizer_eos(tokenizer);
        return n;
    }
    for (size_t i = 0; i < sizeof llama3 / sizeof *llama3; i++) {
        int32_t id = tokenizer_special(tokenizer, llama3[i]);
        if (id >= 0)
            stops[n++] = id;
    }
    return n;
}

const char *chat_format_name(ChatFormat format)
{
    return FORMAT[format].name;
}

bool chat_thinks(ChatFormat format)
{
    return FORMAT[format].family == FAMILY_R1;
}
