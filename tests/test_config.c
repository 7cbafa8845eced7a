/* config.json: defaults, both spellings of rope, what is refused and by which name, write and read
 * back, hostile text. */
#include "base/json_file.h"
#include "base/strbuf.h"
#include "io_support.h"
#include "model_make.h"

#include <math.h>

static int parse(Model **model, const char *text, const char *generation, cvn_err *err)
{
    json_t *json = json_object_parse("config.json", text, strlen(text), err);
    json_t *second = generation ? json_object_parse("generation_config.json", generation,
                                                    strlen(generation), err)
                                : NULL;
    int code = json && (!generation || second)
                   ? model_parse(model, "config.json", json, second, models(), err)
                   : CVN_EFORMAT;
    json_decref(json);
    json_decref(second);
    return code;
}

static Model *parsed(const char *text, const char *generation)
{
    Model *model = NULL;
    cvn_err err = {0};
    if (parse(&model, text, generation, &err) != CVN_OK)
        fail_msg("%s: %s", text, err.message);
    return model;
}

/* In 14 digits, which is what a config.json keeps of a number. */
static void assert_same(const Model *a, const Model *b)
{
    double x[2][256];
    json_t *said[2] = {model_json(a, NULL), model_json(b, NULL)};
    char *text[2];
    const Model *m[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        text[i] = json_dumps(said[i], JSON_REAL_PRECISION(14) | JSON_INDENT(1));
        assert_true(model_rope_pairs(m[i]) <= 256);
        model_rope_frequencies(m[i], 3 * model_context(m[i]), x[i]);
        json_decref(said[i]);
    }
    assert_string_equal(text[0], text[1]);
    for (int64_t i = 0; i < model_rope_pairs(a); i++)
        assert_true(x[0][i] == x[1][i]);
    assert_int_equal(model_is_interleaved(a), model_is_interleaved(b));
    assert_memory_equal(model_begins(a), model_begins(b), sizeof(SpecialIds));
    assert_memory_equal(model_ends(a), model_ends(b), sizeof(SpecialIds));
    assert_string_equal(model_warnings(a), model_warnings(b));
    free(text[0]);
    free(text[1]);
}

static void what_is_absent_has_the_defaults_of_transformers(void **state)
{
    (void)state;
    Model *c = parsed("{\"model_type\":\"llama\"}", NULL);
    assert_int_equal(model_width(c), 4096);
    assert_int_equal(model_shape(c).ffn, 11008);
    assert_int_equal(model_shape(c).kv_heads, 32);
    assert_int_equal(model_shape(c).head_dim, 128);
    assert_int_equal(model_context(c), 2048);
    assert_true(model_says(c, "rms_norm_eps") == 1e-6 && model_says(c, "rope_theta") == 10000 &&
                model_says(c, "initializer_range") == 0.02);
    assert_true(model_says(c, "attention_bias") == 0 && model_says(c, "mlp_bias") == 0);
    assert_false(model_shape(c).tied || model_is_interleaved(c));
    assert_string_equal(model_rope_type(c), "");
    assert_int_equal(model_dtype(c), CVN_F32);
    assert_int_equal(model_begins(c)->id[0], 1);
    assert_int_equal(model_ends(c)->n, 1);
    assert_int_equal(model_ends(c)->id[0], 2);
    assert_int_equal(model_pad(c), -1);
    assert_string_equal(model_warnings(c), "");
    /* KV heads follow the heads, and the head dimension the width, when they are not given. */
    c = parsed("{\"model_type\":\"llama\",\"hidden_size\":96,\"num_attention_heads\":4}", NULL);
    assert_int_equal(model_shape(c).kv_heads, 4);
    assert_int_equal(model_shape(c).head_dim, 24);
}

