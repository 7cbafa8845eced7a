/* The hyper-parameters of a GGUF file of architecture "llama". */
#include "io/convert.h"
#include "io/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Keys of the architecture that are read, or that change nothing. */
static const char *const known_keys[] = {
    "llama.context_length",
    "llama.embedding_length",
    "llama.feed_forward_length",
    "llama.attention.head_count",
    "llama.attention.head_count_kv",
    "llama.attention.key_length",
    "llama.attention.value_length",
    "llama.attention.layer_norm_rms_epsilon",
    "llama.block_count",
    "llama.vocab_size",
    "llama.rope.dimension_count",
    "llama.rope.freq_base",
    "llama.rope.scaling.type",
    "llama.rope.scaling.factor",
    "llama.rope.scaling.original_context_length",
    "llama.rope.scaling.finetuned",
    "llama.rope.scaling.attn_factor",
    "llama.rope.scaling.yarn_ext_factor",
    "llama.rope.scaling.yarn_attn_factor",
    "llama.rope.scaling.yarn_beta_fast",
    "llama.rope.scaling.yarn_beta_slow",
    "llama.rope.scale_linear",
    "llama.tensor_data_layout",
};

static int check_keys(const Gguf *gguf, cvn_err *err)
{
    for (size_t i = 0; i < gguf->by_key.capacity; i++) {
        const MapEntry *entry = &gguf->by_key.slot[i];
        if (!entry->key || entry->length < 6 || memcmp(entry->key, "llama.", 6) != 0)
            continue;
        size_t k = 0, n = sizeof known_keys / sizeof *known_keys;
        while (k < n && (strlen(known_keys[k]) != entry->length ||
                         memcmp(known_keys[k], entry->key, entry->length) != 0))
            k++;
        const GgufValue *value = &gguf->value[entry->value];
        bool zero = value->type != GGUF_ARRAY && value->type != GGUF_STRING;
        for (size_t b = 0; zero && b < value->bytes; b++)
            zero = value->data[b] == 0;
        if (k == n && !zero) /* a count of experts of 0 is as good as none */
            return err_set(err, CVN_EUNSUPPORTED,
                           "'%s': the setting '%.*s' is not known and may change the mathematics",
                           gguf->file, (int)(entry->length < 100 ? entry->length : 100),
                           entry->key);
    }
    return CVN_OK;
}

static int need_int(const Gguf *gguf, const char *key, int64_t *out, cvn_err *err)
{
    if (gguf_int(gguf, key, out))
        return CVN_OK;
    return err_set(err, CVN_EFORMAT, "'%s': the key '%s' is missing or no integer", gguf->file,
                   key);
}

static int read_shape(const Gguf *gguf, Model *c, cvn_err *err)
{
    int code;
    if ((code = need_int(gguf, "llama.embedding_length", &c->dim, err)) != CVN_OK ||
        (code = need_int(gguf, "llama.block_count", &c->n_layers, err)) != CVN_OK ||
        (code = need_int(gguf, "llama.feed_forward_length", &c->ffn, err)) != CVN_OK ||
        (code = need_int(gguf, "llama.attention.head_count", &c->n_heads, err)) != CVN_OK ||
        (code = need_int(gguf, "llama.context_length", &c->max_context, err)) != CVN_OK)
        return code;
    c->n_kv_heads = c->n_heads;
    if (gguf_find(gguf, "llama.attention.head_count_kv") &&
        (code = need_int(gguf, "llama.attention.head_count_kv", &c->n_kv_heads, err)) != CVN_OK)
        return code;
    if (c->n_heads < 1 || c->dim < 1)
        return err_set(err, CVN_EFORMAT,
                       "'%s': %" PRId64 " heads and a width of %" PRId64 "; both must be positive",
                       gguf->file, c->n_heads, c->dim);
    c->head_dim = c->dim / c->n_heads;
    gguf_int(gguf, "llama.attention.key_length", &c->head_dim);
    int64_t value_length = c->head_dim, rotary = c->head_dim;
    gguf_int(gguf, "llama.attention.value_length", &value_length);
    gguf_int(gguf, "llama.rope.dimension_count", &rotary);
    if (value_length != c->head_dim || rotary != c->head_dim)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s': heads of %" PRId64 " with values of %" PRId64 " and %" PRId64
                       " rotary dimensions are not supported; all must be equal",
                       gguf->file, c->head_dim, value_length, rotary);
    const GgufValue *tokens = gguf_find(gguf, "tokenizer.ggml.tokens");
    const IoTensor *embed = io_tensors_find(&gguf->tensors, "token_embd.weight");
    if (embed && embed->rank == 2)
        c->vocab = embed->dims[0];
    else if (tokens && tokens->type == GGUF_ARRAY)
        c->vocab = tokens->n > INT32_MAX ? INT32_MAX : (int64_t)tokens->n;
    gguf_int(gguf, "llama.vocab_size", &c->vocab);
    return CVN_OK;
}

