#!/usr/bin/env python3
"""Loss curves of 100 steps of training by transformers and torch.

    train.py                         writes tests/data/train/{adamw,adafactor}.json, a tiny model in float32, and
                                     stories15m-{adamw,adafactor}.json, which take some minutes
    train.py DIR OPTIMIZER OUT.json [LR]  a model in a Hugging Face folder, the same way

    {"batch", "seq", "steps":  shape of the run; sequences are those of `batch` below
     "lr":                     of AdamW, at its peak
     "loss":                   mean cross-entropy of each step, before its update
     "grad_norm":              global norm of the gradient, before clipping
     "exact":                  where it is there: the loss when everything is float64}

The weights of the 15M shape are `caravan init --preset stories15m --seed 1` ($CARAVAN names the program). There
float32 in torch's optimizers is what limits the comparison: a sum of squares over 9 million elements (clipping, and
Adafactor's root mean squares) is off by up to 8e-4 of its value in torch 1.13, and the curve by 7e-4; so the
curve in float64, which nothing disturbs, is stored beside it.

AdamW: torch.optim.AdamW, lr 3e-3 unless said (the 15M shape: 2.5e-4), with a warm-up of 10 steps and half a cosine to
a tenth, betas 0.9 and 0.95, decay 0.1 on matrices only. Adafactor: transformers', relative step, scaled by
parameters, no warm-up. Both clip at norm 1. The same settings stand in tests/test_train_curve.c. Needs torch (CPU),
transformers >= 4.43 and safetensors.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import LlamaForCausalLM
from transformers.models.llama import modeling_llama
from transformers.optimization import Adafactor

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
STEPS, WARMUP, LR = 100, 10, 3e-3
MASK = (1 << 64) - 1


def splitmix(seed):
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & MASK
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def batch(step, rows, seq):
    """Tokens that mostly follow from the one before, so that there is something to learn; every 7th target is masked."""
    draw = splitmix(step)
    tokens, targets = [], []
    for _ in range(rows):
        row = [next(draw) % 97]
        for _ in range(seq):
            row.append((5 * row[-1] + next(draw) % 3) % 97)
        tokens.append(row[:-1])
        targets.append([-100 if i % 7 == 0 else t for i, t in enumerate(row[1:])])
    return torch.tensor(tokens), torch.tensor(targets)


def optimizer_of(model, name):
    if name == "adafactor":
        return Adafactor(model.parameters(), relative_step=True, scale_parameter=True, warmup_init=False)
    groups = [{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)


def rate(step):
    if step <= WARMUP:
        return LR * step / WARMUP
    done = (step - WARMUP) / (STEPS - WARMUP)
    return LR * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)


def compute_exactly(model):
    """Also what transformers computes in float32 whatever the model's type, in float64."""
    def norm(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    def rotate(x, position_ids):
        config = model.config
        width = config.hidden_size // config.num_attention_heads
        angle = position_ids[:, :, None] * 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angle = torch.cat((angle, angle), -1)
        return angle.cos(), angle.sin()

    softmax = torch.nn.functional.softmax
    modeling_llama.LlamaRMSNorm.forward = norm
    model.model.rotary_emb.forward = rotate
    torch.nn.functional.softmax = lambda x, dim=-1, dtype=None: softmax(x, dim=dim)


def run(folder, name, rows, seq, dtype=torch.float32):
    torch.manual_seed(0)
    model = LlamaForCausalLM.from_pretrained(folder, torch_dtype=dtype, attn_implementation="eager")
    model.train()
    if dtype == torch.float64:
        compute_exactly(model)
    optimizer = optimizer_of(model, name)
    curve = {"batch": rows, "seq": seq, "steps": STEPS, "lr": LR, "loss": [], "grad_norm": []}
    for step in range(1, STEPS + 1):
        if name == "adamw":
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
        tokens, targets = batch(step, rows, seq)
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        curve["loss"].append(loss.item())
        curve["grad_norm"].append(norm.item())
    print(f"{name}, {dtype}: {curve['loss'][0]:.4f} -> {curve['loss'][-1]:.4f}", flush=True)
    return curve


def store(name, curve):
    (DATA / "train").mkdir(exist_ok=True)
    (DATA / "train" / f"{name}.json").write_text(json.dumps(curve) + "\n")


def store_15m():
    """float32 first: compute_exactly is not undone."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = scratch + "/model"
        subprocess.run([os.environ["CARAVAN"], "init", "--preset", "stories15m", "--dtype", "f32", "--seed", "1",
                        "--out", folder], check=True)
        curves = {name: run(folder, name, 4, 64) for name in ("adamw", "adafactor")}
        for name, curve in curves.items():
            curve["exact"] = run(folder, name, 4, 64, torch.float64)["loss"]
            store("stories15m-" + name, curve)


if __name__ == "__main__":
    if len(sys.argv) >= 4:
        LR = float(sys.argv[4]) if len(sys.argv) > 4 else LR
        pathlib.Path(sys.argv[3]).write_text(json.dumps(run(sys.argv[1], sys.argv[2], 4, 64)) + "\n")
    else:
        for name in ("adamw", "adafactor"):
            store(name, run(DATA / "llama" / "gqa", name, 4, 32))
        LR = 2.5e-4
        store_15m()
