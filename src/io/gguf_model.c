/* A GGUF file as a source of settings: its keys, and what its tensors and tokens say. */
#include "io/convert.h"
#include "io/gguf.h"
#include "model/gguf.h"

#include <inttypes.h>
#include <string.h>

/* Zeros are as good as none: a count of experts, say. */
static bool is_zero(const GgufValue *value)
{
    bool zero = value->type != GGUF_ARRAY && value->type != GGUF_STRING;
    for (size_t b = 0; zero && b < value->bytes; b++)
        zero = value->data[b] == 0;
    return zero;
}

static int check_keys(const Gguf *gguf, const char *architecture, cvn_err *err)
{
    size_t n = strlen(architecture);
    for (size_t i = 0; i < gguf->by_key.capacity; i++) {
        const MapEntry *entry = &gguf->by_key.slot[i];
        if (!entry->key || entry->length <= n || memcmp(entry->key, architecture, n) != 0 ||
            entry->key[n] != '.' || is_zero(&gguf->value[entry->value]) ||
            model_knows_gguf_key(architecture, entry->key, entry->length))
            continue;
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s': unknown setting '%.*s', which may change the mathematics", gguf->file,
                       (int)(entry->length < 100 ? entry->length : 100), entry->key);
    }
    return CVN_OK;
}

/* Booleans as 0 and 1. */
static bool get_integer(const void *of, const char *key, int64_t *out)
{
    const GgufValue *value = gguf_find(of, key);
    if (!value || value->type != GGUF_BOOL)
        return gguf_int(of, key, out);
    *out = value->data[0] != 0;
    return true;
}

static bool get_real(const void *of, const char *key, double *out)
{
    return gguf_real(of, key, out);
}

static const char *get_text(const void *of, const char *key)
{
    const Gguf *gguf = of;
    return gguf_string(gguf, key, gguf->tensors.arena);
}

static bool get_list(const void *of, const char *key, int64_t n, int64_t *out, int64_t *length)
{
    return gguf_ints(of, key, n, out, length);
}

/* Reads a tensor of a few numbers, such as factors of frequencies. */
static const float *get_numbers(const void *of, const char *name, int64_t *n)
{
    enum { MOST = 1 << 13 };
    const Gguf *gguf = of;
    const IoTensor *t = io_tensors_find(&gguf->tensors, name);
    *n = 0;
    if (!t || t->n < 1 || t->rank != 1 || t->n > MOST || !io_is_numeric(t))
        return NULL;
    float *values = arena_array(gguf->tensors.arena, (size_t)t->n, sizeof *values);
    io_decode(t, 0, t->n, values);
    *n = t->n;
    return values;
}

static bool has(const void *of, const char *key)
{
    const GgufValue *value = gguf_find(of, key);
    return value && !is_zero(value);
}

static bool has_tensor(const void *of, const char *name)
{
    const Gguf *gguf = of;
    return io_tensors_find(&gguf->tensors, name) != NULL;
}

/* ---- special tokens ---- */

static void add_unless_there(SpecialIds *ids, int64_t id)
{
    for (int i = 0; i < ids->n; i++)
        if (ids->id[i] == id)
            return;
    if (ids->n < MODEL_MAX_IDS)
        ids->id[ids->n++] = (int32_t)id;
}

static void add_id(const Gguf *gguf, const char *key, int64_t vocab, SpecialIds *ids)
{
    int64_t id = -1;
    if (!gguf_int(gguf, key, &id) || id < 0 || id >= vocab)
        return; /* 4294967295 says that there is none */
    add_unless_there(ids, id);
}

/* Many files name one token that ends a text and leave out those that end a turn, which are known by their texts. */
static void add_ends(const Gguf *gguf, int64_t vocab, SpecialIds *ids)
{
    static const char *const ends[] = {"<|eot_id|>",    "<|eom_id|>",        "<|im_end|>",
                                       "<|end|>",       "<|endoftext|>",     "<|end_of_text|>",
                                       "<end_of_turn>", "<end_of_utterance>"};
    const GgufValue *tokens = gguf_find(gguf, "tokenizer.ggml.tokens");
    if (!tokens || tokens->type != GGUF_ARRAY || tokens->element != GGUF_STRING)
        return;
    const uint8_t *p = tokens->data; /* gguf_read has gone over all lengths */
    for (int64_t id = 0; id < vocab && (uint64_t)id < tokens->n; id++) {
        uint64_t length;
        memcpy(&length, p, sizeof length);
        p += sizeof length;
        for (size_t e = 0; e < sizeof ends / sizeof *ends; e++)
            if (length == strlen(ends[e]) && memcmp(p, ends[e], (size_t)length) == 0)
                add_unless_there(ids, id);
        p += length;
    }
}

static void read_tokens(const Gguf *gguf, Model *m)
{
    int64_t vocab = model_vocab(m);
    SpecialIds begins = {0}, ends = {0}, pad = {0};
    add_id(gguf, "tokenizer.ggml.bos_token_id", vocab, &begins);
    add_id(gguf, "tokenizer.ggml.eos_token_id", vocab, &ends);
    add_id(gguf, "tokenizer.ggml.eot_token_id", vocab, &ends);
    add_id(gguf, "tokenizer.ggml.eom_token_id", vocab, &ends);
    add_ends(gguf, vocab, &ends);
    add_id(gguf, "tokenizer.ggml.padding_token_id", vocab, &pad);
    model_set_vocab(m, vocab, &begins, &ends);
    model_set_pad(m, pad.n ? pad.id[0] : -1);
}

/* ---- the model ---- */

/* Rows of the embedding, or pieces of the tokenizer. */
static int64_t vocab_of(const Gguf *gguf)
{
    const GgufValue *tokens = gguf_find(gguf, "tokenizer.ggml.tokens");
    const IoTensor *embed = io_tensors_find(&gguf->tensors, "token_embd.weight");
    if (embed && embed->rank == 2)
        return embed->dims[0];
    if (!tokens || tokens->type != GGUF_ARRAY)
        return 0;
    return tokens->n > INT32_MAX ? INT32_MAX : (int64_t)tokens->n;
}

/* The type that weights are computed in unless the user says otherwise: that of the first q. */
static cvn_dtype natural_dtype(const Gguf *gguf)
{
    const IoTensor *q = io_tensors_find(&gguf->tensors, "blk.0.attn_q.weight");
    if (!q || q->coding != IO_PLAIN)
        return CVN_BF16;
    return q->dtype == CVN_BF16 || q->dtype == CVN_F16 ? q->dtype : CVN_F32;
}

int gguf_model(Model **model, const Gguf *gguf, cvn_err *err)
{
    Arena *arena = gguf->tensors.arena;
    GgufSource source = {.file = gguf->file,
                         .of = gguf,
                         .integer = get_integer,
                         .real = get_real,
                         .text = get_text,
                         .has = has,
                         .has_tensor = has_tensor,
                         .list = get_list,
                         .numbers = get_numbers,
                         .vocab = vocab_of(gguf),
                         .dtype = natural_dtype(gguf)};
    const char *architecture = get_text(gguf, "general.architecture");
    if (architecture && model_knows_gguf(architecture))
        TRY(check_keys(gguf, architecture, err));
    TRY(model_of_gguf(model, &source, arena, err));
    read_tokens(gguf, *model);
    return model_check(*model, gguf->file, err);
}
