#include "model/model.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

Model model_default(void)
{
    return (Model){
        .dim = 4096,
        .n_layers = 32,
        .n_heads = 32,
        .n_kv_heads = 32,
        .head_dim = 128,
        .ffn = 11008,
        .vocab = 32000,
        .max_context = 2048,
        .rms_eps = 1e-6,
        .rope_theta = 10000,
        .rope_factor = 1,
        .init_range = 0.02,
        .dtype = CVN_F32,
        .bos = {1, {1}},
        .eos = {1, {2}},
        .pad = -1,
    };
}

void model_warn(Model *config, const char *format, ...)
{
    size_t used = strlen(config->warnings);
    size_t room = sizeof config->warnings - used;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(config->warnings + used, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n + 1 >= room)
        config->warnings[used] = '\0';
    else
        memcpy(config->warnings + used + n, "\n", 2);
}

/* The limits keep every product (vocab * dim, heads * head_dim * dim, layers * ffn * dim, in bytes)
 * well inside of 63 bits; they are about a thousand times the largest Llama. */
static const struct {
    const char *name; /* the field, with its config.json key */
    size_t offset;    /* of an int64_t in Model */
    int64_t limit;
} dimensions[] = {
    {"the width (hidden_size)", offsetof(Model, dim), INT64_C(1) << 20},
    {"the number of layers (num_hidden_layers)", offsetof(Model, n_layers), 1 << 14},
    {"the number of heads (num_attention_heads)", offsetof(Model, n_heads), 1 << 14},
    {"the number of KV heads (num_key_value_heads)", offsetof(Model, n_kv_heads), 1 << 14},
    {"the head dimension (head_dim)", offsetof(Model, head_dim), 1 << 14},
    {"the feed-forward width (intermediate_size)", offsetof(Model, ffn), 1 << 23},
    {"the vocabulary (vocab_size)", offsetof(Model, vocab), 1 << 26},
    {"the context (max_position_embeddings)", offsetof(Model, max_context), 1 << 30},
};

static int check_ids(const SpecialIds *ids, const char *what, int64_t vocab, const char *file,
                     cvn_err *err)
{
    for (int i = 0; i < ids->n; i++)
        if (ids->id[i] < 0 || ids->id[i] >= vocab)
            return err_set(err, CVN_EFORMAT,
                           "'%s': %s token %d is outside of the vocabulary of %" PRId64, file, what,
                           ids->id[i], vocab);
    return CVN_OK;
}

int model_check(const Model *c, const char *file, cvn_err *err)
{
    for (size_t i = 0; i < sizeof dimensions / sizeof *dimensions; i++) {
        int64_t value;
        memcpy(&value, (const char *)c + dimensions[i].offset, sizeof value);
        if (value < 1 || value > dimensions[i].limit)
            return err_set(err, CVN_EFORMAT,
                           "'%s': %s is %" PRId64 "; it must be from 1 to %" PRId64, file,
                           dimensions[i].name, value, dimensions[i].limit);
    }
    if (c->n_heads % c->n_kv_heads != 0)
        return err_set(err, CVN_EFORMAT,
                       "'%s': %" PRId64 " heads cannot share %" PRId64
                       " KV heads evenly (num_attention_heads, num_key_value_heads)",
                       file, c->n_heads, c->n_kv_heads);
    if (c->head_dim % 2 != 0)
        return err_set(err, CVN_EFORMAT,
                       "'%s': the head dimension is %" PRId64
                       "; rotary embedding needs an even one",
                       file, c->head_dim);
    if (c->n_heads * c->head_dim > INT64_C(1) << 20)
        return err_set(err, CVN_EFORMAT,
                       "'%s': %" PRId64 " heads of %" PRId64 " are wider than 2^20", file,
                       c->n_heads, c->head_dim);
    if (!(c->rms_eps > 0 && c->rms_eps < 1)) /* with 0 the norm of a row of zeros is no number */
        return err_set(err, CVN_EFORMAT, "'%s': rms_norm_eps is %g; it must be over 0 and below 1",
                       file, c->rms_eps);
    if (!(c->init_range >= 0 && c->init_range <= 1))
        return err_set(err, CVN_EFORMAT, "'%s': initializer_range is %g; it must be from 0 to 1",
                       file, c->init_range);
    if (c->dtype != CVN_F32 && c->dtype != CVN_BF16 && c->dtype != CVN_F16)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s': weights of type %s; f32, bf16 or f16 is expected", file,
                       cvn_dtype_name(c->dtype));
    TRY(rope_check(c, file, err));
    TRY(check_ids(&c->bos, "begin-of-text", c->vocab, file, err));
    return check_ids(&c->eos, "end-of-text", c->vocab, file, err);
}
