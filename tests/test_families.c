/* Families of models: what their settings mean, and that every form of files says them as they are or refuses. */
#include "caravan/engine.h"
#include "io/save.h"
#include "io_support.h"
#include "llama_fixture.h"
#include "model_make.h"
#include "shell.h"

#include <math.h>

static int parse(Model **model, const char *words, cvn_err *err)
{
    char text[1024];
    snprintf(text, sizeof text, "{%s}", words);
    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *json = json_object_parse("config.json", text, strlen(text), err);
    int code = json ? model_parse(model, "config.json", json, NULL, models(), err) : CVN_EFORMAT;
    json_decref(json);
    return code;
}

/* A random model in a folder of the scratch folder. */
static void make_folder(const char *name, const Model *model)
{
    cvn_err err = {0};
    uint64_t seed = 5;
    const SaveOptions options = {.dtype = CVN_BF16, .threads = 1, .force = true};
    if (save_folder(in_scratch(name), model, &options, init_fill, &seed, &err))
        fail_msg("%s", err.message);
}

static void every_preset_is_written_as_it_is_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < presets_count(); i++) {
        const Model *m = model_preset(preset_at(i).name);
        json_t *said = model_json(m, NULL), *again = model_json(model_parsed(said), NULL);
        if (!json_equal(said, again))
            fail_msg("%s is read as another model than it was written", preset_at(i).name);
        json_decref(said);
        json_decref(again);
    }
}

/* Of Ministral 8B the model card says it, of Gemma keras_hub's list, where Gemma 3 has 262,144 tokens and not the 262,208 of 4B and above; of those with experts the index of
   their weights ("total_parameters"), of GLM-4.5 less the layer that foretells (358,337,791,296 and 110,468,824,832 with it). */
static void presets_have_as_many_parameters_as_is_published(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters, padding; /* rows of the embedding that are not counted */
    } of[] = {{"ministral-8b", 8019808256, 0},
              {"gemma2-2b", 2614341888, 0},
              {"gemma2-9b", 9241705984, 0},
              {"gemma3-1b", 999885952, 0},
              {"gemma3-4b", 3880099328, 64},
              {"gemma3-12b", 11765788416, 64},
              {"gemma3-27b", 27009002240, 64},
              {"mixtral-8x7b", 46702792704, 0},
              {"mixtral-8x22b", 140630071296, 0},
              {"qwen3-30b-a3b", 30532122624, 0},
              {"qwen3-235b-a22b", 235093634560, 0},
              {"qwen1.5-moe-a2.7b", 14315784192, 0},
              {"granite3.1-1b-a400m", 1334628352, 0},
              {"granite3.1-3b-a800m", 3298793472, 0},
              {"glm4.5-air", INT64_C(106852251264), 0},
              {"glm4.5", INT64_C(352797829024), 0},
              {"gpt-oss-20b", INT64_C(20914757184), 0},
              {"gpt-oss-120b", INT64_C(116829156672), 0},
              {"llama4-scout", INT64_C(107769861120), 0},
              {"llama4-maverick", INT64_C(400711848960), 0}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const Model *m = model_preset(of[i].name);
        ParamList params;
        int64_t n = -of[i].padding * model_width(m);
        params_list(&params, m, models());
        for (int k = 0; k < params.n; k++)
            n += params.param[k].n;
        assert_int_equal(n, of[i].parameters);
    }
}

#define SMALL                                                                                      \
    "'model_type': 'smollm3', 'hidden_size': 32, 'num_attention_heads': 4, "                       \
    "'num_key_value_heads': 2, 'intermediate_size': 48, 'vocab_size': 64, 'bos_token_id': 1, "     \
    "'eos_token_id': 2, 'max_position_embeddings': 64"

/* The layers without positions, as a config.json has them: a digit each. */
static const char *switches(const Model *m)
{
    static char text[64];
    json_t *json = model_json(m, NULL);
    const json_t *list = json_object_get(json, "no_rope_layers");
    size_t n = json_array_size(list);
    assert_true(n < sizeof text);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)('0' + json_integer_value(json_array_get(list, i)));
    text[n] = '\0';
    json_decref(json);
    return text;
}

