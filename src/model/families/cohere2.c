/* Cohere's Command R7B: Command R of whose layers three see a window, with rotary positions, to one that sees all, without. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    SETTINGS_WINDOWS("sliding_window_pattern", 4, 0),
    SETTINGS_SAME_BASE,
    {NULL, NULL, SETTING_BOOL,   OF_BLOCK(attention.rope.off), true,         SETTING_GLOBAL},
    {NULL, NULL, SETTING_CHOICE, OF_BLOCK(attention.qk_norm),  QK_NORM_NONE, 0},
    {0},
    // clang-format on
};

static const char seven[] = "'torch_dtype': 'bfloat16', 'rope_theta': 50000, 'logit_scale': 0.25";

static const FamilyPreset presets[] = {
    // clang-format off
    {"command-r7b", "Command R7B", seven, 4096, 32, 32, 8, 14336, 256000, 132096},
    {0},
    // clang-format on
};

const Family family_cohere2 = {
    .name = "cohere2",
    .class = "Cohere2ForCausalLM",
    .gguf = "cohere2",
    .pairs = true,
    .extends = "cohere",
    .settings = settings,
    .absent = "'rope_theta': 10000, 'sliding_window': 4096",
    .harmless = "cache_implementation order_of_interleaved_layers "
                "position_embedding_type use_gated_activation "
                "use_parallel_block use_parallel_embedding use_embedding_sharing "
                "layer_switch",
    .presets = presets,
    .begin = {1, {5}},
    .end = {1, {255001}}};
