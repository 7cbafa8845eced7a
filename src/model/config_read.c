/* Hugging Face's config.json, key by key. */
#include "base/file.h"
#include "base/json_file.h"
#include "base/json_reader.h"
#include "model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What is read below, and what is harmless: metadata, defaults for sampling, training only, without effect on Llama as
   pretraining_tp is, the same products computed in slices. "compression_config" is an older name of
   "quantization_config". */
static const char known[] =
    "model_type hidden_act hidden_size intermediate_size num_hidden_layers num_attention_heads "
    "num_key_value_heads head_dim vocab_size max_position_embeddings "
    "original_max_position_embeddings rms_norm_eps initializer_range rope_theta rope_scaling "
    "rope_parameters tie_word_embeddings attention_bias mlp_bias bos_token_id eos_token_id "
    "pad_token_id torch_dtype dtype quantization_config compression_config architectures "
    "transformers_version _name_or_path _commit_hash _from_model_config _attn_implementation "
    "_attn_implementation_autoset _attn_implementation_internal _experts_implementation "
    "attn_implementation use_flash_attention_2 use_cache pretraining_tp attention_dropout "
    "hidden_dropout max_sequence_length model_name model_max_length neftune_noise_alpha "
    "num_logits_to_keep unsloth_fixed unsloth_version return_dict return_dict_in_generate "
    "output_attentions output_hidden_states output_scores torchscript use_bfloat16 "
    "tf_legacy_loss tie_encoder_decoder cross_attention_hidden_size chunk_size_feed_forward "
    "is_decoder max_length min_length do_sample early_stopping num_beams num_beam_groups "
    "diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty "
    "exponential_decay_length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size "
    "bad_words_ids suppress_tokens begin_suppress_tokens num_return_sequences "
    "forced_bos_token_id forced_eos_token_id remove_invalid_values finetuning_task "
    "task_specific_params problem_type id2label label2id tokenizer_class prefix sep_token_id "
    "unk_token_id decoder_start_token_id";

/* These change nothing where they are 1. */
static const char factors[] =
    "partial_rotary_factor rotary_pct embedding_multiplier residual_multiplier logits_scaling "
    "logit_scale num_local_experts num_experts num_experts_per_tok";

/* Parts of names by which a key is taken for mathematics, or for code of its own: refused unless it is off. */
static const char *const mathematical[] = {
    "rope",     "rotary",  "attn",  "attention", "norm",       "scale",
    "scaling",  "softcap", "quant", "logit",     "window",     "expert",
    "moe",      "router",  "bias",  "act",       "rank",       "lora",
    "dim",      "size",    "head",  "layer",     "multiplier", "alpha",
    "residual", "mlp",     "_eps",  "epsilon",   "auto_map",   "is_encoder_decoder",
    NULL};

static bool is_listed(const char *words, const char *key)
{
    for (size_t n;; words += n + 1) {
        n = strcspn(words, " ");
        if (n == strlen(key) && memcmp(words, key, n) == 0)
            return true;
        if (!words[n])
            return false;
    }
}

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

static int check_keys(Model *c, const char *file, const json_t *json, cvn_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        if (is_off(value) || is_listed(known, key) || is_all_full_attention(key, value) ||
            (json_number_value(value) == 1 && is_listed(factors, key)))
            continue;
        for (const char *const *part = mathematical; *part; part++)
            if (strcasestr(key, *part))
                return refuse(file, key, value, err);
        model_warn(c, "'%s': the unknown key '%.80s' is ignored", file, key);
    }
    return CVN_OK;
}

static void add_id(JsonReader *r, const char *key, const json_t *value, Model *c, SpecialIds *out)
{
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value))
        json_wrong_type(r, key, value, "a token id or a list of them");
    else if (id < 0 || id >= c->vocab)
        model_warn(c, "'%s': %s %" JSON_INTEGER_FORMAT " is outside of the vocabulary and ignored",
                   r->file, key, id);
    else if (out->n < CONFIG_MAX_IDS)
        out->id[out->n++] = (int32_t)id;
    else
        model_warn(c, "'%s': only the first %d of %s are used", r->file, CONFIG_MAX_IDS, key);
}