static void both_spellings_of_rope_mean_the_same(void **state)
{
    (void)state;
    Model *old = parsed("{\"model_type\":\"llama\",\"rope_theta\":500000.0,\"rope_scaling\":{"
                        "\"factor\":8.0,\"high_freq_factor\":4.0,\"low_freq_factor\":1.0,"
                        "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},"
                        "\"max_position_embeddings\":131072,\"torch_dtype\":\"bfloat16\"}",
                        NULL);
    Model *new = parsed("{\"model_type\":\"llama\",\"rope_parameters\":{\"rope_theta\":500000,"
                        "\"factor\":8,\"high_freq_factor\":4,\"low_freq_factor\":1,"
                        "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},"
                        "\"max_position_embeddings\":131072,\"dtype\":\"bfloat16\"}",
                        NULL);
    assert_same(old, new);
    assert_string_equal(model_rope_type(old), "llama3");
    assert_true(model_says(old, "rope_scaling.original_max_position_embeddings") == 8192);
    assert_int_equal(model_dtype(old), CVN_BF16);
    Model *linear = parsed("{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":\"linear\","
                           "\"factor\":2.5}}",
                           NULL);
    assert_string_equal(model_rope_type(linear), "linear");
    assert_true(model_says(linear, "rope_scaling.factor") == 2.5);
    Model *plain = parsed("{\"model_type\":\"llama\",\"rope_parameters\":{\"rope_type\":"
                          "\"default\",\"rope_theta\":10000.0}}",
                          NULL);
    assert_string_equal(model_rope_type(plain), "");
}

static void ids_of_generation_config_win(void **state)
{
    (void)state;
    const char *config = "{\"model_type\":\"llama\",\"vocab_size\":128256,\"bos_token_id\":7,"
                         "\"eos_token_id\":9,\"pad_token_id\":0}";
    Model *c = parsed(config, "{\"bos_token_id\":128000,\"eos_token_id\":[128001,128008,128009],"
                              "\"temperature\":0.6}");
    assert_int_equal(model_begins(c)->id[0], 128000);
    assert_int_equal(model_ends(c)->n, 3);
    assert_int_equal(model_ends(c)->id[2], 128009);
    assert_int_equal(model_pad(c), 0);
    c = parsed(config, "{}");
    assert_int_equal(model_begins(c)->id[0], 7);
    assert_int_equal(model_ends(c)->id[0], 9);
    c = parsed("{\"model_type\":\"llama\",\"eos_token_id\":null}", NULL);
    assert_int_equal(model_ends(c)->n, 0);
    c = parsed("{\"model_type\":\"llama\",\"eos_token_id\":[2,-1,32000]}", NULL);
    assert_int_equal(model_ends(c)->n, 1);
    assert_non_null(strstr(model_warnings(c), "eos_token_id 32000 is outside"));
}

/* Members added to {"model_type":"llama", …} and what the refusal must say; NULL where it must
 * pass. */
