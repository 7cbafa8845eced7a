#include "text/gguf_write.h"

#include "text/byte_level.h"
#include "text/gguf_pre.h"
#include "text/tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

static const int token_type[] = {
    [PIECE_NONE] = 5,    [PIECE_NORMAL] = 1, [PIECE_BYTE] = 6,
    [PIECE_UNKNOWN] = 2, [PIECE_USER] = 4,   [PIECE_SPECIAL] = 3,
};

/* The text of a token: in the alphabet where it is made by merging bytes. */
static void put_token(const Tokenizer *t, int32_t id, StrBuf *out)
{
    const BpePiece *p = &t->bpe.piece[id];
    bool spelled = t->bpe.byte_symbols && (p->kind == PIECE_NORMAL || p->kind == PIECE_BYTE);
    if (p->kind == PIECE_NONE)
        strbuf_printf(out, "[PAD%d]", (int)id);
    else if (spelled)
        byte_level_put(p->text, (size_t)p->length, out);
    else
        strbuf_add(out, p->text, (size_t)p->length);
}

static void put_lists(const Tokenizer *t, GgufKeys *keys)
{
    uint64_t n = (uint64_t)t->bpe.n_ids;
    SCOPED(strbuf_free) StrBuf text = {0};
    gguf_key_array(keys, KEY("tokens"), GGUF_STRING, n);
    for (int32_t id = 0; id < t->bpe.n_ids; id++) {
        strbuf_clear(&text);
        put_token(t, id, &text);
        gguf_put_text(&keys->bytes, text.length ? text.text : "", text.length);
    }
    keys->bytes.failed |= text.failed;
    gguf_key_array(keys, KEY("token_type"), GGUF_I32, n);
    for (int32_t id = 0; id < t->bpe.n_ids; id++) {
        PieceKind kind = (PieceKind)t->bpe.piece[id].kind;
        int32_t type = token_type[t->bpe.byte_symbols && kind == PIECE_BYTE ? PIECE_NORMAL : kind];
        gguf_put_raw(&keys->bytes, &type, sizeof type);
    }
}

/* The sooner a piece is made, the higher its score. */
static int put_scores(const Tokenizer *t, GgufKeys *keys, cvn_err *err)
{
    const Bpe *bpe = &t->bpe;
    SCOPED(scoped_free) float *score = calloc((size_t)bpe->n_ids + 1, sizeof *score);
    if (!score)
        return err_set(err, CVN_EMEM, "no memory for the scores of a tokenizer");
    for (size_t i = 0; i < bpe->pairs.capacity; i++) {
        const BpePair *pair = &bpe->pairs.pair[i];
        float of = -1 - (float)pair->rank;
        if (pair->pair != UINT64_MAX && pair->merged < bpe->n_ids &&
            (score[pair->merged] == 0 || of > score[pair->merged]))
            score[pair->merged] = of;
    }
    gguf_key_array(keys, KEY("scores"), GGUF_F32, (uint64_t)bpe->n_ids);
    gguf_put_raw(&keys->bytes, score, (size_t)bpe->n_ids * sizeof *score);
    return CVN_OK;
}

static int by_rank(const void *a, const void *b)
{
    const BpePair *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->pair < y->pair ? -1 : x->pair > y->pair;
}

/* Several pairs may make a token of one rank (tiktoken's), but merging by lower ranks arrives at one of them only. Whether it is this
   pair. */
