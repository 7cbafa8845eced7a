/* Hugging Face's config.json, key by key. */
#include "base/file.h"
#include "base/json_file.h"
#include "base/json_reader.h"
#include "model/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum KeyKind {
    KEY_USED,     /* read below */
    KEY_HARMLESS, /* metadata, defaults for sampling, training only, or without effect on Llama */
    KEY_REFUSED,  /* changes the mathematics: refused unless null, false, empty or neutral */
} KeyKind;

static const struct {
    const char *key;
    KeyKind kind;
    double neutral; /* KEY_REFUSED: the number that changes nothing, or NAN where none */
} keys[] = {
    {"model_type", KEY_USED, 0},
    {"hidden_act", KEY_USED, 0},
    {"hidden_size", KEY_USED, 0},
    {"intermediate_size", KEY_USED, 0},
    {"num_hidden_layers", KEY_USED, 0},
    {"num_attention_heads", KEY_USED, 0},
    {"num_key_value_heads", KEY_USED, 0},
    {"head_dim", KEY_USED, 0},
    {"vocab_size", KEY_USED, 0},
    {"max_position_embeddings", KEY_USED, 0},
    {"original_max_position_embeddings", KEY_USED, 0},
    {"rms_norm_eps", KEY_USED, 0},
    {"initializer_range", KEY_USED, 0},
    {"rope_theta", KEY_USED, 0},
    {"rope_scaling", KEY_USED, 0},
    {"rope_parameters", KEY_USED, 0},
    {"tie_word_embeddings", KEY_USED, 0},
    {"attention_bias", KEY_USED, 0},
    {"mlp_bias", KEY_USED, 0},
    {"bos_token_id", KEY_USED, 0},
    {"eos_token_id", KEY_USED, 0},
    {"pad_token_id", KEY_USED, 0},
    {"torch_dtype", KEY_USED, 0},
    {"dtype", KEY_USED, 0},
    {"quantization_config", KEY_USED, 0},
    {"compression_config", KEY_USED, 0}, /* an older name of the same */

    {"architectures", KEY_HARMLESS, 0},
    {"transformers_version", KEY_HARMLESS, 0},
    {"_name_or_path", KEY_HARMLESS, 0},
    {"_commit_hash", KEY_HARMLESS, 0},
    {"_from_model_config", KEY_HARMLESS, 0},
    {"_attn_implementation", KEY_HARMLESS, 0},
    {"_attn_implementation_autoset", KEY_HARMLESS, 0},
    {"_attn_implementation_internal", KEY_HARMLESS, 0},
    {"_experts_implementation", KEY_HARMLESS, 0},
    {"attn_implementation", KEY_HARMLESS, 0},
    {"use_flash_attention_2", KEY_HARMLESS, 0},
    {"use_cache", KEY_HARMLESS, 0},
    {"pretraining_tp", KEY_HARMLESS, 0}, /* the same products, computed in slices */
    {"attention_dropout", KEY_HARMLESS, 0},
    {"hidden_dropout", KEY_HARMLESS, 0},
    {"max_sequence_length", KEY_HARMLESS, 0},
    {"model_name", KEY_HARMLESS, 0},
    {"model_max_length", KEY_HARMLESS, 0},
    {"neftune_noise_alpha", KEY_HARMLESS, 0},
    {"num_logits_to_keep", KEY_HARMLESS, 0},
    {"unsloth_fixed", KEY_HARMLESS, 0},
    {"unsloth_version", KEY_HARMLESS, 0},
    {"return_dict", KEY_HARMLESS, 0},
    {"return_dict_in_generate", KEY_HARMLESS, 0},
    {"output_attentions", KEY_HARMLESS, 0},
    {"output_hidden_states", KEY_HARMLESS, 0},
    {"output_scores", KEY_HARMLESS, 0},
    {"torchscript", KEY_HARMLESS, 0},
    {"use_bfloat16", KEY_HARMLESS, 0},
    {"tf_legacy_loss", KEY_HARMLESS, 0},
    {"tie_encoder_decoder", KEY_HARMLESS, 0},
    {"cross_attention_hidden_size", KEY_HARMLESS, 0},
    {"chunk_size_feed_forward", KEY_HARMLESS, 0},
    {"is_decoder", KEY_HARMLESS, 0},
    {"max_length", KEY_HARMLESS, 0},
    {"min_length", KEY_HARMLESS, 0},
    {"do_sample", KEY_HARMLESS, 0},
    {"early_stopping", KEY_HARMLESS, 0},
    {"num_beams", KEY_HARMLESS, 0},
    {"num_beam_groups", KEY_HARMLESS, 0},
    {"diversity_penalty", KEY_HARMLESS, 0},
    {"temperature", KEY_HARMLESS, 0},
    {"top_k", KEY_HARMLESS, 0},
    {"top_p", KEY_HARMLESS, 0},
    {"typical_p", KEY_HARMLESS, 0},
    {"repetition_penalty", KEY_HARMLESS, 0},
    {"length_penalty", KEY_HARMLESS, 0},
    {"exponential_decay_length_penalty", KEY_HARMLESS, 0},
    {"no_repeat_ngram_size", KEY_HARMLESS, 0},
    {"encoder_no_repeat_ngram_size", KEY_HARMLESS, 0},
    {"bad_words_ids", KEY_HARMLESS, 0},
    {"suppress_tokens", KEY_HARMLESS, 0},
    {"begin_suppress_tokens", KEY_HARMLESS, 0},
    {"num_return_sequences", KEY_HARMLESS, 0},
    {"forced_bos_token_id", KEY_HARMLESS, 0},
    {"forced_eos_token_id", KEY_HARMLESS, 0},
    {"remove_invalid_values", KEY_HARMLESS, 0},
    {"finetuning_task", KEY_HARMLESS, 0},
    {"task_specific_params", KEY_HARMLESS, 0},
    {"problem_type", KEY_HARMLESS, 0},
    {"id2label", KEY_HARMLESS, 0},
    {"label2id", KEY_HARMLESS, 0},
    {"tokenizer_class", KEY_HARMLESS, 0},
    {"prefix", KEY_HARMLESS, 0},
    {"sep_token_id", KEY_HARMLESS, 0},
    {"unk_token_id", KEY_HARMLESS, 0},
    {"decoder_start_token_id", KEY_HARMLESS, 0},

    {"auto_map", KEY_REFUSED, NAN}, /* the model comes with code of its own */
    {"sliding_window", KEY_REFUSED, NAN},
    {"use_sliding_window", KEY_REFUSED, NAN},
    {"max_window_layers", KEY_REFUSED, NAN},
    {"layer_types", KEY_REFUSED, NAN},
    {"partial_rotary_factor", KEY_REFUSED, 1},
    {"rotary_dim", KEY_REFUSED, NAN},
    {"rotary_pct", KEY_REFUSED, 1},
    {"pruned_heads", KEY_REFUSED, NAN},
    {"is_encoder_decoder", KEY_REFUSED, NAN},
    {"add_cross_attention", KEY_REFUSED, NAN},
    {"embedding_multiplier", KEY_REFUSED, 1},
    {"residual_multiplier", KEY_REFUSED, 1},
    {"attention_multiplier", KEY_REFUSED, NAN},
    {"logits_scaling", KEY_REFUSED, 1},
    {"logit_scale", KEY_REFUSED, 1},
    {"attn_logit_softcapping", KEY_REFUSED, NAN},
    {"final_logit_softcapping", KEY_REFUSED, NAN},
    {"num_local_experts", KEY_REFUSED, 1},
    {"num_experts", KEY_REFUSED, 1},
    {"num_experts_per_tok", KEY_REFUSED, 1},
    {"qk_norm", KEY_REFUSED, NAN},
    {"use_qk_norm", KEY_REFUSED, NAN},
};

