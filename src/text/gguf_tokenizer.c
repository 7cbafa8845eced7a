/*
 * The tokenizer inside of a GGUF file. It is told as lists, whose n-th element belongs to id n:
 *
 *   tokenizer.ggml.model        "llama": SentencePiece; "gpt2": byte-level BPE
 *   tokenizer.ggml.pre          of "gpt2", how text is cut into words; "llama-bpe" is Llama 3's way
 *   tokenizer.ggml.tokens       texts, of "gpt2" in the byte-level alphabet
 *   tokenizer.ggml.scores       floats, of "llama"
 *   tokenizer.ggml.token_type   1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte
 *   tokenizer.ggml.merges       of "gpt2": "left right", the first of the list merges first
 *   tokenizer.ggml.bos_token_id, eos_token_id, padding_token_id; add_space_prefix of "llama"
 *   tokenizer.chat_template
 *
 * (Format: docs/gguf.md of ggml-org/ggml.) The lists are what tokenizer.model and tokenizer.json hold, so such a
 * file is written in memory and read as any other.
 */
#include "io/gguf.h"
#include "text/json_text.h"
#include "text/split.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_USER = 4, TYPE_UNUSED = 5 };

typedef struct Text {
    const char *p; /* [n] in the file */
    size_t n;
} Text;

/* The lists of a file, all of n elements; they point into it. */
typedef struct Lists {
    Text *token;           /* [n] arena */
    const uint8_t *score;  /* [n] f32, unaligned; NULL where there are none */
    const uint8_t *type;   /* [n] i32, unaligned; NULL: all normal */
    int64_t bos, eos, pad; /* ids, or -1 */
    uint64_t n;
} Lists;

bool gguf_tokenizer_is(const char *bytes, size_t n)
{
    return n >= 4 && memcmp(bytes, "GGUF", 4) == 0;
}

static int malformed(const char *key, cvn_err *err)
{
    return err_set(err, CVN_EFORMAT, "the GGUF file's '%s' does not have the form of its format",
                   key);
}

/* An array of strings, each checked to be UTF-8; *text is in the arena. */
static int read_texts(const Gguf *gguf, const char *key, Arena *arena, Text **text, uint64_t *n,
                      cvn_err *err)
{
    const GgufValue *value = gguf_find(gguf, key);
    if (!value || value->type != GGUF_ARRAY || value->element != GGUF_STRING)
        return malformed(key, err);
    const uint8_t *p = value->data; /* gguf_read has gone over all lengths */
    *n = value->n;
    *text = arena_array(arena, (size_t)value->n + 1, sizeof **text);
    for (uint64_t i = 0; i < value->n; i++) {
        uint64_t length;
        memcpy(&length, p, sizeof length);
        (*text)[i] = (Text){(const char *)p + sizeof length, (size_t)length};
        p += sizeof length + length;
        if (!utf8_valid((*text)[i].p, (*text)[i].n) || memchr((*text)[i].p, 0, (*text)[i].n))
            return malformed(key, err);
    }
    return CVN_OK;
}

/* An array of n numbers of 4 bytes; NULL where it is absent. */
static int read_numbers(const Gguf *gguf, const char *key, GgufType element, uint64_t n,
                        const uint8_t **numbers, cvn_err *err)
{
    const GgufValue *value = gguf_find(gguf, key);
    *numbers = NULL;
    if (!value)
        return CVN_OK;
    if (value->type != GGUF_ARRAY || value->element != element || value->n != n)
        return malformed(key, err);
    *numbers = value->data;
    return CVN_OK;
}

/* The id that a key gives; -1 where it is absent or none of the n. */
static int64_t read_id(const Gguf *gguf, const char *key, uint64_t n)
{
    int64_t id;
    return gguf_int(gguf, key, &id) && id >= 0 && (uint64_t)id < n ? id : -1;
}

static int read_lists(const Gguf *gguf, Arena *arena, Lists *lists, cvn_err *err)
{
    int rc = read_texts(gguf, KEY("tokens"), arena, &lists->token, &lists->n, err);
    if (!rc)
        rc = read_numbers(gguf, KEY("scores"), GGUF_F32, lists->n, &lists->score, err);
    if (!rc)
        rc = read_numbers(gguf, KEY("token_type"), GGUF_I32, lists->n, &lists->type, err);
    lists->bos = read_id(gguf, KEY("bos_token_id"), lists->n);
    lists->eos = read_id(gguf, KEY("eos_token_id"), lists->n);
    lists->pad = read_id(gguf, KEY("padding_token_id"), lists->n);
    return rc;
}

