/* Mixtral: Mistral with experts in every layer, of which a token takes two; the softmax over all scores them. GGUF files are of the
   architecture llama, with the number of experts. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    SETTINGS_WINDOW_OF_ALL,
    {NULL,                  NULL,                SETTING_BOOL, OF_BLOCK(experts.on),           true, 0},
    {"num_local_experts",   "expert_count",      SETTING_INT,  OF_BLOCK(experts.number),       8,    SETTING_NEEDED},
    {"num_experts_per_tok", "expert_used_count", SETTING_INT,  OF_BLOCK(experts.chosen),       2,    SETTING_NEEDED},
    {NULL,                  NULL,                SETTING_BOOL, OF_BLOCK(experts.renormalised), true, 0},
    SETTINGS_BALANCE,
    {0},
    // clang-format on
};

static const TensorName tensors[] = {
    {PARAM_ROUTER, .name = {[NAMING_HF] = "block_sparse_moe.gate"}},
    {PARAM_EXPERT_GATE, .name = {[NAMING_HF] = "block_sparse_moe.experts.%d.w1"}},
    {PARAM_EXPERT_UP, .name = {[NAMING_HF] = "block_sparse_moe.experts.%d.w3"}},
    {PARAM_EXPERT_DOWN, .name = {[NAMING_HF] = "block_sparse_moe.experts.%d.w2"}},
    {0},
};

#define MIXTRAL "'rms_norm_eps': 1e-5, 'rope_theta': 1e6, 'torch_dtype': 'bfloat16'"
static const char words[] = MIXTRAL;

static const FamilyPreset presets[] = {
    // clang-format off
    {"mixtral-8x7b", "Mixtral 8x7B", words, 4096, 32, 32, 8, 14336, 32000, 32768},
    {"mixtral-8x22b", "Mixtral 8x22B", words, 6144, 56, 48, 8, 16384, 32768, 65536},
    {0},
    // clang-format on
};

const Family family_mixtral = {
    .name = "mixtral",
    .class = "MixtralForCausalLM",
    .gguf = "llama",
    .gguf_key = "expert_count",
    .settings = settings,
    .absent = "'intermediate_size': 14336, 'num_key_value_heads': 8, 'max_position_embeddings': "
              "131072, 'rms_norm_eps': 1e-5, 'rope_theta': 1e6",
    .harmless = "router_jitter_noise",
    .tensors = tensors,
    .presets = presets,
    .begin = {1, {1}},
    .end = {1, {2}}};
