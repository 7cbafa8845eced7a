#include "train/data/encode.h"

#include "text/utf8.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

void encoded_unit_free(EncodedUnit *out)
{
    token_ids_free(&out->ids);
    strbuf_free(&out->learn);
}

/* ---- text ---- */

static int check_utf8(const SourceUnit *unit, cvn_err *err)
{
    for (size_t i = 0; i < unit->n;) {
        if ((unsigned char)unit->text[i] < 0x80) {
            i++;
            continue;
        }
        int length = utf8_length(unit->text + i, unit->n - i);
        if (length == 0)
            return err_set(err, CVN_EFORMAT,
                           "'%s' is not UTF-8: byte %" PRId64
                           " is 0x%02x; convert it first, for instance by iconv",
                           unit->file->path, unit->offset + (int64_t)i,
                           (unsigned char)unit->text[i]);
        i += (size_t)length;
    }
    return CVN_OK;
}

static int encode_text(const DataEncoder *e, const char *text, size_t n, bool begins, bool ends,
                       EncodedUnit *out, cvn_err *err)
{
    unsigned flags = TOKENIZER_PLAIN | (begins ? (unsigned)TOKENIZER_BOS : 0) |
                     (ends ? (unsigned)TOKENIZER_EOS : 0);
    return tokenizer_encode(e->tokenizer, text, n, flags, &out->ids, err);
}

/* ---- conversations ---- */

/* Reads {"role", "content"} into *message, which borrows from the JSON. */
static int read_message(const json_t *item, size_t i, ChatMessage *message, cvn_err *err)
{
    const json_t *role = json_object_get(item, "role"), *content = json_object_get(item, "content");
    if (!json_is_string(role) || !json_is_string(content))
        return err_set(err, CVN_EFORMAT,
                       "message %zu must have the strings \"role\" and \"content\"", i + 1);
    *message = (ChatMessage){.role = json_string_value(role),
                             .content = json_string_value(content),
                             .length = json_string_length(content)};
    return CVN_OK;
}

/*
 * The ids of messages[0 … i] that go beyond those of the prompt for the answer i are that answer. A prompt
 * that opens more than the whole conversation has there (<think>) counts as far as the two agree.
 */
static int mark_answer(const DataEncoder *e, const ChatMessage *messages, size_t i, size_t n,
                       EncodedUnit *out, TokenIds *part, cvn_err *err)
{
    ChatOptions ask = {.generation_prompt = true}, whole = {0};
    const TokenIds *all = &out->ids;
    size_t begin = 0, end = all->n;
    part->n = 0;
    TRY(chat_encode(*e->chat, e->tokenizer, messages, i, &ask, part, NULL, err));
    while (begin < part->n && begin < all->n && part->id[begin] == all->id[begin])
        begin++;
    if (i + 1 < n) {
        part->n = 0;
        TRY(chat_encode(*e->chat, e->tokenizer, messages, i + 1, &whole, part, NULL, err));
        for (end = begin; end < part->n && end < all->n && part->id[end] == all->id[end];)
            end++;
    }
    if (end > begin)
        memset(out->learn.text + begin, 1, end - begin);
    return CVN_OK;
}

static int encode_messages(const DataEncoder *e, const ChatMessage *messages, size_t n,
                           EncodedUnit *out, cvn_err *err)
{
    ChatOptions whole = {0};
    TokenIds part = {0};
    size_t answers = 0;
    int code = chat_encode(*e->chat, e->tokenizer, messages, n, &whole, &out->ids, NULL, err);
    for (size_t i = 0; !code && i < out->ids.n; i++)
        strbuf_putc(&out->learn, 0);
    if (!code && out->learn.failed)
        code = err_set(err, CVN_EMEM, "no memory for a conversation");
    for (size_t i = 1; i < n && !code; i++) {
        if (strcmp(messages[i].role, "assistant") != 0)
            continue;
        code = mark_answer(e, messages, i, n, out, &part, err);
        answers++;
    }
    if (!code && answers == 0)
        code = err_set(err, CVN_EFORMAT,
                       "the conversation has no answer: no message of role \"assistant\" behind "
                       "another");
    token_ids_free(&part);
    return code;
}

