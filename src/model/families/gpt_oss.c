/* gpt-oss: experts with biases, whose gates and ups are cut off at a limit, gates multiplied by a steeper sigmoid and ups raised by one;
   a sink for each head; biases of all projections and of the router; every other layer with a window. Gate and up take turns in the
   rows of one tensor, in blocks of MXFP4, or turned in floats. */
#include "model/family.h"
#include "model/params.h"

static const Setting settings[] = {
    // clang-format off
    {"attention_bias",      NULL,                SETTING_BOOL,   OF_BLOCK(attention.q_bias),  true,                 SETTING_TENSORS},
    {"attention_bias",      NULL,                SETTING_BOOL,   OF_BLOCK(attention.k_bias),  true,                 SETTING_TENSORS},
    {"attention_bias",      NULL,                SETTING_BOOL,   OF_BLOCK(attention.v_bias),  true,                 SETTING_TENSORS},
    {"attention_bias",      NULL,                SETTING_BOOL,   OF_BLOCK(attention.o_bias),  true,                 SETTING_TENSORS},
    {NULL,                  NULL,                SETTING_BOOL,   OF_BLOCK(attention.sinks),   true,                 SETTING_TENSORS},
    SETTINGS_WINDOWS(NULL, 2, 128),
    SETTINGS_SAME_BASE,
    {NULL, "expert_feed_forward_length",         SETTING_INT,    OF_BLOCK(mlp.width),         0,                    SETTING_AGAIN},
    {"swiglu_limit",        NULL,                SETTING_REAL,   OF_BLOCK(mlp.limit),         7,                    0},
    {"swiglu_alpha",        NULL,                SETTING_REAL,   OF_BLOCK(mlp.alpha),         1.702,                0},
    {NULL,                  NULL,                SETTING_REAL,   OF_BLOCK(mlp.shift),         1,                    0},
    {NULL,                  NULL,                SETTING_BOOL,   OF_BLOCK(experts.on),        true,                 0},
    {"num_local_experts",   "expert_count",      SETTING_INT,    OF_BLOCK(experts.number),    128,                  SETTING_NEEDED},
    {"num_experts_per_tok", "expert_used_count", SETTING_INT,    OF_BLOCK(experts.chosen),    4,                    SETTING_NEEDED},
    {NULL,                  NULL,                SETTING_CHOICE, OF_BLOCK(experts.score),     SCORE_SOFTMAX_CHOSEN, 0},
    {NULL,                  NULL,                SETTING_BOOL,   OF_BLOCK(experts.router_bias), true,               SETTING_TENSORS},
    {NULL,                  NULL,                SETTING_BOOL,   OF_BLOCK(experts.bias),      true,                 0},
    SETTINGS_BALANCE,
    {0},
    // clang-format on
};

static const TensorName tensors[] = {
    {PARAM_MLP_NORM, .name = {[NAMING_GGUF] = "post_attention_norm"}},
    {PARAM_ROUTER, .name = {[NAMING_HF] = "mlp.router"}},
    {PARAM_ROUTER_BIAS, .name = {[NAMING_HF] = "mlp.router"}},
    {PARAM_EXPERT_GATE, .fused = {[NAMING_HF] = "mlp.experts.gate_up_proj"},
     .form = TENSOR_BARE | TENSOR_TURNED | TENSOR_ALTERNATING},
    {PARAM_EXPERT_UP, .fused = {[NAMING_HF] = "mlp.experts.gate_up_proj"},
     .form = TENSOR_BARE | TENSOR_TURNED | TENSOR_ALTERNATING},
    {PARAM_EXPERT_DOWN, .fused = {[NAMING_HF] = "mlp.experts.down_proj"},
     .form = TENSOR_BARE | TENSOR_TURNED},
    {PARAM_EXPERT_GATE_BIAS, .fused = {[NAMING_HF] = "mlp.experts.gate_up_proj_bias"},
     .form = TENSOR_BARE | TENSOR_ALTERNATING},
    {PARAM_EXPERT_UP_BIAS, .fused = {[NAMING_HF] = "mlp.experts.gate_up_proj_bias"},
     .form = TENSOR_BARE | TENSOR_ALTERNATING},
    {PARAM_EXPERT_DOWN_BIAS, .fused = {[NAMING_HF] = "mlp.experts.down_proj_bias"},
     .form = TENSOR_BARE},
    {0},
};

#define ROPE                                                                                       \
    "'rope_parameters': {'rope_type': 'yarn', 'rope_theta': 150000, 'factor': 32, 'beta_fast': "   \
    "32, 'beta_slow': 1, 'truncate': false, 'original_max_position_embeddings': 4096}"
#define GPT_OSS                                                                                    \
    "'head_dim': 64, 'torch_dtype': 'bfloat16', 'eos_token_id': 200002, 'pad_token_id': 199999, "  \
    "'num_local_experts': "
static const char small[] = GPT_OSS "32", large[] = GPT_OSS "128";

static const FamilyPreset presets[] = {
    // clang-format off
    {"gpt-oss-20b", "gpt-oss 20B", small, 2880, 24, 64, 8, 2880, 201088, 131072},
    {"gpt-oss-120b", "gpt-oss 120B", large, 2880, 36, 64, 8, 2880, 201088, 131072},
    {0},
    // clang-format on
};

const Family family_gpt_oss = {
    .name = "gpt_oss",
    .class = "GptOssForCausalLM",
    .gguf = "gpt-oss",
    .gguf_halves = true,
    .ramp_whole = true,
    .settings = settings,
    .absent = "'vocab_size': 201088, 'hidden_size': 2880, 'intermediate_size': 2880, "
              "'num_hidden_layers': 36, 'num_attention_heads': 64, 'num_key_value_heads': 8, "
              "'head_dim': 64, 'sliding_window': 128, 'max_position_embeddings': 131072, "
              "'rms_norm_eps': 1e-5, 'rope_theta': 150000, " ROPE,
    .harmless = "initial_context_length "
                "experts_per_token",
    .tensors = tensors,
    .presets = presets,
    .end = {1, {200002}}};
