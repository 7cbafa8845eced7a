/* Ministral 3: Mistral without a window, with yarn that sharpens nothing, and queries that grow with their position
   (llama_4_scaling_beta). */
#include "model/family.h"

/* THETA is 1e6, of 14B 1e9 (apxml.com/models/ministral-3-14b). */
#define YARN(THETA)                                                                                \
    "'rope_parameters': {'rope_type': 'yarn', 'rope_theta': " #THETA ", 'factor': 16, "            \
    "'original_max_position_embeddings': 16384, 'beta_fast': 32, 'beta_slow': 1, 'mscale': 1, "    \
    "'mscale_all_dim': 1, 'llama_4_scaling_beta': 0.1}"
#define MINISTRAL(THETA) "'head_dim': 128, 'torch_dtype': 'bfloat16', " YARN(THETA)

static const Setting settings[] = {
    {NULL, "attention.temperature_scale", SETTING_REAL, OF_BLOCK(attention.rope.temper), 0,
     SETTING_ROPED},
    {0},
};

static const char small[] = MINISTRAL(1e6) ", 'tie_word_embeddings': true",
                  eight[] = MINISTRAL(1e6), large[] = MINISTRAL(1e9);

/* Sizes: Liu et al. 2026, "Ministral 3" (by emergentmind.com/topics/ministral-3). */
static const FamilyPreset presets[] = {
    // clang-format off
    {"ministral3-3b", "Ministral 3 3B", small, 3072, 26, 32, 8, 9216, 131072, 262144},
    {"ministral3-8b", "Ministral 3 8B", eight, 4096, 34, 32, 8, 14336, 131072, 262144},
    {"ministral3-14b", "Ministral 3 14B", large, 5120, 40, 32, 8, 16384, 131072, 262144},
    {0},
    // clang-format on
};

const Family family_ministral3 = {.name = "ministral3",
                                  .class = "Ministral3ForCausalLM",
                                  .within = "mistral3",
                                  .gguf = "mistral3",
                                  .extends = "mistral",
                                  .settings = settings,
                                  .absent = "'num_hidden_layers': 34, 'head_dim': 128, "
                                            "'vocab_size': 131072, 'rms_norm_eps': 1e-5, "
                                            "'max_position_embeddings': 262144, 'sliding_window': "
                                            "null, 'pad_token_id': 11, " YARN(1e6),
                                  .presets = presets,
                                  .begin = {1, {1}},
                                  .end = {1, {2}}};
