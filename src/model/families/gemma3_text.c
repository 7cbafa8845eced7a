/* Gemma 3 without its eyes: Gemma 2 without caps on scores, with norms of heads, and five layers that see a window, by a rotary base of
   their own, to one that sees all, whose positions may be scaled. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    SETTINGS_WINDOWS("sliding_window_pattern", 6, 0),
    {NULL,                   NULL,                 SETTING_CHOICE, OF_BLOCK(attention.qk_norm),    QK_NORM_HEAD, 0},
    {NULL,                   NULL,                 SETTING_REAL,   OF_BLOCK(attention.cap),        0,            0},
    {"final_logit_softcapping", "final_logit_softcapping", SETTING_REAL, OF_MODEL(logits_cap),     0,            SETTING_NULL},
    {"rope_theta",           "rope.freq_base",     SETTING_REAL,   OF_BLOCK(attention.rope.theta), 10000,        SETTING_GLOBAL},
    {"rope_local_base_freq", "rope.freq_base_swa", SETTING_REAL,   OF_BLOCK(attention.rope.theta), 10000,        SETTING_LOCAL},
    {0},
    // clang-format on
};

#define GEMMA3                                                                                     \
    "'torch_dtype': 'bfloat16', 'rope_theta': 1e6, 'rope_local_base_freq': 1e4, 'eos_token_id': "  \
    "[1, 106], "
#define SCALED ", 'rope_scaling': {'rope_type': 'linear', 'factor': 8}"
static const char one[] = GEMMA3 "'head_dim': 256, 'sliding_window': 512",
                  four[] = GEMMA3 "'head_dim': 256, 'sliding_window': 1024" SCALED,
                  large[] = GEMMA3 "'head_dim': 128, 'sliding_window': 1024, "
                                   "'query_pre_attn_scalar': 168" SCALED;

static const FamilyPreset presets[] = {
    // clang-format off
    {"gemma3-270m", "Gemma 3 270M", one, 640, 18, 4, 1, 2048, 262144, 32768},
    {"gemma3-1b", "Gemma 3 1B", one, 1152, 26, 4, 1, 6912, 262144, 32768},
    {"gemma3-4b", "Gemma 3 4B, text", four, 2560, 34, 8, 4, 10240, 262208, 131072},
    {"gemma3-12b", "Gemma 3 12B, text", four, 3840, 48, 16, 8, 15360, 262208, 131072},
    {"gemma3-27b", "Gemma 3 27B, text", large, 5376, 62, 32, 16, 21504, 262208, 131072},
    {0},
    // clang-format on
};

const Family family_gemma3_text = {.name = "gemma3_text",
                                   .class = "Gemma3ForCausalLM",
                                   .within = "gemma3",
                                   .gguf = "gemma3",
                                   .gguf_halves = true,
                                   .gguf_above_one = true,
                                   .extends = "gemma2",
                                   .scaling_global = true,
                                   .settings = settings,
                                   .absent =
                                       "'vocab_size': 262208, 'max_position_embeddings': "
                                       "131072, 'rope_theta': 1e6, 'final_logit_softcapping': "
                                       "null",
                                   .harmless = "attn_logit_softcapping _sliding_window_pattern",
                                   .presets = presets,
                                   .begin = {1, {2}},
                                   .end = {1, {1}}};