/* Parts of names by which an unknown key is taken for mathematics. */
static const char *const mathematical[] = {
    "rope",    "rotary",     "attn",  "attention", "norm",   "scale", "scaling",
    "softcap", "quant",      "logit", "window",    "expert", "moe",   "router",
    "bias",    "act",        "rank",  "lora",      "dim",    "size",  "head",
    "layer",   "multiplier", "alpha", "residual",  "mlp",    "_eps",  "epsilon",
};

/* null, false, 0 and empty things switch nothing on. */
static bool is_off(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

static int refuse(const char *file, const char *key, const json_t *value, cvn_err *err)
{
    char text[80];
    return err_set(err, CVN_EUNSUPPORTED,
                   "'%s': %s = %s changes the mathematics and is not supported", file, key,
                   json_value_text(value, text, sizeof text));
}

/* "layer_types" spells out what every layer of Llama is anyway. */
static bool is_all_full_attention(const char *key, const json_t *value)
{
    bool all = strcmp(key, "layer_types") == 0 && json_is_array(value);
    for (size_t i = 0; all && i < json_array_size(value); i++) {
        const char *type = json_string_value(json_array_get(value, i));
        all = type && strcmp(type, "full_attention") == 0;
    }
    return all;
}

static int check_keys(LlamaConfig *c, const char *file, const json_t *json, cvn_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        size_t i = 0, n = sizeof keys / sizeof *keys;
        while (i < n && strcmp(keys[i].key, key) != 0)
            i++;
        if (is_off(value))
            continue;
        if (i < n && keys[i].kind == KEY_REFUSED &&
            !(json_is_number(value) && json_number_value(value) == keys[i].neutral) &&
            !is_all_full_attention(key, value))
            return refuse(file, key, value, err);
        if (i < n)
            continue;
        for (size_t k = 0; k < sizeof mathematical / sizeof *mathematical; k++)
            if (strcasestr(key, mathematical[k]))
                return refuse(file, key, value, err);
        llama_config_warn(c, "'%s': the unknown key '%.80s' is ignored", file, key);
    }
    return CVN_OK;
}

