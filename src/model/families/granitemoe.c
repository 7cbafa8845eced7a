/* Granite 3 with experts: Granite's numbers around them. What the chosen ones count is the softmax of their logits. A tensor has the
   matrices of all experts, gate and up one behind the other. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    {NULL,                  NULL,                SETTING_BOOL,   OF_BLOCK(experts.on),     true,                 0},
    {"num_local_experts",   "expert_count",      SETTING_INT,    OF_BLOCK(experts.number), 8,                    SETTING_NEEDED},
    {"num_experts_per_tok", "expert_used_count", SETTING_INT,    OF_BLOCK(experts.chosen), 2,                    SETTING_NEEDED},
    {NULL,                  NULL,                SETTING_CHOICE, OF_BLOCK(experts.score),  SCORE_SOFTMAX_CHOSEN, 0},
    SETTINGS_BALANCE,
    {0},
    // clang-format on
};

static const TensorName tensors[] = {
    {PARAM_ROUTER, .name = {[NAMING_HF] = "block_sparse_moe.router.layer"}},
    {PARAM_EXPERT_GATE, .fused = {[NAMING_HF] = "block_sparse_moe.input_linear"}},
    {PARAM_EXPERT_UP, .fused = {[NAMING_HF] = "block_sparse_moe.input_linear"}},
    {PARAM_EXPERT_DOWN, .fused = {[NAMING_HF] = "block_sparse_moe.output_linear"}},
    {0},
};

#define GRANITE_MOE                                                                                \
    "'rms_norm_eps': 1e-6, 'rope_theta': 1500000, 'embedding_multiplier': 12, "                    \
    "'residual_multiplier': 0.22, 'attention_multiplier': 0.015625, 'logits_scaling': 6, "         \
    "'tie_word_embeddings': true, 'torch_dtype': 'bfloat16', 'bos_token_id': 0, "                  \
    "'eos_token_id': 0, 'pad_token_id': 0, 'num_experts_per_tok': 8, "
static const char one[] = GRANITE_MOE "'num_local_experts': 32",
                  three[] = GRANITE_MOE "'num_local_experts': 40";

static const FamilyPreset presets[] = {
    // clang-format off
    {"granite3.1-1b-a400m", "Granite 3.1 1B-A400M", one, 1024, 24, 16, 8, 512, 49155, 131072},
    {"granite3.1-3b-a800m", "Granite 3.1 3B-A800M", three, 1536, 32, 24, 8, 512, 49155, 131072},
    {0},
    // clang-format on
};

const Family family_granitemoe = {.name = "granitemoe",
                                  .class = "GraniteMoeForCausalLM",
                                  .gguf = "granitemoe",
                                  .extends = "granite",
                                  .settings = settings,
                                  .tensors = tensors,
                                  .presets = presets,
                                  .begin = {1, {1}},
                                  .end = {1, {2}}};