static void layers_without_positions_are_every_fourth_or_as_listed(void **state)
{
    (void)state;
    assert_string_equal(switches(model_make(SMALL ", 'num_hidden_layers': 9")), "111011101");
    assert_string_equal(
        switches(model_make(SMALL ", 'num_hidden_layers': 5, 'no_rope_layer_interval': 2")),
        "10101");
    assert_string_equal(switches(model_make(SMALL ", 'num_hidden_layers': 3, 'no_rope_layers': "
                                                  "[0, 1, 0], 'no_rope_layer_interval': 2")),
                        "010");
    assert_string_equal(switches(model_preset("smollm3-3b")),
                        "111011101110111011101110111011101110");
}

static void wrong_settings_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *words, *message;
    } cases[] = {
        {SMALL ", 'num_hidden_layers': 3, 'no_rope_layers': [1, 1]",
         "no_rope_layers has 2 elements; one for each of 3 layers"},
        {SMALL ", 'num_hidden_layers': 2, 'no_rope_layers': [1, 2]", "no_rope_layers has 2; 0 and"},
        {SMALL ", 'num_hidden_layers': 2, 'no_rope_layers': 1",
         "no_rope_layers is 1, expected a list"},
        {SMALL ", 'num_hidden_layers': 2, 'no_rope_layers': [1, '1']", "a list of integers"},
        {SMALL ", 'num_hidden_layers': 2, 'sliding_window': 16", "sliding_window = 16"},
        {SMALL ", 'num_hidden_layers': 2, 'max_window_layers': 28, 'use_sliding_window': false",
         NULL},
        {"'model_type': 'llama', 'no_rope_layers': [1, 0]", "no_rope_layers = [1,0]"},
        {"'model_type': 'cohere2', 'sliding_window': null", "sliding_window does not say how many"},
        {"'model_type': 'ministral', 'num_hidden_layers': 2, 'sliding_window': null", NULL},
        {"'model_type': 'llama4_text', 'attn_temperature_tuning': 4, 'no_rope_layers': [], "
         "'num_hidden_layers': 4, 'moe_layers': [1, 3]",
         NULL},
        {"'model_type': 'llama4_text', 'attention_chunk_size': null", NULL},
        {"'model_type': 'llama4_text', 'num_hidden_layers': 4, 'moe_layers': [4]",
         "moe_layers must have numbers of layers, each from 0 to below 4"},
        {"'model_type': 'llama4_text', 'num_hidden_layers': 4, 'attn_scale': -1",
         "attn_scale is -1 and floor_scale 8192"},
        {"'model_type': 'glm4_moe', 'head_dim': 128, 'n_group': 2",
         "experts that are chosen by groups (n_group"},
        {"'model_type': 'glm4_moe', 'head_dim': 128, 'n_shared_experts': 1025",
         "n_shared_experts is 1025; it must"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Model *m;
        cvn_err err = {0};
        int code = parse(&m, cases[i].words, &err);
        if (cases[i].message ? code == CVN_OK || !strstr(err.message, cases[i].message)
                             : code != CVN_OK)
            fail_msg("%s: %s", cases[i].words, err.message);
    }
}

/* transformers adds the loss only where output_router_logits is true. */
static void config_json_says_how_training_balances_experts(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        double balance;
    } cases[] = {
        {"'model_type': 'mixtral'", 0},
        {"'model_type': 'mixtral', 'output_router_logits': true", 0.001},
        {"'model_type': 'gpt_oss', 'router_aux_loss_coef': 0.9", 0},
        {"'model_type': 'gpt_oss', 'output_router_logits': true, 'router_aux_loss_coef': 0.9", 0.9},
        {"'model_type': 'qwen3_moe', 'output_router_logits': true, 'router_aux_loss_coef': 0.5",
         0.5},
        {"'model_type': 'llama4_text', 'output_router_logits': true", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Model *m;
        cvn_err err = {0};
        if (parse(&m, cases[i].words, &err))
            fail_msg("%s: %s", cases[i].words, err.message);
        json_t *json = model_json(m, NULL);
        assert_float_equal(model_balance(m), cases[i].balance, 1e-12);
        assert_float_equal(model_balance(model_parsed(json)), cases[i].balance, 1e-12);
        json_decref(json);
    }
    assert_true(model_has_corrections(model_preset("glm4.5-air")));
    assert_false(model_has_corrections(model_preset("qwen3-30b-a3b")));
}