static uint32_t type_of(const Lists *lists, uint64_t id)
{
    uint32_t type = TYPE_NORMAL;
    if (lists->type)
        memcpy(&type, lists->type + 4 * id, sizeof type);
    return type;
}

/* ---- as tokenizer.model (the fields are told in sentencepiece.c) ---- */

static void put_varint(StrBuf *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        strbuf_putc(out, (char)(0x80 | (value & 0x7f)));
    strbuf_putc(out, (char)value);
}

static void put_number(StrBuf *out, unsigned field, uint64_t value)
{
    put_varint(out, field << 3);
    put_varint(out, value);
}

static void put_bytes(StrBuf *out, unsigned field, const char *p, size_t n)
{
    put_varint(out, field << 3 | 2);
    put_varint(out, n);
    strbuf_add(out, p, n);
}

static int write_sentencepiece(const Gguf *gguf, const Lists *lists, StrBuf *out, cvn_err *err)
{
    enum { PIECES = 1, TRAINER = 2, NORMALIZER = 3 };
    const int64_t ids[] = {lists->bos, lists->eos, lists->pad};
    const GgufValue *prefix = gguf_find(gguf, KEY("add_space_prefix"));
    StrBuf part = {0};
    if (!lists->score)
        return malformed(KEY("scores"), err);
    for (uint64_t i = 0; i < lists->n && !out->failed; i++) {
        strbuf_clear(&part);
        put_bytes(&part, 1, lists->token[i].p, lists->token[i].n);
        put_varint(&part, 2 << 3 | 5);
        strbuf_add(&part, (const char *)lists->score + 4 * i, 4);
        put_number(&part, 3, type_of(lists, i));
        put_bytes(out, PIECES, part.text, part.length);
        out->failed |= part.failed;
    }
    strbuf_clear(&part);
    put_number(&part, 3, 2);  /* model_type BPE */
    put_number(&part, 35, 1); /* byte_fallback */
    for (unsigned i = 0; i < 3; i++)
        if (ids[i] >= 0)
            put_bytes(&part, 46 + i, lists->token[ids[i]].p, lists->token[ids[i]].n);
    put_bytes(out, TRAINER, part.text, part.length);
    out->failed |= part.failed;
    strbuf_clear(&part);
    put_number(&part, 3, !prefix || prefix->type != GGUF_BOOL || *prefix->data);
    put_number(&part, 4, 0); /* white space stays as it is */
    put_bytes(out, NORMALIZER, part.text, part.length);
    out->failed |= part.failed;
    strbuf_free(&part);
    return CVN_OK;
}

/* ---- as tokenizer.json ---- */

static void put_added(const Lists *lists, StrBuf *out)
{
    const char *between = "";
    strbuf_puts(out, "{\"added_tokens\": [");
    for (uint64_t i = 0; i < lists->n; i++) {
        uint32_t type = type_of(lists, i);
        if (type != TYPE_CONTROL && type != TYPE_USER)
            continue;
        strbuf_printf(out, "%s{\"id\": %llu, \"content\": ", between, (unsigned long long)i);
        json_text_string(lists->token[i].p, lists->token[i].n, out);
        strbuf_printf(out, ", \"special\": %s}", type == TYPE_CONTROL ? "true" : "false");
        between = ", ";
    }
    strbuf_puts(out, "], ");
}

