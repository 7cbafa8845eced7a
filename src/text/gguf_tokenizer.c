/*
 * The tokenizer inside of a GGUF file. It is told as lists, whose n-th element belongs to id n:
 *
 *   tokenizer.ggml.model        "llama": SentencePiece; "gpt2": byte-level BPE; "gemma4": BPE spelled as SentencePiece
 *   tokenizer.ggml.pre          of "gpt2", how text is cut into words (gguf_pre.h)
 *   tokenizer.ggml.tokens       texts, of "gpt2" in the byte-level alphabet
 *   tokenizer.ggml.scores       of "llama": floats or integers; all 0 where there are none
 *   tokenizer.ggml.token_type   1 normal, 2 unknown, 3 control, 4 user defined, 5 unused, 6 byte; all 1 where there are none
 *   tokenizer.ggml.merges       of BPE: "left right", the first of the list merges first
 *   tokenizer.ggml.bos_token_id, eos_token_id, eot_token_id, eom_token_id, unknown_token_id, padding_token_id
 *   tokenizer.ggml.add_bos_token     whether a text begins with bos
 *   tokenizer.ggml.add_space_prefix  of "llama", whether a space is put in front of a text
 *   tokenizer.ggml.remove_extra_whitespaces  of "llama", whether runs of them are one, and none at the ends
 *   tokenizer.chat_template
 *
 * (Format: docs/gguf.md of ggml-org/ggml.) The lists are what tokenizer.model and tokenizer.json hold, so such a
 * file is written in memory and read as any other. add_eos_token is not followed: who wants a text ended says so.
 */
#include "base/protobuf.h"
#include "io/gguf.h"
#include "text/gguf_pre.h"
#include "text/json_text.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

typedef struct Text {
    const char *p; /* [n] in the file */
    size_t n;
} Text;

/* The lists of a file, all of n elements; they point into it. */
typedef struct Lists {
    Text *token;           /* [n] arena */
    float *score;          /* [n] arena */
    uint8_t *type;         /* [n] arena; TYPE_* */
    int64_t bos, eos, pad; /* ids, or -1 */
    int64_t unknown;       /* the one id of TYPE_UNKNOWN, or -1 */
    const GgufPre *pre;    /* of a BPE tokenizer, else NULL */
    bool begins;           /* a text begins with bos */
    bool for_others;       /* the file that is made is kept, where other programs read it */
    uint64_t n;
} Lists;

bool gguf_tokenizer_is(const char *bytes, size_t n)
{
    return n >= 4 && memcmp(bytes, "GGUF", 4) == 0;
}

