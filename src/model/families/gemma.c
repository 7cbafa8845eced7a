/* Gemma 1: Llama with norms that multiply by one more than their weight, embeddings times the root of the width, GELU, and a tied
   head. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    {NULL,         NULL, SETTING_CHOICE,     OF_BLOCK(norms.gain),       GAIN_ONE_PLUS_WEIGHT, 0},
    {NULL,         NULL, SETTING_REAL,       OF_MODEL(embedding_scale),  SETTING_DERIVED,      0},
    {"hidden_act", NULL, SETTING_ACTIVATION, OF_BLOCK(mlp.activation),   ACTIVATION_GELU_TANH, SETTING_GELU_TANH},
    SETTINGS_ATTENTION_BIAS,
    {0},
    // clang-format on
};

static const char gemma[] = "'head_dim': 256, 'torch_dtype': 'bfloat16'";

static const FamilyPreset presets[] = {
    // clang-format off
    {"gemma-2b", "Gemma 2B", gemma, 2048, 18, 8, 1, 16384, 256000, 8192},
    {"gemma-7b", "Gemma 7B", gemma, 3072, 28, 16, 16, 24576, 256000, 8192},
    {0},
    // clang-format on
};

const Family family_gemma = {.name = "gemma",
                             .class = "GemmaForCausalLM",
                             .gguf = "gemma",
                             .gguf_halves = true,
                             .gguf_above_one = true,
                             .settings = settings,
                             .absent = "'hidden_size': 3072, 'intermediate_size': 24576, "
                                       "'num_hidden_layers': 28, 'num_attention_heads': 16, "
                                       "'num_key_value_heads': 16, 'head_dim': 256, 'vocab_size': "
                                       "256000, 'max_position_embeddings': 8192, "
                                       "'tie_word_embeddings': true, 'pad_token_id': 0",
                             .harmless = "hidden_activation",
                             .presets = presets,
                             .begin = {1, {2}},
                             .end = {1, {1}}};