static int write_bpe(const Gguf *gguf, const Lists *lists, Arena *arena, StrBuf *out, cvn_err *err)
{
    const char *pre = gguf_string(gguf, KEY("pre"), arena);
    Text *merge;
    uint64_t n_merges;
    if (!pre || (strcmp(pre, "llama-bpe") != 0 && strcmp(pre, "llama3") != 0 &&
                 strcmp(pre, "llama-v3") != 0))
        return err_set(err, CVN_EUNSUPPORTED,
                       "the GGUF file's tokenizer cuts text as '%.40s' does, and only 'llama-bpe' "
                       "is known",
                       pre ? pre : "");
    int rc = read_texts(gguf, KEY("merges"), arena, &merge, &n_merges, err);
    if (rc)
        return rc;
    const char *between = "";
    put_added(lists, out);
    strbuf_puts(out, "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
                     "\"Split\", \"pattern\": {\"Regex\": ");
    json_text_string(SPLIT_LLAMA3, strlen(SPLIT_LLAMA3), out);
    strbuf_puts(out,
                "}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
                "\"add_prefix_space\": false, \"use_regex\": false}]}, \"decoder\": {\"type\": "
                "\"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"ignore_merges\": true, "
                "\"vocab\": {");
    for (uint64_t i = 0; i < lists->n; i++) {
        uint32_t type = type_of(lists, i);
        if (type == TYPE_CONTROL || type == TYPE_USER || type == TYPE_UNUSED)
            continue;
        strbuf_puts(out, between);
        json_text_string(lists->token[i].p, lists->token[i].n, out);
        strbuf_printf(out, ": %llu", (unsigned long long)i);
        between = ", ";
    }
    strbuf_puts(out, "}, \"merges\": [");
    for (uint64_t i = 0; i < n_merges; i++) {
        strbuf_puts(out, i ? ", " : "");
        json_text_string(merge[i].p, merge[i].n, out);
    }
    strbuf_puts(out, "]}}");
    return CVN_OK;
}

static int write_file(const Gguf *gguf, const Lists *lists, Arena *arena, StrBuf *out, cvn_err *err)
{
    const char *model = gguf_string(gguf, KEY("model"), arena);
    int rc;
    if (model && strcmp(model, "llama") == 0)
        rc = write_sentencepiece(gguf, lists, out, err);
    else if (model && strcmp(model, "gpt2") == 0)
        rc = write_bpe(gguf, lists, arena, out, err);
    else
        rc = err_set(
            err, CVN_EUNSUPPORTED,
            "the GGUF file's tokenizer is of the model '%.40s'; 'llama' and 'gpt2' are read",
            model ? model : "");
    if (!rc && out->failed)
        rc = err_set(err, CVN_EMEM, "no memory for the tokenizer of a GGUF file");
    return rc;
}

/* All of it: what the file says, in the arena, and the file that is made of it. */
static int make(Gguf *gguf, Lists *lists, Arena *arena, const char *bytes, size_t n, StrBuf *file,
                cvn_err *err)
{
    int rc = gguf_read(gguf, "GGUF", (const uint8_t *)bytes, n, arena, err);
    if (!rc && !gguf_find(gguf, KEY("model")))
        rc = err_set(err, CVN_EIO, "the GGUF file has no tokenizer");
    if (!rc)
        rc = read_lists(gguf, arena, lists, err);
    return rc ? rc : write_file(gguf, lists, arena, file, err);
}

int gguf_tokenizer_file(const char *bytes, size_t n, StrBuf *file, cvn_err *err)
{
    Arena arena;
    Gguf gguf;
    Lists lists = {0};
    int rc = arena_init(&arena, err);
    if (rc)
        return rc;
    rc = make(&gguf, &lists, &arena, bytes, n, file, err);
    arena_free(&arena);
    return rc;
}

int gguf_tokenizer_read(const char *bytes, size_t n, Tokenizer **out, cvn_err *err)
{
    Arena arena;
    Gguf gguf;
    Lists lists = {0};
    StrBuf file = {0};
    int rc = arena_init(&arena, err);
    if (rc)
        return rc;
    rc = make(&gguf, &lists, &arena, bytes, n, &file, err);
    if (!rc)
        rc = tokenizer_read(file.text, file.length, out, err);
    if (!rc) {
        Tokenizer *t = *out;
        t->bos = lists.bos >= 0 ? (int32_t)lists.bos : t->bos;
        t->eos = lists.eos >= 0 ? (int32_t)lists.eos : t->eos;
        t->pad = lists.pad >= 0 ? (int32_t)lists.pad : t->pad;
        t->chat_template = gguf_string(&gguf, "tokenizer.chat_template", &t->arena);
    }
    strbuf_free(&file);
    arena_free(&arena);
    return rc;
}
