/*
 * Reads Mistral's `tekken.json`:
 *
 *     {"config": {"pattern": "[^\\r\\n\\p{L}…", "default_vocab_size": 131072, "default_num_special_tokens": 1000, …},
 *      "vocab": [{"rank": 0, "token_bytes": "AA==", "token_str": "\u0000"}, …],
 *      "special_tokens": [{"rank": 0, "token_str": "<unk>", "is_control": true}, …]}
 *
 * The special tokens have the first ids, as many as the config says, and ranks count behind them: of 131072 ids, 1000 to 131071
 * are the first 130072 ranks; the rest of the list is not used. Special tokens that have no name are called <SPECIAL_20>; files
 * without a list, up to version 7, have the names of OLD. (Source: mistral-common, tokens/tokenizers/tekken.py.)
 */
#include "text/tiktoken.h"

#include "base/json_file.h"

#include <stdio.h>
#include <string.h>

static const char *const OLD[] = {
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
};
enum { N_OLD = sizeof OLD / sizeof *OLD };

#define N_SPECIAL "default_num_special_tokens"

bool tekken_is(const char *bytes, size_t n)
{
    return memmem(bytes, n, "\"" N_SPECIAL "\"", sizeof N_SPECIAL + 1);
}

/* Whether a value is a text that is neither empty nor has a NUL in it. */
static bool is_text(const json_t *value)
{
    size_t n = json_string_length(value);
    return n > 0 && strlen(json_string_value(value)) == n;
}

static int read_ranks(Tokenizer *t, const json_t *vocab, int32_t first, int32_t n_ranks,
                      cvn_err *err)
{
    char token[TOKENIZER_MAX_PIECE];
    for (int32_t i = 0; i < n_ranks; i++) {
        const json_t *entry = json_array_get(vocab, (size_t)i);
        const json_t *bytes = json_object_get(entry, "token_bytes");
        const json_t *rank = json_object_get(entry, "rank");
        size_t n = json_string_length(bytes);
        n = n <= sizeof token ? rank_base64(json_string_value(bytes), n, token) : 0;
        if (!json_is_integer(rank) || json_integer_value(rank) != i || n == 0 ||
            !rank_add(t, first + i, token, n))
            return err_set(err, CVN_EFORMAT,
                           "token %d must have its place in the list as \"rank\", and as "
                           "\"token_bytes\" base 64 of bytes that no other token has",
                           i);
    }
    return CVN_OK;
}

static int bad_special(size_t i, int32_t n_special, cvn_err *err)
{
    return err_set(
        err, CVN_EFORMAT,
        "special token %zu must have a \"rank\" below %d and a \"token_str\", neither of "
        "which another one has",
        i, n_special);
}

static int read_special(Tokenizer *t, const json_t *list, int32_t n_special, cvn_err *err)
{
    Added *item = arena_array(&t->arena, (size_t)n_special, sizeof *item);
    size_t n = list ? json_array_size(list) : n_special < N_OLD ? (size_t)n_special : N_OLD;
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(list, i), *rank = json_object_get(entry, "rank");
        const json_t *text = json_object_get(entry, "token_str");
        const char *name = list ? json_string_value(text) : OLD[i];
        json_int_t id = list ? json_integer_value(rank) : (json_int_t)i;
        if ((list && (!is_text(text) || !json_is_integer(rank))) ||
            strlen(name) > TOKENIZER_MAX_PIECE || id < 0 || id >= n_special ||
            t->bpe.piece[id].kind != PIECE_NONE || !rank_special(t, (int32_t)id, name, &item[id]))
            return bad_special(i, n_special, err);
    }
    for (int32_t id = 0; id < n_special; id++) {
        char name[32];
        snprintf(name, sizeof name, "<SPECIAL_%d>", id);
        if (t->bpe.piece[id].kind == PIECE_NONE && !rank_special(t, id, name, &item[id]))
            return bad_special((size_t)id, n_special, err);
    }
    added_set_init(&t->raw, item, (size_t)n_special);
    return CVN_OK;
}

static int read_root(Tokenizer *t, const json_t *root, cvn_err *err)
{
    const json_t *config = json_object_get(root, "config"), *vocab = json_object_get(root, "vocab");
    const json_t *special = json_object_get(root, "special_tokens");
    const json_t *pattern = json_object_get(config, "pattern");
    json_int_t n_ids = json_integer_value(json_object_get(config, "default_vocab_size"));
    const json_t *count = json_object_get(config, N_SPECIAL);
    json_int_t n_special = json_is_integer(count) ? json_integer_value(count) : -1;
    if (!is_text(pattern))
        return err_set(err, CVN_EFORMAT, "\"config\" must have a \"pattern\"");
    if (n_ids < 1 || n_ids > TOKENIZER_MAX_IDS || n_special < 0 || n_special > n_ids)
        return err_set(err, CVN_EFORMAT,
                       "\"config\" must have a \"default_vocab_size\" from 1 to %d and no more "
                       "\"" N_SPECIAL "\"",
                       TOKENIZER_MAX_IDS);
    if ((size_t)(n_ids - n_special) > json_array_size(vocab))
        return err_set(err, CVN_EFORMAT,
                       "\"default_vocab_size\" less \"" N_SPECIAL
                       "\" is %d, more than the %zu tokens of \"vocab\"",
                       (int)(n_ids - n_special), json_array_size(vocab));
    if (json_is_null(special))
        special = NULL;
    if (special && !json_is_array(special))
        return err_set(err, CVN_EFORMAT, "\"special_tokens\" must be a list");
    int32_t first = (int32_t)n_special, n_ranks = (int32_t)(n_ids - n_special);
    bpe_init(&t->bpe, &t->arena, (int32_t)n_ids, (size_t)n_ranks);
    t->bpe.byte_symbols = true;
    TRY(read_special(t, special, first, err));
    TRY(read_ranks(t, vocab, first, n_ranks, err));
    return rank_finish(t, first, n_ranks, json_string_value(pattern), err);
}

int tekken_read(Tokenizer *t, const char *bytes, size_t n, cvn_err *err)
{
    json_error_t where;
    json_t *root = json_loadb(bytes, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    if (!root)
        return err_set(err, CVN_EFORMAT, "tekken.json is not valid JSON: %s (line %d, column %d)",
                       where.text, where.line, where.column);
    CLEANUP(json_release, root);
    t->kind = "tekken";
    return read_root(t, root, err);
}
