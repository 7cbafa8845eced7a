/*
 * Reads Hugging Face's `tokenizer.json` with a BPE model:
 *
 *     {"added_tokens": [{"id": 128000, "content": "<|begin_of_text|>", "special": true, ...}],
 *      "normalizer": ..., "pre_tokenizer": ..., "post_processor": ..., "decoder": ...,
 *      "model": {"type": "BPE", "vocab": {"!": 0, ...}, "merges": ["Ġ t", ["h", "e"], ...],
 *                "ignore_merges": true, "byte_fallback": false, "unk_token": null, ...}}
 *
 * The place of a merge in its list is its rank. Two forms matter for Llama. In the byte-level form
 * (Llama 3) tokens are spelled in the alphabet of byte_level.h. In the SentencePiece form (Llama 2) tokens
 * are text with U+2581 for spaces, and bytes that no token covers are written <0x00> to <0xFF>.
 */
#include "text/huggingface.h"

#include "base/json_file.h"
#include "text/byte_level.h"
#include "text/utf8.h"

#include <stdio.h>
#include <string.h>

typedef struct Reader {
    Tokenizer *t;                     /* borrowed, being made */
    const json_t *model;              /* borrowed */
    HfDecoder decoder;                /* what the decoder section says */
    int16_t alphabet[BYTE_LEVEL_END]; /* the byte that a character shows, or -1 */
    StrBuf buffer;                    /* owned: the text of a token */
    cvn_err *err;                     /* borrowed */
} Reader;

/* The bytes that a token of the vocabulary stands for, into r->buffer from its present end. False when
 * the token is not in the byte-level alphabet; then its text is taken as it is. */
static bool spell(Reader *r, const char *token, size_t n)
{
    size_t before = r->buffer.length;
    bool in_alphabet = r->t->bpe.byte_symbols;
    for (size_t i = 0; in_alphabet && i < n;) {
        int length = utf8_length(token + i, n - i);
        uint32_t point = length ? utf8_point(token + i, length) : BYTE_LEVEL_END;
        in_alphabet = point < BYTE_LEVEL_END && r->alphabet[point] >= 0;
        if (in_alphabet)
            strbuf_putc(&r->buffer, (char)r->alphabet[point]);
        i += (size_t)length;
    }
    if (!in_alphabet) {
        r->buffer.length = before;
        strbuf_add(&r->buffer, token, n);
    }
    return in_alphabet || !r->t->bpe.byte_symbols;
}

/* ---- vocabulary ---- */

static int bad_id(const char *token, cvn_err *err)
{
    return err_set(err, CVN_EFORMAT, "token '%.60s' must have an id of its own, from 0 to %d",
                   token, TOKENIZER_MAX_IDS - 1);
}

/* The largest id + 1 of the vocabulary and the added tokens. */
static int count_ids(const json_t *vocab, const json_t *added, int32_t *n_ids, cvn_err *err)
{
    const char *token;
    json_t *value;
    size_t i;
    json_int_t largest = -1;
    json_object_foreach((json_t *)vocab, token, value)
    {
        json_int_t id = json_integer_value(value);
        if (!json_is_integer(value) || id < 0 || id >= TOKENIZER_MAX_IDS)
            return bad_id(token, err);
        largest = id > largest ? id : largest;
    }
    json_array_foreach(added, i, value)
    {
        const json_t *number = json_object_get(value, "id");
        const char *content = json_string_value(json_object_get(value, "content"));
        json_int_t id = json_integer_value(number);
        if (!content || !json_is_integer(number) || id < 0 || id >= TOKENIZER_MAX_IDS)
            return bad_id(content ? content : "", err);
        largest = id > largest ? id : largest;
    }
    if (json_object_size(vocab) == 0)
        return err_set(err, CVN_EFORMAT, "the model has no vocabulary");
    *n_ids = (int32_t)largest + 1;
    return CVN_OK;
}

