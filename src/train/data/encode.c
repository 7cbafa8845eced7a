#include "train/data/encode.h"

#include "text/utf8.h"
#include "train/data/record.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

void encoded_unit_free(EncodedUnit *out)
{
    token_ids_free(&out->ids);
    strbuf_free(&out->learn);
    token_ids_free(&out->end);
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

/* ---- completions ---- */

/* Says that from here on a record's tokens are not learnt unless they are marked. */
static int clear_learn(EncodedUnit *out, cvn_err *err)
{
    for (size_t i = 0; i < out->ids.n; i++)
        strbuf_putc(&out->learn, 0);
    return out->learn.failed ? err_set(err, CVN_EMEM, "no memory for a record") : CVN_OK;
}

/* Encodes a prompt and its completion, of which the ids beyond those of the prompt are learnt. */
static int encode_completion(const DataEncoder *e, const json_t *prompt, const json_t *completion,
                             EncodedUnit *out, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf both = {0};
    SCOPED(token_ids_free) TokenIds part = {0};
    size_t n = json_string_length(prompt), begin = 0;
    strbuf_add(&both, json_string_value(prompt), n);
    strbuf_add(&both, json_string_value(completion), json_string_length(completion));
    if (both.failed)
        return err_set(err, CVN_EMEM, "no memory for a record");
    TRY(tokenizer_encode(e->tokenizer, both.text, n, TOKENIZER_PLAIN | TOKENIZER_BOS, &part, err));
    TRY(encode_text(e, both.text, both.length, true, true, out, err));
    TRY(clear_learn(out, err));
    while (begin < part.n && begin < out->ids.n && part.id[begin] == out->ids.id[begin])
        begin++;
    if (out->ids.n > begin)
        memset(out->learn.text + begin, 1, out->ids.n - begin);
    return CVN_OK;
}

/* ---- units ---- */

/* The record of a unit, a new reference; NULL with an error that names its line. */
static json_t *read_unit(const SourceUnit *unit, bool pairs, cvn_err *err)
{
    json_error_t where;
    json_auto_t *value =
        json_loadb(unit->text, unit->n, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &where);
    json_t *record = value ? record_read(value, pairs, err) : NULL;
    if (!value)
        err_set(err, CVN_EFORMAT, "not a JSON object: %s", where.text);
    if (!record)
        err_prefix(err, "%s:%" PRId64, unit->file->path, unit->line);
    return record;
}

static int encode_one(const DataEncoder *e, const json_t *record, EncodedUnit *out, cvn_err *err)
{
    const json_t *text = json_object_get(record, "text");
    const json_t *completion = json_object_get(record, "completion");
    if (!text && !e->chat)
        return err_set(err, CVN_EINVAL, "there are messages here, and %s",
                       e->no_chat ? e->no_chat : "no chat template to write them by");
    if (!text)
        return conversation_encode(e->chat, record, out, err);
    if (completion)
        return encode_completion(e, text, completion, out, err);
    return encode_text(e, json_string_value(text), json_string_length(text), true, true, out, err);
}

/* The chosen answer with its prompt, then the rejected one with it. */
static int encode_pair(const DataEncoder *e, const json_t *pair, EncodedUnit *out, cvn_err *err)
{
    SCOPED(encoded_unit_free) EncodedUnit other = {0};
    TRY(encode_one(e, json_object_get(pair, "chosen"), out, err));
    TRY(encode_one(e, json_object_get(pair, "rejected"), &other, err));
    if (out->end.n > 1 || other.end.n > 1)
        return err_set(
            err, CVN_EFORMAT,
            "the chat template renders an earlier answer differently once another follows, so this "
            "cannot be used as one preference pair; make a pair of each answer");
    out->end.n = 0;
    token_ids_add(&out->end, (int32_t)out->ids.n);
    for (size_t i = 0; i < other.ids.n; i++)
        token_ids_add(&out->ids, other.ids.id[i]);
    token_ids_add(&out->end, (int32_t)out->ids.n);
    strbuf_add(&out->learn, other.learn.text, other.learn.length);
    if (out->learn.failed || out->ids.failed || out->end.failed)
        return err_set(err, CVN_EMEM, "no memory for a pair");
    return CVN_OK;
}

int data_encode(const DataEncoder *e, const SourceUnit *unit, EncodedUnit *out, cvn_err *err)
{
    out->ids.n = 0;
    out->end.n = 0;
    strbuf_clear(&out->learn);
    if (e->pairs && unit->file->kind == SOURCE_TEXT)
        return err_set(err, CVN_EFORMAT,
                       "'%s' is text, but preference pairs must be JSON: {\"prompt\": …, "
                       "\"chosen\": …, \"rejected\": …}",
                       unit->file->path);
    if (unit->file->kind != SOURCE_TEXT) {
        json_auto_t *record = read_unit(unit, e->pairs, err);
        if (!record)
            return err->code;
        int code = e->pairs ? encode_pair(e, record, out, err) : encode_one(e, record, out, err);
        if (code)
            err_prefix(err, "%s:%" PRId64, unit->file->path, unit->line);
        return code;
    }
    int code = check_utf8(unit, err);
    if (!code && (code = encode_text(e, unit->text, unit->n, unit->begins, unit->ends, out, err)))
        err_prefix(err, "'%s' at byte %" PRId64, unit->file->path, unit->offset);
    return code;
}

int data_unit_text(const SourceUnit *unit,
                   int (*take)(void *context, const char *text, size_t n, cvn_err *err),
                   void *context, cvn_err *err)
{
    if (unit->file->kind == SOURCE_TEXT) {
        TRY(check_utf8(unit, err));
        return take(context, unit->text, unit->n, err);
    }
    json_auto_t *record = read_unit(unit, false, err);
    if (!record)
        return err->code;
    static const char *const keys[] = {"text", "completion"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *text = json_object_get(record, keys[i]);
        if (text)
            TRY(take(context, json_string_value(text), json_string_length(text), err));
    }
    const json_t *messages = json_object_get(record, "messages");
    static const char *const said[] = {"reasoning_content", "content"};
    for (size_t i = 0; i < json_array_size(messages); i++)
        for (size_t k = 0; k < 2; k++) {
            const json_t *part = json_object_get(json_array_get(messages, i), said[k]);
            if (json_is_string(part))
                TRY(take(context, json_string_value(part), json_string_length(part), err));
        }
    return CVN_OK;
}
