/* Qwen2-MoE, Qwen1.5-MoE: Qwen2 with experts, and beside them a part that every token takes, which is multiplied by the sigmoid of a
   product of its own. What the chosen ones count is not renormalised. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    {"decoder_sparse_step",             NULL,                                SETTING_INTERVAL, OF_BLOCK(experts.on),           1,     0},
    {NULL,                              NULL,                                SETTING_SWITCHES, OF_BLOCK(experts.on),           1,     0},
    {"num_experts",                     "expert_count",                      SETTING_INT,      OF_BLOCK(experts.number),       60,    SETTING_NEEDED},
    {"num_experts_per_tok",             "expert_used_count",                 SETTING_INT,      OF_BLOCK(experts.chosen),       4,     SETTING_NEEDED},
    {"moe_intermediate_size",           "expert_feed_forward_length",        SETTING_INT,      OF_BLOCK(experts.width),        1408,  SETTING_NEEDED},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length", SETTING_INT,      OF_BLOCK(experts.shared_width), 5632,  SETTING_NEEDED},
    {NULL,                              NULL,                                SETTING_BOOL,     OF_BLOCK(experts.shared_gate),  true,  0},
    {"norm_topk_prob",                  NULL,                                SETTING_BOOL,     OF_BLOCK(experts.renormalised), false, 0},
    SETTINGS_BALANCE,
    {0},
    // clang-format on
};

#define QWEN2_MOE                                                                                  \
    "'rope_theta': 1e6, 'norm_topk_prob': false, 'torch_dtype': 'bfloat16', 'bos_token_id': "      \
    "151643, 'eos_token_id': [151645, 151643], "
static const char small[] = QWEN2_MOE "'num_experts': 60, 'num_experts_per_tok': 4, "
                                      "'moe_intermediate_size': 1408, "
                                      "'shared_expert_intermediate_size': 5632",
                  large[] = QWEN2_MOE "'num_experts': 64, 'num_experts_per_tok': 8, "
                                      "'moe_intermediate_size': 2560, "
                                      "'shared_expert_intermediate_size': 20480";

static const FamilyPreset presets[] = {
    // clang-format off
    {"qwen1.5-moe-a2.7b", "Qwen1.5 MoE A2.7B", small, 2048, 24, 16, 16, 5632, 151936, 32768},
    {"qwen2-57b-a14b", "Qwen2 57B-A14B", large, 3584, 28, 28, 4, 18944, 151936, 131072},
    {0},
    // clang-format on
};

const Family family_qwen2_moe = {
    .name = "qwen2_moe",
    .class = "Qwen2MoeForCausalLM",
    .gguf = "qwen2moe",
    .extends = "qwen2",
    .gguf_halves = true,
    .settings = settings,
    .absent = "'hidden_size': 2048, 'intermediate_size': 5632, 'num_hidden_layers': 24, "
              "'num_attention_heads': 16, 'num_key_value_heads': 16",
    .harmless = "mlp_only_layers use_sliding_window "
                "qkv_bias",
    .presets = presets};
