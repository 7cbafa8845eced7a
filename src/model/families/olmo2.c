/* OLMo 2: Llama whose norms stand behind attention and feed-forward part, and with norms of all queries, and all keys, of a token. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    {NULL, NULL, SETTING_BOOL,   OF_BLOCK(norms.before),      false,         0},
    {NULL, NULL, SETTING_BOOL,   OF_BLOCK(norms.after),       true,          0},
    {NULL, NULL, SETTING_CHOICE, OF_BLOCK(attention.qk_norm), QK_NORM_WHOLE, 0},
    SETTINGS_ATTENTION_BIAS,
    {0},
    // clang-format on
};

static const char olmo[] = "'rms_norm_eps': 1e-6, 'rope_theta': 500000, 'torch_dtype': 'float32', "
                           "'bos_token_id': null, 'eos_token_id': 100257, 'pad_token_id': 100277";

static const FamilyPreset presets[] = {
    // clang-format off
    {"olmo2-1b", "OLMo 2 1B", olmo, 2048, 16, 16, 16, 8192, 100352, 4096},
    {"olmo2-7b", "OLMo 2 7B", olmo, 4096, 32, 32, 32, 11008, 100352, 4096},
    {"olmo2-13b", "OLMo 2 13B", olmo, 5120, 40, 40, 40, 13824, 100352, 4096},
    {"olmo2-32b", "OLMo 2 32B", olmo, 5120, 64, 40, 8, 27648, 100352, 4096},
    {0},
    // clang-format on
};

const Family family_olmo2 = {.name = "olmo2",
                             .class = "Olmo2ForCausalLM",
                             .gguf = "olmo2",
                             .gguf_halves = true,
                             .settings = settings,
                             .absent = "'rms_norm_eps': 1e-5, 'vocab_size': 50304",
                             .presets = presets,
                             .end = {1, {50279}}};