static int malformed(const char *key, cvn_err *err)
{
    return err_set(err, CVN_EFORMAT,
                   "'%s' of the GGUF file does not have the type that the format gives it", key);
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

/* The n numbers of an array; false where it is absent. */
static int read_scores(const Gguf *gguf, Lists *lists, Arena *arena, cvn_err *err)
{
    const GgufValue *value = gguf_find(gguf, KEY("scores"));
    lists->score = arena_array(arena, (size_t)lists->n + 1, sizeof *lists->score);
    if (!value)
        return CVN_OK;
    if (value->type != GGUF_ARRAY || value->n != lists->n ||
        (value->element != GGUF_F32 && value->element != GGUF_I32))
        return malformed(KEY("scores"), err);
    for (uint64_t i = 0; i < lists->n; i++) {
        int32_t whole;
        memcpy(&whole, value->data + 4 * i, sizeof whole);
        memcpy(&lists->score[i], value->data + 4 * i, sizeof whole);
        if (value->element == GGUF_I32)
            lists->score[i] = (float)whole;
    }
    return CVN_OK;
}

static int read_types(const Gguf *gguf, Lists *lists, Arena *arena, cvn_err *err)
{
    const GgufValue *value = gguf_find(gguf, KEY("token_type"));
    lists->type = arena_array(arena, (size_t)lists->n + 1, sizeof *lists->type);
    memset(lists->type, TYPE_NORMAL, (size_t)lists->n);
    if (!value)
        return CVN_OK;
    if (value->type != GGUF_ARRAY || value->element != GGUF_I32 || value->n != lists->n)
        return malformed(KEY("token_type"), err);
    for (uint64_t i = 0; i < lists->n; i++) {
        int32_t type;
        memcpy(&type, value->data + 4 * i, sizeof type);
        if (type < 0 || type > TYPE_BYTE)
            return malformed(KEY("token_type"), err);
        lists->type[i] = type ? (uint8_t)type : TYPE_NORMAL;
    }
    return CVN_OK;
}

/* The id that a key gives; -1 where it is absent or none of the n. */
static int64_t read_id(const Gguf *gguf, const char *key, uint64_t n)
{
    int64_t id;
    return gguf_int(gguf, key, &id) && id >= 0 && (uint64_t)id < n ? id : -1;
}

static bool read_flag(const Gguf *gguf, const char *key, bool otherwise)
{
    const GgufValue *value = gguf_find(gguf, key);
    return value && value->type == GGUF_BOOL ? *value->data != 0 : otherwise;
}

/* A token that begins or ends a text is a control token if it looks like one, even where the file of an early converter says
   otherwise. */
static void correct_control(const Gguf *gguf, Lists *lists)
{
    static const char *const keys[] = {KEY("bos_token_id"), KEY("eos_token_id"),
                                       KEY("eot_token_id"), KEY("eom_token_id")};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int64_t id = read_id(gguf, keys[i], lists->n);
        const Text *token = id >= 0 ? &lists->token[id] : NULL;
        if (token && token->n > 2 && token->p[0] == '<' && token->p[token->n - 1] == '>')
            lists->type[id] = TYPE_CONTROL;
    }
}

/* At most one token stands for unknown text; other tokens of that type fill up the vocabulary. */
static void correct_unknown(const Gguf *gguf, Lists *lists)
{
    lists->unknown = read_id(gguf, KEY("unknown_token_id"), lists->n);
    for (uint64_t i = 0; i < lists->n; i++) {
        if (lists->type[i] != TYPE_UNKNOWN)
            continue;
        if (lists->unknown < 0)
            lists->unknown = (int64_t)i;
        lists->type[i] = TYPE_UNUSED;
    }
    if (lists->unknown < 0 && lists->n > 0)
        lists->unknown = 0;
}

static int read_lists(const Gguf *gguf, Arena *arena, Lists *lists, cvn_err *err)
{
    int rc = read_texts(gguf, KEY("tokens"), arena, &lists->token, &lists->n, err);
    if (!rc)
        rc = read_scores(gguf, lists, arena, err);
    if (!rc)
        rc = read_types(gguf, lists, arena, err);
    if (rc)
        return rc;
    lists->bos = read_id(gguf, KEY("bos_token_id"), lists->n);
    lists->eos = read_id(gguf, KEY("eos_token_id"), lists->n);
    lists->pad = read_id(gguf, KEY("padding_token_id"), lists->n);
    correct_control(gguf, lists);
    correct_unknown(gguf, lists);
    return CVN_OK;
}

/* ---- as tokenizer.model (the fields are told in sentencepiece.c) ---- */

