#!/usr/bin/env python3
"""Tiny random models of every family and architectural variant, and the logits that transformers gives for them.

Writes tests/data/llama/VARIANT/{config.json, model.safetensors, expected.safetensors}. Weights are stored in
bf16 (and are exactly that in both implementations); transformers computes in float32 on the CPU.
`expected` holds tokens i32 [n] and logits f32 [n, vocab].

Arguments name the variants to make; without any all are. Needs torch (CPU), transformers 5 and safetensors.
"""
import copy
import json
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, HunYuanDenseV1Config
from transformers.models.hunyuan_v1_dense.modeling_hunyuan_v1_dense import HunYuanDenseV1RotaryEmbedding

OUT = pathlib.Path(__file__).resolve().parent.parent / "data" / "llama"

BASE = dict(
    hidden_size=48, intermediate_size=70, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
    head_dim=12, vocab_size=259, max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0,
    tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
)

VARIANTS = {
    "mha": {},
    "gqa": dict(num_attention_heads=6, num_key_value_heads=3, head_dim=20),
    "tied": dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True),
    "llama3_rope": dict(
        num_attention_heads=6, num_key_value_heads=3, head_dim=20, rope_theta=500000.0,
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                          original_max_position_embeddings=32)),
    "linear_rope": dict(rope_scaling=dict(rope_type="linear", factor=4.0)),
    "biases": dict(num_key_value_heads=2, attention_bias=True, mlp_bias=True),
    "mqa": dict(num_attention_heads=5, num_key_value_heads=1, head_dim=14, intermediate_size=31,
                num_hidden_layers=3, rms_norm_eps=1e-3),
    # The 40 tokens are longer than what it was trained for.
    "dynamic_rope": dict(max_position_embeddings=16, rope_scaling=dict(rope_type="dynamic", factor=4.0)),
    "alpha_rope": dict(rope_scaling=dict(rope_type="dynamic", factor=1.0, alpha=1000.0)),
    "yarn_rope": dict(rope_scaling=dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=128)),
    "yarn_rope_all": dict(
        head_dim=40, rope_theta=1000.0,
        rope_scaling=dict(rope_type="yarn", factor=16.0, original_max_position_embeddings=64, beta_fast=16.0,
                          beta_slow=0.5, mscale=1.4, mscale_all_dim=0.3, truncate=False)),
    # Layers without rotary positions: every fourth, and those that are listed.
    "smollm3": dict(model_type="smollm3", num_hidden_layers=5, num_key_value_heads=2, pad_token_id=0),
    "smollm3_listed": dict(model_type="smollm3", num_hidden_layers=3, num_key_value_heads=2, pad_token_id=0, no_rope_layers=[0, 1, 0],
                           rope_scaling=dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=128)),
    # Biases of q, k and v, which no key says; norms of heads.
    "qwen2": dict(model_type="qwen2", num_key_value_heads=2, tie_word_embeddings=True, sliding_window=8,
                  max_window_layers=1, use_sliding_window=False),
    "qwen3": dict(model_type="qwen3", num_key_value_heads=2, head_dim=16),
    "mistral": dict(model_type="mistral", num_key_value_heads=2, sliding_window=None),
    # Windows shorter than the 40 tokens: of all layers, of those that are listed, of all but every n-th.
    "mistral_window": dict(model_type="mistral", num_key_value_heads=2, sliding_window=8),
    "ministral": dict(model_type="ministral", num_hidden_layers=3, num_key_value_heads=2, head_dim=16, sliding_window=8,
                      layer_types=["full_attention", "sliding_attention", "sliding_attention"]),
    "phi3_window": dict(model_type="phi3", num_key_value_heads=2, pad_token_id=0, sliding_window=8),
    "olmo3": dict(model_type="olmo3", num_hidden_layers=5, num_key_value_heads=2, pad_token_id=0, sliding_window=8, rope_theta=500000.0,
                  rope_scaling=dict(rope_type="yarn", factor=8.0, original_max_position_embeddings=32, attention_factor=1.2,
                                    beta_fast=32.0, beta_slow=1.0)),
    "cohere2": dict(model_type="cohere2", num_hidden_layers=5, num_key_value_heads=2, pad_token_id=0, logit_scale=0.25,
                    layer_norm_eps=1e-5, rms_norm_eps=None, tie_word_embeddings=True, head_dim=None, sliding_window=8),
    # Caps that scores and logits reach; bases of frequencies and a scaling of some layers.
    "gemma2": dict(model_type="gemma2", num_hidden_layers=3, num_key_value_heads=2, head_dim=16, tie_word_embeddings=True,
                   sliding_window=8, query_pre_attn_scalar=16, attn_logit_softcapping=2.0, final_logit_softcapping=10.0),
    "gemma3": dict(model_type="gemma3_text", num_hidden_layers=7, num_key_value_heads=1, head_dim=16, tie_word_embeddings=True,
                   sliding_window=8, query_pre_attn_scalar=16, rope_theta=100000.0, rope_local_base_freq=100.0,
                   rope_scaling=dict(rope_type="linear", factor=4.0)),
    "gemma3_listed": dict(model_type="gemma3_text", num_hidden_layers=3, num_key_value_heads=2, head_dim=16, tie_word_embeddings=True,
                          sliding_window=8, query_pre_attn_scalar=24, rope_theta=None,
                          layer_types=["full_attention", "sliding_attention", "sliding_attention"],
                          rope_parameters=dict(full_attention=dict(rope_type="linear", factor=2.0, rope_theta=100000.0),
                                               sliding_attention=dict(rope_type="default", rope_theta=1000.0))),
    # Heads of two widths, which share values with keys, and of which a part turns; a scale of each layer.
    "gemma4": dict(model_type="gemma4_text", num_hidden_layers=6, num_key_value_heads=2, head_dim=12, global_head_dim=16,
                   num_global_key_value_heads=1, attention_k_eq_v=True, tie_word_embeddings=True, sliding_window=8, rope_theta=None,
                   hidden_size_per_layer_input=0, num_kv_shared_layers=0, final_logit_softcapping=10.0,
                   layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2,
                   rope_parameters=dict(full_attention=dict(rope_type="proportional", partial_rotary_factor=0.25, rope_theta=1000000.0),
                                        sliding_attention=dict(rope_type="default", rope_theta=10000.0))),
    # Queries grow from position 16 on.
    "ministral3": dict(
        model_type="ministral3", num_key_value_heads=2, head_dim=16, pad_token_id=0, rope_theta=None,
        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16,
                             beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)),
    # Numbers that embeddings, scores, what is added and logits are multiplied by; without positions; fused tensors.
    "granite": dict(model_type="granite", num_key_value_heads=2, attention_bias=True, embedding_multiplier=6.0,
                    residual_multiplier=0.22, attention_multiplier=0.125, logits_scaling=2.0),
    "granite4": dict(model_type="granitemoehybrid", num_key_value_heads=2, shared_intermediate_size=70, num_local_experts=0,
                     num_experts_per_tok=0, mamba_n_heads=4, position_embedding_type="rope", layer_types=["full_attention"] * 2,
                     embedding_multiplier=6.0, residual_multiplier=0.22, attention_multiplier=0.125, logits_scaling=2.0,
                     tie_word_embeddings=True),
    "granite4_nope": dict(model_type="granitemoehybrid", num_key_value_heads=2, shared_intermediate_size=70,
                          num_local_experts=0, num_experts_per_tok=0, mamba_n_heads=4, position_embedding_type=None,
                          layer_types=["full_attention"] * 2, attention_multiplier=0.125),
    # Norms behind, and of all heads together.
    "olmo2": dict(model_type="olmo2", num_key_value_heads=2, pad_token_id=0),
    "gemma": dict(model_type="gemma", num_key_value_heads=1, head_dim=16, hidden_act="gelu", tie_word_embeddings=True),
    # Fused tensors; part of a head rotates; longrope within its first length, and past it.
    "phi3": dict(model_type="phi3", num_key_value_heads=2, pad_token_id=0),
    "phi4_mini": dict(
        model_type="phi3", num_key_value_heads=1, head_dim=None, num_attention_heads=3, pad_token_id=0,
        partial_rotary_factor=0.75, original_max_position_embeddings=64, max_position_embeddings=256, tie_word_embeddings=True,
        rope_scaling=dict(rope_type="longrope", short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
                          long_factor=[1.0, 1.5, 2.5, 4.0, 6.0, 8.0])),
    "phi3_long": dict(
        model_type="phi3", num_key_value_heads=2, pad_token_id=0, original_max_position_embeddings=32,
        max_position_embeddings=64,
        rope_scaling=dict(rope_type="longrope", short_factor=[1.0] * 6, long_factor=[1.0, 1.5, 2.5, 4.0, 6.0, 8.0])),
    # Pairs side by side; norms before and behind.
    "glm": dict(model_type="glm", num_key_value_heads=2, pad_token_id=0, attention_bias=True),
    "glm4": dict(model_type="glm4", num_key_value_heads=2, head_dim=16, pad_token_id=0, attention_bias=False),
    # LayerNorm; attention and feed-forward part side by side; norms with a weight for each head.
    "cohere": dict(model_type="cohere", num_key_value_heads=2, pad_token_id=0, logit_scale=0.25, layer_norm_eps=1e-5, rms_norm_eps=None,
                   tie_word_embeddings=True, head_dim=None),
    "cohere_plus": dict(model_type="cohere", num_key_value_heads=2, pad_token_id=0, logit_scale=0.5, layer_norm_eps=1e-5, rms_norm_eps=None,
                        use_qk_norm=True, head_dim=None, tie_word_embeddings=True),
    # Experts: of a width of no whole panels; renormalised or not; one that all take.
    "mixtral": dict(model_type="mixtral", num_key_value_heads=2, sliding_window=None, num_local_experts=4, num_experts_per_tok=2),
    "qwen3_moe": dict(model_type="qwen3_moe", num_key_value_heads=2, head_dim=16, num_experts=8, num_experts_per_tok=3,
                      moe_intermediate_size=32, norm_topk_prob=True, decoder_sparse_step=1),
    "qwen2_moe": dict(model_type="qwen2_moe", num_key_value_heads=2, head_dim=None, num_experts=6, num_experts_per_tok=2,
                      moe_intermediate_size=32, shared_expert_intermediate_size=48, norm_topk_prob=False, decoder_sparse_step=1,
                      use_sliding_window=False),
    "granite_moe": dict(model_type="granitemoe", num_key_value_heads=2, num_local_experts=6, num_experts_per_tok=3,
                        embedding_multiplier=6.0, residual_multiplier=0.22, attention_multiplier=0.125, logits_scaling=2.0),
    # A correction to choose by; experts behind the first layer, beside two that all take; part of a head rotates.
    "glm4_moe": dict(model_type="glm4_moe", num_hidden_layers=3, num_key_value_heads=2, head_dim=16, partial_rotary_factor=0.5,
                     use_qk_norm=True, attention_bias=True, n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=32,
                     n_shared_experts=2, first_k_dense_replace=1, routed_scaling_factor=2.5, n_group=1, topk_group=1,
                     norm_topk_prob=True, num_nextn_predict_layers=0),
    "glm4_moe_air": dict(model_type="glm4_moe", num_key_value_heads=2, head_dim=16, partial_rotary_factor=0.5, use_qk_norm=False,
                         attention_bias=True, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=40,
                         n_shared_experts=1, first_k_dense_replace=1, routed_scaling_factor=1.0, norm_topk_prob=True,
                         num_nextn_predict_layers=0),
    # Sinks; biases of everything, experts and router too; gates and ups that are cut off; yarn whose ramp is not at whole pairs.
    "gpt_oss_moe": dict(
        model_type="gpt_oss", num_hidden_layers=3, num_key_value_heads=2, head_dim=16, num_local_experts=6, num_experts_per_tok=3,
        sliding_window=8, swiglu_limit=0.5, rope_theta=None,
        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                             original_max_position_embeddings=32)),
    "gpt_oss_moe_mxfp4": dict(
        model_type="gpt_oss", hidden_size=64, intermediate_size=96, num_key_value_heads=2, head_dim=16, num_local_experts=4,
        num_experts_per_tok=2, sliding_window=8, rope_theta=None,
        rope_parameters=dict(rope_type="yarn", rope_theta=150000.0, factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                             original_max_position_embeddings=4096)),
    # What enters experts is weighted; norms behind the rotation; as GGUF files have it, with every fourth layer without positions.
    "llama4_moe": dict(
        model_type="llama4_text", num_hidden_layers=4, num_key_value_heads=2, head_dim=16, intermediate_size=40, intermediate_size_mlp=56,
        num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=1, rope_theta=500000.0,
        rope_scaling=dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0,
                          original_max_position_embeddings=8192)),
    # Chunks shorter than the text, queries that grow, dense layers between, two experts for each token.
    "llama4_moe_chunks": dict(
        model_type="llama4_text", num_hidden_layers=4, num_key_value_heads=2, head_dim=16, intermediate_size=40, intermediate_size_mlp=56,
        num_local_experts=6, num_experts_per_tok=2, interleave_moe_layer_step=2, attention_chunk_size=8, no_rope_layer_interval=2,
        use_qk_norm=False, attn_temperature_tuning=True, floor_scale=8, attn_scale=0.5),
}

