#!/usr/bin/env python3
"""Embeddings of tiny Llamas by transformers: tests/data/llama/embeddings.json.

Of the first tokens of each expected.safetensors that llama.py wrote, the mean of the last hidden state over the tokens, and
that of the last token, each of length 1.

Needs torch (CPU), transformers and safetensors.
"""
import json
import pathlib

import torch
from safetensors.torch import load_file
from transformers import LlamaModel

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "llama"

out = []
for variant in ("gqa", "tied", "biases"):
    model = LlamaModel.from_pretrained(DATA / variant, torch_dtype=torch.float32).eval()
    tokens = load_file(DATA / variant / "expected.safetensors")["tokens"].long()
    for n in (1, 7, 40):
        with torch.no_grad():
            hidden = model(tokens[None, :n]).last_hidden_state[0]
        row = {"variant": variant, "n": n}
        for name, x in (("mean", hidden.mean(0)), ("last", hidden[-1])):
            row[name] = [round(v, 6) for v in torch.nn.functional.normalize(x, dim=0).tolist()]
        out.append(row)
(DATA / "embeddings.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in out) + "\n]\n")
