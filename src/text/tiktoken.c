/*
 * Reads tiktoken's rank files: `tokenizer.model` of Llama 3. A line per token, its bytes in base 64, a
 * space and its rank in decimal, which is its id too:
 *
 *     IQ== 0          "!"
 *     IHRoZQ== 279    " the"
 *
 * Two adjacent tokens merge when their bytes together are a token; the lowest rank first. All 256 single
 * bytes are tokens, so nothing is unknown. The file does not hold special tokens: Llama 3's are the 256
 * ids behind the last rank, with names fixed in code (meta-llama/llama-models,
 * models/llama3/tokenizer.py).
 */
#include "text/split.h"
#include "text/tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SPECIAL = 256, FIRST_RESERVED = 2 };

/* The named ones, in the order of their ids; those behind them are reserved and numbered from
 * FIRST_RESERVED on. */
static const char *const SPECIAL[] = {
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>",
    "<|step_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
    "<|image|>",
};

enum { N_NAMED = sizeof SPECIAL / sizeof *SPECIAL };

/* The value of a base 64 digit, or -1. */
static int digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes n characters into at most n / 4 * 3 bytes; the number of bytes, or 0 where it is malformed. */
static size_t decode_base64(const char *text, size_t n, char *out)
{
    if (n == 0 || n % 4)
        return 0;
    size_t pad = text[n - 1] != '=' ? 0 : text[n - 2] != '=' ? 1 : 2, n_out = 0;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t bits = 0;
        size_t count = i + 4 == n ? 4 - pad : 4;
        for (size_t k = 0; k < count; k++) {
            int value = digit(text[i + k]);
            if (value < 0)
                return 0;
            bits |= (uint32_t)value << (18 - 6 * k);
        }
        if (count < 4 && bits & (count == 3 ? 0xffu : 0xffffu))
            return 0; /* bits that no byte takes */
        for (size_t k = 0; k + 1 < count; k++)
            out[n_out++] = (char)(bits >> (16 - 8 * k) & 0xff);
    }
    return n_out;
}

typedef struct Line {
    const char *token; /* [n_token] base 64 */
    size_t n_token;
    int32_t rank;
} Line;

/* Cuts the line at *place, which moves behind it. False where it is no line of a rank file. */
static bool next_line(const char **place, const char *end, Line *line)
{
    const char *p = *place;
    const char *space = memchr(p, ' ', (size_t)(end - p));
    if (!space || space == p)
        return false;
    line->token = p;
    line->n_token = (size_t)(space - p);
    int64_t rank = 0;
    for (p = space + 1; p < end && *p >= '0' && *p <= '9' && rank < TOKENIZER_MAX_IDS; p++)
        rank = rank * 10 + (*p - '0');
    if (p == space + 1 || rank >= TOKENIZER_MAX_IDS)
        return false;
    line->rank = (int32_t)rank;
    if (p < end && *p == '\r')
        p++;
    if (p < end && *p++ != '\n')
        return false;
    *place = p;
    return true;
}

bool tiktoken_is(const char *bytes, size_t n)
{
    Line line;
    char token[TOKENIZER_MAX_PIECE];
    const char *end = bytes + n;
    return next_line(&bytes, end, &line) && line.n_token < sizeof token &&
           decode_base64(line.token, line.n_token, token) > 0;
}

static int malformed(size_t line, const char *what, cvn_err *err)
{
    return err_set(err, CVN_EFORMAT,
                   "line %zu of the tiktoken file is malformed: %s; download the file again",
                   line + 1, what);
}

static int read_lines(Tokenizer *t, const char *p, const char *end, cvn_err *err)
{
    char token[TOKENIZER_MAX_PIECE * 2];
    for (int32_t i = 0; i < t->bpe.n_ids - N_SPECIAL; i++) {
        Line line;
        if (!next_line(&p, end, &line))
            return malformed((size_t)i, "expected a token in base 64, a space and a rank", err);
        size_t n =
            line.n_token <= sizeof token ? decode_base64(line.token, line.n_token, token) : 0;
        if (n == 0 || n > TOKENIZER_MAX_PIECE)
            return malformed((size_t)i, "the token is not base 64 or is too long", err);
        if (line.rank >= t->bpe.n_ids - N_SPECIAL || t->bpe.piece[line.rank].kind != PIECE_NONE)
            return malformed((size_t)i, "ranks must be 0, 1, 2 and so on, each once", err);
        bpe_set_piece(&t->bpe, line.rank, PIECE_NORMAL, token, n);
        if (!bpe_index(&t->bpe, line.rank))
            return malformed((size_t)i, "the token was there before", err);
        if (n == 1)
            t->bpe.byte_id[(unsigned char)token[0]] = line.rank;
    }
    for (int byte = 0; byte < 256; byte++)
        if (t->bpe.byte_id[byte] < 0)
            return err_set(err, CVN_EFORMAT, "the tiktoken file has no token for byte 0x%02X",
                           byte);
    return CVN_OK;
}

static void add_special(Tokenizer *t)
{
    Added *item = arena_array(&t->arena, N_SPECIAL, sizeof *item);
    int32_t first = t->bpe.n_ids - N_SPECIAL;
    for (int32_t i = 0; i < N_SPECIAL; i++) {
        char name[48];
        if (i < N_NAMED)
            snprintf(name, sizeof name, "%s", SPECIAL[i]);
        else
            snprintf(name, sizeof name, "<|reserved_special_token_%d|>",
                     i - N_NAMED + FIRST_RESERVED);
        size_t n = strlen(name);
        bpe_set_piece(&t->bpe, first + i, PIECE_SPECIAL, name, n);
        *map_put(&t->special, name, n, NULL) = (uint64_t)(first + i);
        item[i] = (Added){.text = t->bpe.piece[first + i].text,
                          .length = n,
                          .id = first + i,
                          .kind = ADDED_SPECIAL};
    }
    added_set_init(&t->raw, item, N_SPECIAL);
}

int tiktoken_read(Tokenizer *t, const char *bytes, size_t n, cvn_err *err)
{
    size_t n_lines = n > 0 && bytes[n - 1] != '\n';
    for (size_t i = 0; i < n; i++)
        n_lines += bytes[i] == '\n';
    if (n_lines > TOKENIZER_MAX_IDS - N_SPECIAL)
        return err_set(err, CVN_EFORMAT, "the tiktoken file has %zu lines, more than %d", n_lines,
                       TOKENIZER_MAX_IDS - N_SPECIAL);
    t->kind = "tiktoken";
    bpe_init(&t->bpe, &t->arena, (int32_t)n_lines + N_SPECIAL, n_lines);
    t->bpe.byte_symbols = true;
    TRY(read_lines(t, bytes, bytes + n, err));
    for (int32_t rank = 0; rank < (int32_t)n_lines; rank++)
        bpe_add_splits(&t->bpe, rank, (uint32_t)rank);
    add_special(t);
    t->bos = tokenizer_special(t, "<|begin_of_text|>");
    t->eos = tokenizer_special(t, "<|end_of_text|>");
    t->pad = tokenizer_special(t, "<|finetune_right_pad_id|>");
    t->pattern[0] = SPLIT_LLAMA3;
    t->whole = true;
    TRY(split_pattern_new(SPLIT_LLAMA3, strlen(SPLIT_LLAMA3), &t->split[t->n_split], err));
    t->n_split++;
    return bpe_finish(&t->bpe, true, err);
}
