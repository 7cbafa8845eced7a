/* Qwen2 and Qwen2.5: Llama with biases on queries, keys and values. Releases have no window (use_sliding_window is false), whatever
   sliding_window says. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    {NULL, NULL, SETTING_BOOL, OF_BLOCK(attention.q_bias), true, SETTING_TENSORS},
    {NULL, NULL, SETTING_BOOL, OF_BLOCK(attention.k_bias), true, SETTING_TENSORS},
    {NULL, NULL, SETTING_BOOL, OF_BLOCK(attention.v_bias), true, SETTING_TENSORS},
    {0},
    // clang-format on
};

#define QWEN2                                                                                      \
    "'rope_theta': 1e6, 'torch_dtype': 'bfloat16', 'bos_token_id': 151643, 'eos_token_id': "       \
    "[151645, 151643]"
static const char small[] = QWEN2 ", 'tie_word_embeddings': true", large[] = QWEN2;

static const FamilyPreset presets[] = {
    // clang-format off
    {"qwen2.5-0.5b", "Qwen2.5 0.5B", small, 896, 24, 14, 2, 4864, 151936, 32768},
    {"qwen2.5-1.5b", "Qwen2.5 1.5B", small, 1536, 28, 12, 2, 8960, 151936, 32768},
    {"qwen2.5-3b", "Qwen2.5 3B", small, 2048, 36, 16, 2, 11008, 151936, 32768},
    {"qwen2.5-7b", "Qwen2.5 7B", large, 3584, 28, 28, 4, 18944, 152064, 32768},
    {"qwen2.5-14b", "Qwen2.5 14B", large, 5120, 48, 40, 8, 13824, 152064, 32768},
    {"qwen2.5-32b", "Qwen2.5 32B", large, 5120, 64, 40, 8, 27648, 152064, 32768},
    {"qwen2.5-72b", "Qwen2.5 72B", large, 8192, 80, 64, 8, 29568, 152064, 32768},
    {0},
    // clang-format on
};

const Family family_qwen2 = {.name = "qwen2",
                             .class = "Qwen2ForCausalLM",
                             .gguf = "qwen2",
                             .gguf_halves = true,
                             .settings = settings,
                             .absent = "'intermediate_size': 22016, 'num_key_value_heads': 32, "
                                       "'vocab_size': 151936, 'max_position_embeddings': 32768",
                             .harmless = "sliding_window max_window_layers",
                             .presets = presets};
