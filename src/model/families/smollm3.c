/* SmolLM3: Llama's mathematics, but that some layers, every fourth unless a file says which, rotate neither queries nor keys
   (NoPE: Yang et al. 2025, arXiv:2501.18795). */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    /* config.json,             GGUF file,                          kind,               field,                           where absent, flags */
    {"num_hidden_layers",       "block_count",                      SETTING_INT,        OF_MODEL(layers),                36,     SETTING_NEEDED},
    {"max_position_embeddings", "context_length",                   SETTING_INT,        OF_MODEL(context),               32768,  SETTING_NEEDED},
    {"hidden_size",             "embedding_length",                 SETTING_INT,        OF_MODEL(width),                 2048,   SETTING_NEEDED},
    {"intermediate_size",       "feed_forward_length",              SETTING_INT,        OF_BLOCK(mlp.width),             11008,  SETTING_NEEDED},
    {"num_attention_heads",     "attention.head_count",             SETTING_INT,        OF_BLOCK(attention.heads),       16,     SETTING_NEEDED},
    {"num_key_value_heads",     "attention.head_count_kv",          SETTING_INT,        OF_BLOCK(attention.kv_heads),    4,      SETTING_NEEDED},
    {"head_dim",                "attention.key_length",             SETTING_INT,        OF_BLOCK(attention.head_dim),    SETTING_DERIVED, SETTING_IMPLIED},
    {NULL,                      "attention.value_length",           SETTING_INT,        OF_BLOCK(attention.head_dim),    SETTING_DERIVED, SETTING_IMPLIED | SETTING_AGAIN},
    {"rms_norm_eps",            "attention.layer_norm_rms_epsilon", SETTING_REAL,       OF_BLOCK(norms.eps),             1e-6,   SETTING_NEEDED},
    {NULL,                      "rope.dimension_count",             SETTING_INT,        OF_BLOCK(attention.head_dim),    SETTING_DERIVED, SETTING_AGAIN},
    {"rope_theta",              "rope.freq_base",                   SETTING_REAL,       OF_BLOCK(attention.rope.theta),  2e6,    0},
    {"no_rope_layer_interval",  NULL,                               SETTING_INTERVAL,   OF_BLOCK(attention.rope.off),    4,      0},
    {"no_rope_layers",          NULL,                               SETTING_SWITCHES,   OF_BLOCK(attention.rope.off),    0,      0},
    {"vocab_size",              "vocab_size",                       SETTING_INT,        OF_MODEL(vocab),                 128256, 0},
    {"tie_word_embeddings",     NULL,                               SETTING_BOOL,       OF_MODEL(tied),                  true,   SETTING_TENSORS},
    {"attention_bias",          NULL,                               SETTING_BOOL,       OF_BLOCK(attention.q_bias),      false,  SETTING_TENSORS},
    {"attention_bias",          NULL,                               SETTING_BOOL,       OF_BLOCK(attention.k_bias),      false,  SETTING_TENSORS},
    {"attention_bias",          NULL,                               SETTING_BOOL,       OF_BLOCK(attention.v_bias),      false,  SETTING_TENSORS},
    {"attention_bias",          NULL,                               SETTING_BOOL,       OF_BLOCK(attention.o_bias),      false,  SETTING_TENSORS},
    {"mlp_bias",                NULL,                               SETTING_BOOL,       OF_BLOCK(mlp.gate_bias),         false,  SETTING_TENSORS},
    {"mlp_bias",                NULL,                               SETTING_BOOL,       OF_BLOCK(mlp.up_bias),           false,  SETTING_TENSORS},
    {"mlp_bias",                NULL,                               SETTING_BOOL,       OF_BLOCK(mlp.down_bias),         false,  SETTING_TENSORS},
    {"hidden_act",              NULL,                               SETTING_ACTIVATION, OF_BLOCK(mlp.activation),        ACTIVATION_SILU, 0},
    {"initializer_range",       NULL,                               SETTING_REAL,       OF_MODEL(init_range),            0.02,   SETTING_FRESH},
    {0},
    // clang-format on
};

static const FamilyPreset presets[] = {
    // clang-format off
    {"smollm3-3b", "SmolLM3 3B", "'rope_theta': 5e6, 'torch_dtype': 'bfloat16', 'bos_token_id': null, 'eos_token_id': 128012, 'pad_token_id': 128004",
     2048, 36, 16, 4, 11008, 128256, 65536},
    {0},
    // clang-format on
};

const Family family_smollm3 = {.name = "smollm3",
                               .class = "SmolLM3ForCausalLM",
                               .gguf = "smollm3",
                               .settings = settings,
                               .presets = presets,
                               .harmless = "max_window_layers", /* there is no window */
                               .begin = {1, {128000}},
                               .end = {1, {128001}}};
