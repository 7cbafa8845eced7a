/* OLMo 3: OLMo 2 whose layers, but for every fourth, see a window; rotary scaling is of those that see all. */
#include "model/family.h"

static const Setting settings[] = {SETTINGS_WINDOWS(NULL, 4, 0), SETTINGS_SAME_BASE, {0}};

static const char olmo[] =
    "'rms_norm_eps': 1e-6, 'rope_theta': 500000, 'sliding_window': 4096, 'torch_dtype': "
    "'bfloat16', 'bos_token_id': null, 'eos_token_id': 100257, 'pad_token_id': 100277, "
    "'rope_scaling': {'rope_type': 'yarn', 'factor': 8, 'attention_factor': 1.2079441541679836, "
    "'beta_fast': 32, 'beta_slow': 1, 'original_max_position_embeddings': 8192}";

static const FamilyPreset presets[] = {
    // clang-format off
    {"olmo3-7b", "OLMo 3 7B", olmo, 4096, 32, 32, 32, 11008, 100278, 65536},
    {"olmo3-32b", "OLMo 3 32B", olmo, 5120, 64, 40, 8, 27648, 100278, 65536},
    {0},
    // clang-format on
};

const Family family_olmo3 = {.name = "olmo3",
                             .class = "Olmo3ForCausalLM",
                             .gguf = "olmo2",
                             .gguf_key = "attention.sliding_window",
                             .gguf_halves = true,
                             .extends = "olmo2",
                             .scaling_global = true,
                             .settings = settings,
                             .absent = "'rope_theta': 500000, 'sliding_window': 4096",
                             .presets = presets,
                             .end = {1, {50279}}};
