/* Gemma 4 without its eyes: Gemma 3 with plain norms, unscaled scores, normed values, heads of layers that see all wider than those of
   layers with a window, of which all but a part turns, and where values are keys, and a number that each layer's result is multiplied
   by. Its E models, whose layers share keys and have embeddings of their own, and the one with experts are refused. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    SETTINGS_WINDOWS(NULL, 6, 0),
    {NULL,                          NULL,                             SETTING_CHOICE, OF_BLOCK(norms.gain),              GAIN_WEIGHT, 0},
    {NULL,                          NULL,                             SETTING_REAL,   OF_BLOCK(attention.scale),         1,           0},
    {NULL,                          NULL,                             SETTING_BOOL,   OF_BLOCK(attention.v_norm),        true,        0},
    {NULL,                          NULL,                             SETTING_BOOL,   OF_BLOCK(scaled),                  true,        0},
    {"attention_k_eq_v",            NULL,                             SETTING_BOOL,   OF_BLOCK(attention.v_is_k),        false,       SETTING_GLOBAL | SETTING_TENSORS},
    {"num_key_value_heads",         NULL,                             SETTING_INT,    OF_BLOCK(attention.kv_heads),      4,           SETTING_LOCAL | SETTING_TENSORS},
    {"num_global_key_value_heads",  NULL,                             SETTING_INT,    OF_BLOCK(attention.kv_heads),      SETTING_DERIVED, SETTING_GLOBAL | SETTING_TENSORS},
    {NULL,                          "attention.head_count_kv",        SETTING_EACH,   OF_BLOCK(attention.kv_heads),      0,           0},
    {"head_dim",                    "attention.key_length_swa",       SETTING_INT,    OF_BLOCK(attention.head_dim),      256,         SETTING_LOCAL},
    {"global_head_dim",             "attention.key_length",           SETTING_INT,    OF_BLOCK(attention.head_dim),      512,         SETTING_GLOBAL},
    {NULL,                          "attention.value_length_swa",     SETTING_INT,    OF_BLOCK(attention.head_dim),      256,         SETTING_LOCAL | SETTING_AGAIN},
    {NULL,                          "attention.value_length",         SETTING_INT,    OF_BLOCK(attention.head_dim),      512,         SETTING_GLOBAL | SETTING_AGAIN},
    {NULL,                          "rope.dimension_count_swa",       SETTING_INT,    OF_BLOCK(attention.head_dim),      256,         SETTING_LOCAL | SETTING_AGAIN},
    {NULL,                          "rope.dimension_count",           SETTING_INT,    OF_BLOCK(attention.head_dim),      512,         SETTING_GLOBAL | SETTING_AGAIN},
    {NULL,                          NULL,                             SETTING_REAL,   OF_BLOCK(attention.rope.fraction), 1,           SETTING_GLOBAL | SETTING_ROPED | SETTING_TENSORS},
    {"num_kv_shared_layers",        "attention.shared_kv_layers",     SETTING_INT,    OF_MODEL(shared_layers),           0,           0},
    {"hidden_size_per_layer_input", "embedding_length_per_layer_input", SETTING_INT,  OF_MODEL(layer_inputs),            256,         0},
    {0},
    // clang-format on
};

#define ROPE                                                                                       \
    "'rope_parameters': {'full_attention': {'rope_type': 'proportional', "                         \
    "'partial_rotary_factor': "                                                                    \
    "0.25, 'rope_theta': 1e6}, 'sliding_attention': {'rope_type': 'default', 'rope_theta': 1e4}}"

static const char dense[] = "'torch_dtype': 'bfloat16', 'head_dim': 256, 'global_head_dim': 512, "
                            "'num_global_key_value_heads': 4, 'attention_k_eq_v': true, "
                            "'sliding_window': 1024, 'final_logit_softcapping': 30, "
                            "'hidden_size_per_layer_input': 0, 'eos_token_id': [1, 106]";

static const FamilyPreset presets[] = {
    // clang-format off
    {"gemma4-31b", "Gemma 4 31B, text", dense, 5376, 60, 32, 16, 21504, 262144, 262144},
    {0},
    // clang-format on
};

const Family family_gemma4_text = {
    .name = "gemma4_text",
    .class = "Gemma4ForCausalLM",
    .within = "gemma4",
    .gguf = "gemma4",
    .gguf_halves = true,
    .extends = "gemma3_text",
    .last_global = true,
    .own = "'hidden_size_per_layer_input': 0",
    .settings = settings,
    .absent = "'hidden_size': 2304, 'intermediate_size': 9216, "
              "'num_hidden_layers': 30, 'num_attention_heads': 8, "
              "'vocab_size': 262144, 'max_position_embeddings': "
              "131072, 'sliding_window': 512, 'query_pre_attn_scalar': null, " ROPE,
    .harmless = "vocab_size_per_layer_input",
    .presets = presets,
    .begin = {1, {2}},
    .end = {1, {1}}};
