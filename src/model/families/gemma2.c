/* Gemma 2: Gemma with norms before and behind its parts, soft caps on scores and logits, and a window in every other layer. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    SETTINGS_WINDOWS(NULL, 2, 4096),
    SETTINGS_SAME_BASE,
    {NULL,                      NULL,                      SETTING_BOOL,       OF_BLOCK(norms.after),     true,                 0},
    {"query_pre_attn_scalar",   NULL,                      SETTING_ROOT,       OF_BLOCK(attention.scale), SETTING_DERIVED,      0},
    {"attn_logit_softcapping",  "attn_logit_softcapping",  SETTING_REAL,       OF_BLOCK(attention.cap),   50,                   SETTING_NULL},
    {"final_logit_softcapping", "final_logit_softcapping", SETTING_REAL,       OF_MODEL(logits_cap),      30,                   SETTING_NULL},
    {"hidden_activation",       NULL,                      SETTING_ACTIVATION, OF_BLOCK(mlp.activation),  ACTIVATION_GELU_TANH, 0},
    {0},
    // clang-format on
};

static const TensorName tensors[] = {
    {PARAM_MLP_NORM, .name = {[NAMING_HF] = "pre_feedforward_layernorm"}},
    {0},
};

#define GEMMA2 "'torch_dtype': 'bfloat16', 'head_dim': "
static const char two[] = GEMMA2 "256", nine[] = GEMMA2 "256, 'query_pre_attn_scalar': 256",
                  large[] = GEMMA2 "128, 'query_pre_attn_scalar': 144";

static const FamilyPreset presets[] = {
    // clang-format off
    {"gemma2-2b", "Gemma 2 2B", two, 2304, 26, 8, 4, 9216, 256000, 8192},
    {"gemma2-9b", "Gemma 2 9B", nine, 3584, 42, 16, 8, 14336, 256000, 8192},
    {"gemma2-27b", "Gemma 2 27B", large, 4608, 46, 32, 16, 36864, 256000, 8192},
    {0},
    // clang-format on
};

const Family family_gemma2 = {.name = "gemma2",
                              .class = "Gemma2ForCausalLM",
                              .gguf = "gemma2",
                              .gguf_halves = true,
                              .gguf_above_one = true,
                              .extends = "gemma",
                              .settings = settings,
                              .absent =
                                  "'hidden_size': 2304, 'intermediate_size': 9216, "
                                  "'num_hidden_layers': 26, 'num_attention_heads': 8, "
                                  "'num_key_value_heads': 4, 'sliding_window': 4096, "
                                  "'query_pre_attn_scalar': 256, 'attn_logit_softcapping': 50, "
                                  "'final_logit_softcapping': 30",
                              .harmless = "hidden_act cache_implementation",
                              .tensors = tensors,
                              .presets = presets,
                              .begin = {1, {2}},
                              .end = {1, {1}}};