static const struct {
    const char *members;
    const char *message;
} cases[] = {
    {"\"sliding_window\":null,\"use_cache\":true,\"pretraining_tp\":2", NULL},
    {"\"partial_rotary_factor\":1.0,\"quantization_config\":{},\"qk_norm\":false", NULL},
    {"\"layer_types\":[\"full_attention\",\"full_attention\"]", NULL},
    {"\"rope_scaling\":{\"rope_type\":\"default\",\"partial_rotary_factor\":1.0}", NULL},
    {"\"some_note\":\"x\",\"attn_thing\":false,\"layer_scale\":0", NULL},
    {"\"hidden_act\":\"swish\",\"torch_dtype\":\"torch.float16\"", NULL},
    {"\"rms_norm_eps\":0", "rms_norm_eps is 0; it must be over 0"},
    {"\"rms_norm_eps\":-1e-6", "rms_norm_eps is -1e-06; it must be over 0"},
    {"\"head_dim\":20,\"hidden_size\":100,\"num_attention_heads\":6,\"num_key_value_heads\":3,"
     "\"vocab_size\":259",
     NULL},
    {"\"hidden_act\":\"gelu\"", "hidden_act is 'gelu'"},
    {"\"hidden_act\":7", "hidden_act is 7, expected a string"},
    {"\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0}", NULL},
    {"\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":1000.0}", NULL},
    {"\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":-1}", "rope scaling alpha is -1"},
    {"\"rope_scaling\":{\"type\":\"dynamic\"}", "rope scaling factor is 0"},
    {"\"head_dim\":2,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}",
     "heads of 2 are too narrow"},
    {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":16.0,\"finetuned\":true,"
     "\"original_max_position_embeddings\":4096}",
     NULL},
    {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0,\"extrapolation_factor\":0.5}",
     "'extrapolation_factor'"},
    {"\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2.0,\"attn_factor\":1.0}", NULL},
    {"\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2.0,\"beta_fast\":1,\"beta_slow\":2}",
     "0 < beta_slow < beta_fast, not 2 and 1"},
    {"\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2.0,\"attention_factor\":0}",
     "attention factor of yarn is 0"},
    {"\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":2.0,\"truncate\":1}", "truncate is 1"},
    {"\"rope_scaling\":{\"rope_type\":\"xpos\"}", "rope type 'xpos'"},
    {"\"rope_scaling\":{\"rope_type\":\"longrope\",\"long_factor\":[1]}", "short_factor in the"},
    {"\"rope_scaling\":{\"rope_type\":\"linear\"}", "factor is 0"},
    {"\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":\"2\"}",
     "factor is \"2\", expected a number"},
    {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}", "low_freq_factor < high_freq"},
    {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":5,"
     "\"high_freq_factor\":4}",
     "low_freq_factor < high_freq"},
    {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
     "\"high_freq_factor\":4,\"original_max_position_embeddings\":0}",
     "original_max_position_embeddings is 0"},
    {"\"rope_scaling\":[1]", "rope_scaling is [1], expected an object"},
    {"\"rope_scaling\":{\"mrope_section\":[1]}", "'mrope_section'"},
    {"\"rope_parameters\":{\"partial_rotary_factor\":0.5}", "'partial_rotary_factor'"},
    {"\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1}}", "'full_attention'"},
    {"\"rope_scaling\":{\"type\":\"default\"},\"rope_parameters\":{\"rope_theta\":10000}",
     "both rope_scaling and rope_parameters"},
    {"\"quantization_config\":{\"bits\":4}", "quantization_config = {\"bits\":4} changes"},
    {"\"sliding_window\":4096", "sliding_window = 4096 changes"},
    {"\"partial_rotary_factor\":0.5", "partial_rotary_factor = 0.5 changes"},
    {"\"layer_types\":[\"full_attention\",\"sliding_attention\"]", "layer_types"},
    {"\"auto_map\":{\"AutoModel\":\"x.Y\"}", "auto_map"},
    {"\"attn_new_thing\":1.5", "attn_new_thing = 1.5 changes"},
    {"\"my_logit_scale\":2", "my_logit_scale"},
    {"\"hidden_size\":\"4096\"", "hidden_size is \"4096\", expected an integer"},
    {"\"hidden_size\":4096.0", "hidden_size is 4096.0, expected an integer"},
    {"\"hidden_size\":true", "hidden_size is true, expected an integer"},
    {"\"hidden_size\":-4096", "hidden_size"},
    {"\"hidden_size\":0", "hidden_size"},
    {"\"hidden_size\":9223372036854775807,\"head_dim\":128", "hidden_size"},
    {"\"hidden_size\":99999999999999999999", "not valid JSON"},
    {"\"num_hidden_layers\":1000000", "num_hidden_layers"},
    {"\"num_attention_heads\":0", "num_attention_heads"},
    {"\"num_attention_heads\":-9223372036854775808", "num_attention_heads"},
    {"\"num_attention_heads\":31", "not a multiple of num_attention_heads"},
    {"\"num_key_value_heads\":5", "32 heads cannot share 5 KV heads"},
    {"\"num_key_value_heads\":0", "num_key_value_heads"},
    {"\"num_key_value_heads\":64", "cannot share 64"},
    {"\"head_dim\":127", "needs an even one"},
    {"\"head_dim\":100000", "head_dim"},
    {"\"num_attention_heads\":16384,\"head_dim\":16384", "wider than 2^20"},
    {"\"vocab_size\":100000000000", "vocab_size"},
    {"\"rms_norm_eps\":-1e-5", "rms_norm_eps"},
    {"\"rms_norm_eps\":1e400", "not valid JSON"},
    {"\"rms_norm_eps\":NaN", "not valid JSON"},
    {"\"rms_norm_eps\":\"nan\"", "rms_norm_eps is \"nan\", expected a number"},
    {"\"rope_theta\":0", "rope_theta"},
    {"\"rope_theta\":1e300", "rope_theta"},
    {"\"tie_word_embeddings\":1", "tie_word_embeddings is 1, expected true or false"},
    {"\"attention_bias\":\"yes\"", "attention_bias"},
    {"\"torch_dtype\":\"float8_e4m3fn\"", "torch_dtype is \"float8_e4m3fn\""},
    {"\"eos_token_id\":\"2\"", "eos_token_id is \"2\", expected a token id"},
    {"\"eos_token_id\":[2.5]", "eos_token_id is 2.5, expected a token id"},
    {"\"initializer_range\":-1", "initializer_range"},
    {"\"vocab_size\":5,\"vocab_size\":6", "duplicate"},
};