# Families whose norms multiply by one more than their weight.
ABOVE_ONE = ("gemma", "gemma2", "gemma3_text")


def alpha_frequencies(settings):
    """Those of Hunyuan, the family of models that has alpha."""
    keys = ("hidden_size", "num_attention_heads", "head_dim", "max_position_embeddings", "rope_theta", "rope_scaling")
    return HunYuanDenseV1RotaryEmbedding(
        HunYuanDenseV1Config(**copy.deepcopy({k: settings[k] for k in keys}))).inv_freq


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def to_mxfp4(p):
    """Rounds a matrix of each expert [experts, columns, rows] in place to blocks of 32 columns with a power of two each, and gives the
    blocks, two numbers in a byte, and the powers, as files have them [experts, rows, …]."""
    w = p.transpose(1, 2).unflatten(2, (-1, 32))
    power = torch.floor(torch.log2(w.abs().amax(-1, keepdim=True))) - 2
    code = (w.abs() / 2 ** power).unsqueeze(-1).sub(E2M1).abs().argmin(-1)
    p.copy_((E2M1[code] * w.sign() * 2 ** power).flatten(2).transpose(1, 2))
    code = code + 8 * (w < 0)
    blocks = (code[..., ::2] | code[..., 1::2] << 4).to(torch.uint8)
    return blocks.contiguous(), (power.squeeze(-1) + 127).to(torch.uint8).contiguous()


