/* Mistral 7B, Nemo and Small: Llama, but that in 7B v0.1 a token sees a window of keys. GGUF files are of the architecture llama; by the
   key of the window they are told from Llama's. llama.cpp passes over it. */
#include "model/family.h"

static const Setting settings[] = {SETTINGS_WINDOW_OF_ALL, {0}};

#define MISTRAL "'rms_norm_eps': 1e-5, 'torch_dtype': 'bfloat16'"
static const char first[] = MISTRAL ", 'sliding_window': 4096",
                  seven[] = MISTRAL ", 'rope_theta': 1e6, 'sliding_window': null",
                  nemo[] = MISTRAL ", 'rope_theta': 1e6, 'head_dim': 128, 'sliding_window': null",
                  small[] = MISTRAL ", 'rope_theta': 1e8, 'head_dim': 128, 'sliding_window': null",
                  small1[] = MISTRAL ", 'rope_theta': 1e9, 'head_dim': 128, 'sliding_window': null";

static const FamilyPreset presets[] = {
    // clang-format off
    {"mistral-7b-v0.1", "Mistral 7B v0.1", first, 4096, 32, 32, 8, 14336, 32000, 32768},
    {"mistral-7b-v0.3", "Mistral 7B v0.3", seven, 4096, 32, 32, 8, 14336, 32768, 32768},
    {"mistral-nemo-12b", "Mistral Nemo 12B", nemo, 5120, 40, 32, 8, 14336, 131072, 131072},
    {"mistral-small3-24b", "Mistral Small 3 24B", small, 5120, 40, 32, 8, 32768, 131072, 32768},
    {"mistral-small3.1-24b", "Mistral Small 3.1 24B, text", small1, 5120, 40, 32, 8, 32768, 131072, 131072},
    {0},
    // clang-format on
};

const Family family_mistral = {.name = "mistral",
                               .class = "MistralForCausalLM",
                               .within = "mistral3 llava",
                               .gguf = "llama",
                               .gguf_key = "attention.sliding_window",
                               .settings = settings,
                               .absent =
                                   "'intermediate_size': 14336, 'num_key_value_heads': 8, "
                                   "'max_position_embeddings': 131072, 'sliding_window': 4096",
                               .presets = presets,
                               .begin = {1, {1}},
                               .end = {1, {2}}};
