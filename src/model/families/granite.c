/* Granite 3 and 4 without states: Llama with four numbers that embeddings, scores, what is added to the stream, and logits are
   multiplied by, or divided. GGUF files say whether layers have rotary positions by "finetuned". */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    {"attention_multiplier", "attention.scale", SETTING_REAL, OF_BLOCK(attention.scale),  1, 0},
    {"embedding_multiplier", "embedding_scale", SETTING_REAL, OF_MODEL(embedding_scale),  1, 0},
    {"residual_multiplier",  "residual_scale",  SETTING_REAL, OF_MODEL(residual_scale),   1, 0},
    {"logits_scaling",       "logit_scale",     SETTING_REAL, OF_MODEL(logits_divisor),   1, 0},
    {NULL,                   "rope.scaling.finetuned", SETTING_ROPE_NAME, OF_BLOCK(attention.rope.off), false, 0},
    SETTINGS_ATTENTION_BIAS,
    SETTINGS_MLP_BIAS,
    {0},
    // clang-format on
};

#define GRANITE                                                                                    \
    "'rms_norm_eps': 1e-5, 'rope_theta': 1e7, 'embedding_multiplier': 12, 'residual_multiplier': " \
    "0.22, 'tie_word_embeddings': true, 'torch_dtype': 'bfloat16', 'bos_token_id': 0, "            \
    "'eos_token_id': 0, 'pad_token_id': 0, "
static const char two[] = GRANITE "'attention_multiplier': 0.015625, 'logits_scaling': 8",
                  eight[] = GRANITE "'attention_multiplier': 0.0078125, 'logits_scaling': 16";

static const FamilyPreset presets[] = {
    // clang-format off
    {"granite3.3-2b", "Granite 3.3 2B", two, 2048, 40, 32, 8, 8192, 49159, 131072},
    {"granite3.3-8b", "Granite 3.3 8B", eight, 4096, 40, 32, 8, 12800, 49159, 131072},
    {0},
    // clang-format on
};

const Family family_granite = {.name = "granite",
                               .class = "GraniteForCausalLM",
                               .gguf = "granite",
                               .settings = settings,
                               .presets = presets,
                               .begin = {1, {1}},
                               .end = {1, {2}}};