/* rope_freqs.weight [head_dim/2] holds what each frequency is divided by. It stands for the llama3
 * scaling of one of the published models, or it is not understood. */
static int read_factors(const Gguf *gguf, const IoTensor *factors, Model *c, cvn_err *err)
{
    static const double published[] = {8, 32}; /* Llama 3.1 and 3.3; 3.2 */
    enum { MOST = 512 };
    float given[MOST];
    double plain[MOST], scaled[MOST];
    int64_t n = c->head_dim / 2;
    if (factors->rank != 1 || factors->n != n || n > MOST || !io_is_numeric(factors))
        return err_set(err, CVN_EFORMAT, "'%s': rope_freqs.weight has not %" PRId64 " factors",
                       gguf->file, n);
    io_decode(factors, 0, n, given);
    model_rope_frequencies(c, c->max_context, plain);
    c->rope_scaling = ROPE_LLAMA3;
    c->rope_ramp[0] = 1;
    c->rope_ramp[1] = 4;
    c->rope_original_context = 8192;
    for (size_t f = 0; f < sizeof published / sizeof *published; f++) {
        c->rope_factor = published[f];
        model_rope_frequencies(c, c->max_context, scaled);
        int64_t same = 0;
        for (int64_t i = 0; i < n; i++)
            same += fabs((double)given[i] * scaled[i] / plain[i] - 1) < 1e-4;
        if (same == n)
            return CVN_OK;
    }
    return err_set(err, CVN_EUNSUPPORTED,
                   "'%s': rope_freqs.weight holds no known llama3 frequency scaling", gguf->file);
}

/* llama.cpp multiplies yarn's own sharpening by attn_factor; the converter of Hugging Face's files writes all of it as
   yarn_attn_factor, which llama.cpp does not read for this architecture. */
static int read_yarn(const Gguf *gguf, Model *c, cvn_err *err)
{
    double more = 1, extrapolated = 1;
    c->rope_scaling = ROPE_YARN;
    c->rope_original_context = c->max_context;
    c->rope_ramp[0] = 1;
    c->rope_ramp[1] = 32;
    c->rope_truncate = true;
    gguf_int(gguf, "llama.rope.scaling.original_context_length", &c->rope_original_context);
    gguf_real(gguf, "llama.rope.scaling.yarn_beta_slow", &c->rope_ramp[0]);
    gguf_real(gguf, "llama.rope.scaling.yarn_beta_fast", &c->rope_ramp[1]);
    gguf_real(gguf, "llama.rope.scaling.attn_factor", &more);
    c->rope_attention = rope_yarn_attention(c->rope_factor, 1) * more;
    gguf_real(gguf, "llama.rope.scaling.yarn_attn_factor", &c->rope_attention);
    gguf_real(gguf, "llama.rope.scaling.yarn_ext_factor", &extrapolated);
    if (extrapolated >= 0 && extrapolated != 1)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s': llama.rope.scaling.yarn_ext_factor is %g; only 1 is supported",
                       gguf->file, extrapolated);
    return CVN_OK;
}

static int read_rope(const Gguf *gguf, Model *c, Arena *arena, cvn_err *err)
{
    const char *type = gguf_string(gguf, "llama.rope.scaling.type", arena);
    const IoTensor *factors = io_tensors_find(&gguf->tensors, "rope_freqs.weight");
    double factor = 1;
    c->rope_interleaved = true;
    gguf_real(gguf, "llama.rope.freq_base", &c->rope_theta);
    if (!gguf_real(gguf, "llama.rope.scaling.factor", &factor))
        gguf_real(gguf, "llama.rope.scale_linear", &factor);
    c->rope_factor = factor = factor != 0 ? factor : 1; /* llama.cpp writes 0 where there is none */
    if (type && strcmp(type, "yarn") == 0)
        TRY(read_yarn(gguf, c, err));
    else if (type && strcmp(type, "none") != 0 && strcmp(type, "linear") != 0)
        return err_set(err, CVN_EUNSUPPORTED, "'%s': rope scaling '%.40s' is not supported",
                       gguf->file, type);
    else if (factor != 1 && !(type && strcmp(type, "none") == 0))
        c->rope_scaling = ROPE_LINEAR;
    if (!factors)
        return CVN_OK;
    if (c->rope_scaling != ROPE_PLAIN)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s' has both rope_freqs.weight and a scaling factor", gguf->file);
    int code = model_check(c, gguf->file, err);
    return code == CVN_OK ? read_factors(gguf, factors, c, err) : code;
}