static bool is_last_merge(const Bpe *bpe, const BpePair *pair)
{
    enum { MOST = TOKENIZER_MAX_PIECE };
    int32_t symbol[MOST];
    const BpePiece *p = &bpe->piece[pair->merged];
    int n = 0;
    for (int32_t i = 0; i < p->length && i < MOST; i++)
        symbol[n++] = bpe_find(bpe, p->text + i, 1);
    while (n > 2) {
        const BpePair *best = NULL;
        int at = 0;
        for (int i = 0; i + 1 < n; i++) {
            const BpePair *one = bpe_find_pair(bpe, symbol[i], symbol[i + 1]);
            if (one && one->rank < pair->rank && (!best || one->rank < best->rank)) {
                best = one;
                at = i;
            }
        }
        if (!best)
            return true; /* no merging makes it, so any pair will do */
        symbol[at] = best->merged;
        memmove(symbol + at + 1, symbol + at + 2, (size_t)(n - at - 2) * sizeof *symbol);
        n--;
    }
    return n < 2 || pair->pair == ((uint64_t)(uint32_t)symbol[0] << 32 | (uint32_t)symbol[1]);
}

/* The merges in their order; *list is to be freed. */
static int list_merges(const Tokenizer *t, BpePair **list, size_t *n, cvn_err *err)
{
    const Bpe *bpe = &t->bpe;
    *n = 0;
    *list = malloc((bpe->pairs.n + 1) * sizeof **list);
    if (!*list)
        return err_set(err, CVN_EMEM, "no memory for the merges of a tokenizer");
    for (size_t i = 0; i < bpe->pairs.capacity; i++)
        if (bpe->pairs.pair[i].pair != UINT64_MAX &&
            (!t->words.ranks || is_last_merge(bpe, &bpe->pairs.pair[i])))
            (*list)[(*n)++] = bpe->pairs.pair[i];
    qsort(*list, *n, sizeof **list, by_rank);
    return CVN_OK;
}

static void put_merges(const Tokenizer *t, const BpePair *list, size_t n, GgufKeys *keys)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    gguf_key_array(keys, KEY("merges"), GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) {
        strbuf_clear(&text);
        put_token(t, (int32_t)(list[i].pair >> 32), &text);
        strbuf_putc(&text, ' ');
        put_token(t, (int32_t)(uint32_t)list[i].pair, &text);
        gguf_put_text(&keys->bytes, text.text, text.length);
    }
    keys->bytes.failed |= text.failed;
}

/* Whether merging by the scores of put_scores comes to the same: of each piece all pairs of pieces that make it are merges, and
 * no other piece's merge is between them. So it is where the merges were once made of scores. */
static bool scores_suffice(const Bpe *bpe, const BpePair *list, size_t n)
{
    SCOPED(scoped_free) int32_t *left = calloc((size_t)bpe->n_ids + 1, sizeof *left);
    bool same = left != NULL;
    for (int32_t id = 0; same && id < bpe->n_ids; id++) {
        const BpePiece *p = &bpe->piece[id];
        for (int32_t cut = 1; cut < p->length && p->kind == PIECE_NORMAL; cut++)
            left[id] += bpe_find(bpe, p->text, (size_t)cut) >= 0 &&
                        bpe_find(bpe, p->text + cut, (size_t)(p->length - cut)) >= 0;
    }
    for (size_t i = 0; same && i < n; i++) {
        int32_t id = list[i].merged;
        bool last = i + 1 == n || list[i + 1].merged != id;
        left[id] -= bpe->piece[id].kind == PIECE_NORMAL; /* others are found before merging */
        same = !last || left[id] == 0;
    }
    for (int32_t id = 0; same && id < bpe->n_ids; id++)
        same = left[id] == 0;
    return same;
}

/* The form of Gemma 4, merges of text in which spaces are U+2581: for what neither bytes nor scores can say. */
static const GgufPre *as_gemma4(const Tokenizer *t, const BpePair *list, size_t n)
{
    const Rewrite *step = t->normalize.n ? t->normalize.step : t->prepare.step;
    bool blanks = t->normalize.n + t->prepare.n == 1 && step->kind == REWRITE_REPLACE &&
                  strcmp(step->from, " ") == 0 && strcmp(step->to, "\xe2\x96\x81") == 0;
    return blanks && t->words.joined && !scores_suffice(&t->bpe, list, n) ? gguf_pre_find("gemma4")
                                                                          : NULL;
}