static void settings_are_refused_by_name_or_harmless(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        Model *config;
        cvn_err err = {0};
        snprintf(text, sizeof text, "{\"model_type\":\"llama\",%s}", cases[i].members);
        int code = parse(&config, text, NULL, &err);
        bool good = cases[i].message
                        ? code < 0 && code == err.code && strstr(err.message, cases[i].message) &&
                              strstr(err.message, "config.json")
                        : code == CVN_OK;
        if (!good)
            fail_msg("%s: %s", text, err.message);
    }
}

static void other_architectures_are_refused(void **state)
{
    (void)state;
    Model *config;
    cvn_err err = {0};
    assert_int_equal(parse(&config, "{\"model_type\":\"bloom\"}", NULL, &err), CVN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "'bloom'"));
    err = (cvn_err){0};
    assert_int_equal(parse(&config, "{}", NULL, &err), CVN_EUNSUPPORTED);
}

static void unknown_harmless_keys_are_warned_of(void **state)
{
    (void)state;
    Model *c = parsed("{\"model_type\":\"llama\",\"favourite_colour\":\"blue\"}", NULL);
    assert_string_equal(model_warnings(c),
                        "'config.json': the unknown key 'favourite_colour' is ignored\n");
    /* Warnings never overflow their buffer. */
    StrBuf text = {0};
    strbuf_puts(&text, "{\"model_type\":\"llama\"");
    for (int i = 0; i < 500; i++)
        strbuf_printf(&text, ",\"key%d\":1", i);
    strbuf_puts(&text, "}");
    c = parsed(text.text, NULL);
    assert_true(strlen(model_warnings(c)) < 1024);
    assert_int_equal(model_warnings(c)[strlen(model_warnings(c)) - 1], '\n');
    strbuf_free(&text);
}

static void every_preset_survives_writing_and_reading(void **state)
{
    (void)state;
    assert_true(presets_count() >= 18);
    for (size_t i = 0; i < presets_count(); i++) {
        Model *c, *back;
        cvn_err err = {0};
        assert_int_equal(preset_model(preset_at(i).name, &c, models(), &err), CVN_OK);
        assert_int_equal(model_write(c, scratch, &err), CVN_OK);
        assert_int_equal(model_read(&back, scratch, models(), &err), CVN_OK);
        assert_same(c, back);
    }
    Model *c;
    cvn_err err = {0};
    assert_int_equal(preset_model("llama4", &c, models(), &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "llama3.1-8b"));
}

static void every_rope_scaling_survives_writing_and_reading(void **state)
{
    (void)state;
    static const char *const scalings[] = {
        "\"dynamic\",\"factor\":2.5", "\"dynamic\",\"factor\":1,\"alpha\":1000",
        "\"yarn\",\"factor\":16,\"original_max_position_embeddings\":128",
        "\"yarn\",\"factor\":4,\"beta_fast\":20,\"beta_slow\":0.5,\"mscale\":0.7,"
        "\"mscale_all_dim\":1.2,\"truncate\":false",
        "\"yarn\",\"attention_factor\":1.5,\"original_max_position_embeddings\":512"};
    for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++) {
        char text[400];
        snprintf(text, sizeof text, "{\"model_type\":\"llama\",\"rope_scaling\":{\"type\":%s}}",
                 scalings[i]);
        Model *c = parsed(text, NULL), *back;
        cvn_err err = {0};
        assert_int_equal(model_write(c, scratch, &err), CVN_OK);
        assert_int_equal(model_read(&back, scratch, models(), &err), CVN_OK);
        assert_same(c, back);
    }
}

