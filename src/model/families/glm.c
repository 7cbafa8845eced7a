/* GLM-4 of 2024: Llama with biases on q, k and v, gate and up in one tensor, and half of each head rotated, in pairs that lie side by
   side. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    {"partial_rotary_factor", "rope.dimension_count", SETTING_ROTATED, OF_BLOCK(attention.rope.fraction), 1, 0},
    SETTINGS_QKV_BIAS(true),
    {0},
    // clang-format on
};

static const TensorName tensors[] = {
    {PARAM_GATE, .fused = {[NAMING_HF] = "mlp.gate_up_proj", [NAMING_GGUF] = "ffn_up"}},
    {PARAM_UP, .fused = {[NAMING_HF] = "mlp.gate_up_proj", [NAMING_GGUF] = "ffn_up"}},
    {0},
};

static const char nine[] = "'head_dim': 128, 'torch_dtype': 'bfloat16', 'attention_bias': true";

static const FamilyPreset presets[] = {
    // clang-format off
    {"glm4-9b-chat", "GLM-4 9B Chat", nine, 4096, 40, 32, 2, 13696, 151552, 131072},
    {0},
    // clang-format on
};

const Family family_glm = {.name = "glm",
                           .class = "GlmForCausalLM",
                           .gguf = "chatglm",
                           .pairs = true,
                           .settings = settings,
                           .absent = "'intermediate_size': 13696, 'num_hidden_layers': 40, "
                                     "'num_key_value_heads': 2, 'head_dim': 128, 'vocab_size': "
                                     "151552, 'max_position_embeddings': 131072, 'rms_norm_eps': "
                                     "1.5625e-7, 'partial_rotary_factor': 0.5, 'attention_bias': "
                                     "true, 'pad_token_id': 151329",
                           .tensors = tensors,
                           .presets = presets,
                           .end = {3, {151329, 151336, 151338}}};