static int read_vocab(Reader *r, const json_t *vocab)
{
    Tokenizer *t = r->t;
    const char *token;
    json_t *value;
    json_object_foreach((json_t *)vocab, token, value)
    {
        int32_t id = (int32_t)json_integer_value(value);
        size_t n = strlen(token);
        if (n == 0 || t->bpe.piece[id].kind != PIECE_NONE)
            return bad_id(token, r->err);
        strbuf_clear(&r->buffer);
        bool indexed = spell(r, token, n);
        if (r->buffer.failed)
            return err_set(r->err, CVN_EMEM, "no memory for the vocabulary");
        bpe_set_piece(&t->bpe, id, PIECE_NORMAL, r->buffer.text, r->buffer.length);
        if (indexed && !bpe_index(&t->bpe, id))
            return err_set(r->err, CVN_EFORMAT, "token '%.60s' is in the vocabulary twice", token);
        int byte = r->decoder.byte_fallback ? piece_byte(token, n) : -1;
        if (byte >= 0)
            bpe_set_byte(&t->bpe, id, (unsigned char)byte);
        else if (r->decoder.blank)
            bpe_set_out(&t->bpe, id, r->buffer.text, r->buffer.length, true);
    }
    return CVN_OK;
}

/* The id for each single byte: tokens of one byte, or <0x00> to <0xFF> when the model falls back to
 * them. */
static int read_bytes(Reader *r)
{
    Tokenizer *t = r->t;
    bool fallback;
    TRY(hf_flag(r->model, "byte_fallback", false, &fallback, r->err));
    for (int byte = 0; byte < 256; byte++) {
        char text[8] = {(char)byte};
        size_t n = 1;
        if (!t->bpe.byte_symbols)
            n = (size_t)snprintf(text, sizeof text, "<0x%02X>", (unsigned)byte);
        if (t->bpe.byte_symbols || fallback)
            t->bpe.byte_id[byte] = bpe_find(&t->bpe, text, n);
    }
    return CVN_OK;
}

/* Settings of the model that change what BPE does. */
static int read_settings(Reader *r, bool *ignore_merges)
{
    Tokenizer *t = r->t;
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++)
        if (json_string_length(json_object_get(r->model, affixes[i])) > 0)
            return err_set(r->err, CVN_EUNSUPPORTED, "a BPE model with \"%s\" is not supported",
                           affixes[i]);
    if (json_number_value(json_object_get(r->model, "dropout")) != 0)
        return err_set(r->err, CVN_EUNSUPPORTED,
                       "a BPE model with \"dropout\" is not supported; set it to null");
    if (hf_flag(r->model, "fuse_unk", false, &t->bpe.fuse_unknown, r->err) ||
        hf_flag(r->model, "ignore_merges", false, ignore_merges, r->err))
        return CVN_EFORMAT;
    const json_t *unknown = hf_member(r->model, "unk_token");
    if (unknown) {
        const char *text = json_string_value(unknown);
        t->bpe.unknown = text ? bpe_find(&t->bpe, text, strlen(text)) : -1;
        if (t->bpe.unknown < 0)
            return err_set(r->err, CVN_EFORMAT, "\"unk_token\" is not in the vocabulary");
    }
    return CVN_OK;
}

/* ---- added tokens ---- */

static int read_added(Reader *r, const json_t *entry, Added *added, bool *normalized)
{
    Tokenizer *t = r->t;
    const char *content = json_string_value(json_object_get(entry, "content"));
    size_t n = strlen(content);
    bool special;
    *added = (Added){.id = (int32_t)json_integer_value(json_object_get(entry, "id")), .length = n};
    if (hf_flag(entry, "special", false, &special, r->err) ||
        hf_flag(entry, "lstrip", false, &added->strip_left, r->err) ||
        hf_flag(entry, "rstrip", false, &added->strip_right, r->err) ||
        hf_flag(entry, "single_word", false, &added->single_word, r->err) ||
        hf_flag(entry, "normalized", !special, normalized, r->err))
        return CVN_EFORMAT;
    added->kind = special ? ADDED_SPECIAL : ADDED_TEXT;
    if (n > TOKENIZER_MAX_PIECE)
        return err_set(r->err, CVN_EFORMAT, "added token '%.60s…' is longer than %d bytes", content,
                       TOKENIZER_MAX_PIECE);
    if (n == 0)
        return CVN_OK;
    BpePiece *piece = &t->bpe.piece[added->id];
    strbuf_clear(&r->buffer);
    spell(r, content, n);
    bool same = piece->kind != PIECE_NONE && (size_t)piece->length == r->buffer.length &&
                memcmp(piece->text, r->buffer.text, r->buffer.length) == 0;
    if (piece->kind != PIECE_NONE && !same)
        return bad_id(content, r->err);
    if (!same)
        bpe_set_piece(&t->bpe, added->id, PIECE_USER, content, n);
    if (!same && r->decoder.blank)
        bpe_set_out(&t->bpe, added->id, content, n, true);
    piece->kind = special ? PIECE_SPECIAL : PIECE_USER;
    added->text = arena_stringn(&t->arena, content, n);
    bool is_new;
    uint64_t *id = map_put(&t->special, content, n, &is_new);
    if (!is_new && *id != (uint64_t)added->id)
        return bad_id(content, r->err);
    *id = (uint64_t)added->id;
    return CVN_OK;
}