static int write_sentencepiece(const Gguf *gguf, const Lists *lists, StrBuf *out)
{
    enum { PIECES = 1, TRAINER = 2, NORMALIZER = 3 };
    const int64_t ids[] = {lists->bos, lists->eos, lists->pad};
    SCOPED(strbuf_free) StrBuf part = {0};
    size_t n_bytes = 0;
    for (uint64_t i = 0; i < lists->n && !out->failed; i++) {
        const Text *token = &lists->token[i];
        unsigned type = lists->type[i];
        if ((int64_t)i == lists->unknown)
            type = TYPE_UNKNOWN;
        else if (type == TYPE_UNUSED)
            type = TYPE_CONTROL; /* no text becomes one */
        else if (type == TYPE_NORMAL && piece_byte(token->p, token->n) >= 0)
            type = TYPE_BYTE;
        n_bytes += type == TYPE_BYTE;
        strbuf_clear(&part);
        proto_put_bytes(&part, 1, token->p, token->n);
        proto_put_key(&part, 2, PROTO_FIXED32);
        strbuf_add(&part, (const char *)&lists->score[i], sizeof lists->score[i]);
        proto_put_int(&part, 3, type);
        proto_put_bytes(out, PIECES, part.text, part.length);
        out->failed |= part.failed;
    }
    strbuf_clear(&part);
    proto_put_int(&part, 3, 2);               /* model_type BPE */
    proto_put_int(&part, 35, n_bytes == 256); /* byte_fallback */
    for (unsigned i = 0; i < 3; i++)
        if (ids[i] >= 0)
            proto_put_bytes(&part, 46 + i, lists->token[ids[i]].p, lists->token[ids[i]].n);
    proto_put_bytes(out, TRAINER, part.text, part.length);
    out->failed |= part.failed;
    strbuf_clear(&part);
    proto_put_int(&part, 3, read_flag(gguf, KEY("add_space_prefix"), true));
    proto_put_int(&part, 4, read_flag(gguf, KEY("remove_extra_whitespaces"), false));
    proto_put_bytes(out, NORMALIZER, part.text, part.length);
    out->failed |= part.failed;
    return CVN_OK;
}

/* ---- as tokenizer.json ---- */

/* The tokens that are added and, else, those of the vocabulary. */
static bool is_added(const Lists *lists, uint64_t id)
{
    unsigned type = lists->type[id];
    return type == TYPE_CONTROL || type == TYPE_USER || type == TYPE_UNUSED;
}

static void put_added(const Lists *lists, StrBuf *out)
{
    const char *between = "";
    strbuf_puts(out, "{\"added_tokens\": [");
    for (uint64_t i = 0; i < lists->n; i++) {
        if (!is_added(lists, i))
            continue;
        strbuf_printf(out, "%s{\"id\": %llu, \"content\": ", between, (unsigned long long)i);
        json_text_string(lists->token[i].p, lists->token[i].n, out);
        bool user = lists->type[i] == TYPE_USER;
        strbuf_printf(out,
                      ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                      "\"normalized\": %s, \"special\": %s}",
                      user ? "true" : "false", user ? "false" : "true");
        between = ", ";
    }
    strbuf_puts(out, "], ");
}

/* Hugging Face's library gives an added token the id that its text has in the vocabulary, else the next one behind it, whatever
   the file says: a file for it has those in the vocabulary, too, that are not behind it. */
static void put_vocabulary(const Lists *lists, StrBuf *out)
{
    const char *between = "";
    uint64_t end = lists->n;
    while (end > 0 && is_added(lists, end - 1))
        end--;
    strbuf_puts(out, "\"vocab\": {");
    for (uint64_t i = 0; i < lists->n; i++) {
        /* Gemma's runs of spaces are added tokens that are made by merges, too. */
        bool merged = lists->pre->blanks && lists->type[i] == TYPE_USER;
        bool apart = is_added(lists, i) && !merged && !(lists->for_others && i < end);
        if (apart || lists->token[i].n == 0)
            continue;
        strbuf_puts(out, between);
        json_text_string(lists->token[i].p, lists->token[i].n, out);
        strbuf_printf(out, ": %llu", (unsigned long long)i);
        between = ", ";
    }
    strbuf_puts(out, "}, ");
}

/* Normalization before, and decoding after. */
static void put_stages(const GgufPre *pre, StrBuf *out)
{
    if (pre->blanks) {
        strbuf_puts(out,
                    "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
                    "\"content\": \"\xe2\x96\x81\"}, \"decoder\": {\"type\": \"Sequence\", "
                    "\"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
                    "\"\xe2\x96\x81\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, "
                    "{\"type\": \"Fuse\"}]}, ");
        return;
    }
    strbuf_puts(out, "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [");
    for (size_t i = 0; i < SPLIT_MAX && pre->split[i]; i++) {
        strbuf_puts(out, "{\"type\": \"Split\", \"pattern\": {\"Regex\": ");
        json_text_string(pre->split[i], strlen(pre->split[i]), out);
        strbuf_puts(out, "}, \"behavior\": \"Isolated\", \"invert\": false}, ");
    }
    strbuf_puts(out, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": "
                     "false, \"use_regex\": false}]}, \"decoder\": {\"type\": \"ByteLevel\", "
                     "\"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": "
                     "false}, ");
}

