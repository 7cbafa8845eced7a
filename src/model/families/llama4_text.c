/* Llama 4 without its eyes: experts that what enters is weighted for, by the sigmoid of its logit, beside a part that every token takes,
   in every layer or every other; queries and keys normed behind their rotation; chunks of positions, but in every fourth layer, which
   rotates nothing and whose queries grow with their position. */
#include "model/family.h"
#include "model/params.h"

static const Setting settings[] = {
    // clang-format off
    /* What no_rope_layers says holds of chunks, too, where no layer_types does. It is written for the rotation, below. */
    {"no_rope_layer_interval",    NULL, SETTING_BETWEEN,  OF_BLOCK(attention.local),       4,    0},
    {"no_rope_layers",            NULL, SETTING_CHUNKS,   OF_BLOCK(attention.local),       0,    0},
    {"layer_types", "attention.sliding_window_pattern", SETTING_CHUNKS, OF_BLOCK(attention.local), 0, 0},
    {"no_rope_layer_interval",    NULL, SETTING_INTERVAL, OF_BLOCK(attention.rope.off),    4,    0},
    {"no_rope_layers",            NULL, SETTING_SWITCHES, OF_BLOCK(attention.rope.off),    0,    0},
    {"attention_chunk_size",      NULL, SETTING_INT,      OF_BLOCK(attention.chunk),       8192, SETTING_LOCAL | SETTING_NULL},
    {"attn_temperature_tuning",   NULL, SETTING_TRUTH,    OF_BLOCK(attention.grows),       true, 0},
    {"attn_scale",                NULL, SETTING_REAL,     OF_BLOCK(attention.growth),      0.1,  0},
    {"floor_scale",               NULL, SETTING_INT,      OF_BLOCK(attention.growth_span), 8192, 0},
    SETTINGS_ATTENTION_BIAS,
    {"intermediate_size_mlp",     "feed_forward_length",        SETTING_INT,    OF_BLOCK(mlp.width),      16384, SETTING_NEEDED},
    {"intermediate_size",         "expert_feed_forward_length", SETTING_INT,    OF_BLOCK(experts.width),  8192,  SETTING_NEEDED},
    {"interleave_moe_layer_step", "interleave_moe_layer_step",  SETTING_STEP,   OF_BLOCK(experts.on),     1,     SETTING_NEEDED},
    {"moe_layers",                NULL,                         SETTING_INDICES, OF_BLOCK(experts.on),    0,     0},
    {"num_local_experts",         "expert_count",               SETTING_INT,    OF_BLOCK(experts.number), 16,    SETTING_NEEDED},
    {"num_experts_per_tok",       "expert_used_count",          SETTING_INT,    OF_BLOCK(experts.chosen), 1,     SETTING_NEEDED},
    {NULL,                        NULL,                         SETTING_CHOICE, OF_BLOCK(experts.score),  SCORE_SIGMOID, 0},
    {NULL,                        NULL,                         SETTING_BOOL,   OF_BLOCK(experts.before), true,  0},
    {NULL,                        NULL,                         SETTING_WIDTHS, OF_BLOCK(experts.shared_width), 1, 0},
    {"use_qk_norm",               NULL,                         SETTING_QK_TURNED, OF_BLOCK(attention.qk_norm), SETTING_DERIVED, 0},
    {0},
    // clang-format on
};

static const TensorName tensors[] = {
    {PARAM_GATE, .name = {[NAMING_HF] = "feed_forward.gate_proj"}},
    {PARAM_UP, .name = {[NAMING_HF] = "feed_forward.up_proj"}},
    {PARAM_DOWN, .name = {[NAMING_HF] = "feed_forward.down_proj"}},
    {PARAM_ROUTER, .name = {[NAMING_HF] = "feed_forward.router"}},
    {PARAM_EXPERT_GATE, .fused = {[NAMING_HF] = "feed_forward.experts.gate_up_proj"},
     .form = TENSOR_BARE | TENSOR_TURNED},
    {PARAM_EXPERT_UP, .fused = {[NAMING_HF] = "feed_forward.experts.gate_up_proj"},
     .form = TENSOR_BARE | TENSOR_TURNED},
    {PARAM_EXPERT_DOWN, .fused = {[NAMING_HF] = "feed_forward.experts.down_proj"},
     .form = TENSOR_BARE | TENSOR_TURNED},
    {PARAM_SHARED_GATE, .name = {[NAMING_HF] = "feed_forward.shared_expert.gate_proj"}},
    {PARAM_SHARED_UP, .name = {[NAMING_HF] = "feed_forward.shared_expert.up_proj"}},
    {PARAM_SHARED_DOWN, .name = {[NAMING_HF] = "feed_forward.shared_expert.down_proj"}},
    {0},
};

#define LLAMA4                                                                                     \
    "'head_dim': 128, 'torch_dtype': 'bfloat16', 'bos_token_id': 200000, 'eos_token_id': "         \
    "[200001, 200007, 200008], 'pad_token_id': 200018, "
static const char scout[] =
    LLAMA4 "'rope_scaling': {'rope_type': 'llama3', 'factor': 16, 'low_freq_factor': 1, "
           "'high_freq_factor': 1, 'original_max_position_embeddings': 8192}",
                  maverick[] = LLAMA4 "'num_local_experts': 128, 'interleave_moe_layer_step': 2, "
                                      "'use_qk_norm': false";

/* Less what sees: 871,932,416 of 108,641,793,536 and 401,583,781,376 parameters. */
static const FamilyPreset presets[] = {
    // clang-format off
    {"llama4-scout", "Llama 4 Scout 17B-16E, text", scout, 5120, 48, 40, 8, 16384, 202048, 10485760},
    {"llama4-maverick", "Llama 4 Maverick 17B-128E, text", maverick, 5120, 48, 40, 8, 16384, 202048, 1048576},
    {0},
    // clang-format on
};

const Family family_llama4_text = {
    .name = "llama4_text",
    .class = "Llama4ForCausalLM",
    .within = "llama4",
    .gguf = "llama4",
    .pairs = true,
    .settings = settings,
    .absent = "'vocab_size': 202048, 'hidden_size': 5120, 'intermediate_size': 8192, "
              "'intermediate_size_mlp': 16384, 'num_hidden_layers': 48, 'num_attention_heads': 40, "
              "'num_key_value_heads': 8, 'head_dim': 128, 'max_position_embeddings': 131072, "
              "'rms_norm_eps': 1e-5, 'rope_theta': 500000, 'use_qk_norm': true, "
              "'attention_chunk_size': 8192",
    .harmless = "output_router_logits router_aux_loss_coef router_jitter_noise for_llm_compressor",
    .tensors = tensors,
    .presets = presets,
    .begin = {1, {200000}},
    .end = {3, {200001, 200007, 200008}}};
