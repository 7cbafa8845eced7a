/* Cohere's Command R: one LayerNorm from which attention and feed-forward part go side by side, rotary pairs that lie side by side, a
   factor on logits, and a tied head; in R+ with norms of heads, which have a weight each. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    {NULL,             NULL,                           SETTING_CHOICE,   OF_BLOCK(norms.kind),        NORM_LAYER,   0},
    {NULL,             NULL,                           SETTING_BOOL,     OF_BLOCK(parallel),          true,         0},
    {"layer_norm_eps", "attention.layer_norm_epsilon", SETTING_REAL,     OF_BLOCK(norms.eps),         1e-5,         SETTING_NEEDED},
    {"logit_scale",    "logit_scale",                  SETTING_REAL,     OF_MODEL(logits_scale),      1,            0},
    {"use_qk_norm",    NULL,                           SETTING_QK_NORMS, OF_BLOCK(attention.qk_norm), QK_NORM_NONE, SETTING_TENSORS},
    SETTINGS_ATTENTION_BIAS,
    {0},
    // clang-format on
};

#define COMMAND "'torch_dtype': 'float16', 'rope_theta': "
static const char r[] = COMMAND "8e6, 'logit_scale': 0.0625",
                  plus[] = COMMAND "75e6, 'logit_scale': 0.8333333333333334, 'use_qk_norm': true";

static const FamilyPreset presets[] = {
    // clang-format off
    {"command-r-35b", "Command R 35B", r, 8192, 40, 64, 64, 22528, 256000, 131072},
    {"command-r-plus-104b", "Command R+ 104B", plus, 12288, 64, 96, 8, 33792, 256000, 131072},
    {0},
    // clang-format on
};

const Family family_cohere = {.name = "cohere",
                              .class = "CohereForCausalLM",
                              .gguf = "command-r",
                              .pairs = true,
                              .settings = settings,
                              .absent = "'hidden_size': 8192, 'intermediate_size': 22528, "
                                        "'num_hidden_layers': 40, 'num_attention_heads': 64, "
                                        "'vocab_size': 256000, 'max_position_embeddings': 8192, "
                                        "'rope_theta': 500000, 'logit_scale': 0.0625, "
                                        "'tie_word_embeddings': true, 'pad_token_id': 0",
                              .presets = presets,
                              .begin = {1, {5}},
                              .end = {1, {255001}}};
