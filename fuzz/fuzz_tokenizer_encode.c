/*
 * Encoding and decoding arbitrary bytes with one tokenizer of each form, made here. What must hold:
 * tokenizers that keep all of a text give it back; ids streamed one by one decode to the same bytes as all
 * at once; and never is half a character written when the whole is UTF-8.
 */
#include "fuzz_tokenizer.h"

#include "text/utf8.h"

#include <stdio.h>

static const char WORDS[][8] = {"th",  "the", " t",  " th", " the", "an", " a",
                                " an", "in",  "ing", "aa",  "aaaa", "  ", "    "};

enum { N_WORDS = sizeof WORDS / sizeof *WORDS };

static Tokenizer *read_text(const StrBuf *text)
{
    Tokenizer *tokenizer = NULL;
    cvn_err err = {0};
    if (tokenizer_read(text->text, text->length, &tokenizer, &err)) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    return tokenizer;
}

/* 256 bytes and a few words, in base 64. */
static Tokenizer *make_tiktoken(void)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    StrBuf text = {0};
    for (int i = 0; i < 256 + N_WORDS; i++) {
        unsigned char token[8] = {(unsigned char)i};
        size_t n = 1;
        if (i >= 256) {
            n = strlen(WORDS[i - 256]);
            memcpy(token, WORDS[i - 256], n);
        }
        for (size_t k = 0; k < n; k += 3) {
            unsigned bits = (unsigned)token[k] << 16 |
                            (k + 1 < n ? (unsigned)token[k + 1] << 8 : 0) |
                            (k + 2 < n ? token[k + 2] : 0);
            strbuf_putc(&text, digits[bits >> 18]);
            strbuf_putc(&text, digits[bits >> 12 & 63]);
            strbuf_putc(&text, k + 1 < n ? digits[bits >> 6 & 63] : '=');
            strbuf_putc(&text, k + 2 < n ? digits[bits & 63] : '=');
        }
        strbuf_printf(&text, " %d\n", i);
    }
    Tokenizer *tokenizer = read_text(&text);
    strbuf_free(&text);
    return tokenizer;
}

/* The form of Llama 2: characters, merges, bytes to fall back to. */
static Tokenizer *make_metaspace(void)
{
    static const char *const merges[] = {"t h",   "th e", "\xe2\x96\x81 the",         "a a",
                                         "aa aa", "i n",  "\xe2\x96\x81 \xe2\x96\x81"};
    StrBuf text = {0};
    strbuf_puts(&text, "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true}],"
                       "\"model\":{\"type\":\"BPE\","
                       "\"byte_fallback\":true,\"vocab\":{\"<s>\":0");
    int id = 1;
    for (int i = 0; i < 256; i++)
        strbuf_printf(&text, ",\"<0x%02X>\":%d", (unsigned)i, id++);
    for (const char *c = "thean i"; *c; c++)
        if (*c != ' ')
            strbuf_printf(&text, ",\"%c\":%d", *c, id++);
    strbuf_printf(&text, ",\"\xe2\x96\x81\":%d", id++);
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        const char *space = strchr(merges[i], ' ');
        strbuf_printf(&text, ",\"%.*s%s\":%d", (int)(space - merges[i]), merges[i], space + 1,
                      id++);
    }
    strbuf_puts(&text, "},\"merges\":[");
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++)
        strbuf_printf(&text, "%s\"%s\"", i ? "," : "", merges[i]);
    strbuf_puts(
        &text,
        "]},\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
        "\"prepend\":"
        "\"\xe2\x96\x81\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" "
        "\"},\"content\":\"\xe2\x96\x81\"}]},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
        "\"String\":"
        "\"\xe2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
        "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}}");
    Tokenizer *tokenizer = read_text(&text);
    strbuf_free(&text);
    return tokenizer;
}

static int is_utf8(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        int length = utf8_length(text + i, n - i);
        if (!length)
            return 0;
        i += (size_t)length;
    }
    return 1;
}

static void check(const Tokenizer *tokenizer, const char *text, size_t n, unsigned flags)
{
    cvn_err err = {0};
    TokenIds ids = {0};
    StrBuf whole = {0}, stream = {0};
    if (tokenizer_encode(tokenizer, text, n, flags, &ids, &err) ||
        tokenizer_decode(tokenizer, ids.id, ids.n, flags & TOKENIZER_SPECIAL, &whole, &err))
        abort();
    Decoder decoder;
    decoder_init(&decoder, tokenizer, flags & TOKENIZER_SPECIAL);
    int valid = is_utf8(whole.text, whole.length);
    for (size_t i = 0; i < ids.n; i++) {
        size_t before = stream.length;
        if (decoder_push(&decoder, ids.id[i], &stream, &err))
            abort();
        if (valid && stream.length > before &&
            !is_utf8(stream.text + before, stream.length - before))
            abort();
    }
    decoder_flush(&decoder, &stream);
    if (stream.length != whole.length ||
        (whole.length && memcmp(stream.text, whole.text, whole.length) != 0))
        abort();
    /* U+2581 comes back as a space by design. */
    int keeps =
        strcmp(tokenizer_kind(tokenizer), "tiktoken") == 0 || !memmem(text, n, "\xe2\x96\x81", 3);
    if (keeps && flags == 0 && (whole.length != n || (n && memcmp(whole.text, text, n) != 0)))
        abort();
    token_ids_free(&ids);
    strbuf_free(&whole);
    strbuf_free(&stream);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static Tokenizer *tokenizers[2];
    if (!tokenizers[0]) {
        tokenizers[0] = make_tiktoken();
        tokenizers[1] = make_metaspace();
    }
    for (int i = 0; i < 2; i++) {
        check(tokenizers[i], (const char *)data, size, 0);
        check(tokenizers[i], (const char *)data, size, TOKENIZER_SPECIAL);
    }
    return 0;
}
