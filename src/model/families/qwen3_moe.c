/* Qwen3-MoE: Qwen3 with experts, in every layer of the releases. In those what the chosen ones count is renormalised, which GGUF
   files do not say. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    {"decoder_sparse_step",   NULL,                         SETTING_INTERVAL, OF_BLOCK(experts.on),           1,    0},
    {NULL,                    NULL,                         SETTING_SWITCHES, OF_BLOCK(experts.on),           1,    0},
    {"num_experts",           "expert_count",               SETTING_INT,      OF_BLOCK(experts.number),       128,  SETTING_NEEDED},
    {"num_experts_per_tok",   "expert_used_count",          SETTING_INT,      OF_BLOCK(experts.chosen),       8,    SETTING_NEEDED},
    {"moe_intermediate_size", "expert_feed_forward_length", SETTING_INT,      OF_BLOCK(experts.width),        768,  SETTING_NEEDED},
    {"norm_topk_prob",        NULL,                         SETTING_BOOL,     OF_BLOCK(experts.renormalised), true, 0},
    SETTINGS_BALANCE,
    {0},
    // clang-format on
};

#define QWEN3_MOE                                                                                  \
    "'head_dim': 128, 'rope_theta': 1e6, 'norm_topk_prob': true, 'torch_dtype': 'bfloat16', "      \
    "'bos_token_id': 151643, 'eos_token_id': [151645, 151643], 'pad_token_id': 151643, "
static const char small[] = QWEN3_MOE "'moe_intermediate_size': 768",
                  large[] = QWEN3_MOE "'moe_intermediate_size': 1536";

static const FamilyPreset presets[] = {
    // clang-format off
    {"qwen3-30b-a3b", "Qwen3 30B-A3B", small, 2048, 48, 32, 4, 6144, 151936, 40960},
    {"qwen3-235b-a22b", "Qwen3 235B-A22B", large, 4096, 94, 64, 4, 12288, 151936, 40960},
    {0},
    // clang-format on
};

const Family family_qwen3_moe = {
    .name = "qwen3_moe",
    .class = "Qwen3MoeForCausalLM",
    .gguf = "qwen3moe",
    .extends = "qwen3",
    .gguf_halves = true,
    .settings = settings,
    .absent = "'hidden_size': 2048, 'intermediate_size': 6144, 'num_hidden_layers': 24, "
              "'num_key_value_heads': 4, 'head_dim': null, 'norm_topk_prob': false",
    .harmless = "mlp_only_layers use_sliding_window",
    .presets = presets};
