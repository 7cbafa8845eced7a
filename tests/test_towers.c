/* Models that see or hear: refused by every command, unless their text model is all that is asked for (--text-only). Its logits are held
 * to transformers' in test_llama.c. */
#include "data_support.h"
#include "io_support.h"
#include "model_make.h"
#include "shell.h"

/* What is published, less what changes nothing here (huggingface.co/google/gemma-3-4b-it, google/gemma-3-27b-it,
   mistralai/Mistral-Small-3.1-24B-Instruct-2503, mistralai/Ministral-3-3B-Instruct-2512, meta-llama/Llama-4-Scout-17B-16E-Instruct). */
static const struct {
    const char *preset, *words;
} published[] = {
    {"gemma3-4b",
     "'architectures': ['Gemma3ForConditionalGeneration'], 'boi_token_index': 255999, "
     "'eoi_token_index': 256000, 'eos_token_id': [1, 106], 'image_token_index': 262144, "
     "'initializer_range': 0.02, 'mm_tokens_per_image': 256, 'model_type': 'gemma3', "
     "'text_config': {'hidden_size': 2560, 'intermediate_size': 10240, 'model_type': "
     "'gemma3_text', "
     "'num_hidden_layers': 34, 'rope_scaling': {'factor': 8.0, 'rope_type': 'linear'}, "
     "'sliding_window': 1024}, 'torch_dtype': 'bfloat16', 'vision_config': {'hidden_size': 1152}"},
    {"gemma3-27b",
     "'eos_token_id': [1, 106], 'model_type': 'gemma3', 'text_config': {'head_dim': 128, "
     "'hidden_size': 5376, 'intermediate_size': 21504, 'model_type': 'gemma3_text', "
     "'num_attention_heads': 32, 'num_hidden_layers': 62, 'num_key_value_heads': 16, "
     "'query_pre_attn_scalar': 168, 'rope_scaling': {'factor': 8.0, 'rope_type': 'linear'}, "
     "'sliding_window': 1024}, 'torch_dtype': 'bfloat16', 'vision_config': {'vision_use_head': "
     "false}"},
    {"mistral-small3.1-24b",
     "'image_token_index': 10, 'model_type': 'mistral3', 'multimodal_projector_bias': false, "
     "'projector_hidden_act': 'gelu', 'spatial_merge_size': 2, 'text_config': "
     "{'attention_dropout': "
     "0.0, 'head_dim': 128, 'hidden_act': 'silu', 'hidden_size': 5120, 'initializer_range': 0.02, "
     "'intermediate_size': 32768, 'max_position_embeddings': 131072, 'model_type': 'mistral', "
     "'num_attention_heads': 32, 'num_hidden_layers': 40, 'num_key_value_heads': 8, "
     "'rms_norm_eps': "
     "1e-05, 'rope_theta': 1000000000.0, 'sliding_window': null, 'use_cache': true, 'vocab_size': "
     "131072}, 'torch_dtype': 'bfloat16', 'vision_feature_layer': -1"},
    {"ministral3-3b",
     "'dtype': 'bfloat16', 'image_token_index': 10, 'model_type': 'mistral3', "
     "'quantization_config': "
     "{'activation_scheme': 'static', 'quant_method': 'fp8', 'weight_block_size': null}, "
     "'text_config': {'head_dim': 128, 'hidden_act': 'silu', 'hidden_size': 3072, "
     "'intermediate_size': 9216, 'max_position_embeddings': 262144, 'model_type': 'ministral3', "
     "'num_attention_heads': 32, 'num_hidden_layers': 26, 'num_key_value_heads': 8, "
     "'rms_norm_eps': "
     "1e-05, 'rope_parameters': {'beta_fast': 32.0, 'beta_slow': 1.0, 'factor': 16.0, "
     "'llama_4_scaling_beta': 0.1, 'mscale': 1.0, 'mscale_all_dim': 1.0, "
     "'original_max_position_embeddings': 16384, 'rope_theta': 1000000.0, 'rope_type': 'yarn', "
     "'type': 'yarn'}, 'sliding_window': null, 'tie_word_embeddings': true, 'vocab_size': 131072}"},
    {"llama4-scout",
     "'boi_token_index': 200080, 'model_type': 'llama4', 'text_config': {'attention_bias': false, "
     "'attention_chunk_size': 8192, 'attn_temperature_tuning': 4, 'bos_token_id': 200000, "
     "'cache_implementation': 'hybrid', 'eos_token_id': [200001, 200007, 200008], "
     "'for_llm_compressor': false, 'head_dim': 128, 'hidden_size': 5120, "
     "'interleave_moe_layer_step': "
     "1, 'intermediate_size': 8192, 'intermediate_size_mlp': 16384, 'max_position_embeddings': "
     "10485760, 'model_type': 'llama4_text', 'no_rope_layers': [], 'num_attention_heads': 40, "
     "'num_experts_per_tok': 1, 'num_hidden_layers': 48, 'num_key_value_heads': 8, "
     "'num_local_experts': 16, 'output_router_logits': false, 'pad_token_id': 200018, "
     "'rope_scaling': "
     "{'factor': 16.0, 'high_freq_factor': 1.0, 'low_freq_factor': 1.0, "
     "'original_max_position_embeddings': 8192, 'rope_type': 'llama3'}, 'rope_theta': 500000.0, "
     "'router_aux_loss_coef': 0.001, 'router_jitter_noise': 0.0, 'use_qk_norm': true, "
     "'vocab_size': "
     "202048}, 'torch_dtype': 'bfloat16'"},
};