static void add_id(JsonReader *r, const char *key, const json_t *value, LlamaConfig *c,
                   SpecialIds *out)
{
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value))
        json_wrong_type(r, key, value, "a token id or a list of them");
    else if (id < 0 || id >= c->vocab)
        llama_config_warn(
            c, "'%s': %s %" JSON_INTEGER_FORMAT " is outside of the vocabulary and ignored",
            r->file, key, id);
    else if (out->n < CONFIG_MAX_IDS)
        out->id[out->n++] = (int32_t)id;
    else
        llama_config_warn(c, "'%s': only the first %d of %s are used", r->file, CONFIG_MAX_IDS,
                          key);
}

/* An id or a list of ids. An explicit null says that there is none. */
static void get_ids(JsonReader *r, const char *key, LlamaConfig *c, SpecialIds *out)
{
    const json_t *value = json_object_get(r->json, key);
    if (!value)
        return;
    *out = (SpecialIds){0};
    if (json_is_null(value))
        return;
    if (!json_is_array(value)) {
        add_id(r, key, value, c, out);
        return;
    }
    for (size_t i = 0; i < json_array_size(value); i++)
        add_id(r, key, json_array_get(value, i), c, out);
}

static void get_dtype(JsonReader *r, const char *key, cvn_dtype *out)
{
    static const struct {
        const char *name;
        cvn_dtype dtype;
    } names[] = {{"float32", CVN_F32}, {"bfloat16", CVN_BF16}, {"float16", CVN_F16}};
    const char *text = json_get_string(r, key);
    if (!text)
        return;
    if (strncmp(text, "torch.", 6) == 0)
        text += 6;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i].name) == 0) {
            *out = names[i].dtype;
            return;
        }
    }
    json_wrong_type(r, key, json_get(r, key), "\"float32\", \"bfloat16\" or \"float16\"");
}

/* What rope settings may hold. A key that its type does not use is without effect, as in transformers. */
static const struct {
    const char *key;
    double neutral; /* the only number that is taken; NAN: all are */
} rope_keys[] = {
    {"type", NAN},
    {"rope_type", NAN},
    {"rope_theta", NAN},
    {"factor", NAN},
    {"alpha", NAN},
    {"beta_fast", NAN},
    {"beta_slow", NAN},
    {"low_freq_factor", NAN},
    {"high_freq_factor", NAN},
    {"attention_factor", NAN},
    {"mscale", NAN},
    {"mscale_all_dim", NAN},
    {"truncate", NAN},
    {"original_max_position_embeddings", NAN},
    {"finetuned", NAN}, /* how the numbers were found */
    {"partial_rotary_factor", 1},
    {"attn_factor", 1},
    {"extrapolation_factor", 1},
};

static void check_rope_keys(JsonReader *r)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)r->json, key, value)
    {
        size_t i = 0, n = sizeof rope_keys / sizeof *rope_keys;
        while (i < n && strcmp(key, rope_keys[i].key) != 0)
            i++;
        bool neutral =
            i < n && (isnan(rope_keys[i].neutral) ||
                      (json_is_number(value) && json_number_value(value) == rope_keys[i].neutral));
        if (!neutral && !json_is_null(value) && r->code == CVN_OK) {
            char name[160];
            snprintf(name, sizeof name, "'%.80s' in the rope settings", key);
            r->code = refuse(r->file, name, value, r->err);
        }
    }
}