def on_disk(model):
    """The tensors as files have them: in memory experts are fused."""
    if not any(".experts." in key for key in model.state_dict()):
        return model.state_dict()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(pathlib.Path(folder) / "model.safetensors")


def make(name, changes):
    settings = {"model_type": "llama", **BASE, **changes}
    torch.manual_seed(len(name) * 1000 + 7)
    # transformers 5 refuses heads that do not divide the width, though head_dim makes them mean something.
    heads = settings["num_attention_heads"]
    divides = settings["hidden_size"] % heads == 0
    # It writes into the settings of rope that it is given, too.
    given = {k: v for k, v in copy.deepcopy(settings).items()
             if k != "model_type" and (v is not None or k == "sliding_window")}
    config = AutoConfig.for_model(settings["model_type"], **{**given, "num_attention_heads": heads if divides else 1})
    config.num_attention_heads = heads
    config._experts_implementation = "eager"  # that of torch's grouped products takes no odd widths
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    with torch.no_grad():
        scales = [(key, p) for key, p in model.named_buffers() if key.endswith(("layer_scalar", "score_correction_bias"))]
        for key, p in list(model.named_parameters()) + scales:
            # Large enough that every part of the model matters to the logits.
            spread = 0.2 if p.dim() > 1 else 0.3
            one = "norm" in key and settings["model_type"] not in ABOVE_ONE
            offset = 1.0 if one or key.endswith("layer_scalar") else 0.0
            if settings["model_type"] == "gemma4_text" and key.endswith(("q_norm.weight", "k_norm.weight")):
                offset = 0.5  # they are all that scales scores there
            p.copy_((torch.randn_like(p) * spread + offset).bfloat16().float())
    packed = {}
    if name.endswith("mxfp4"):
        settings["quantization_config"] = dict(quant_method="mxfp4")
        with torch.no_grad():
            for key, p in model.named_parameters():
                if key.endswith("experts.gate_up_proj") or key.endswith("experts.down_proj"):
                    packed[key + "_blocks"], packed[key + "_scales"] = to_mxfp4(p)
    if "alpha" in (settings.get("rope_scaling") or {}):
        rotary = model.model.rotary_emb
        rotary.inv_freq = rotary.original_inv_freq = alpha_frequencies(settings)
    tokens = torch.randint(0, config.vocab_size, (40,))
    with torch.no_grad():
        logits = model(tokens[None]).logits[0]
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    state = {k: v.bfloat16().contiguous() for k, v in on_disk(model).items() if k + "_blocks" not in packed} | packed
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    save_file({"tokens": tokens.int(), "logits": logits.float().contiguous()}, folder / "expected.safetensors")
    settings = {k: v for k, v in settings.items() if v is not None or k == "sliding_window"}
    written = {"architectures": [type(model).__name__], "model_type": settings["model_type"],
               "torch_dtype": "bfloat16", "hidden_act": "silu", **settings}
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    print(f"{name}: logits {tuple(logits.shape)}, spread {logits.std():.3f}")


for variant, changes in VARIANTS.items():
    if len(sys.argv) < 2 or variant in sys.argv[1:]:
        make(variant, changes)
