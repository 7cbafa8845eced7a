/* GLM-4.5: Llama with biases on q, k and v, and half of each head rotated; behind the first layers experts, which the sigmoid of their
   logits and a correction choose, and beside them a part that every token takes. The layer that foretells one more token is left out. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    {"partial_rotary_factor",  "rope.dimension_count",       SETTING_ROTATED, OF_BLOCK(attention.rope.fraction), 1,             0},
    SETTINGS_QKV_BIAS(false),
    {"use_qk_norm",            NULL,                         SETTING_QK_NORM, OF_BLOCK(attention.qk_norm),       QK_NORM_NONE,  SETTING_TENSORS},
    {"first_k_dense_replace",  "leading_dense_block_count",  SETTING_BEHIND,  OF_BLOCK(experts.on),              1,             0},
    {"n_routed_experts",       "expert_count",               SETTING_INT,     OF_BLOCK(experts.number),          128,           SETTING_NEEDED},
    {"num_experts_per_tok",    "expert_used_count",          SETTING_INT,     OF_BLOCK(experts.chosen),          8,             SETTING_NEEDED},
    {"moe_intermediate_size",  "expert_feed_forward_length", SETTING_INT,     OF_BLOCK(experts.width),           1408,          SETTING_NEEDED},
    {"n_shared_experts",       "expert_shared_count",        SETTING_WIDTHS,  OF_BLOCK(experts.shared_width),    1,             SETTING_NEEDED},
    {NULL,                     "expert_gating_func",         SETTING_SCORE,   OF_BLOCK(experts.score),           SCORE_SIGMOID, 0},
    {NULL,                     NULL,                         SETTING_BOOL,    OF_BLOCK(experts.corrected),       true,          0},
    {"n_group",                "expert_group_count",         SETTING_INT,     OF_BLOCK(experts.groups),          1,             0},
    {"topk_group",             "expert_group_used_count",    SETTING_INT,     OF_BLOCK(experts.groups_chosen),   1,             0},
    {"norm_topk_prob",         "expert_weights_norm",        SETTING_BOOL,    OF_BLOCK(experts.renormalised),    true,          0},
    {"routed_scaling_factor",  "expert_weights_scale",       SETTING_REAL,    OF_BLOCK(experts.scale),           1,             0},
    {0},
    // clang-format on
};

static const TensorName tensors[] = {
    {PARAM_MLP_NORM, .name = {[NAMING_GGUF] = "post_attention_norm"}},
    {PARAM_SHARED_GATE, .name = {[NAMING_HF] = "mlp.shared_experts.gate_proj"}},
    {PARAM_SHARED_UP, .name = {[NAMING_HF] = "mlp.shared_experts.up_proj"}},
    {PARAM_SHARED_DOWN, .name = {[NAMING_HF] = "mlp.shared_experts.down_proj"}},
    {0},
};

#define GLM4_MOE                                                                                   \
    "'head_dim': 128, 'rms_norm_eps': 1e-5, 'rope_theta': 1e6, 'attention_bias': true, "           \
    "'torch_dtype': 'bfloat16', 'pad_token_id': 151329, "
static const char large[] = GLM4_MOE "'use_qk_norm': true, 'n_routed_experts': 160, "
                                     "'moe_intermediate_size': 1536, 'first_k_dense_replace': 3, "
                                     "'routed_scaling_factor': 2.5",
                  air[] = GLM4_MOE "'n_routed_experts': 128, 'moe_intermediate_size': 1408";

static const FamilyPreset presets[] = {
    // clang-format off
    {"glm4.5", "GLM-4.5 355B-A32B", large, 5120, 92, 96, 8, 12288, 151552, 131072},
    {"glm4.5-air", "GLM-4.5 Air 106B-A12B", air, 4096, 46, 96, 8, 10944, 151552, 131072},
    {0},
    // clang-format on
};

const Family family_glm4_moe = {
    .name = "glm4_moe",
    .class = "Glm4MoeForCausalLM",
    .gguf = "glm4moe",
    .gguf_halves = true,
    .foretelling = "nextn_predict_layers",
    .settings = settings,
    .absent =
        "'vocab_size': 151552, 'intermediate_size': 10944, 'num_hidden_layers': 46, "
        "'num_attention_heads': 96, 'num_key_value_heads': 8, 'max_position_embeddings': 131072, "
        "'rms_norm_eps': 1e-5, 'partial_rotary_factor': 0.5",
    .harmless = "output_router_logits num_nextn_predict_layers num_mtp_layers",
    .tensors = tensors,
    .presets = presets,
    .end = {3, {151329, 151336, 151338}}};