/* Hugging Face counts 0 for turns and for mscale as not given, and 0 for the attention factor as given. */
static void read_yarn(JsonReader *r, LlamaConfig *c)
{
    double mscale = 0, all = 0, given[2] = {0};
    if (!json_get(r, "factor"))
        c->rope_factor = (double)c->max_context / (double)c->rope_original_context;
    json_get_real(r, "beta_slow", &given[0]);
    json_get_real(r, "beta_fast", &given[1]);
    c->rope_ramp[0] = given[0] != 0 ? given[0] : 1;
    c->rope_ramp[1] = given[1] != 0 ? given[1] : 32;
    json_get_real(r, "mscale", &mscale);
    json_get_real(r, "mscale_all_dim", &all);
    c->rope_attention = mscale != 0 && all != 0 ? llama_yarn_attention(c->rope_factor, mscale) /
                                                      llama_yarn_attention(c->rope_factor, all)
                                                : llama_yarn_attention(c->rope_factor, 1);
    json_get_real(r, "attention_factor", &c->rope_attention);
    c->rope_truncate = true;
    json_get_bool(r, "truncate", &c->rope_truncate);
}

/* rope_scaling (transformers 4) or rope_parameters (5): {"rope_type" or "type", "factor", ...}. `whole` is what has it,
   whose original_max_position_embeddings wins. */
static void read_rope_object(JsonReader *r, JsonReader *whole, LlamaConfig *c)
{
    check_rope_keys(r);
    const char *type = json_get_string(r, "rope_type");
    type = type ? type : json_get_string(r, "type");
    json_get_real(r, "rope_theta", &c->rope_theta);
    if (type && !llama_rope_parse(type, &c->rope_scaling) && r->code == CVN_OK)
        r->code =
            err_set(r->err, CVN_EUNSUPPORTED,
                    "'%s': rope type '%.40s' is not supported; default, linear, dynamic, yarn "
                    "and llama3 are",
                    r->file, type);
    if (c->rope_scaling == ROPE_PLAIN)
        return;
    c->rope_factor = 0; /* absent is an error that llama_config_check reports */
    json_get_real(r, "factor", &c->rope_factor);
    c->rope_original_context = c->max_context;
    json_get_int(r, "original_max_position_embeddings", &c->rope_original_context);
    json_get_int(whole, "original_max_position_embeddings", &c->rope_original_context);
    if (c->rope_scaling == ROPE_DYNAMIC)
        json_get_real(r, "alpha", &c->rope_alpha);
    if (c->rope_scaling == ROPE_YARN)
        read_yarn(r, c);
    if (c->rope_scaling == ROPE_LLAMA3) {
        json_get_real(r, "low_freq_factor", &c->rope_ramp[0]);
        json_get_real(r, "high_freq_factor", &c->rope_ramp[1]);
    }
}

static void read_rope(JsonReader *r, LlamaConfig *c)
{
    const json_t *scaling = json_get(r, "rope_scaling"),
                 *parameters = json_get(r, "rope_parameters");
    const json_t *object = scaling ? scaling : parameters;
    json_get_real(r, "rope_theta", &c->rope_theta);
    if (scaling && parameters && !json_equal(scaling, parameters) && r->code == CVN_OK)
        r->code = err_set(r->err, CVN_EFORMAT,
                          "'%s' gives both rope_scaling and rope_parameters; keep one", r->file);
    if (!object)
        return;
    if (!json_is_object(object)) {
        json_wrong_type(r, scaling ? "rope_scaling" : "rope_parameters", object, "an object");
        return;
    }
    JsonReader inner = {r->file, object, r->err, r->code};
    read_rope_object(&inner, r, c);
    r->code = r->code ? r->code : inner.code;
}

static void read_shape(JsonReader *r, LlamaConfig *c)
{
    json_get_int(r, "hidden_size", &c->dim);
    json_get_int(r, "intermediate_size", &c->ffn);
    json_get_int(r, "num_hidden_layers", &c->n_layers);
    json_get_int(r, "num_attention_heads", &c->n_heads);
    c->n_kv_heads = c->n_heads;
    json_get_int(r, "num_key_value_heads", &c->n_kv_heads);
    json_get_int(r, "vocab_size", &c->vocab);
    json_get_int(r, "max_position_embeddings", &c->max_context);
    if (json_get(r, "head_dim")) {
        json_get_int(r, "head_dim", &c->head_dim);
    } else if (c->n_heads > 0 && c->dim % c->n_heads == 0) {
        c->head_dim = c->dim / c->n_heads;
    } else if (r->code == CVN_OK) {
        r->code =
            err_set(r->err, CVN_EFORMAT,
                    "'%s': hidden_size %" PRId64 " is no multiple of num_attention_heads %" PRId64
                    ", and there is no head_dim",
                    r->file, c->dim, c->n_heads);
    }
}

