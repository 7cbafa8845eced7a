/* Hugging Face's config.json and generation_config.json from a Model, in the spelling of
 * transformers 4 (rope_theta, rope_scaling, torch_dtype), which 5 reads too. */
#include "base/file.h"
#include "base/json_file.h"
#include "model/model.h"

static json_t *rope_scaling(const Model *c)
{
    const char *type = rope_scaling_name(c->rope_scaling);
    const double *ramp = c->rope_ramp;
    json_int_t original = c->rope_original_context;
    switch (c->rope_scaling) {
    case ROPE_LINEAR:
        return json_pack("{s:s, s:f}", "rope_type", type, "factor", c->rope_factor);
    case ROPE_DYNAMIC:
        return c->rope_alpha != 0
                   ? json_pack("{s:s, s:f, s:f}", "rope_type", type, "factor", c->rope_factor,
                               "alpha", c->rope_alpha)
                   : json_pack("{s:s, s:f}", "rope_type", type, "factor", c->rope_factor);
    case ROPE_YARN:
        return json_pack("{s:s, s:f, s:f, s:f, s:f, s:b, s:I}", "rope_type", type, "factor",
                         c->rope_factor, "attention_factor", c->rope_attention, "beta_slow",
                         ramp[0], "beta_fast", ramp[1], "truncate", c->rope_truncate,
                         "original_max_position_embeddings", original);
    case ROPE_LLAMA3:
        return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", type, "factor", c->rope_factor,
                         "low_freq_factor", ramp[0], "high_freq_factor", ramp[1],
                         "original_max_position_embeddings", original);
    case ROPE_PLAIN:
        break;
    }
    return json_null();
}

/* null, an id, or a list of ids. */
static json_t *token_ids(const SpecialIds *ids)
{
    if (ids->n <= 1)
        return ids->n ? json_integer(ids->id[0]) : json_null();
    json_t *list = json_array();
    for (int i = 0; i < ids->n; i++)
        list = json_append(list, json_integer(ids->id[i]));
    return list;
}

static json_t *config_json(const Model *c)
{
    const char *dtype = c->dtype == CVN_BF16  ? "bfloat16"
                        : c->dtype == CVN_F16 ? "float16"
                                              : "float32";
    json_t *json = json_pack(
        "{s:[s], s:b, s:f, s:o, s:o, s:I, s:s, s:I, s:f, s:I, s:I, s:b, s:s, s:I, s:I, s:I, s:o, "
        "s:f, s:o, s:f, s:b, s:s, s:b, s:I}",
        "architectures", "LlamaForCausalLM", "attention_bias", c->attention_bias,
        "attention_dropout", 0.0, "bos_token_id", token_ids(&c->bos), "eos_token_id",
        token_ids(&c->eos), "head_dim", (json_int_t)c->head_dim, "hidden_act", "silu",
        "hidden_size", (json_int_t)c->dim, "initializer_range", c->init_range, "intermediate_size",
        (json_int_t)c->ffn, "max_position_embeddings", (json_int_t)c->max_context, "mlp_bias",
        c->mlp_bias, "model_type", "llama", "num_attention_heads", (json_int_t)c->n_heads,
        "num_hidden_layers", (json_int_t)c->n_layers, "num_key_value_heads",
        (json_int_t)c->n_kv_heads, "pad_token_id", c->pad < 0 ? json_null() : json_integer(c->pad),
        "rms_norm_eps", c->rms_eps, "rope_scaling", rope_scaling(c), "rope_theta", c->rope_theta,
        "tie_word_embeddings", c->tied, "torch_dtype", dtype, "use_cache", 1, "vocab_size",
        (json_int_t)c->vocab);
    if (json && c->quant.kind != QUANT_NONE) /* a group of 0 means whole rows */
        json = json_with(json, "quantization_config",
                         json_pack("{s:s, s:i, s:I}", "quant_method", "caravan", "bits",
                                   c->quant.kind == QUANT_INT8 ? 8 : 4, "group_size",
                                   (json_int_t)c->quant.group));
    return json;
}

/* Writes and releases `json`. */
static int write_in(const char *folder, const char *name, json_t *json, cvn_err *err)
{
    json_auto_t *owned = json;
    return owned ? json_file_write(file_path(folder, name).text, owned, err)
                 : err_set(err, CVN_EMEM, "no memory to write '%s/%s'", folder, name);
}

int model_write(const Model *config, const char *folder, cvn_err *err)
{
    if (config->rope_interleaved)
        return err_set(
            err, CVN_EINVAL,
            "'%s': a config with interleaved rotary pairs cannot be written as config.json; "
            "the rows of q and k must be brought into Hugging Face's order first",
            folder);
    TRY(write_in(folder, "config.json", config_json(config), err));
    json_t *json = json_pack("{s:b, s:o, s:o}", "_from_model_config", 1, "bos_token_id",
                             token_ids(&config->bos), "eos_token_id", token_ids(&config->eos));
    if (json && config->pad >= 0)
        json = json_with(json, "pad_token_id", json_integer(config->pad));
    return write_in(folder, "generation_config.json", json, err);
}