static void layers_that_foretell_are_left_out(void **state)
{
    (void)state;
    const Model *m = model_preset("glm4.5-air"); /* of 46 layers */
    assert_true(model_leaves_out(m, NAMING_HF, "model.layers.46.eh_proj.weight"));
    assert_true(model_leaves_out(m, NAMING_GGUF, "blk.46.nextn.eh_proj.weight"));
    assert_false(model_leaves_out(m, NAMING_HF, "model.layers.45.eh_proj.weight"));
    assert_false(
        model_leaves_out(model_preset("tiny"), NAMING_HF, "model.layers.46.eh_proj.weight"));
}

#define GEMMA                                                                                      \
    "'model_type': 'gemma3_text', 'hidden_size': 32, 'num_attention_heads': 2, 'head_dim': 16, "   \
    "'num_key_value_heads': 2, 'intermediate_size': 48, 'vocab_size': 64, 'bos_token_id': 1, "     \
    "'eos_token_id': 2, 'max_position_embeddings': 64, 'num_hidden_layers': 3, "                   \
    "'layer_types': ['full_attention', 'sliding_attention', "                                      \
    "'sliding_attention'], 'sliding_window': "

static void layers_with_windows_scale_positions_in_their_own_way_or_not_at_all(void **state)
{
    (void)state;
    static const char *const own[] = {"{'rope_type': 'default', 'rope_theta': 1000}",
                                      "{'rope_type': 'linear', 'factor': 4, 'rope_theta': 1000}"};
    for (int i = 0; i < 2; i++) {
        const Model *m =
            model_make(GEMMA "8, 'query_pre_attn_scalar': 16, 'rope_parameters': "
                             "{'full_attention': {'rope_type': 'linear', "
                             "'factor': 2, 'rope_theta': 5000}, 'sliding_attention': %s}",
                       own[i]);
        json_t *json = model_json(m, NULL), *again = model_json(model_parsed(json), NULL);
        assert_true(json_equal(json, again));
        assert_int_equal(json_is_object(json_object_get(json, "rope_parameters")), i);
        json_decref(json);
        json_decref(again);
        const Model *other =
            model_with(m, i ? "'sliding_window': 9" : "'rope_local_base_freq': 2000");
        assert_int_not_equal(model_hash(m), model_hash(other));
        make_folder("windows", m);
        expect(0, "caravan inspect --model windows",
               "rope theta 5000, linear scaling by 2, half-split pairs; a window of 8 in 2 layers, "
               "rope theta 1000\n");
        expect(i, "caravan convert windows windows.gguf --force 2>&1",
               i ? "scales the positions of layers with a window by rope_parameters" : "");
    }
}

/* Scaling of the layers without a window alone: llama.cpp has llama3's of all layers, and none that is dynamic. */
static void gguf_files_lose_no_scaling_in_silence(void **state)
{
    (void)state;
    make_folder("dynamic", model_make(GEMMA "8, 'query_pre_attn_scalar': 16, 'rope_scaling': "
                                            "{'rope_type': 'dynamic', 'factor': 2}"));
    expect(0, "caravan convert dynamic dynamic.gguf 2>&1",
           "a context over 64 has dynamic rope scaling");
    make_folder("llama3",
                model_make(GEMMA "8, 'query_pre_attn_scalar': 16, 'rope_scaling': {'rope_type': "
                                 "'llama3', 'factor': 8, 'low_freq_factor': 1, 'high_freq_factor': "
                                 "4, 'original_max_position_embeddings': 32}"));
    expect(1, "caravan convert llama3 llama3.gguf 2>&1",
           "a GGUF file cannot express that 'llama3' has llama3 scaling in some layers only");
}