/* What a token that is looked for in rewritten text looks like there; it is decoded to that, too, as the
 * space in front belongs to what was found. */
static int rewrite_added(Reader *r, Added *added)
{
    StrBuf buffers[2] = {{0}, {0}};
    Cleanup cleanup[2];
    const char *text;
    size_t n;
    for (int i = 0; i < 2; i++)
        cleanup_push(&cleanup[i], strbuf_release, &buffers[i]);
    rewrite(&r->t->normalize, added->text, added->length, true, buffers, &text, &n);
    int rc = buffers[0].failed || buffers[1].failed
                 ? err_set(r->err, CVN_EMEM, "no memory for the added tokens")
                 : CVN_OK;
    if (!rc && n == 0)
        rc = err_set(r->err, CVN_EFORMAT, "added token '%.60s' is empty after normalization",
                     added->text);
    added->text = arena_stringn(&r->t->arena, text, n);
    added->length = n;
    bpe_set_out(&r->t->bpe, added->id, added->text, n, r->decoder.blank);
    cleanup_run(&cleanup[1]);
    cleanup_run(&cleanup[0]);
    return rc;
}

static int read_all_added(Reader *r, const json_t *list)
{
    Tokenizer *t = r->t;
    size_t n = json_array_size(list), n_raw = 0, n_normalized = 0;
    Added *raw = arena_array(&t->arena, n, sizeof *raw);
    Added *normalized = arena_array(&t->arena, n, sizeof *normalized);
    for (size_t i = 0; i < n; i++) {
        Added added;
        bool is_normalized;
        int rc = read_added(r, json_array_get(list, i), &added, &is_normalized);
        if (!rc && added.length > 0 && is_normalized)
            rc = rewrite_added(r, &added);
        if (rc)
            return rc;
        if (added.length > 0 && is_normalized)
            normalized[n_normalized++] = added;
        else if (added.length > 0)
            raw[n_raw++] = added;
    }
    added_set_init(&t->raw, raw, n_raw);
    added_set_init(&t->normalized, normalized, n_normalized);
    return CVN_OK;
}

/* ---- merges ---- */

/* The two tokens of a merge: ["h", "e"] or "h e". */
static bool merge_parts(const json_t *merge, const char **left, size_t *n_left, const char **right,
                        size_t *n_right)
{
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge), *space = strchr(text, ' ');
        if (!space || strchr(space + 1, ' '))
            return false;
        *left = text;
        *n_left = (size_t)(space - text);
        *right = space + 1;
        *n_right = strlen(*right);
    } else {
        *left = json_string_value(json_array_get(merge, 0));
        *right = json_string_value(json_array_get(merge, 1));
        if (json_array_size(merge) != 2 || !*left || !*right)
            return false;
        *n_left = strlen(*left);
        *n_right = strlen(*right);
    }
    return *n_left > 0 && *n_right > 0;
}

