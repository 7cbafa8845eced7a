/* Encoding: the pipeline that tokenizer_impl.h draws. */
#include "text/split.h"
#include "text/tokenizer_impl.h"

#include <stdlib.h>

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
    if (stage == t->n_split) {
        e->unknown_start = e->out->n;
        return bpe_encode(&t->bpe, &e->work, text, n, e->unknown_start, e->out, e->err);
    }
    for (size_t begin = 0, end = 0; begin < n; begin = end) {
        int rc = split_next(t->split[stage], e->split[stage], text, n, begin, &end, e->err);
        if (!rc)
            rc = encode_split(e, stage + 1, text + begin, end - begin);
        if (rc)
            return rc;
    }
    return CVN_OK;
}

/* Normalized text that has no added token in it. */
static int encode_plain(Encoder *e, const char *text, size_t n, bool first)
{
    const Tokenizer *t = e->tokenizer;
    rewrite(&t->prepare, text, n, first, e->prepared, &text, &n);
    if (e->prepared[0].failed || e->prepared[1].failed)
        return err_set(e->err, CVN_EMEM, "no memory to rewrite %zu bytes of text", n);
    if (t->joined)
        return bpe_encode_joined(&t->bpe, &e->work, text, n, e->unknown_start, e->out, e->err);
    return encode_split(e, 0, text, n);
}

typedef int EncodePart(Encoder *e, const char *text, size_t n, bool first);

/* Text with the added tokens of a set in it: what lies between them goes to `part`. */
static int encode_between(Encoder *e, const AddedSet *set, EncodePart *part, const char *text,
                          size_t n, bool first)
{
    const Added *found;
    size_t begin, end, done = 0;
    while (added_set_find(set, text, n, done, e->least, &found, &begin, &end)) {
        int rc = begin > done ? part(e, text + done, begin - done, first && done == 0) : CVN_OK;
        if (rc)
            return rc;
        token_ids_add(e->out, found->id);
        done = end;
    }
    return n > done ? part(e, text + done, n - done, first && done == 0) : CVN_OK;
}

/* Raw text that has no raw added token in it. */
static int encode_segment(Encoder *e, const char *text, size_t n, bool first)
{
    const Tokenizer *t = e->tokenizer;
    rewrite(&t->normalize, text, n, first, e->normalized, &text, &n);
    if (e->normalized[0].failed || e->normalized[1].failed)
        return err_set(e->err, CVN_EMEM, "no memory to rewrite %zu bytes of text", n);
    e->unknown_start = e->out->n;
    return encode_between(e, &t->normalized, encode_plain, text, n, first);
}

int tokenizer_encode(const Tokenizer *t, const char *text, size_t n, unsigned flags, TokenIds *out,
                     cvn_err *err)
{
    size_t before = out->n;
    Encoder e = {.tokenizer = t, .out = out, .err = err, .least = ADDED_TEXT};
    if (flags & (TOKENIZER_SPECIAL | TOKENIZER_PLAIN))
        e.least = flags & TOKENIZER_SPECIAL ? ADDED_SPECIAL : ADDED_PIECE;
    int rc = CVN_OK;
    for (int i = 0; !rc && i < t->n_split; i++)
        rc = split_work_new(t->split[i], &e.split[i], err);
    if (!rc && flags & TOKENIZER_BOS && t->begins && t->bos >= 0)
        token_ids_add(out, t->bos);
    if (!rc)
        rc = encode_between(&e, &t->raw, encode_segment, text, n, true);
    if (!rc && flags & TOKENIZER_EOS && t->eos >= 0)
        token_ids_add(out, t->eos);
    if (!rc && out->failed)
        rc = err_set(err, CVN_EMEM, "no memory for the ids of %zu bytes of text", n);
    if (rc)
        out->n = before;
    bpe_work_free(&e.work);
    for (int i = 0; i < 2; i++) {
        strbuf_free(&e.normalized[i]);
        strbuf_free(&e.prepared[i]);
    }
    for (int i = 0; i < t->n_split; i++)
        split_work_free(e.split[i]);
    return rc;
}