/* By factor, so far as the factor goes. */
static void dynamic_scaling_lengthens_the_context(void **state)
{
    (void)state;
    Model *c = parsed("{\"model_type\":\"llama\",\"max_position_embeddings\":4096,"
                      "\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}}",
                      NULL);
    assert_int_equal(model_context(c), 4096);
    assert_int_equal(model_longest_context(c), 16384);
    double within[64], beyond[64], plain[64];
    model_rope_frequencies(c, 4096, within);
    model_rope_frequencies(c, 16384, beyond);
    c = model_with(c, "'rope_scaling': null");
    model_rope_frequencies(c, 16384, plain);
    assert_memory_equal(within, plain, sizeof plain);
    assert_true(beyond[0] == 1 && fabs(beyond[63] * 13 / plain[63] - 1) < 1e-12); /* 4 * 4 - 3 */
    assert_int_equal(model_longest_context(c), 4096);
    c = model_with(c, "'rope_scaling': {'type': 'dynamic', 'factor': 4, 'alpha': 1000}");
    assert_int_equal(model_longest_context(c), 4096);
}

static void biases_linear_rope_and_odd_shapes_survive_too(void **state)
{
    (void)state;
    Model *c, *back;
    cvn_err err = {0};
    assert_int_equal(preset_model("tiny", &c, models(), &err), CVN_OK);
    c = model_with(
        c, "'rope_scaling': {'rope_type': 'linear', 'factor': 2.5}, 'attention_bias': true, "
           "'mlp_bias': true, 'hidden_size': 100, 'num_attention_heads': 6, "
           "'num_key_value_heads': 3, 'head_dim': 20, 'vocab_size': 259, "
           "'eos_token_id': null, 'pad_token_id': 3");
    assert_int_equal(model_write(c, scratch, &err), CVN_OK);
    assert_int_equal(model_read(&back, scratch, models(), &err), CVN_OK);
    assert_same(c, back);
    model_set_interleaved(c, true);
    assert_int_equal(model_write(c, scratch, &err), CVN_EINVAL);
}

static void a_broken_generation_config_is_an_error(void **state)
{
    (void)state;
    Model *c;
    cvn_err err = {0};
    assert_int_equal(preset_model("tiny", &c, models(), &err), CVN_OK);
    assert_int_equal(model_write(c, scratch, &err), CVN_OK);
    assert_int_equal(file_write(in_scratch("generation_config.json"), "{", 1, &err), CVN_OK);
    assert_int_equal(model_read(&c, scratch, models(), &err), CVN_EFORMAT);
    assert_non_null(strstr(err.message, "generation_config.json"));
    assert_int_equal(model_read(&c, "/no/such/folder", models(), NULL), CVN_EFORMAT);
}

static void configs_of_shared_checkpoints_are_read(void **state)
{
    (void)state;
    need_shared_data();
    Model *c;
    cvn_err err = {0};
    assert_int_equal(model_read(&c, CVN_SHARED_DATA "/checkpoints/stories260K-hf", models(), &err),
                     CVN_OK);
    assert_int_equal(model_width(c), 64);
    assert_int_equal(model_shape(c).ffn, 172);
    assert_true(model_shape(c).tied);
    assert_string_equal(model_warnings(c), "");
    assert_int_equal(
        model_read(&c, CVN_SHARED_DATA "/checkpoints/paged-infer-tiny", models(), &err), CVN_OK);
    assert_int_equal(model_shape(c).head_dim, 24);
    assert_int_equal(model_dtype(c), CVN_BF16);
}

