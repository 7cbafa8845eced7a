/* Qwen3: Llama with norms of each head of queries and keys, heads that need not fill the width, and no window in releases. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    {NULL, NULL, SETTING_CHOICE, OF_BLOCK(attention.qk_norm), QK_NORM_HEAD, 0},
    SETTINGS_ATTENTION_BIAS,
    {0},
    // clang-format on
};

#define QWEN3                                                                                      \
    "'head_dim': 128, 'rope_theta': 1e6, 'torch_dtype': 'bfloat16', 'bos_token_id': 151643, "      \
    "'eos_token_id': [151645, 151643], 'pad_token_id': 151643"
static const char small[] = QWEN3 ", 'tie_word_embeddings': true", large[] = QWEN3;

static const FamilyPreset presets[] = {
    // clang-format off
    {"qwen3-0.6b", "Qwen3 0.6B", small, 1024, 28, 16, 8, 3072, 151936, 40960},
    {"qwen3-1.7b", "Qwen3 1.7B", small, 2048, 28, 16, 8, 6144, 151936, 40960},
    {"qwen3-4b", "Qwen3 4B", small, 2560, 36, 32, 8, 9728, 151936, 40960},
    {"qwen3-8b", "Qwen3 8B", large, 4096, 36, 32, 8, 12288, 151936, 40960},
    {"qwen3-14b", "Qwen3 14B", large, 5120, 40, 40, 8, 17408, 151936, 40960},
    {"qwen3-32b", "Qwen3 32B", large, 5120, 64, 64, 8, 25600, 151936, 40960},
    {0},
    // clang-format on
};

const Family family_qwen3 = {.name = "qwen3",
                             .class = "Qwen3ForCausalLM",
                             .within = "qwen3_vl",
                             .inside = "qwen3_vl_text",
                             .gguf = "qwen3",
                             .gguf_halves = true,
                             .settings = settings,
                             .absent = "'intermediate_size': 22016, 'num_key_value_heads': 32, "
                                       "'head_dim': 128, 'vocab_size': 151936, "
                                       "'max_position_embeddings': 32768",
                             .harmless = "sliding_window max_window_layers",
                             .presets = presets};
