/* Llama, and what has its mathematics under its name: Llama 1 to 3.3, TinyLlama, SmolLM 1 and 2, Yi, … */
#include "model/family.h"

static const Setting settings[] = {SETTINGS_ATTENTION_BIAS, SETTINGS_MLP_BIAS, {0}};

/* ---- presets ---- */

#define LLAMA_3(FACTOR)                                                                            \
    "'rms_norm_eps': 1e-5, 'torch_dtype': 'bfloat16', 'rope_theta': 500000, 'rope_scaling': {"     \
    "'rope_type': 'llama3', 'factor': " #FACTOR ", 'low_freq_factor': 1, 'high_freq_factor': 4, "  \
    "'original_max_position_embeddings': 8192}, 'bos_token_id': 128000, "                          \
    "'eos_token_id': [128001, 128008, 128009]"
static const char llama_1[] = "'rms_norm_eps': 1e-6, 'torch_dtype': 'float16'";
static const char llama_2[] = "'rms_norm_eps': 1e-5, 'torch_dtype': 'float16'";
static const char llama_31[] = LLAMA_3(8);
static const char llama_32[] = LLAMA_3(32) ", 'tie_word_embeddings': true";
/* llama2.c: as Llama 2, tied, f32. */
static const char stories[] = "'rms_norm_eps': 1e-5, 'tie_word_embeddings': true";

static const FamilyPreset presets[] = {
    // clang-format off
    {"tiny", "1M parameters, trains on a CPU in minutes", stories, 128, 5, 8, 4, 384, 512, 512},
    {"stories260k", "shape of llama2.c's stories260K", stories, 64, 5, 8, 4, 172, 512, 512},
    {"stories15m", "shape of llama2.c's stories15M", stories, 288, 6, 6, 6, 768, 32000, 256},
    {"stories42m", "shape of llama2.c's stories42M", stories, 512, 8, 8, 8, 1376, 32000, 1024},
    {"stories110m", "shape of llama2.c's stories110M", stories, 768, 12, 12, 12, 2048, 32000, 1024},
    {"llama-7b", "Llama 1 7B", llama_1, 4096, 32, 32, 32, 11008, 32000, 2048},
    {"llama-13b", "Llama 1 13B", llama_1, 5120, 40, 40, 40, 13824, 32000, 2048},
    {"llama-33b", "Llama 1 33B", llama_1, 6656, 60, 52, 52, 17920, 32000, 2048},
    {"llama-65b", "Llama 1 65B", llama_1, 8192, 80, 64, 64, 22016, 32000, 2048},
    {"llama-175b", "Llama at the OPT-175B size", llama_1, 12288, 96, 96, 96, 32768, 32000, 2048},
    {"llama2-7b", "Llama 2 7B", llama_2, 4096, 32, 32, 32, 11008, 32000, 4096},
    {"llama2-13b", "Llama 2 13B", llama_2, 5120, 40, 40, 40, 13824, 32000, 4096},
    {"llama2-70b", "Llama 2 70B", llama_2, 8192, 80, 64, 8, 28672, 32000, 4096},
    {"llama3.1-8b", "Llama 3.1 8B", llama_31, 4096, 32, 32, 8, 14336, 128256, 131072},
    {"llama3.1-70b", "Llama 3.1 70B", llama_31, 8192, 80, 64, 8, 28672, 128256, 131072},
    {"llama3.1-405b", "Llama 3.1 405B", llama_31, 16384, 126, 128, 8, 53248, 128256, 131072},
    {"llama3.2-1b", "Llama 3.2 1B", llama_32, 2048, 16, 32, 8, 8192, 128256, 131072},
    {"llama3.2-3b", "Llama 3.2 3B", llama_32, 3072, 28, 24, 8, 8192, 128256, 131072},
    {0},
    // clang-format on
};

const Family family_llama = {.name = "llama",
                             .class = "LlamaForCausalLM",
                             .within = "llava",
                             .gguf = "llama",
                             .meta = true,
                             .settings = settings,
                             .presets = presets,
                             .begin = {1, {1}},
                             .end = {1, {2}}};
