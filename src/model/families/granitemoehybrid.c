/* Granite 4 whose layers are all of attention and have no experts: Granite with other names, and without rotary positions unless
   position_embedding_type is "rope". Layers with states (Mamba2) and experts are refused by name. GGUF files are granite's. */
#include "model/family.h"

static const Setting settings[] = {
    // clang-format off
    {"layer_types",             NULL,                  SETTING_TYPES,     OF_BLOCK(attention.local),    false, 0},
    {"shared_intermediate_size", "feed_forward_length", SETTING_INT,      OF_BLOCK(mlp.width),          1024,  SETTING_NEEDED},
    {"position_embedding_type", "rope.scaling.finetuned", SETTING_ROPE_NAME, OF_BLOCK(attention.rope.off), true,  0},
    {"num_local_experts",       NULL,                  SETTING_INT,       OF_BLOCK(experts.number),     0,     SETTING_TENSORS},
    {0},
    // clang-format on
};

static const TensorName tensors[] = {
    {PARAM_GATE, .fused = {[NAMING_HF] = "shared_mlp.input_linear"}},
    {PARAM_UP, .fused = {[NAMING_HF] = "shared_mlp.input_linear"}},
    {PARAM_DOWN, .name = {[NAMING_HF] = "shared_mlp.output_linear"}},
    {0},
};

static const char micro[] =
    "'rms_norm_eps': 1e-5, 'rope_theta': 1e7, 'embedding_multiplier': 12, 'residual_multiplier': "
    "0.22, 'attention_multiplier': 0.015625, 'logits_scaling': 10, 'tie_word_embeddings': true, "
    "'position_embedding_type': 'rope', 'num_local_experts': 0, 'torch_dtype': 'bfloat16', "
    "'bos_token_id': 100257, 'eos_token_id': 100257, 'pad_token_id': 100256";

/* Sizes of the model card; as there, heads of 64, whose inverse attention_multiplier is. */
static const FamilyPreset presets[] = {
    // clang-format off
    {"granite4-micro", "Granite 4 Micro", micro, 2560, 40, 40, 8, 8192, 100352, 131072},
    {0},
    // clang-format on
};

const Family family_granitemoehybrid = {
    .name = "granitemoehybrid",
    .class = "GraniteMoeHybridForCausalLM",
    .gguf = "granite",
    .extends = "granite",
    .settings = settings,
    .absent = "'shared_intermediate_size': 1024, 'num_local_experts': 8",
    .harmless = "intermediate_size num_experts_per_tok output_router_logits router_aux_loss_coef "
                "normalization_function init_method mamba_chunk_size mamba_conv_bias mamba_d_conv "
                "mamba_d_head mamba_d_state mamba_expand mamba_n_groups mamba_n_heads "
                "mamba_proj_bias time_step_limit",
    .tensors = tensors,
    .presets = presets,
    .begin = {1, {1}},
    .end = {1, {2}}};