/* Whether a space is put in front of a text, and whether white space is taken out. */
static void put_spaces(const Tokenizer *t, GgufKeys *keys)
{
    bool prefix = false, removes = false;
    for (int i = 0; i < t->normalize.n + t->prepare.n; i++) {
        const Rewrite *step =
            i < t->normalize.n ? &t->normalize.step[i] : &t->prepare.step[i - t->normalize.n];
        bool whole = step->kind == REWRITE_SENTENCEPIECE;
        prefix |= whole ? step->spm.add_dummy_prefix
                        : step->kind != REWRITE_REPLACE && step->kind != REWRITE_FORM;
        removes |= whole && step->spm.remove_extra_whitespaces;
    }
    gguf_key_bool(keys, KEY("add_space_prefix"), prefix);
    if (removes)
        gguf_key_bool(keys, KEY("remove_extra_whitespaces"), true);
}

int gguf_write_tokenizer(const Tokenizer *t, GgufKeys *keys, cvn_err *err)
{
    const GgufPre *pre = NULL;
    const Rewrite *first = t->normalize.step;
    const int n_forms =
        t->normalize.n == 1 && first->kind == REWRITE_FORM && first->form == FORM_NFC;
    if (t->bpe.byte_symbols)
        pre = gguf_pre_of(t->words.pattern, t->words.whole);
    if (t->bpe.byte_symbols && (!pre || t->prepare.n || t->normalize.n > n_forms))
        return err_set(err, CVN_EUNSUPPORTED,
                       "GGUF files have no name for the pre-tokenizer of this tokenizer");
    SCOPED(scoped_free) BpePair *list = NULL;
    size_t n;
    TRY(list_merges(t, &list, &n, err));
    pre = pre ? pre : as_gemma4(t, list, n);
    gguf_key_text(keys, KEY("model"), !pre ? "llama" : pre->blanks ? "gemma4" : "gpt2");
    char name[64] = "default"; /* the first of its names */
    if (pre)
        snprintf(name, sizeof name, "%.*s", (int)strcspn(pre->names, " "), pre->names);
    gguf_key_text(keys, KEY("pre"), name);
    put_lists(t, keys);
    if (pre)
        put_merges(t, list, n, keys);
    else
        TRY(put_scores(t, keys, err));
    gguf_key_bool(keys, KEY("add_bos_token"), t->ids.bos >= 0 && t->ids.begins);
    if (!pre)
        put_spaces(t, keys);
    if (t->bpe.unknown >= 0)
        gguf_key_u32(keys, KEY("unknown_token_id"), t->bpe.unknown);
    if (t->templates.chat)
        gguf_key_text(keys, "tokenizer.chat_template", t->templates.chat);
    if (t->templates.tools)
        gguf_key_text(keys, "tokenizer.chat_template.tool_use", t->templates.tools);
    return keys->bytes.failed ? err_set(err, CVN_EMEM, "no memory for a tokenizer") : CVN_OK;
}

void gguf_copy_tokenizer(const Gguf *gguf, GgufKeys *keys)
{
    static const char *const ours[] = {KEY("bos_token_id"), KEY("eos_token_id"),
                                       KEY("eot_token_id"), KEY("eom_token_id"),
                                       KEY("padding_token_id")};
    for (size_t i = 0; i < gguf->by_key.capacity; i++) {
        const MapEntry *entry = &gguf->by_key.slot[i];
        bool take = entry->key && entry->length > 10 && memcmp(entry->key, "tokenizer.", 10) == 0;
        for (size_t k = 0; take && k < sizeof ours / sizeof *ours; k++)
            take =
                strlen(ours[k]) != entry->length || memcmp(ours[k], entry->key, entry->length) != 0;
        if (take)
            gguf_key_copy(keys, entry->key, &gguf->value[entry->value]);
    }
}
