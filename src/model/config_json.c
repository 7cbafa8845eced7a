/* Hugging Face's config.json and generation_config.json, read and written: a family's settings (settings.c), and what is the
 * same in all families. */
#include "model/config_json.h"
#include "base/file.h"
#include "base/json_file.h"
#include "base/json_reader.h"
#include "model/params.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What is read below beside the family's settings, and what is harmless: metadata, defaults for sampling, training only, without
   effect as pretraining_tp is, the same products computed in slices. "compression_config" is an older name of
   "quantization_config". */
static const char known[] =
    "model_type original_max_position_embeddings rope_scaling rope_parameters bos_token_id "
    "eos_token_id pad_token_id torch_dtype dtype quantization_config compression_config "
    "architectures "
    "transformers_version _name_or_path _commit_hash _from_model_config _attn_implementation "
    "_attn_implementation_autoset _attn_implementation_internal _experts_implementation "
    "attn_implementation use_flash_attention_2 use_cache pretraining_tp attention_dropout "
    "attn_pdrop hidden_dropout hidden_dropout_prob resid_pdrop max_sequence_length model_name "
    "model_max_length neftune_noise_alpha cache_implementation "
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

/* null, false, 0 and empty things switch nothing on. */
static bool is_off(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

int config_refuse(const char *file, const char *key, const json_t *value, cvn_err *err)
{
    char text[80];
    return err_set(err, CVN_EUNSUPPORTED,
                   "'%s': %s = %s changes the mathematics and is not supported", file, key,
                   json_value_text(value, text, sizeof text));
}

/* "layer_types" spells out what every layer is anyway. */
static bool is_all_full_attention(const char *key, const json_t *value)
{
    bool all = strcmp(key, "layer_types") == 0 && json_is_array(value);
    for (size_t i = 0; all && i < json_array_size(value); i++) {
        const char *type = json_string_value(json_array_get(value, i));
        all = type && strcmp(type, "full_attention") == 0;
    }
    return all;
}

/* Text is read as by layers that see what is before only; images are not. */
static bool is_of_images(const char *key, const json_t *value)
{
    const char *which = json_string_value(value);
    return strcmp(key, "use_bidirectional_attention") == 0 && which && strcmp(which, "vision") == 0;
}

static void add_id(JsonReader *r, const char *key, const json_t *value, Model *c, SpecialIds *out)
{
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value))
        json_wrong_type(r, key, value, "a token id or a list of them");
    else if (id < 0 || id >= c->vocab)
        model_warn(c, "'%s': %s %" JSON_INTEGER_FORMAT " is outside of the vocabulary and ignored",
                   r->file, key, id);
    else if (out->n < MODEL_MAX_IDS)
        out->id[out->n++] = (int32_t)id;
    else
        model_warn(c, "'%s': only the first %d of %s are used", r->file, MODEL_MAX_IDS, key);
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

#define EIGHT_KEY "modules_in_int8"

/* "model.layers.3.mlp.down_proj", of a matrix. */
static const char *module_of(const Model *m, ParamKind kind, int layer, char *text, size_t size)
{
    const char *name = param_tensor(m, kind, NAMING_HF, layer, text, size);
    if (name)
        text[strlen(text) - strlen(".weight")] = '\0';
    return name ? name : "";
}

/* The matrices of an int4 model that are in 8 bits, by the names of their modules. */
static void read_eight(JsonReader *r, Model *m, Arena *arena)
{
    const json_t *list = json_get(r, EIGHT_KEY), *name;
    size_t i;
    bool *eight =
        list ? arena_array(arena, (size_t)m->layers * PARAM_KIND_COUNT, sizeof *eight) : NULL;
    if (list && !json_is_array(list))
        json_wrong_type(r, EIGHT_KEY, list, "a list of modules");
    json_array_foreach(list, i, name)
    {
        bool found = false;
        char text[128];
        for (int64_t at = 0; at < m->layers * PARAM_KIND_COUNT && !found; at++) {
            const ParamKind kind = (ParamKind)(at % PARAM_KIND_COUNT);
            if (!param_kind_is_matrix(kind) || !json_is_string(name))
                continue;
            eight[at] |= found =
                strcmp(module_of(m, kind, (int)(at / PARAM_KIND_COUNT), text, sizeof text),
                       json_string_value(name)) == 0;
        }
        if (!found)
            json_wrong_type(r, EIGHT_KEY, name, "the name of a matrix in a layer");
    }
    m->eight = eight;
}