static int read_merge(Reader *r, const json_t *merge, size_t rank)
{
    Tokenizer *t = r->t;
    const char *left, *right;
    size_t n_left, n_right;
    if (!merge_parts(merge, &left, &n_left, &right, &n_right))
        return err_set(r->err, CVN_EFORMAT,
                       "merge %zu must be two tokens, as \"a b\" or [\"a\", \"b\"]", rank);
    strbuf_clear(&r->buffer);
    bool spelled = spell(r, left, n_left);
    n_left = r->buffer.length;
    spelled &= spell(r, right, n_right);
    if (r->buffer.failed)
        return err_set(r->err, CVN_EMEM, "no memory for merge %zu", rank);
    const char *text = r->buffer.text;
    int32_t a = bpe_find(&t->bpe, text, n_left);
    int32_t b = bpe_find(&t->bpe, text + n_left, r->buffer.length - n_left);
    int32_t merged = bpe_find(&t->bpe, text, r->buffer.length);
    if (!spelled || a < 0 || b < 0 || merged < 0)
        return err_set(r->err, CVN_EFORMAT, "merge %zu needs a token that is not in the vocabulary",
                       rank);
    /* Plain text must never become a special token, whatever the merges say. */
    if (t->bpe.piece[merged].kind != PIECE_SPECIAL)
        bpe_add_pair(&t->bpe, a, b, (uint32_t)rank, merged);
    return CVN_OK;
}

static int read_merges(Reader *r)
{
    const json_t *merges = json_object_get(r->model, "merges");
    if (!json_is_array(merges) || json_array_size(merges) > UINT32_MAX)
        return err_set(r->err, CVN_EFORMAT, "the model has no list of \"merges\"");
    for (size_t i = 0; i < json_array_size(merges); i++) {
        int rc = read_merge(r, json_array_get(merges, i), i);
        if (rc)
            return rc;
    }
    return CVN_OK;
}

/* ---- the whole file ---- */

static int read_stages(Reader *r, const json_t *root)
{
    Tokenizer *t = r->t;
    bool byte_level = false;
    if (hf_read_normalizer(t, hf_member(root, "normalizer"), r->err) ||
        hf_read_pre_tokenizer(t, hf_member(root, "pre_tokenizer"), &byte_level, r->err) ||
        hf_read_decoder(hf_member(root, "decoder"), &r->decoder, r->err))
        return r->err->code;
    if (byte_level != r->decoder.byte_level)
        return err_set(r->err, CVN_EUNSUPPORTED,
                       "the pre-tokenizer and the decoder must both be ByteLevel, or neither");
    t->bpe.byte_symbols = byte_level;
    t->words.joined = !byte_level && t->words.n_split == 0;
    t->decoding.space = r->decoder.space;
    t->decoding.strip_bytes = true;
    return CVN_OK;
}

static int read_root(Reader *r, const json_t *root)
{
    Tokenizer *t = r->t;
    const json_t *added = hf_member(root, "added_tokens");
    int32_t n_ids = 0;
    bool ignore_merges = false;
    r->model = json_object_get(root, "model");
    const char *type = hf_type(r->model, "model", r->err);
    if (!type)
        return CVN_EFORMAT;
    if (strcmp(type, "BPE") != 0)
        return err_set(r->err, CVN_EUNSUPPORTED,
                       "tokenizer model '%.60s' is not supported; only BPE is", type);
    const json_t *vocab = json_object_get(r->model, "vocab");
    if (count_ids(vocab, added, &n_ids, r->err))
        return r->err->code;
    bpe_init(&t->bpe, &t->arena, n_ids, json_object_size(vocab));
    if (read_stages(r, root) || read_vocab(r, vocab) || read_bytes(r) ||
        read_settings(r, &ignore_merges) || read_all_added(r, added) || read_merges(r) ||
        hf_read_post_processor(t, hf_member(root, "post_processor"), r->err))
        return r->err->code;
    t->words.whole = ignore_merges;
    return bpe_finish(&t->bpe, ignore_merges, r->err);
}

int huggingface_read(Tokenizer *t, const char *bytes, size_t n, cvn_err *err)
{
    cvn_err unseen = {0};
    err = err ? err : &unseen;
    json_t *root = json_object_parse("tokenizer.json", bytes, n, err);
    if (!root)
        return err->code;
    Reader r = {.t = t, .err = err};
    memset(r.alphabet, 0xff, sizeof r.alphabet);
    for (int byte = 0; byte < 256; byte++)
        r.alphabet[byte_level_point((unsigned char)byte)] = (int16_t)byte;
    t->kind = "huggingface";
    Cleanup cleanup[2];
    cleanup_push(&cleanup[0], json_release, root);
    cleanup_push(&cleanup[1], strbuf_release, &r.buffer);
    int rc = read_root(&r, root);
    cleanup_run(&cleanup[1]);
    cleanup_run(&cleanup[0]);
    return rc;
}