/* A post-processor that puts bos in front of a text. */
static void put_begin(const Lists *lists, StrBuf *out)
{
    SCOPED(strbuf_free) StrBuf name = {0};
    json_text_string(lists->token[lists->bos].p, lists->token[lists->bos].n, &name);
    const char *bos = name.length ? name.text : "";
    strbuf_printf(
        out,
        "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
        "[{\"SpecialToken\": {\"id\": %s, \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", "
        "\"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, "
        "{\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}], \"special_tokens\": {%s: "
        "{\"id\": %s, \"ids\": [%lld], \"tokens\": [%s]}}}, ",
        bos, bos, bos, (long long)lists->bos, bos);
    out->failed |= name.failed;
}

static int write_bpe(const Gguf *gguf, const Lists *lists, Arena *arena, StrBuf *out, cvn_err *err)
{
    Text *merge;
    uint64_t n_merges;
    TRY(read_texts(gguf, KEY("merges"), arena, &merge, &n_merges, err));
    put_added(lists, out);
    put_stages(lists->pre, out);
    if (lists->begins && lists->bos >= 0)
        put_begin(lists, out);
    strbuf_printf(out,
                  "\"model\": {\"type\": \"BPE\", \"byte_fallback\": %s, \"ignore_merges\": %s, ",
                  lists->pre->blanks ? "true" : "false", lists->pre->whole ? "true" : "false");
    put_vocabulary(lists, out);
    strbuf_puts(out, "\"merges\": [");
    for (uint64_t i = 0; i < n_merges; i++) {
        strbuf_puts(out, i ? ", " : "");
        json_text_string(merge[i].p, merge[i].n, out);
    }
    strbuf_puts(out, "]}}");
    return CVN_OK;
}

/* ---- both ---- */

/* Which of the two files to write, by tokenizer.ggml.model and pre. */
static int read_kind(const Gguf *gguf, Lists *lists, Arena *arena, cvn_err *err)
{
    const char *model = gguf_string(gguf, KEY("model"), arena);
    const char *pre =
        gguf_find(gguf, KEY("pre")) ? gguf_string(gguf, KEY("pre"), arena) : "default";
    model = model ? model : "";
    bool sentencepiece = strcmp(model, "llama") == 0, gemma = strcmp(model, "gemma4") == 0;
    if (!sentencepiece && !gemma && strcmp(model, "gpt2") != 0)
        return err_set(err, CVN_EUNSUPPORTED,
                       "unsupported tokenizer model '%.40s' in the GGUF file; supported are "
                       "'llama', 'gpt2' and 'gemma4'",
                       model);
    if (!sentencepiece) {
        lists->pre = gguf_pre_find(gemma ? model : pre ? pre : "");
        if (!lists->pre)
            return err_set(err, CVN_EUNSUPPORTED, "unknown pre-tokenizer '%.40s' in the GGUF file",
                           pre ? pre : "");
    }
    lists->begins = read_flag(gguf, KEY("add_bos_token"), sentencepiece || lists->pre->bos);
    return CVN_OK;
}

static int write_file(const Gguf *gguf, const Lists *lists, Arena *arena, StrBuf *out, cvn_err *err)
{
    int rc = lists->pre ? write_bpe(gguf, lists, arena, out, err)
                        : write_sentencepiece(gguf, lists, out);
    if (!rc && out->failed)
        rc = err_set(err, CVN_EMEM, "no memory for the tokenizer of a GGUF file");
    return rc;
}

/* Reads what the GGUF file says into the arena, and makes the tokenizer file of it. */
static int make(Gguf *gguf, Lists *lists, Arena *arena, const char *bytes, size_t n, StrBuf *file,
                cvn_err *err)
{
    int rc = gguf_read(gguf, NULL, (const uint8_t *)bytes, n, arena, err);
    if (!rc && !gguf_find(gguf, KEY("model")))
        rc = err_set(err, CVN_EIO, "the GGUF file has no tokenizer");
    if (!rc)
        rc = read_kind(gguf, lists, arena, err);
    if (!rc)
        rc = read_lists(gguf, arena, lists, err);
    return rc ? rc : write_file(gguf, lists, arena, file, err);
}