static int encode_conversation(const DataEncoder *e, const json_t *list, EncodedUnit *out,
                               cvn_err *err)
{
    size_t n = json_array_size(list);
    if (!e->chat)
        return err_set(err, CVN_EINVAL,
                       "there are messages here, and no chat format is known to write them in; "
                       "name one");
    ChatMessage *messages = calloc(n ? n : 1, sizeof *messages);
    if (!messages)
        return err_set(err, CVN_EMEM, "no memory for %zu messages", n);
    int code = CVN_OK;
    for (size_t i = 0; i < n && !code; i++)
        code = read_message(json_array_get(list, i), i, &messages[i], err);
    if (!code)
        code = encode_messages(e, messages, n, out, err);
    free(messages);
    return code;
}

/* ---- units ---- */

/* The JSON object of a line; NULL with *err set when it is none, or has nothing to learn from. */
static json_t *parse_line(const SourceUnit *unit, cvn_err *err)
{
    json_error_t where;
    json_t *line = json_loadb(unit->text, unit->n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &where);
    const json_t *messages = json_object_get(line, "messages");
    if (json_array_size(messages) > 0 ||
        (!json_is_array(messages) && json_is_string(json_object_get(line, "text"))))
        return line;
    if (!line)
        err_set(err, CVN_EFORMAT, "%s:%" PRId64 ": no JSON object: %s", unit->file->path,
                unit->line, where.text);
    else if (json_is_array(messages))
        err_set(err, CVN_EFORMAT, "%s:%" PRId64 ": \"messages\" is empty; take the line out",
                unit->file->path, unit->line);
    else
        err_set(err, CVN_EFORMAT,
                "%s:%" PRId64 ": there is neither a string \"text\" nor a list \"messages\" here",
                unit->file->path, unit->line);
    json_decref(line);
    return NULL;
}

static int encode_line(const DataEncoder *e, const SourceUnit *unit, EncodedUnit *out, cvn_err *err)
{
    json_t *line = parse_line(unit, err);
    if (!line)
        return CVN_EFORMAT;
    const json_t *text = json_object_get(line, "text");
    const json_t *messages = json_object_get(line, "messages");
    int code = json_is_array(messages)
                   ? encode_conversation(e, messages, out, err)
                   : encode_text(e, json_string_value(text), json_string_length(text), true, true,
                                 out, err);
    json_decref(line);
    if (code)
        err_prefix(err, "%s:%" PRId64, unit->file->path, unit->line);
    return code;
}

int data_encode(const DataEncoder *e, const SourceUnit *unit, EncodedUnit *out, cvn_err *err)
{
    out->ids.n = 0;
    strbuf_clear(&out->learn);
    if (unit->file->kind == SOURCE_JSONL)
        return encode_line(e, unit, out, err);
    int code = check_utf8(unit, err);
    if (!code && (code = encode_text(e, unit->text, unit->n, unit->begins, unit->ends, out, err)))
        err_prefix(err, "'%s' at byte %" PRId64, unit->file->path, unit->offset);
    return code;
}

int data_unit_text(const SourceUnit *unit,
                   int (*take)(void *context, const char *text, size_t n, cvn_err *err),
                   void *context, cvn_err *err)
{
    int code = CVN_OK;
    if (unit->file->kind != SOURCE_JSONL) {
        TRY(check_utf8(unit, err));
        return take(context, unit->text, unit->n, err);
    }
    json_t *line = parse_line(unit, err);
    if (!line)
        return CVN_EFORMAT;
    const json_t *text = json_object_get(line, "text");
    const json_t *messages = json_object_get(line, "messages");
    if (!json_is_array(messages))
        code = take(context, json_string_value(text), json_string_length(text), err);
    for (size_t i = 0; i < json_array_size(messages) && !code; i++) {
        ChatMessage message;
        code = read_message(json_array_get(messages, i), i, &message, err);
        if (code)
            err_prefix(err, "%s:%" PRId64, unit->file->path, unit->line);
        else
            code = take(context, message.content, message.length, err);
    }
    json_decref(line);
    return code;
}