static void files_say_it_as_it_is_or_refuse(void **state)
{
    (void)state;
    make_folder("wider", model_make(GEMMA "8"));
    expect(1, "caravan convert wider w.gguf 2>&1",
           "a GGUF file cannot express query_pre_attn_scalar of this model");
    make_folder("fourth", model_make(SMALL ", 'num_hidden_layers': 5"));
    make_folder("listed",
                model_make(SMALL ", 'num_hidden_layers': 3, 'no_rope_layers': [0, 1, 0]"));
    expect(0,
           "caravan convert fourth f.gguf 2>&1 && caravan convert f.gguf back --type bf16 2>&1 && "
           "cmp fourth/model.safetensors back/model.safetensors && "
           "cmp fourth/config.json back/config.json && echo same",
           "same\n");
    expect(0, "caravan inspect --model f.gguf", "; none in 1 layer\n");
    expect(1, "caravan convert listed l.gguf 2>&1",
           "a GGUF file cannot express no_rope_layers of this model");
    expect(1, "caravan convert fourth x.bin 2>&1",
           "cannot express that 'fourth' has settings that");
    expect(1, "caravan convert fourth x --to meta 2>&1",
           "cannot express that 'fourth' has settings that");
    expect(0, "caravan convert listed again --type f32 && caravan inspect --model again",
           "; none in 2 layers");
}

/* What the engine says of the variant's tokens by the model at `path`, against transformers. */
static void check_scores(const char *path, const char *variant, bool int8, double tolerance)
{
    LlamaFixture f;
    cvn_err err = {0};
    cvn_model *model = NULL;
    cvn_engine *e = NULL;
    const cvn_model_options options = {.dtype = CVN_F32, .no_tokenizer = true};
    fixture_open(&f, variant, CVN_F32);
    const cvn_engine_options engine = {.slots = 1,
                                       .threads = 1,
                                       .context = f.n_tokens,
                                       .kv_cache = int8 ? "int8" : NULL,
                                       .scoring = true,
                                       .no_generation = true};
    float logprob[64];
    int32_t argmax[64];
    double worst = 0;
    if (cvn_model_open(path, &options, &model, &err) || cvn_engine_new(model, &engine, &e, &err) ||
        cvn_engine_score(e, f.tokens, f.n_tokens, logprob, argmax, &err))
        fail_msg("%s: %s", path, err.message);
    const int64_t vocab = model_vocab(f.model);
    for (int64_t k = 1; k < f.n_tokens; k++) {
        const float *row = f.logits + (k - 1) * vocab;
        double sum = 0;
        for (int64_t v = 0; v < vocab; v++)
            sum += exp((double)row[v]);
        worst = fmax(worst, fabs((double)row[f.tokens[k]] - log(sum) - (double)logprob[k]));
    }
    if (!(worst <= tolerance))
        fail_msg("%s: log-probabilities differ by %g", path, worst);
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
    fixture_close(&f);
}

