#!/usr/bin/env python3
"""Tiny random models that see or hear, in the layouts in which such models are published, and the logits that transformers gives for a
text without images.

Writes tests/data/towers/VARIANT/{config.json, model.safetensors, expected.safetensors}, as families.py does of text models. The weights
are in bf16; of `ministral3_fp8` the matrices of the text model are floats of 8 bits with a scale each, as the published ones are.

Arguments name the variants to make; without any all are. Needs torch (CPU), transformers 5 and safetensors.
"""
import json
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText

OUT = pathlib.Path(__file__).resolve().parent.parent / "data" / "towers"

TEXT = dict(hidden_size=48, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
            vocab_size=96, max_position_embeddings=256, rms_norm_eps=1e-5)
PIXTRAL = dict(model_type="pixtral", hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=28,
               patch_size=14, head_dim=8)
SIGLIP = dict(model_type="siglip_vision_model", hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
              image_size=28, patch_size=14)

# The config of the whole, with that of the text model; `memory`: tensors are called as in memory, and not as in what is published.
VARIANTS = {
    "gemma3": dict(
        model_type="gemma3", mm_tokens_per_image=4, image_token_index=90, boi_token_index=91, eoi_token_index=92, eos_token_id=[1, 94],
        vision_config=SIGLIP,
        text_config=dict(TEXT, model_type="gemma3_text", num_hidden_layers=2, sliding_window=8, query_pre_attn_scalar=16,
                         rope_scaling=dict(rope_type="linear", factor=8.0))),
    "gemma3_memory": dict(
        model_type="gemma3", mm_tokens_per_image=4, image_token_index=90, boi_token_index=91, eoi_token_index=92, eos_token_id=[1, 94],
        vision_config=SIGLIP,
        text_config=dict(TEXT, model_type="gemma3_text", num_hidden_layers=2, sliding_window=8, query_pre_attn_scalar=16), memory=True),
    "gemma4": dict(
        model_type="gemma4", image_token_id=90, audio_token_id=91, audio_config=None, eos_token_id=[1, 94],
        vision_config=dict(model_type="gemma4_vision", hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                           num_key_value_heads=2, head_dim=8, global_head_dim=8, patch_size=14, position_embedding_size=16,
                           pooling_kernel_size=1),
        text_config=dict(TEXT, model_type="gemma4_text", num_hidden_layers=2, sliding_window=8, global_head_dim=16,
                         num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=0, num_kv_shared_layers=0,
                         enable_moe_block=False, final_logit_softcapping=10.0, use_bidirectional_attention="vision",
                         layer_types=["sliding_attention", "full_attention"])),
    "mistral3": dict(
        model_type="mistral3", image_token_index=10, spatial_merge_size=2, vision_feature_layer=-1, multimodal_projector_bias=False,
        projector_hidden_act="gelu", vision_config=PIXTRAL, tie_word_embeddings=False,
        text_config=dict(TEXT, vocab_size=512, model_type="mistral", num_hidden_layers=2, sliding_window=None, rope_theta=1e9)),
    "ministral3_fp8": dict(
        model_type="mistral3", image_token_index=10, spatial_merge_size=2, vision_feature_layer=-1, multimodal_projector_bias=False,
        projector_hidden_act="gelu", vision_config=PIXTRAL,
        text_config=dict(TEXT, model_type="ministral3", num_hidden_layers=2, sliding_window=None, tie_word_embeddings=True,
                         rope_parameters=dict(rope_type="yarn", type="yarn", rope_theta=1e6, factor=16.0, beta_fast=32.0, beta_slow=1.0,
                                              original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0,
                                              llama_4_scaling_beta=0.1))),
    "llama4": dict(
        model_type="llama4", image_token_index=90, boi_token_index=91, eoi_token_index=92,
        vision_config=dict(model_type="llama4_vision_model", hidden_size=16, intermediate_size=64, num_hidden_layers=1,
                           num_attention_heads=2, image_size=28, patch_size=14, projector_input_dim=16, projector_output_dim=16,
                           vision_output_dim=16, pixel_shuffle_ratio=0.5),
        text_config=dict(TEXT, model_type="llama4_text", num_hidden_layers=4, intermediate_size=40, intermediate_size_mlp=56,
                         num_local_experts=4, num_experts_per_tok=1, interleave_moe_layer_step=1, rope_theta=500000.0,
                         attn_temperature_tuning=True, no_rope_layers=[], bos_token_id=1, eos_token_id=[2, 3], pad_token_id=0,
                         rope_scaling=dict(rope_type="llama3", factor=16.0, low_freq_factor=1.0, high_freq_factor=1.0,
                                           original_max_position_embeddings=8192))),
    "qwen3_vl": dict(
        model_type="qwen3_vl", image_token_id=90, video_token_id=91, vision_start_token_id=92, vision_end_token_id=93,
        vision_config=dict(model_type="qwen3_vl", depth=1, hidden_size=16, intermediate_size=24, num_heads=2, out_hidden_size=48,
                           patch_size=14, num_position_embeddings=16, deepstack_visual_indexes=[0]),
        text_config=dict(TEXT, model_type="qwen3_vl_text", num_hidden_layers=2, rope_theta=5e6,
                         rope_scaling=dict(rope_type="default", mrope_interleaved=True, mrope_section=[4, 2, 2]))),
    "llava": dict(
        model_type="llava", image_token_index=90, vision_feature_select_strategy="full", projector_hidden_act="gelu",
        vision_feature_layer=-1, vision_config=PIXTRAL,
        text_config=dict(TEXT, model_type="llama", num_hidden_layers=2)),
}


