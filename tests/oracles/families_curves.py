#!/usr/bin/env python3
"""Loss curves of 20 steps of AdamW of the tiny models of every family, by transformers and torch in float64.

Writes tests/data/train/families.json: {VARIANT: [loss of each step, before its update]}. Sequences are those of `batch` in
train.py, 4 of 24 tokens; the rate is 1e-3 throughout, betas 0.9 and 0.95, eps 1e-4, no decay, gradients clipped at norm 1.
The same settings stand in tests/test_train_families.c. What is a buffer in transformers and a parameter here (Gemma 4's scale
of a layer) is a parameter in both. Arguments name the variants; without any all are run.
"""
import json
import sys

import torch
from train import DATA, batch
from transformers import AutoConfig, AutoModelForCausalLM

STEPS, ROWS, SEQ = 20, 4, 24
SKIPPED = ("alpha_rope", "gpt_oss_moe_mxfp4")  # which transformers does not have in Llama, or reads on an accelerator only


def run(folder):
    settings = json.loads((folder / "config.json").read_text())
    heads = settings["num_attention_heads"]
    if settings["hidden_size"] % heads:  # which transformers refuses, though head_dim makes it mean something
        settings["num_attention_heads"] = 1
    config = AutoConfig.for_model(**settings)
    config.num_attention_heads = heads
    config._experts_implementation = "eager"  # grouped products of torch are not in float64
    model = AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager").double()
    model.eval()  # no dropout
    model.get_input_embeddings().padding_idx = None  # its row learns, too
    for layer in model.model.layers:
        if "layer_scalar" in layer._buffers:
            layer.layer_scalar = torch.nn.Parameter(layer._buffers.pop("layer_scalar"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-4, weight_decay=0)
    losses = []
    for step in range(1, STEPS + 1):
        tokens, targets = batch(step, ROWS, SEQ)
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(round(loss.item(), 7))
    return losses


torch.set_num_threads(1)
path = DATA / "train" / "families.json"
curves = json.loads(path.read_text()) if path.exists() else {}
for config in sorted((DATA / "llama").glob("*/config.json")):
    name = config.parent.name
    if name in SKIPPED or (sys.argv[1:] and name not in sys.argv[1:]):
        continue
    curves[name] = run(config.parent)
    print(f"{name}: {curves[name][0]:.4f} -> {curves[name][-1]:.4f}", flush=True)
path.write_text("{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(curves.items())) + "\n}\n")