/* Whether a user-defined piece stands for text that everybody writes: runs of white space, the tags of HTML. Where it is one
 * of the template's markers, it is not found in text that must not mark anything. */
static bool is_marker(const Added *piece, const char *template)
{
    static const char *const spaces[] = {" ", "\t", "\n", "\r", "\xe2\x96\x81"};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (strncmp(piece->text, spaces[i], strlen(spaces[i])) == 0)
            return false;
    return !template || strstr(template, piece->text);
}

/* Phi-3's tokens take white space on their right along, which its files say nowhere but by the name of the model. */
static bool is_phi3(const Gguf *gguf, Arena *arena)
{
    const char *name = gguf_string(gguf, "general.name", arena);
    return name && (strcasestr(name, "phi-3") || strcasestr(name, "phi3"));
}

/* Sets what the GGUF file says, but neither of the two formats in which it is written can say. */
static void finish(Tokenizer *t, const Gguf *gguf, const Lists *lists, Arena *arena)
{
    static const char *const no_strip[] = {"<unk>", "<s>", "<|endoftext|>"};
    t->ids.bos = lists->bos >= 0 ? (int32_t)lists->bos : t->ids.bos;
    t->ids.eos = lists->eos >= 0 ? (int32_t)lists->eos : t->ids.eos;
    t->ids.pad = lists->pad >= 0 ? (int32_t)lists->pad : t->ids.pad;
    t->ids.begins = lists->begins;
    t->templates.chat = gguf_string(gguf, "tokenizer.chat_template", &t->arena);
    t->templates.tools = gguf_string(gguf, "tokenizer.chat_template.tool_use", &t->arena);
    for (size_t i = 0; i < t->normalized.n; i++) {
        Added *piece = &t->normalized.item[i];
        if (piece->kind == ADDED_PIECE && is_marker(piece, t->templates.chat))
            piece->kind = ADDED_TEXT;
    }
    bool phi3 = is_phi3(gguf, arena);
    for (size_t i = 0; phi3 && i < t->raw.n; i++) {
        Added *token = &t->raw.item[i];
        token->strip_right = true;
        for (size_t k = 0; k < sizeof no_strip / sizeof *no_strip; k++)
            token->strip_right &= strcmp(token->text, no_strip[k]) != 0;
    }
}

#define READING "reading the tokenizer of a GGUF file"

typedef struct Reading {
    const char *bytes; /* [n] of the GGUF file */
    size_t n;
    StrBuf *file; /* what is made of it */
    Tokenizer *t; /* made of that, owned by who asks; NULL: nobody asks */
    bool wanted;  /* somebody asks */
} Reading;

static int read_gguf(void *of, cvn_err *err)
{
    Reading *r = of;
    SCOPED(arena_free) Arena arena = {0};
    Gguf gguf;
    Lists lists = {.for_others = !r->wanted};
    TRY(arena_begin(&arena, err));
    int rc = make(&gguf, &lists, &arena, r->bytes, r->n, r->file, err);
    if (!rc && r->wanted)
        rc = tokenizer_read(r->file->text, r->file->length, &r->t, err);
    if (!rc && r->wanted)
        finish(r->t, &gguf, &lists, &arena);
    return rc;
}

int gguf_tokenizer_file(const char *bytes, size_t n, StrBuf *file, cvn_err *err)
{
    Reading r = {.bytes = bytes, .n = n, .file = file};
    return protect(read_gguf, &r, READING, err);
}

int gguf_tokenizer_read(const char *bytes, size_t n, Tokenizer **out, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf file = {0};
    Reading r = {.bytes = bytes, .n = n, .file = &file, .wanted = true};
    int rc = protect(read_gguf, &r, READING, err);
    if (rc)
        tokenizer_free(r.t);
    *out = rc ? NULL : r.t;
    return rc;
}