static void add_unless_there(SpecialIds *ids, int64_t id)
{
    for (int i = 0; i < ids->n; i++)
        if (ids->id[i] == id)
            return;
    if (ids->n < CONFIG_MAX_IDS)
        ids->id[ids->n++] = (int32_t)id;
}

static void add_id(const Gguf *gguf, const char *key, const Model *c, SpecialIds *ids)
{
    int64_t id = -1;
    if (!gguf_int(gguf, key, &id) || id < 0 || id >= c->vocab)
        return; /* 4294967295 says that there is none */
    add_unless_there(ids, id);
}

/* Many files name one token that ends a text and leave out those that end a turn, which are known by their texts. */
static void add_ends(const Gguf *gguf, const Model *c, SpecialIds *ids)
{
    static const char *const ends[] = {"<|eot_id|>",    "<|eom_id|>",        "<|im_end|>",
                                       "<|end|>",       "<|endoftext|>",     "<|end_of_text|>",
                                       "<end_of_turn>", "<end_of_utterance>"};
    const GgufValue *tokens = gguf_find(gguf, "tokenizer.ggml.tokens");
    if (!tokens || tokens->type != GGUF_ARRAY || tokens->element != GGUF_STRING)
        return;
    const uint8_t *p = tokens->data; /* gguf_read has gone over all lengths */
    for (int64_t id = 0; id < c->vocab && (uint64_t)id < tokens->n; id++) {
        uint64_t length;
        memcpy(&length, p, sizeof length);
        p += sizeof length;
        for (size_t e = 0; e < sizeof ends / sizeof *ends; e++)
            if (length == strlen(ends[e]) && memcmp(p, ends[e], (size_t)length) == 0)
                add_unless_there(ids, id);
        p += length;
    }
}

static void read_tokens(const Gguf *gguf, Model *c)
{
    SpecialIds pad = {0};
    c->bos = c->eos = (SpecialIds){0};
    add_id(gguf, "tokenizer.ggml.bos_token_id", c, &c->bos);
    add_id(gguf, "tokenizer.ggml.eos_token_id", c, &c->eos);
    add_id(gguf, "tokenizer.ggml.eot_token_id", c, &c->eos);
    add_id(gguf, "tokenizer.ggml.eom_token_id", c, &c->eos);
    add_ends(gguf, c, &c->eos);
    add_id(gguf, "tokenizer.ggml.padding_token_id", c, &pad);
    c->pad = pad.n ? pad.id[0] : -1;
}

/* The type that weights are computed in unless the user says otherwise: that of the first q. */
static cvn_dtype natural_dtype(const Gguf *gguf)
{
    const IoTensor *q = io_tensors_find(&gguf->tensors, "blk.0.attn_q.weight");
    if (!q || q->coding != IO_PLAIN)
        return CVN_BF16;
    return q->dtype == CVN_BF16 || q->dtype == CVN_F16 ? q->dtype : CVN_F32;
}

int gguf_config(Model *config, const Gguf *gguf, cvn_err *err)
{
    Arena *arena = gguf->tensors.arena;
    const char *architecture = gguf_string(gguf, "general.architecture", arena);
    Model c = model_default();
    int code;
    if (!architecture || strcmp(architecture, "llama") != 0)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s': general.architecture is '%.40s'; only 'llama' is supported",
                       gguf->file, architecture ? architecture : "not said");
    if ((code = check_keys(gguf, err)) != CVN_OK || (code = read_shape(gguf, &c, err)) != CVN_OK)
        return code;
    if (!gguf_real(gguf, "llama.attention.layer_norm_rms_epsilon", &c.rms_eps))
        return err_set(err, CVN_EFORMAT,
                       "'%s': the key 'llama.attention.layer_norm_rms_epsilon' is missing",
                       gguf->file);
    c.bos = c.eos = (SpecialIds){0};
    if ((code = read_rope(gguf, &c, arena, err)) != CVN_OK)
        return code;
    read_tokens(gguf, &c);
    c.tied = !io_tensors_find(&gguf->tensors, "output.weight");
    c.attention_bias = io_tensors_find(&gguf->tensors, "blk.0.attn_q.bias") != NULL;
    c.mlp_bias = io_tensors_find(&gguf->tensors, "blk.0.ffn_gate.bias") != NULL;
    c.dtype = natural_dtype(gguf);
    if ((code = model_check(&c, gguf->file, err)) == CVN_OK)
        *config = c;
    return code;
}
