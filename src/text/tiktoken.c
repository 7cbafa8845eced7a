/*
 * Reads tiktoken's rank files: `tokenizer.model` of Llama 3 and 4. A line per token, its bytes in base 64, a
 * space and its rank in decimal, which is its id too:
 *
 *     IQ== 0          "!"
 *     IHRoZQ== 279    " the"
 *
 * Two adjacent tokens merge when their bytes together are a token; the lowest rank first. All 256 single
 * bytes are tokens, so nothing is unknown. The file holds neither special tokens nor the pattern that cuts text: they are
 * fixed in code (meta-llama/llama-models, models/llama3/tokenizer.py and models/llama4/tokenizer.py). Llama 3 has 256 special
 * tokens behind the last rank; Llama 4, whose file has LLAMA4_RANKS lines, 2048.
 */
#include "text/tiktoken.h"

#include "text/split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LLAMA4_RANKS = 200000 };

/* Special tokens in the order of their ids: one of that name; or, where there is a number, n of them, "NAME0|>" and on from `first`.
 * n = -1: as many as are left. */
typedef struct Special {
    const char *name;
    int first, n;
} Special;

typedef struct RankKind {
    const char *pattern;
    int32_t n_special;
    const char *pad;
    Special special[40]; /* ended by one without a name */
} RankKind;

static const RankKind LLAMA3 = {
    .pattern = SPLIT_LLAMA3,
    .n_special = 256,
    .pad = "<|finetune_right_pad_id|>",
    .special = {{.name = "<|begin_of_text|>"},
                {.name = "<|end_of_text|>"},
                {"<|reserved_special_token_", 0, 2},
                {.name = "<|finetune_right_pad_id|>"},
                {.name = "<|step_id|>"},
                {.name = "<|start_header_id|>"},
                {.name = "<|end_header_id|>"},
                {.name = "<|eom_id|>"},
                {.name = "<|eot_id|>"},
                {.name = "<|python_tag|>"},
                {.name = "<|image|>"},
                {"<|reserved_special_token_", 2, -1}},
};

static const RankKind LLAMA4 = {
    .pattern = SPLIT_O200K,
    .n_special = 2048,
    .pad = "<|finetune_right_pad|>",
    .special = {{.name = "<|begin_of_text|>"},
                {.name = "<|end_of_text|>"},
                {.name = "<|fim_prefix|>"},
                {.name = "<|fim_middle|>"},
                {.name = "<|fim_suffix|>"},
                {.name = "<|header_start|>"},
                {.name = "<|header_end|>"},
                {.name = "<|eom|>"},
                {.name = "<|eot|>"},
                {.name = "<|step|>"},
                {"<|text_post_train_reserved_special_token_", 0, 6},
                {.name = "<|python_start|>"},
                {.name = "<|python_end|>"},
                {.name = "<|finetune_right_pad|>"},
                {"<|text_post_train_reserved_special_token_", 8, 61},
                {.name = "<|image_start|>"},
                {.name = "<|image_end|>"},
                {"<|vision_reserved_special_token_", 0, 2},
                {.name = "<|tile_x_separator|>"},
                {.name = "<|tile_y_separator|>"},
                {"<|vision_reserved_special_token_", 2, 4},
                {.name = "<|image|>"},
                {"<|vision_reserved_special_token_", 6, 1},
                {.name = "<|patch|>"},
                {"<|vision_reserved_special_token_", 7, 1041},
                {"<|reasoning_reserved_special_token_", 0, 8},
                {.name = "<|reasoning_thinking_start|>"},
                {.name = "<|reasoning_thinking_end|>"},
                {"<|reserved_special_token_", 0, -1}},
};

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

size_t rank_base64(const char *text, size_t n, char *out)
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
           rank_base64(line.token, line.n_token, token) > 0;
}

static int malformed(size_t line, const char *what, cvn_err *err)
{
    return err_set(err, CVN_EFORMAT,
                   "line %zu of the tiktoken file is malformed: %s; download the file again",
                   line + 1, what);
}

