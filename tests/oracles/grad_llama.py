#!/usr/bin/env python3
"""Loss and gradients of tiny models of tests/data/llama, by transformers and torch in float64.

Writes tests/data/grad/VARIANT.json:

    {"loss":      mean cross-entropy over the targets that are not -100,
     "z":         mean of logsumexp(logits)^2 over the same tokens,
     "batch":     rows; the tokens of expected.safetensors, cut into so many sequences. Targets are the
                  next tokens, but -100 at every seventh and at the last place of a row,
     "gradients": {tensor: {"norm": its Euclidean norm, "sample": [[index, value], ...]}}}    of loss + 1e-2 z

Arguments name the variants; without any all are run. Indices count row-major. Needs torch (CPU), transformers 5 and safetensors.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
BATCH = 2
Z_LOSS = 1e-2
VARIANTS = ("gqa", "tied", "biases", "llama3_rope", "dynamic_rope", "yarn_rope_all", "mistral_window", "ministral",
            "olmo3", "cohere2", "gemma2", "gemma3", "gemma4", "phi3", "phi4_mini", "glm4")


def parts(name, gradient, config):
    """Those of a tensor that holds several weights, by the names that Llama has for them."""
    if "qkv_proj" not in name and "gate_up_proj" not in name:
        return [(name, gradient)]
    heads, groups, dim = config.num_attention_heads, config.num_key_value_heads, getattr(config, "head_dim", None)
    dim = dim or config.hidden_size // heads
    fused = {"qkv_proj": (("q_proj", heads * dim), ("k_proj", groups * dim), ("v_proj", groups * dim)),
             "gate_up_proj": (("gate_proj", config.intermediate_size), ("up_proj", config.intermediate_size))}
    for whole, rows in fused.items():
        if f".{whole}." in name:
            pieces = gradient.split([n for _, n in rows])
            return [(name.replace(whole, part), piece) for (part, _), piece in zip(rows, pieces)]
    raise ValueError(name)


def run(variant):
    folder = DATA / "llama" / variant
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").double()
    model.get_input_embeddings().padding_idx = None  # its row learns, too
    for layer in model.model.layers:
        if "layer_scalar" in layer._buffers:
            layer.layer_scalar = torch.nn.Parameter(layer._buffers.pop("layer_scalar"))
    tokens = load_file(folder / "expected.safetensors")["tokens"].long().reshape(BATCH, -1)
    targets = torch.full_like(tokens, -100)
    targets[:, :-1] = tokens[:, 1:]
    targets.view(-1)[::7] = -100
    logits = model(tokens).logits
    known = targets >= 0
    loss = torch.nn.functional.cross_entropy(logits[known], targets[known])
    z = torch.logsumexp(logits[known], -1).square().mean()
    (loss + Z_LOSS * z).backward()
    torch.manual_seed(1)
    gradients = {}
    for name, gradient in [x for n, p in model.named_parameters() for x in parts(n, p.grad, model.config)]:
        flat = gradient.reshape(-1)
        index = torch.randint(0, flat.numel(), (6,)).tolist() + [int(flat.abs().argmax())]
        gradients[name] = {"norm": flat.norm().item(), "sample": [[i, flat[i].item()] for i in index]}
    result = {"loss": loss.item(), "z": z.item(), "batch": BATCH, "gradients": gradients}
    (DATA / "grad").mkdir(exist_ok=True)
    (DATA / "grad" / f"{variant}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{variant}: loss {loss.item():.4f}, {len(gradients)} gradients")


for variant in sys.argv[1:] or VARIANTS:
    run(variant)