/* Ours only: what others quantize is numbers to the model, and known where files are read (io/packed.h). */
static void read_quantization(JsonReader *r, Model *c, Arena *arena)
{
    const json_t *object = json_get(r, "quantization_config");
    if (!object || is_off(object) || r->code != CVN_OK)
        return;
    JsonReader q = {r->file, object, r->err, CVN_OK};
    const char *method = json_is_object(object) ? json_get_string(&q, "quant_method") : NULL;
    int64_t bits = 0, group = 0;
    if (!method)
        r->code = config_refuse(r->file, "quantization_config", object, r->err);
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
    if (r->code == CVN_OK && int4) {
        read_eight(&q, c, arena);
        r->code = q.code;
    }
}

/* ---- the family's settings ---- */

static int get_integer(void *of, const char *key, int64_t *out, cvn_err *err)
{
    JsonReader *r = of;
    (void)err;
    json_get_int(r, key, out);
    return r->code ? r->code : json_get(r, key) != NULL;
}

static int get_real(void *of, const char *key, double *out, cvn_err *err)
{
    JsonReader *r = of;
    (void)err;
    json_get_real(r, key, out);
    return r->code ? r->code : json_get(r, key) != NULL;
}

static int get_boolean(void *of, const char *key, bool *out, cvn_err *err)
{
    JsonReader *r = of;
    (void)err;
    json_get_bool(r, key, out);
    return r->code ? r->code : json_get(r, key) != NULL;
}

static int get_truth(void *of, const char *key, bool *out, cvn_err *err)
{
    JsonReader *r = of;
    const json_t *value = json_get(r, key);
    if (!json_is_integer(value))
        return get_boolean(of, key, out, err);
    *out = json_integer_value(value) != 0;
    return 1;
}

static int get_text(void *of, const char *key, const char **out, cvn_err *err)
{
    JsonReader *r = of;
    (void)err;
    *out = json_get_string(r, key);
    return r->code ? r->code : *out != NULL;
}

static int get_list(void *of, const char *key, const char *type, int64_t n, int64_t *out,
                    int64_t *length, cvn_err *err)
{
    JsonReader *r = of;
    const json_t *list = json_get(r, key);
    (void)err;
    if (!list || (json_is_array(list) && json_array_size(list) == 0))
        return 0;
    *length = json_is_array(list) ? (int64_t)json_array_size(list) : 0;
    for (int64_t i = 0; i < *length && i < n; i++) {
        const json_t *value = json_array_get(list, (size_t)i);
        const char *own = type ? json_string_value(value) : NULL;
        out[i] = own ? strcmp(own, type) == 0 : json_integer_value(value);
        if (!own && !json_is_integer(value))
            json_wrong_type(r, key, value, "a list of integers");
        else if (own && r->code == CVN_OK && strcmp(own, type) != 0 &&
                 !config_lists("full_attention attention", own))
            r->code = config_refuse(r->file, key, value, r->err);
    }
    if (!json_is_array(list))
        json_wrong_type(r, key, list, "a list of integers");
    return r->code ? r->code : 1;
}

static bool is_setting(const Family *family, const char *key)
{
    const Setting *rows[FAMILY_SETTINGS];
    for (int i = family_settings(family, rows); i-- > 0;)
        if (rows[i]->key && strcmp(rows[i]->key, key) == 0)
            return true;
    return family_is_harmless(family, key);
}

static int check_keys(Model *m, const char *file, const json_t *json, cvn_err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        if (is_off(value) || config_lists(known, key) || is_setting(m->family, key) ||
            is_all_full_attention(key, value) || is_of_images(key, value) ||
            (json_number_value(value) == 1 && config_lists(factors, key)))
            continue;
        for (const char *const *part = mathematical; *part; part++)
            if (strcasestr(key, *part))
                return config_refuse(file, key, value, err);
        model_warn(m, "'%s': the unknown key '%.80s' is ignored", file, key);
    }
    return CVN_OK;
}

static int find_family(const char *file, const json_t *json, const Family **family, cvn_err *err)
{
    char names[512];
    JsonReader r = {file, json, err, CVN_OK};
    const char *type = json_get_string(&r, "model_type");
    if (r.code)
        return r.code;
    if (!type)
        return err_set(err, CVN_EUNSUPPORTED, "'%s' has no model_type; only %s is supported", file,
                       family_names(false, names, sizeof names));
    *family = family_by_name(type);
    return *family
               ? CVN_OK
               : err_set(err, CVN_EUNSUPPORTED, "'%s': model_type is '%.60s'; only %s is supported",
                         file, type, family_names(false, names, sizeof names));
}

json_t *config_words(const char *words, const char *file, Arena *arena, cvn_err *err)
{
    char *text = arena_printf(arena, "{%s}", words);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    return json_object_parse(file, text, strlen(text), err);
}

