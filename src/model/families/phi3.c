/* Phi-3 and Phi-4: Llama with q, k and v in one tensor, and gate and up in another; longrope, and in Phi-4-mini only part of a head
   rotates. Phi-3-mini-4k sees a window, which llama.cpp passes over in GGUF files. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    SETTINGS_WINDOW_OF_ALL,
    {"partial_rotary_factor", "rope.dimension_count", SETTING_ROTATED, OF_BLOCK(attention.rope.fraction), 1, 0},
    {0},
    // clang-format on
};

static const TensorName tensors[] = {
    {PARAM_Q, .fused = {[NAMING_HF] = "self_attn.qkv_proj", [NAMING_GGUF] = "attn_qkv"}},
    {PARAM_K, .fused = {[NAMING_HF] = "self_attn.qkv_proj", [NAMING_GGUF] = "attn_qkv"}},
    {PARAM_V, .fused = {[NAMING_HF] = "self_attn.qkv_proj", [NAMING_GGUF] = "attn_qkv"}},
    {PARAM_GATE, .fused = {[NAMING_HF] = "mlp.gate_up_proj", [NAMING_GGUF] = "ffn_up"}},
    {PARAM_UP, .fused = {[NAMING_HF] = "mlp.gate_up_proj", [NAMING_GGUF] = "ffn_up"}},
    {0},
};

static const char mini[] =
    "'rms_norm_eps': 1e-5, 'sliding_window': 2047, 'torch_dtype': 'bfloat16', "
    "'eos_token_id': [32000, 32001, 32007]";
static const char four[] = "'rms_norm_eps': 1e-5, 'rope_theta': 250000, 'sliding_window': null, "
                           "'torch_dtype': 'bfloat16', 'bos_token_id': 100257, 'eos_token_id': "
                           "[100257, 100265], 'pad_token_id': 100349";

static const FamilyPreset presets[] = {
    // clang-format off
    {"phi3-mini-4k", "Phi-3 Mini 4K", mini, 3072, 32, 32, 32, 8192, 32064, 4096},
    {"phi4-14b", "Phi-4 14B", four, 5120, 40, 40, 10, 17920, 100352, 16384},
    {0},
    // clang-format on
};

const Family family_phi3 = {.name = "phi3",
                            .class = "Phi3ForCausalLM",
                            .gguf = "phi3",
                            .gguf_halves = true,
                            .longrope = true,
                            .settings = settings,
                            .absent = "'hidden_size': 3072, 'intermediate_size': 8192, "
                                      "'vocab_size': 32064, 'max_position_embeddings': 4096, "
                                      "'original_max_position_embeddings': 4096, 'rms_norm_eps': "
                                      "1e-5, 'pad_token_id': 32000",
                            .harmless = "embd_pdrop",
                            .tensors = tensors,
                            .presets = presets,
                            .begin = {1, {1}},
                            .end = {1, {32000}}};
