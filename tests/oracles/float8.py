#!/usr/bin/env python3
"""Floats of 8 bits by torch, and tiny Llamas in FP8 as they are published.

Writes
  tests/data/fp8/F8_E4M3.blocks, F8_E5M2.blocks    blocks of 128 codes with a scale: every finite code, then weights
  tests/data/fp8/F8_E4M3.f32, F8_E5M2.f32          the numbers that torch's types say they are, times the scale in f32
  tests/data/fp8/NAME                              a folder each: config.json, model.safetensors, and
  tests/data/fp8/NAME/logits.safetensors           tokens i32 [n] and the logits f32 [n, vocab] that transformers gives for the
                                                   dequantized weights in f32

  block     quant_method fp8, a scale for 128 x 128 weights (weight_scale_inv): DeepSeek, Qwen
  tensor    quant_method fp8, one scale (weight_scale) in f32
  channel   compressed-tensors, float-quantized, a scale for each row in bf16
  e5m2      quant_method fp8, F8_E5M2, a scale for each row

Needs numpy, safetensors, torch (CPU) and transformers.
"""
import json
import pathlib
import struct

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
TYPES = {"F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
BLOCK, DIM, FFN, VOCAB = 128, 128, 256, 48

for name, dtype in TYPES.items():
    every = torch.arange(256, dtype=torch.uint8)
    every = every[torch.isfinite(every.view(dtype).float())]
    rng = np.random.default_rng(8)
    codes = torch.cat([every, every.flip(0)])[: 3 * BLOCK].reshape(3, BLOCK)
    weights = torch.tensor(rng.standard_normal((84, BLOCK)) * 0.1, dtype=torch.float32)
    scale = weights.abs().amax(1) / torch.finfo(dtype).max
    codes = torch.cat([codes, (weights / scale[:, None]).to(dtype).view(torch.uint8)])
    scale = torch.cat([torch.tensor([1.0, 0.0123, -7e-5]), scale])
    (DATA / "fp8" / f"{name}.blocks").write_bytes(
        b"".join(struct.pack("<f", s) + bytes(c.tolist()) for s, c in zip(scale, codes)))
    (DATA / "fp8" / f"{name}.f32").write_bytes((codes.view(dtype).float() * scale[:, None]).numpy().tobytes())

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": DIM, "intermediate_size": FFN,
          "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCAB,
          "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "hidden_act": "silu", "torch_dtype": "bfloat16",
          "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}
CASES = {
    "block": ("F8_E4M3", "weight_scale_inv", (128, 128), torch.float32,
              {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}),
    "tensor": ("F8_E4M3", "weight_scale", None, torch.float32, {"quant_method": "fp8", "activation_scheme": "static"}),
    "channel": ("F8_E4M3", "weight_scale", (1, FFN), torch.bfloat16,
                {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
                 "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                     "num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}}}}),
    "e5m2": ("F8_E5M2", "weight_scale", (1, FFN), torch.float32, {"quant_method": "fp8", "fmt": "e5m2"}),
}


def quantize(w, dtype, shape, scale_dtype):
    """Codes, scales, and the numbers that they stand for."""
    rows, columns = shape or w.shape
    n, k = -(-w.shape[0] // rows), -(-w.shape[1] // columns)
    scale = torch.empty(n, k)
    for i in range(n):
        for j in range(k):
            scale[i, j] = w[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns].abs().max()
    scale = (scale / torch.finfo(dtype).max).to(scale_dtype)
    each = scale.float().repeat_interleave(rows, 0)[: w.shape[0]].repeat_interleave(columns, 1)[:, : w.shape[1]]
    limit = torch.finfo(dtype).max
    codes = (w / each).clamp(-limit, limit).to(dtype)
    return codes, scale if shape else scale.reshape(()), codes.float() * each


for case, (name, scale_name, shape, scale_dtype, quantization) in CASES.items():
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).float().eval()
    tensors = {}
    for key, w in model.state_dict().items():
        w = (torch.randn(w.shape) * (0.3 if "embed" in key else 0.1)).bfloat16() if w.ndim == 2 else w.bfloat16()
        if key.endswith("_proj.weight"):
            tensors[key], tensors[key.replace("weight", scale_name)], meant = quantize(w.float(), TYPES[name], shape,
                                                                                      scale_dtype)
        else:
            tensors[key], meant = w, w.float()
        model.state_dict()[key].copy_(meant)
    tokens = torch.tensor([1, 7, 40, 3, 22, 9, 46, 5], dtype=torch.int32)
    with torch.no_grad():
        logits = model(tokens[None].long()).logits[0].contiguous()
    folder = DATA / "fp8" / case
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    save_file({"tokens": tokens, "logits": logits}, folder / "logits.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | {"quantization_config": quantization}, indent=2) + "\n")
