/* Ministral 8B: Mistral, of whose layers some see all before and the others a window; which, layer_types says. GGUF files are of the
   architecture llama, as Mistral's; they list the layers by a key that llama.cpp passes over. */
#include "model/family.h"

static const Setting settings[] = {SETTINGS_WINDOWS(NULL, 0, 0), {0}}; /* a window in all */

/* One layer that sees all, and three with a window of 32k, and the sizes: the model card of Ministral-8B-Instruct-2410. */
#define FOUR "'full_attention', 'sliding_attention', 'sliding_attention', 'sliding_attention'"
#define TWELVE FOUR ", " FOUR ", " FOUR
static const char eight[] =
    "'rms_norm_eps': 1e-5, 'rope_theta': 1e8, 'head_dim': 128, 'torch_dtype': 'bfloat16', "
    "'sliding_window': 32768, 'layer_types': [" TWELVE ", " TWELVE ", " TWELVE "]";

static const FamilyPreset presets[] = {
    // clang-format off
    {"ministral-8b", "Ministral 8B", eight, 4096, 36, 32, 8, 12288, 131072, 131072},
    {0},
    // clang-format on
};

const Family family_ministral = {.name = "ministral",
                                 .class = "MinistralForCausalLM",
                                 .gguf = "llama",
                                 .gguf_key = "attention.sliding_window_pattern",
                                 .extends = "mistral",
                                 .settings = settings,
                                 .presets = presets,
                                 .begin = {1, {1}},
                                 .end = {1, {2}}};