static void published_configs_have_the_presets_inside(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        char text[4096];
        cvn_err err = {0};
        Model *m;
        snprintf(text, sizeof text, "{%s}", published[i].words);
        for (char *c = text; *c; c++)
            *c = *c == '\'' ? '"' : *c;
        json_t *json = json_object_parse("config.json", text, strlen(text), &err);
        if (!json || model_parse(&m, "config.json", json, NULL, models(), &err))
            fail_msg("%s: %s", published[i].preset, err.message);
        const Model *preset = model_preset(published[i].preset);
        json_t *is = model_json(m, NULL), *expected = model_json(preset, NULL);
        char *a = json_dumps(is, JSON_SORT_KEYS), *b = json_dumps(expected, JSON_SORT_KEYS);
        if (model_hash(m) != model_hash(preset))
            fail_msg("%s is\n%s\nand not\n%s", published[i].preset, a, b);
        assert_string_equal(model_warnings(m), "");
        free(a);
        free(b);
        json_decref(is);
        json_decref(expected);
        json_decref(json);
    }
}

#define MODEL CVN_TEST_DATA "/towers/mistral3"
#define REFUSED "(its model_type is 'mistral3'), which is not supported; --text-only loads its text"
#define LEFT_OUT "left out are 15 tensors, 30.8 KiB: multi_modal_projector, vision_tower"

/* Wherever a model is named, by the name that the line gives it: "sees", with a tokenizer. */
static void every_command_refuses_it_or_takes_its_text_model(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "caravan generate -m sees --tokens 1,2,3 -n 3",
        "caravan score -m sees --tokens 1,2,3",
        "echo Hello | caravan chat -m sees -n 3",
        "caravan bench -m sees --prefill 16 --decode 2",
        "caravan inspect -m sees",
        "caravan plan -m sees",
        "caravan simulate -m sees",
        "caravan convert sees sees.gguf --force",
        "caravan quantize sees sees-int8 --to int8 --force",
        "caravan export sees sees-modules --to stablehlo --force",
        "rm -rf run; caravan train --init sees --data text.txt --out run --steps 1 --seq 16 "
        "--batch 2",
        "caravan generate -m model --draft sees --tokens 1,2,3 -n 3 --temperature 0",
    };
    expect(0,
           "cp -r " MODEL " sees && cp " CVN_TEST_DATA "/chat/tokenizer.json sees && "
           "for i in 1 2 3 4 5 6 7 8 9; do echo Once upon a time there was a line $i; done > "
           "text.txt; echo made",
           "made");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char line[512];
        snprintf(line, sizeof line, "%s 2>&1", lines[i]);
        expect(1, line, REFUSED);
        snprintf(line, sizeof line, "%s --text-only 2>&1", lines[i]);
        int status;
        StrBuf output = shell(line, &status);
        if (status != 0)
            fail_msg("%s: exit %d:\n%s", line, status, output.text);
        strbuf_free(&output);
    }
}

static void what_is_left_out_is_said(void **state)
{
    (void)state;
    expect(0, "caravan generate -m " MODEL " --tokens 1,2,3 -n 3 --text-only 2>&1", LEFT_OUT);
    expect(0, "caravan inspect -m " MODEL " --text-only 2>&1", LEFT_OUT);
    expect(0, "caravan inspect -m " MODEL " --text-only 2>&1", "mistral");
}

/* It is a model of its own. */
static void its_text_model_is_written_alone(void **state)
{
    (void)state;
    expect(0, "caravan convert " MODEL " alone --text-only && ls alone && cat alone/config.json",
           "\"MistralForCausalLM\"");
    expect(0,
           "caravan score -m " MODEL
           " --tokens 1,2,3,4,5 --dtype f32 --text-only --json 2>/dev/null "
           "> a; caravan score -m alone --tokens 1,2,3,4,5 --dtype f32 --json > b; "
           "grep -o '\"logprobs\":[^]]*' a > c; grep -o '\"logprobs\":[^]]*' b > d; "
           "test -s c && cmp c d && echo same",
           "same");
}

static void its_config_may_name_what_is_not_known(void **state)
{
    (void)state;
    expect(
        1,
        "mkdir -p other; echo '{\"model_type\": \"paligemma\", \"text_config\": {\"model_type\": "
        "\"gemma\"}}' > other/config.json; caravan plan -m other --text-only 2>&1",
        "model_type is 'paligemma'; only");
    expect(1,
           "mkdir -p odd; echo '{\"model_type\": \"gemma3\", \"text_config\": 7}' > "
           "odd/config.json; caravan plan -m odd --text-only 2>&1",
           "model_type is 'gemma3'; only");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_configs_have_the_presets_inside),
        cmocka_unit_test(every_command_refuses_it_or_takes_its_text_model),
        cmocka_unit_test(what_is_left_out_is_said),
        cmocka_unit_test(its_text_model_is_written_alone),
        cmocka_unit_test(its_config_may_name_what_is_not_known),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
