/* Decoding: ids to bytes, all at once or id by id without ever writing half a character. */
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

#include <string.h>

void decoder_init(Decoder *decoder, const Tokenizer *tokenizer, unsigned flags)
{
    *decoder = (Decoder){.tokenizer = tokenizer,
                         .flags = flags,
                         .started = flags & TOKENIZER_CONTINUE ||
                                    tokenizer->decoding.space == DECODE_KEEP_SPACE};
}

/* Bytes at the end of text that begin a character without completing it: 0 to 3. */
static size_t incomplete(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char lead = p[n - back];
        if ((lead & 0xc0) == 0x80)
            continue;
        bool begins =
            utf8_need(lead) > (int)back && (back == 1 || utf8_second(lead, p[n - back + 1]));
        return begins ? back : 0;
    }
    return 0;
}

/* Appends held bytes and new ones, and takes back what is half a character. */
static void write_bytes(Decoder *decoder, const char *bytes, size_t n, StrBuf *out)
{
    size_t before = out->length;
    strbuf_add(out, decoder->held, decoder->n_held);
    strbuf_add(out, bytes, n);
    if (out->failed)
        return;
    size_t keep = incomplete(out->text + before, out->length - before);
    out->length -= keep;
    memcpy(decoder->held, out->text + out->length, keep);
    decoder->n_held = (unsigned char)keep;
    out->text[out->length] = '\0';
}

/* Drops what the tokenizer put in front of the text: at most one space, or all of the first piece. */
static void strip_space(Decoder *decoder, const BpePiece *piece, const char **text, size_t *n)
{
    const Tokenizer *t = decoder->tokenizer;
    bool strip = piece->kind == PIECE_NORMAL || piece->kind == PIECE_USER ||
                 (piece->kind == PIECE_BYTE && t->decoding.strip_bytes);
    while (strip && *n > 0 && **text == ' ') {
        ++*text;
        --*n;
        decoder->started |= t->decoding.space != DECODE_STRIP_EACH;
        if (t->decoding.space != DECODE_STRIP_FIRST)
            break;
    }
    decoder->started |= *n > 0;
}

int decoder_push(Decoder *decoder, int32_t id, StrBuf *out, cvn_err *err)
{
    const Tokenizer *t = decoder->tokenizer;
    if (id < 0 || id >= t->bpe.n_ids)
        return err_set(
            err, CVN_EINVAL,
            "token id %d is outside the vocabulary of %d; use the tokenizer that belongs to "
            "the model",
            id, t->bpe.n_ids);
    const BpePiece *piece = &t->bpe.piece[id];
    if (piece->kind == PIECE_NONE ||
        (piece->kind == PIECE_SPECIAL && !(decoder->flags & TOKENIZER_SPECIAL)))
        return CVN_OK;
    const char *text = piece->out;
    size_t n = (size_t)piece->out_length;
    if (!decoder->started && n > 0)
        strip_space(decoder, piece, &text, &n);
    write_bytes(decoder, text, n, out);
    return out->failed ? err_set(err, CVN_EMEM, "no memory for the decoded text") : CVN_OK;
}

void decoder_flush(Decoder *decoder, StrBuf *out)
{
    strbuf_add(out, decoder->held, decoder->n_held);
    decoder->n_held = 0;
}

int tokenizer_decode(const Tokenizer *tokenizer, const int32_t *ids, size_t n, unsigned flags,
                     StrBuf *out, cvn_err *err)
{
    Decoder decoder;
    decoder_init(&decoder, tokenizer, flags);
    for (size_t i = 0; i < n; i++) {
        int rc = decoder_push(&decoder, ids[i], out, err);
        if (rc)
            return rc;
    }
    decoder_flush(&decoder, out);
    return out->failed ? err_set(err, CVN_EMEM, "no memory for the decoded text") : CVN_OK;
}