/* Variants that GGUF files cannot express. */
static bool has_gguf(const char *variant)
{
    static const char *const none[] = {"dynamic_rope",     "llama3_rope",   "yarn_rope_all",
                                       "smollm3_listed",   "gemma3_listed", "gpt_oss_moe",
                                       "llama4_moe_chunks"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (strcmp(none[i], variant) == 0)
            return false;
    return true;
}

static void gguf_files_of_every_family_have_its_numbers_and_come_back(void **state)
{
    (void)state;
    for (int i = 0; i < LLAMA_VARIANTS; i++) {
        const char *v = llama_variants[i];
        char words[1024];
        if (!has_gguf(v))
            continue;
        snprintf(words, sizeof words, "caravan convert '%s/llama/%s' %s.gguf 2>&1", CVN_TEST_DATA,
                 v, v);
        expect(0, words, "");
        snprintf(words, sizeof words, "%s.gguf", v);
        check_scores(in_scratch(words), v, false, 1e-4);
        if (strncmp(v, "granite4", 8) == 0) /* comes back as Granite 3, whose GGUF files are */
            continue;
        snprintf(
            words, sizeof words,
            "caravan convert %s.gguf back-%s --type bf16 2>&1 && caravan convert '%s/llama/%s' "
            "again-%s --type bf16 2>&1 && cmp back-%s/model.safetensors again-%s/model.safetensors "
            "&& echo same",
            v, v, CVN_TEST_DATA, v, v, v, v);
        expect(0, words, "same\n");
    }
}

/* Half of the rows of a tensor are gate's, in turns with up's: products read them in the blocks that the file has. */
static void experts_in_blocks_stay_as_they_lie(void **state)
{
    (void)state;
    IoModel io;
    cvn_err err = {0};
    int blocks = 0;
    const char *path = CVN_TEST_DATA "/llama/gpt_oss_moe_mxfp4";
    if (io_open_model(&io, path, &err))
        fail_msg("%s", err.message);
    io_keep_blocks(&io);
    for (int i = 0; i < io.params.n; i++) {
        const Param *p = &io.params.param[i];
        const bool matrices = p->experts && p->rank == 3;
        assert_int_equal(p->form, matrices ? PARAM_BLOCKS : PARAM_PLAIN);
        assert_int_equal(p->blocks, matrices ? BLOCK_MXFP4 : BLOCK_NONE);
        blocks += matrices;
    }
    assert_int_equal(blocks, 3 * model_layers(io.desc));
    io_close_model(&io);
    check_scores(path, "gpt_oss_moe_mxfp4", false, 1e-4);
}

static void caches_of_8_bits_hold_every_family(void **state)
{
    (void)state;
    for (int i = 0; i < LLAMA_VARIANTS; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, llama_variants[i]);
        /* Of two experts that score nearly the same a rounded cache may make a token take the other. */
        check_scores(path, llama_variants[i], true,
                     llama_has_experts(llama_variants[i]) ? 1 : 0.25);
    }
}

/* Every tensor of random models comes back from a folder as it was, whatever shares a tensor there. */
static void own_shapes_name_their_family(void **state)
{
    (void)state;
    for (int i = 0; preset_family_at(i); i++) {
        char words[512];
        const char *name = preset_family_at(i);
        snprintf(words, sizeof words,
                 "caravan init --preset family=%s,dim=64,layers=3,heads=4,head_dim=16,kv_heads=2,"
                 "ffn=96,vocab=300,context=64 -o own-%s >/dev/null 2>&1; "
                 "caravan inspect --model own-%s --json | grep -c '\"layers\": 3'",
                 name, name, name);
        expect(0, words, "1\n");
    }
    expect(1, "caravan init --preset family=llana,dim=64,layers=3,heads=4 -o x 2>&1",
           "unknown family 'llana'; known are ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_preset_is_written_as_it_is_read),
        cmocka_unit_test(presets_have_as_many_parameters_as_is_published),
        cmocka_unit_test(layers_without_positions_are_every_fourth_or_as_listed),
        cmocka_unit_test(wrong_settings_are_refused_by_name),
        cmocka_unit_test(config_json_says_how_training_balances_experts),
        cmocka_unit_test(layers_that_foretell_are_left_out),
        cmocka_unit_test(layers_with_windows_scale_positions_in_their_own_way_or_not_at_all),
        cmocka_unit_test(gguf_files_lose_no_scaling_in_silence),
        cmocka_unit_test(files_say_it_as_it_is_or_refuse),
        cmocka_unit_test(gguf_files_of_every_family_have_its_numbers_and_come_back),
        cmocka_unit_test(experts_in_blocks_stay_as_they_lie),
        cmocka_unit_test(caches_of_8_bits_hold_every_family),
        cmocka_unit_test(own_shapes_name_their_family),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
