/* SmolLM3: Llama's mathematics, but that some layers, every fourth unless a file says which, rotate neither queries nor keys
   (NoPE: Yang et al. 2025, arXiv:2501.18795). */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    {"no_rope_layer_interval", NULL, SETTING_INTERVAL, OF_BLOCK(attention.rope.off), 4, 0},
    {"no_rope_layers",         NULL, SETTING_SWITCHES, OF_BLOCK(attention.rope.off), 0, 0},
    SETTINGS_ATTENTION_BIAS,
    SETTINGS_MLP_BIAS,
    {0},
    // clang-format on
};

static const FamilyPreset presets[] = {
    // clang-format off
    {"smollm3-3b", "SmolLM3 3B", "'rope_theta': 5e6, 'torch_dtype': 'bfloat16', 'bos_token_id': null, 'eos_token_id': 128012, 'pad_token_id': 128004",
     2048, 36, 16, 4, 11008, 128256, 65536},
    {0},
    // clang-format on
};

const Family family_smollm3 = {.name = "smollm3",
                               .class = "SmolLM3ForCausalLM",
                               .gguf = "smollm3",
                               .settings = settings,
                               .absent = "'hidden_size': 2048, 'num_hidden_layers': 36, "
                                         "'num_attention_heads': 16, 'num_key_value_heads': 4, "
                                         "'vocab_size': 128256, 'max_position_embeddings': 32768, "
                                         "'rope_theta': 2e6, 'tie_word_embeddings': true",
                               .presets = presets,
                               .harmless = "max_window_layers", /* there is no window */
                               .begin = {1, {128000}},
                               .end = {1, {128001}}};