static int read_lines(Tokenizer *t, const char *p, const char *end, int32_t n_ranks, cvn_err *err)
{
    char token[TOKENIZER_MAX_PIECE * 2];
    for (int32_t i = 0; i < n_ranks; i++) {
        Line line;
        if (!next_line(&p, end, &line))
            return malformed((size_t)i, "expected a token in base 64, a space and a rank", err);
        size_t n = line.n_token <= sizeof token ? rank_base64(line.token, line.n_token, token) : 0;
        if (n == 0 || n > TOKENIZER_MAX_PIECE)
            return malformed((size_t)i, "the token is not base 64 or is too long", err);
        if (line.rank >= n_ranks || t->bpe.piece[line.rank].kind != PIECE_NONE)
            return malformed((size_t)i, "ranks must be 0, 1, 2 and so on, each once", err);
        if (!rank_add(t, line.rank, token, n))
            return malformed((size_t)i, "the token was there before", err);
    }
    return CVN_OK;
}

/* ---- what files of ranks share ---- */

bool rank_add(Tokenizer *t, int32_t id, const char *token, size_t n)
{
    bpe_set_piece(&t->bpe, id, PIECE_NORMAL, token, n);
    if (n == 1)
        t->bpe.byte_id[(unsigned char)token[0]] = id;
    return bpe_index(&t->bpe, id);
}

bool rank_special(Tokenizer *t, int32_t id, const char *name, Added *item)
{
    bool is_new;
    size_t n = strlen(name);
    bpe_set_piece(&t->bpe, id, PIECE_SPECIAL, name, n);
    *map_put(&t->special, name, n, &is_new) = (uint64_t)id;
    *item = (Added){.text = t->bpe.piece[id].text, .length = n, .id = id, .kind = ADDED_SPECIAL};
    return is_new;
}

int rank_finish(Tokenizer *t, int32_t first, int32_t n_ranks, const char *pattern, cvn_err *err)
{
    for (int byte = 0; byte < 256; byte++)
        if (t->bpe.byte_id[byte] < 0)
            return err_set(err, CVN_EFORMAT, "the tokenizer file has no token for byte 0x%02X",
                           byte);
    for (int32_t rank = 0; rank < n_ranks; rank++)
        bpe_add_splits(&t->bpe, first + rank, (uint32_t)rank);
    t->words.ranks = t->words.whole = true;
    t->words.pattern[0] = arena_string(&t->arena, pattern);
    TRY(split_pattern_new(pattern, strlen(pattern), SPLIT_ISOLATED, &t->words.split[0], err));
    t->words.n_split = 1;
    return bpe_finish(&t->bpe, true, err);
}

/* ---- the whole file ---- */

static void add_special(Tokenizer *t, const RankKind *kind, int32_t id)
{
    int32_t n = 0;
    Added *item = arena_array(&t->arena, (size_t)kind->n_special, sizeof *item);
    for (const Special *s = kind->special; s->name; s++) {
        int count = s->n == 0 ? 1 : s->n > 0 ? s->n : kind->n_special - n;
        for (int i = 0; i < count; i++, n++) {
            char name[64];
            if (s->n)
                snprintf(name, sizeof name, "%s%d|>", s->name, s->first + i);
            (void)rank_special(t, id + n, s->n ? name : s->name, &item[n]);
        }
    }
    added_set_init(&t->raw, item, (size_t)n);
}

int tiktoken_read(Tokenizer *t, const char *bytes, size_t n, cvn_err *err)
{
    size_t n_lines = n > 0 && bytes[n - 1] != '\n';
    for (size_t i = 0; i < n; i++)
        n_lines += bytes[i] == '\n';
    const RankKind *kind = n_lines == LLAMA4_RANKS ? &LLAMA4 : &LLAMA3;
    const int32_t most = TOKENIZER_MAX_IDS - kind->n_special, n_ranks = (int32_t)n_lines;
    if (n_lines > (size_t)most)
        return err_set(err, CVN_EFORMAT, "the tiktoken file has %zu lines, more than %d", n_lines,
                       most);
    t->kind = "tiktoken";
    bpe_init(&t->bpe, &t->arena, n_ranks + kind->n_special, n_lines);
    t->bpe.byte_symbols = true;
    TRY(read_lines(t, bytes, bytes + n, n_ranks, err));
    add_special(t, kind, n_ranks);
    t->ids.bos = tokenizer_special(t, "<|begin_of_text|>");
    t->ids.eos = tokenizer_special(t, "<|end_of_text|>");
    t->ids.pad = tokenizer_special(t, kind->pad);
    return rank_finish(t, 0, n_ranks, kind->pattern, err);
}