/* A config.json with what is so where it says nothing, as the family has it. */
static json_t *with_absent(const Family *family, const json_t *json, const char *file, Arena *arena,
                           cvn_err *err)
{
    json_t *whole = family->extends ? with_absent(family_extended(family), NULL, file, arena, err)
                                    : json_object();
    if (whole && family->absent)
        whole = json_merged(whole, config_words(family->absent, file, arena, err));
    if (json_is_object(json_object_get(json, "rope_scaling")))
        json_object_del(whole, "rope_parameters"); /* one of the two */
    return json ? json_merged(whole, json_incref((json_t *)(uintptr_t)json)) : whole;
}

static int parse_text(Model **model, const char *file, const json_t *said, const json_t *generation,
                      Arena *arena, cvn_err *err)
{
    const Family *family;
    Model *m;
    TRY(find_family(file, said, &family, err));
    json_t *json = with_absent(family, said, file, arena, err);
    CLEANUP(json_release, json);
    if (!json)
        return err_set(err, CVN_EMEM, "no memory to read '%s'", file);
    JsonReader r = {file, json, err, CVN_OK};
    const SettingSource source = {.file = file,
                                  .of = &r,
                                  .integer = get_integer,
                                  .real = get_real,
                                  .boolean = get_boolean,
                                  .truth = get_truth,
                                  .text = get_text,
                                  .list = get_list};
    int64_t pad = -1;
    TRY(settings_read(&m, family, &source, arena, err));
    TRY(rope_read_json(m, file, json, arena, err));
    get_dtype(&r, "torch_dtype", &m->dtype);
    get_dtype(&r, "dtype", &m->dtype);
    read_quantization(&r, m, arena);
    get_ids(&r, "bos_token_id", m, &m->begin);
    get_ids(&r, "eos_token_id", m, &m->end);
    json_get_real(&r, "attn_pdrop", &m->dropout.attention);
    json_get_real(&r, "attention_dropout", &m->dropout.attention);
    json_get_real(&r, "resid_pdrop", &m->dropout.hidden);
    json_get_real(&r, "hidden_dropout_prob", &m->dropout.hidden);
    json_get_real(&r, "hidden_dropout", &m->dropout.hidden);
    json_get_int(&r, "pad_token_id", &pad);
    if (r.code == CVN_OK && generation) {
        JsonReader g = {"generation_config.json", generation, err, CVN_OK};
        if (json_get(&g, "bos_token_id"))
            get_ids(&g, "bos_token_id", m, &m->begin);
        if (json_get(&g, "eos_token_id"))
            get_ids(&g, "eos_token_id", m, &m->end);
        json_get_int(&g, "pad_token_id", &pad);
        r.code = g.code;
    }
    TRY(r.code);
    TRY(check_keys(m, file, json, err));
    TRY(model_check(m, file, err));
    m->pad = pad >= 0 && pad < m->vocab ? (int32_t)pad : -1;
    *model = m;
    return CVN_OK;
}

int model_parse(Model **model, const char *file, const json_t *json, const json_t *generation,
                Arena *arena, cvn_err *err)
{
    cvn_err own = {0};
    const char *within = config_within(json);
    err = err ? err : &own;
    json_t *said = config_of_text(json);
    CLEANUP(json_release, said);
    if (!said)
        return err_set(err, CVN_EMEM, "no memory to read '%s'", file);
    TRY(parse_text(model, file, said, generation, arena, err));
    (*model)->within = within ? arena_string(arena, within) : NULL;
    return CVN_OK;
}

int model_read(Model **model, const char *folder, Arena *arena, cvn_err *err)
{
    const FilePath path = file_path(folder, "config.json");
    const FilePath beside = file_path(folder, "generation_config.json");
    bool has_beside = file_exists(beside.text);
    json_t *json = json_object_read(path.text, err);
    CLEANUP(json_release, json);
    json_t *generation = json && has_beside ? json_object_read(beside.text, err) : NULL;
    if (!json || (has_beside && !generation))
        return err && err->code != CVN_OK ? err->code : CVN_EFORMAT;
    Cleanup cleanup;
    cleanup_push(&cleanup, json_release, generation);
    int code = model_parse(model, path.text, json, generation, arena, err);
    cleanup_run(&cleanup);
    return code;
}

/* ---- writing ---- */

/* The spelling is that of transformers 4 (rope_theta, rope_scaling, torch_dtype), which 5 reads too. */

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

static json_t *eight_json(const Model *m)
{
    char text[128];
    json_t *list = json_array();
    for (int64_t i = 0; i < m->layers * PARAM_KIND_COUNT; i++)
        if (m->eight[i])
            list = json_append(
                list, json_string(module_of(m, (ParamKind)(i % PARAM_KIND_COUNT),
                                            (int)(i / PARAM_KIND_COUNT), text, sizeof text)));
    return list;
}

static void add(void *of, const char *key, json_t *value)
{
    json_t **json = of;
    *json = json_with(*json, key, value);
}