/* Ours only: what others quantize is numbers to the model, and known where files are read (io/packed.h). */
static void read_quantization(JsonReader *r, LlamaConfig *c)
{
    const json_t *object = json_get(r, "quantization_config");
    if (!object || is_off(object) || r->code != CVN_OK)
        return;
    JsonReader q = {r->file, object, r->err, CVN_OK};
    const char *method = json_is_object(object) ? json_get_string(&q, "quant_method") : NULL;
    int64_t bits = 0, group = 0;
    if (!method)
        r->code = refuse(r->file, "quantization_config", object, r->err);
    if (!method || strcmp(method, "caravan") != 0)
        return;
    json_get_int(&q, "bits", &bits);
    json_get_int(&q, "group_size", &group);
    if ((r->code = q.code))
        return;
    bool int8 = bits == 8 && group == 0;
    bool int4 = bits == 4 && (group == 32 || group == 64 || group == 128);
    if (!int8 && !int4)
        r->code = err_set(r->err, CVN_EUNSUPPORTED,
                          "'%s': quantization_config has bits %" PRId64 " and group_size %" PRId64
                          "; 8 without a group and 4 with 32, 64 or 128 are known",
                          r->file, bits, group);
    else
        c->quant = (QuantScheme){.kind = int8 ? QUANT_INT8 : QUANT_INT4, .group = group};
}

static void read_kind(JsonReader *r)
{
    const char *type = json_get_string(r, "model_type");
    const char *activation = json_get_string(r, "hidden_act");
    if (r->code != CVN_OK)
        return;
    if (!type)
        r->code = err_set(r->err, CVN_EUNSUPPORTED,
                          "'%s' has no model_type; only 'llama' is supported", r->file);
    else if (strcmp(type, "llama") != 0)
        r->code = err_set(r->err, CVN_EUNSUPPORTED,
                          "'%s': model_type is '%.60s'; only 'llama' is supported", r->file, type);
    else if (activation && strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
        r->code =
            err_set(r->err, CVN_EUNSUPPORTED,
                    "'%s': hidden_act is '%.60s'; only 'silu' is supported", r->file, activation);
}

int llama_config_parse(LlamaConfig *config, const char *file, const json_t *json,
                       const json_t *generation, cvn_err *err)
{
    LlamaConfig c = llama_config_default();
    JsonReader r = {file, json, err, CVN_OK};
    int64_t pad = -1;
    read_kind(&r);
    read_shape(&r, &c);
    read_rope(&r, &c);
    json_get_real(&r, "rms_norm_eps", &c.rms_eps);
    json_get_real(&r, "initializer_range", &c.init_range);
    json_get_bool(&r, "tie_word_embeddings", &c.tied);
    json_get_bool(&r, "attention_bias", &c.attention_bias);
    json_get_bool(&r, "mlp_bias", &c.mlp_bias);
    get_dtype(&r, "torch_dtype", &c.dtype);
    get_dtype(&r, "dtype", &c.dtype);
    read_quantization(&r, &c);
    get_ids(&r, "bos_token_id", &c, &c.bos);
    get_ids(&r, "eos_token_id", &c, &c.eos);
    json_get_int(&r, "pad_token_id", &pad);
    if (r.code == CVN_OK && generation) {
        JsonReader g = {"generation_config.json", generation, err, CVN_OK};
        if (json_get(&g, "bos_token_id"))
            get_ids(&g, "bos_token_id", &c, &c.bos);
        if (json_get(&g, "eos_token_id"))
            get_ids(&g, "eos_token_id", &c, &c.eos);
        json_get_int(&g, "pad_token_id", &pad);
        r.code = g.code;
    }
    if (r.code || (r.code = check_keys(&c, file, json, err)) ||
        (r.code = llama_config_check(&c, file, err)))
        return r.code;
    c.pad = pad >= 0 && pad < c.vocab ? (int32_t)pad : -1;
    *config = c;
    return CVN_OK;
}

int llama_config_read(LlamaConfig *config, const char *folder, cvn_err *err)
{
    const FilePath path = file_path(folder, "config.json");
    const FilePath beside = file_path(folder, "generation_config.json");
    bool has_beside = file_exists(beside.text);
    json_auto_t *json = json_object_read(path.text, err);
    json_auto_t *generation = json && has_beside ? json_object_read(beside.text, err) : NULL;
    if (!json || (has_beside && !generation))
        return err && err->code != CVN_OK ? err->code : CVN_EFORMAT;
    return llama_config_parse(config, path.text, json, generation, err);
}