def name_in_files(name):
    """Of a tensor in memory, where files have it as transformers 4 had."""
    return name.replace("model.language_model.", "language_model.model.", 1)


def to_fp8(weight):
    """The matrix as floats of 8 bits, the scale that they are multiplied by, and the matrix that this is."""
    scale = (weight.abs().amax() / 448).float()
    codes = (weight / scale).to(torch.float8_e4m3fn)
    return codes, scale, codes.float() * scale


def make(name, settings):
    settings = dict(settings)
    memory = settings.pop("memory", False)
    torch.manual_seed(len(name) * 1000 + 11)
    config = AutoConfig.for_model(**json.loads(json.dumps(settings)))
    config.text_config._experts_implementation = "eager"
    model = AutoModelForImageTextToText.from_config(config, attn_implementation="eager").float().eval()
    above_one = settings["model_type"] == "gemma3"
    packed = {}
    with torch.no_grad():
        scales = [(k, p) for k, p in model.named_buffers() if k.endswith("layer_scalar")]
        for key, p in list(model.named_parameters()) + scales:
            spread = 0.2 if p.dim() > 1 else 0.3
            offset = 1.0 if ("norm" in key and not above_one) or key.endswith("layer_scalar") else 0.0
            p.copy_((torch.randn_like(p) * spread + offset).bfloat16().float())
            if name.endswith("fp8") and "language_model.layers" in key and p.dim() == 2:
                codes, scale, whole = to_fp8(p)
                packed[key] = codes
                packed[key + "_scale_inv"] = scale
                packed[key.removesuffix("weight") + "activation_scale"] = torch.tensor(0.01).bfloat16()
                p.copy_(whole)
    tokens = torch.randint(0, 90, (40,))
    # Of Llama 4 the whole fails without images in transformers 5.24, where it looks for what its text model does not give.
    text = model.language_model if settings["model_type"] == "llama4" else model
    with torch.no_grad():
        logits = text(tokens[None]).logits[0]
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    state = dict(model.state_dict())
    if not memory:
        with tempfile.TemporaryDirectory() as saved:
            model.save_pretrained(saved)
            state = load_file(pathlib.Path(saved) / "model.safetensors")
    elif config.text_config.tie_word_embeddings:
        del state["lm_head.weight"]
    state = {k: v.bfloat16().contiguous() for k, v in state.items()} | {name_in_files(k): v for k, v in packed.items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    save_file({"tokens": tokens.int(), "logits": logits.float().contiguous()}, folder / "expected.safetensors")
    written = {"architectures": [type(model).__name__], "torch_dtype": "bfloat16", **settings}
    if packed:
        written["quantization_config"] = dict(quant_method="fp8", activation_scheme="static", weight_block_size=None,
                                              modules_to_not_convert=["model.vision_tower", "model.multi_modal_projector", "lm_head"])
    (folder / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    print(f"{name}: logits {tuple(logits.shape)}, spread {logits.std():.3f}")


for variant, changes in VARIANTS.items():
    if len(sys.argv) < 2 or variant in sys.argv[1:]:
        make(variant, changes)
