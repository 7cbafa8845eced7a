/* GLM-4-0414: GLM with norms behind its parts, too. */
#include "model/family.h"

static const Setting settings[] = {
    {NULL, NULL, SETTING_BOOL, OF_BLOCK(norms.after), true, 0},
    {0},
};

static const TensorName tensors[] = {
    {PARAM_ATTN_POST_NORM, .name = {[NAMING_HF] = "post_self_attn_layernorm"}},
    {PARAM_MLP_POST_NORM, .name = {[NAMING_HF] = "post_mlp_layernorm"}},
    {0},
};

#define GLM4                                                                                       \
    "'head_dim': 128, 'rms_norm_eps': 1e-5, 'torch_dtype': 'bfloat16', 'pad_token_id': 151329, "   \
    "'attention_bias': "
static const char nine[] = GLM4 "true", large[] = GLM4 "false";

/* 32B has 2 KV heads and 32.57 B parameters by llama.cpp's log of the published file (ikawrakow/ik_llama.cpp, pull request 370). */
static const FamilyPreset presets[] = {
    // clang-format off
    {"glm4-9b-0414", "GLM-4 9B 0414", nine, 4096, 40, 32, 2, 13696, 151552, 32768},
    {"glm4-32b-0414", "GLM-4 32B 0414", large, 6144, 61, 48, 2, 23040, 151552, 32768},
    {0},
    // clang-format on
};

const Family family_glm4 = {.name = "glm4",
                            .class = "Glm4ForCausalLM",
                            .gguf = "glm4",
                            .pairs = true,
                            .extends = "glm",
                            .settings = settings,
                            .tensors = tensors,
                            .presets = presets,
                            .end = {3, {151329, 151336, 151338}}};