/* An id or a list of ids. An explicit null says that there is none. */
static void get_ids(JsonReader *r, const char *key, Model *c, SpecialIds *out)
{
    const json_t *value = json_object_get(r->json, key);
    if (!value)
        return;
    *out = (SpecialIds){0};
    if (json_is_null(value))
        return;
    if (!json_is_array(value))
        add_id(r, key, value, c, out);
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
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i].name) == 0) {
            *out = names[i].dtype;
            return;
        }
    json_wrong_type(r, key, json_get(r, key), "\"float32\", \"bfloat16\" or \"float16\"");
}

/* What rope settings may hold. A key that its type does not use is without effect, as in transformers; "finetuned" says
   how the numbers were found. */
static const char rope_known[] =
    "type rope_type rope_theta factor alpha beta_fast beta_slow low_freq_factor "
    "high_freq_factor attention_factor mscale mscale_all_dim truncate "
    "original_max_position_embeddings finetuned";
static const char rope_factors[] = "partial_rotary_factor attn_factor extrapolation_factor";

static void check_rope_keys(JsonReader *r)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)r->json, key, value)
    {
        if (json_is_null(value) || r->code != CVN_OK || is_listed(rope_known, key) ||
            (json_number_value(value) == 1 && is_listed(rope_factors, key)))
            continue;
        char name[160];
        snprintf(name, sizeof name, "'%.80s' in the rope settings", key);
        r->code = refuse(r->file, name, value, r->err);
    }
}

/* Hugging Face counts 0 for turns and for mscale as not given, and 0 for the attention factor as given. */
static void read_yarn(JsonReader *r, Model *c)
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
    c->rope_attention = mscale != 0 && all != 0 ? rope_yarn_attention(c->rope_factor, mscale) /
                                                      rope_yarn_attention(c->rope_factor, all)
                                                : rope_yarn_attention(c->rope_factor, 1);
    json_get_real(r, "attention_factor", &c->rope_attention);
    c->rope_truncate = true;
    json_get_bool(r, "truncate", &c->rope_truncate);
}

/* rope_scaling (transformers 4) or rope_parameters (5): {"rope_type" or "type", "factor", ...}. `whole` is what has it,
   whose original_max_position_embeddings wins. */
static void read_rope_object(JsonReader *r, JsonReader *whole, Model *c)
{
    check_rope_keys(r);
    const char *type = json_get_string(r, "rope_type");
    type = type ? type : json_get_string(r, "type");
    json_get_real(r, "rope_theta", &c->rope_theta);
    if (type && !rope_scaling_parse(type, &c->rope_scaling) && r->code == CVN_OK)
        r->code =
            err_set(r->err, CVN_EUNSUPPORTED,
                    "'%s': rope type '%.40s' is not supported; default, linear, dynamic, yarn "
                    "and llama3 are",
                    r->file, type);
    if (c->rope_scaling == ROPE_PLAIN)
        return;
    c->rope_factor = 0; /* absent is an error that model_check reports */
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

static void read_rope(JsonReader *r, Model *c)
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

static void read_shape(JsonReader *r, Model *c)
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
static void read_quantization(JsonReader *r, Model *c)
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

int model_parse(Model *config, const char *file, const json_t *json, const json_t *generation,
                cvn_err *err)
{
    Model c = model_default();
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
        (r.code = model_check(&c, file, err)))
        return r.code;
    c.pad = pad >= 0 && pad < c.vocab ? (int32_t)pad : -1;
    *config = c;
    return CVN_OK;
}

int model_read(Model *config, const char *folder, cvn_err *err)
{
    const FilePath path = file_path(folder, "config.json");
    const FilePath beside = file_path(folder, "generation_config.json");
    bool has_beside = file_exists(beside.text);
    json_auto_t *json = json_object_read(path.text, err);
    json_auto_t *generation = json && has_beside ? json_object_read(beside.text, err) : NULL;
    if (!json || (has_beside && !generation))
        return err && err->code != CVN_OK ? err->code : CVN_EFORMAT;
    return model_parse(config, path.text, json, generation, err);
}
