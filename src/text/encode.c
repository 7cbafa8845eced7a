/* Encoding: the pipeline that tokenizer_impl.h draws. */
#include "text/split.h"
#include "text/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

typedef struct Encoder {
    const Tokenizer *tokenizer;  /* borrowed */
    TokenIds *out;               /* borrowed */
    cvn_err *err;                /* borrowed */
    AddedKind least;             /* added tokens of this kind and above are found in the text */
    BpeWork work;                /* owned */
    StrBuf normalized[2];        /* owned, what `normalize` makes */
    StrBuf prepared[2];          /* owned, what `prepare` makes */
    SplitWork *split[SPLIT_MAX]; /* owned: each split's memory */
    size_t unknown_start; /* length of out where the present unit began: unknowns fuse after it */
} Encoder;

/* Cuts by split `stage` and hands each part to the next; behind the last one, merges. */
static int encode_split(Encoder *e, int stage, const char *text, size_t n)
{
    const Tokenizer *t = e->tokenizer;
    if (stage == t->words.n_split) {
        e->unknown_start = e->out->n;
        return bpe_encode(&t->bpe, &e->work, text, n, e->unknown_start, e->out, e->err);
    }
    for (size_t begin = 0, end = 0; begin < n; begin = end) {
        TRY(split_next(t->words.split[stage], e->split[stage], text, n, &begin, &end, e->err));
        if (begin < n)
            TRY(encode_split(e, stage + 1, text + begin, end - begin));
    }
    return CVN_OK;
}

/* Normalized text that has no added token in it. */
static int encode_plain(Encoder *e, const char *text, const char *mark, size_t n, bool first)
{
    (void)mark;
    const Tokenizer *t = e->tokenizer;
    rewrite(&t->prepare, text, n, first, e->prepared, &text, &n);
    if (e->prepared[0].failed || e->prepared[1].failed)
        return err_set(e->err, CVN_EMEM, "no memory to rewrite %zu bytes of text", n);
    if (t->words.joined)
        return bpe_encode_joined(&t->bpe, &e->work, text, n, e->unknown_start, e->out, e->err);
    return encode_split(e, 0, text, n);
}

typedef int EncodePart(Encoder *e, const char *text, const char *mark, size_t n, bool first);

/* Text with the added tokens of a set in it: what lies between them goes to `part`. mark: [n], or NULL. */
static int encode_between(Encoder *e, const AddedSet *set, EncodePart *part, const char *text,
                          const char *mark, size_t n, bool first)
{
    const Added *found;
    size_t begin, end, done = 0;
    int rc = CVN_OK;
    while (!rc && added_set_find(set, text, mark, n, done, e->least, &found, &begin, &end)) {
        if (begin > done)
            rc = part(e, text + done, mark ? mark + done : NULL, begin - done, first && done == 0);
        token_ids_add(e->out, found->id);
        done = end;
    }
    if (!rc && n > done)
        rc = part(e, text + done, mark ? mark + done : NULL, n - done, first && done == 0);
    return rc;
}

/* Raw text in which tokens that are looked for after rewriting are found. */
static int encode_rewritten(Encoder *e, const char *text, const char *mark, size_t n, bool first)
{
    (void)mark;
    const Tokenizer *t = e->tokenizer;
    rewrite(&t->normalize, text, n, first, e->normalized, &text, &n);
    if (e->normalized[0].failed || e->normalized[1].failed)
        return err_set(e->err, CVN_EMEM, "no memory to rewrite %zu bytes of text", n);
    e->unknown_start = e->out->n;
    return encode_between(e, &t->normalized, encode_plain, text, NULL, n, first);
}

/* The next token of text[from..n) that has no mark and that plain text would not have. */
static bool find_unmarked(const AddedSet *set, const char *text, const char *mark, size_t n,
                          size_t from, const Added **found, size_t *begin, size_t *end)
{
    while (added_set_find(set, text, mark, n, from, ADDED_SPECIAL, found, begin, end)) {
        if ((*found)->kind < ADDED_PIECE)
            return true;
        from = *end;
    }
    return false;
}

/* Raw text that has no raw added token in it. Rewriting does not take marks along: where the text has both, tokens
 * that are looked for after it are found before it, and the rest has none. */
static int encode_segment(Encoder *e, const char *text, const char *mark, size_t n, bool first)
{
    if (!mark || !memchr(mark, 1, n))
        return encode_rewritten(e, text, NULL, n, first);
    const Added *found;
    size_t begin, end, done = 0;
    AddedKind least = e->least;
    int rc = CVN_OK;
    e->least = ADDED_PIECE;
    while (!rc &&
           find_unmarked(&e->tokenizer->normalized, text, mark, n, done, &found, &begin, &end)) {
        if (begin > done)
            rc = encode_rewritten(e, text + done, NULL, begin - done, first && done == 0);
        token_ids_add(e->out, found->id);
        done = end;
    }
    if (!rc && n > done)
        rc = encode_rewritten(e, text + done, NULL, n - done, first && done == 0);
    e->least = least;
    return rc;
}

static int encode(const Tokenizer *t, const char *text, const char *mark, size_t n, unsigned flags,
                  TokenIds *out, cvn_err *err)
{
    size_t before = out->n;
    Encoder e = {.tokenizer = t, .out = out, .err = err, .least = ADDED_TEXT};
    if (flags & (TOKENIZER_SPECIAL | TOKENIZER_PLAIN))
        e.least = flags & TOKENIZER_SPECIAL ? ADDED_SPECIAL : ADDED_PIECE;
    int rc = CVN_OK;
    for (int i = 0; !rc && i < t->words.n_split; i++)
        rc = split_work_new(t->words.split[i], &e.split[i], err);
    if (!rc && flags & TOKENIZER_BOS && t->ids.begins && t->ids.bos >= 0) {
        for (int i = 0; i < t->ids.n_lead; i++)
            token_ids_add(out, t->ids.lead[i]);
        token_ids_add(out, t->ids.bos);
    }
    if (!rc)
        rc = encode_between(&e, &t->raw, encode_segment, text, mark, n, true);
    if (!rc && flags & TOKENIZER_EOS && t->ids.eos >= 0)
        token_ids_add(out, t->ids.eos);
    if (!rc && out->failed)
        rc = err_set(err, CVN_EMEM, "no memory for the ids of %zu bytes of text", n);
    if (rc)
        out->n = before;
    bpe_work_free(&e.work);
    for (int i = 0; i < 2; i++) {
        strbuf_free(&e.normalized[i]);
        strbuf_free(&e.prepared[i]);
    }
    for (int i = 0; i < t->words.n_split; i++)
        split_work_free(e.split[i]);
    return rc;
}

int tokenizer_encode(const Tokenizer *t, const char *text, size_t n, unsigned flags, TokenIds *out,
                     cvn_err *err)
{
    return encode(t, text, NULL, n, flags, out, err);
}

int tokenizer_encode_marked(const Tokenizer *t, const char *text, const char *mark, size_t n,
                            TokenIds *out, cvn_err *err)
{
    return encode(t, text, mark, n, TOKENIZER_SPECIAL, out, err);
}

size_t tokenizer_left_out(const Tokenizer *t, const char *text, size_t n, size_t *first)
{
    size_t left_out = 0;
    for (size_t i = 0; t->bpe.byte_symbols && t->bpe.unknown < 0 && i < n; i++)
        if (t->bpe.byte_id[(unsigned char)text[i]] < 0 && left_out++ == 0)
            *first = i;
    return left_out;
}