static void every_json_test_case_ends_without_harm(void **state)
{
    (void)state;
    need_shared_data();
    const char *folder = CVN_SHARED_DATA "/formats/JSONTestSuite/test_parsing";
    DIR *stream = opendir(folder);
    assert_non_null(stream);
    int n = 0;
    for (struct dirent *entry; (entry = readdir(stream));) {
        FilePath path = file_path(folder, entry->d_name);
        Bytes bytes = bytes_of_file(path.text);
        if (bytes.data) {
            cvn_err err = {0};
            json_t *json = json_object_parse(path.text, bytes.data, bytes.n, &err);
            if (json && entry->d_name[0] == 'n')
                fail_msg("%s was accepted", entry->d_name);
            Model *config;
            if (json)
                assert_true(model_parse(&config, path.text, json, NULL, models(), &err) < 0);
            json_decref(json);
            n++;
        }
        free(bytes.data);
    }
    closedir(stream);
    assert_true(n > 300);
}

static void a_cut_or_flipped_config_never_harms(void **state)
{
    (void)state;
    Model *c;
    cvn_err err = {0};
    assert_int_equal(preset_model("llama3.1-8b", &c, models(), &err), CVN_OK);
    assert_int_equal(model_write(c, scratch, &err), CVN_OK);
    Bytes good = bytes_of_file(in_scratch("config.json"));
    size_t whole = good.n;
    while (good.data[whole - 1] != '}')
        whole--;
    for (size_t n = 0; n < whole; n++) {
        Bytes cut = bytes_copy(good.data, n);
        assert_null(json_object_parse("cut", cut.data, cut.n, NULL));
        free(cut.data);
    }
    for (size_t bit = 0; bit < good.n * 8; bit++) {
        good.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        json_t *json = json_object_parse("flipped", good.data, good.n, NULL);
        if (json)
            (void)model_parse(&c, "flipped", json, json, models(), NULL);
        json_decref(json);
        good.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    free(good.data);
}

/* Meta's rule at the places where it is easy to compute by hand: head_dim 128, theta 500000. */
static void llama3_frequencies_follow_the_rule(void **state)
{
    (void)state;
    Model *c;
    assert_int_equal(preset_model("llama3.1-8b", &c, models(), NULL), CVN_OK);
    double scaled[64], plain[64];
    model_rope_frequencies(c, 8192, scaled);
    c = model_with(c, "'rope_scaling': null");
    model_rope_frequencies(c, 8192, plain);
    assert_true(plain[0] == 1 && scaled[0] == 1);
    assert_true(fabs(plain[32] - 1 / sqrt(500000)) < 1e-15);
    int kept = 0, divided = 0;
    for (int i = 0; i < 64; i++) {
        double wavelength = 2 * 3.14159265358979323846 / plain[i];
        if (wavelength < 8192.0 / 4) {
            assert_true(scaled[i] == plain[i]);
            kept++;
        } else if (wavelength > 8192.0) {
            assert_true(fabs(scaled[i] * 8 / plain[i] - 1) < 1e-12);
            divided++;
        } else {
            double smooth = (8192 / wavelength - 1) / 3;
            double want = ((1 - smooth) / 8 + smooth) * plain[i];
            assert_true(fabs(scaled[i] / want - 1) < 1e-12);
        }
    }
    assert_true(kept > 25 && divided > 20 && kept + divided < 64);
    c = model_with(c, "'rope_scaling': {'rope_type': 'linear', 'factor': 4}");
    model_rope_frequencies(c, 8192, scaled);
    assert_true(scaled[7] * 4 == plain[7]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_absent_has_the_defaults_of_transformers),
        cmocka_unit_test(both_spellings_of_rope_mean_the_same),
        cmocka_unit_test(ids_of_generation_config_win),
        cmocka_unit_test(settings_are_refused_by_name_or_harmless),
        cmocka_unit_test(other_architectures_are_refused),
        cmocka_unit_test(unknown_harmless_keys_are_warned_of),
        cmocka_unit_test(every_preset_survives_writing_and_reading),
        cmocka_unit_test(every_rope_scaling_survives_writing_and_reading),
        cmocka_unit_test(dynamic_scaling_lengthens_the_context),
        cmocka_unit_test(biases_linear_rope_and_odd_shapes_survive_too),
        cmocka_unit_test(a_broken_generation_config_is_an_error),
        cmocka_unit_test(configs_of_shared_checkpoints_are_read),
        cmocka_unit_test(every_json_test_case_ends_without_harm),
        cmocka_unit_test(a_cut_or_flipped_config_never_harms),
        cmocka_unit_test(llama3_frequencies_follow_the_rule),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