static void put_integer(void *of, const char *key, int64_t value)
{
    add(of, key, json_integer(value));
}

static void put_real(void *of, const char *key, double value)
{
    add(of, key, json_real(value));
}

static void put_boolean(void *of, const char *key, bool value)
{
    add(of, key, json_boolean(value));
}

static void put_text(void *of, const char *key, const char *value)
{
    add(of, key, value ? json_string(value) : json_null());
}

static void put_list(void *of, const char *key, const int64_t *value, int64_t n, const char *type)
{
    json_t *list = type ? json_array() : json_integers(value, (int)n);
    for (int64_t i = 0; type && i < n; i++)
        list = json_append(list, json_string(value[i] ? type : "full_attention"));
    add(of, key, list);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The same members in the order of their names; `json` is stolen. */
static json_t *sorted(json_t *json)
{
    size_t n = 0;
    const char *key, **keys = json ? calloc(json_object_size(json) + 1, sizeof *keys) : NULL;
    json_t *value, *out = keys ? json_object() : NULL;
    json_object_foreach(json, key, value)
    {
        if (keys)
            keys[n++] = key;
    }
    if (n)
        qsort(keys, n, sizeof *keys, by_name);
    for (size_t i = 0; i < n; i++)
        out = json_with(out, keys[i], json_incref(json_object_get(json, keys[i])));
    free(keys);
    json_decref(json);
    return out;
}

json_t *model_json(const Model *m, cvn_err *err)
{
    const char *dtype = m->dtype == CVN_BF16  ? "bfloat16"
                        : m->dtype == CVN_F16 ? "float16"
                                              : "float32";
    json_t *json = json_pack(
        "{s:[s], s:f, s:o, s:o, s:s, s:o, s:s, s:b}", "architectures", m->family->class,
        "attention_dropout", m->dropout.attention, "bos_token_id", token_ids(&m->begin),
        "eos_token_id", token_ids(&m->end), "model_type", m->family->name, "pad_token_id",
        m->pad < 0 ? json_null() : json_integer(m->pad), "torch_dtype", dtype, "use_cache", 1);
    json = rope_json(json, m);
    if (m->dropout.hidden > 0)
        json = json_with(json, "hidden_dropout", json_real(m->dropout.hidden));
    const SettingSink sink = {.file = "config.json",
                              .of = &json,
                              .integer = put_integer,
                              .real = put_real,
                              .boolean = put_boolean,
                              .text = put_text,
                              .list = put_list};
    int code = settings_write(m, &sink, err);
    json = sorted(json);
    if (m->quant.kind == QUANT_BLOCKS) /* FP8 */
        json =
            json_with(json, "quantization_config",
                      json_pack("{s:s, s:s, s:s, s:[i, i]}", "quant_method", "fp8", "fmt", "e4m3",
                                "activation_scheme", "dynamic", "weight_block_size", 1, 128));
    else if (m->quant.kind != QUANT_NONE) /* a group of 0 means whole rows */
        json = json_with(json, "quantization_config",
                         json_pack("{s:s, s:i, s:I, s:o*}", "quant_method", "caravan", "bits",
                                   m->quant.kind == QUANT_INT8 ? 8 : 4, "group_size",
                                   (json_int_t)m->quant.group, EIGHT_KEY,
                                   m->eight ? eight_json(m) : NULL));
    if (code == CVN_OK && !json)
        err_set(err, CVN_EMEM, "no memory for a config.json");
    if (code != CVN_OK) {
        json_decref(json);
        json = NULL;
    }
    return json;
}

/* Writes and releases `json`. */
static int write_in(const char *folder, const char *name, json_t *json, cvn_err *err)
{
    json_auto_t *owned = json;
    return owned ? json_file_write(file_path(folder, name).text, owned, err)
                 : err_set(err, CVN_EMEM, "no memory to write '%s/%s'", folder, name);
}

int model_write(const Model *m, const char *folder, cvn_err *err)
{
    cvn_err own = {0};
    err = err ? err : &own;
    if (!model_has_hf_pairs(m))
        return err_set(
            err, CVN_EINVAL,
            "'%s': a config with interleaved rotary pairs cannot be written as config.json; "
            "the rows of q and k must be brought into Hugging Face's order first",
            folder);
    json_t *json = model_json(m, err);
    if (!json)
        return err->code;
    TRY(write_in(folder, "config.json", json, err));
    json = json_pack("{s:b, s:o, s:o}", "_from_model_config", 1, "bos_token_id",
                     token_ids(&m->begin), "eos_token_id", token_ids(&m->end));
    if (json && m->pad >= 0)
        json = json_with(json, "pad_token_id", json_integer(m->pad));
    return write_in(folder, "generation_config.json", json, err);
}
