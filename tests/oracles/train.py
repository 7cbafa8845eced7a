#!/usr/bin/env python3
"""Loss curves of 100 steps of training by transformers and torch.

    train.py [NAME …]                writes tests/data/train/NAME.json, a tiny model in float32, of adamw, adafactor,
                                     muon, adamw-bf16 and dpo (or those that are named), and, unless some are,
                                     stories15m-NAME.json of the first two, which take some minutes
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
parameters, no warm-up. Muon: torch.optim.Muon (torch >= 2.9), of which "match_rms_adamw" says the rate, for the matrices
of the layers, and the AdamW above for the rest; torch orthogonalises in bfloat16, so "exact" is the curve where it does
so in float32. adamw-bf16: AdamW, whose two averages are rounded to bfloat16 after every
step. All clip at norm 1. The same settings stand in tests/test_train_curve.c. Needs torch (CPU),
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


class Pair:
    """Muon for the matrices of the layers, AdamW for the rest, as one optimizer."""

    def __init__(self, model):
        named = list(model.named_parameters())
        matrices = [p for n, p in named if p.dim() > 1 and ".layers." in n]
        rest = [p for n, p in named if not (p.dim() > 1 and ".layers." in n)]
        self.both = [torch.optim.Muon(matrices, lr=LR, weight_decay=0.1, momentum=0.95,
                                      adjust_lr_fn="match_rms_adamw"), adamw(rest)]
        self.param_groups = [g for o in self.both for g in o.param_groups]

    def zero_grad(self):
        for o in self.both:
            o.zero_grad()

    def step(self):
        for o in self.both:
            o.step()


class Rounded(torch.optim.AdamW):
    """Its averages are kept in bfloat16."""

    def step(self):
        super().step()
        for state in self.state.values():
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = state[name].bfloat16().to(state[name].dtype)


def orthogonalise_in(dtype):
    """What torch.optim.Muon does in bfloat16, in another type."""
    def polar(grad, coefficients, steps, eps):
        a, b, c = coefficients
        x = grad.to(dtype)
        x = x.T if grad.size(0) > grad.size(1) else x
        x = x / x.norm().clamp(min=eps)
        for _ in range(steps):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        return x.T if grad.size(0) > grad.size(1) else x

    from torch.optim import _muon
    _muon._zeropower_via_newtonschulz = polar


def adamw(parameters, kind=torch.optim.AdamW):
    parameters = list(parameters)
    groups = [{"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    return kind(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)


def optimizer_of(model, name):
    if name == "muon":
        return Pair(model)
    if name == "adafactor":
        from transformers.optimization import Adafactor
        return Adafactor(model.parameters(), relative_step=True, scale_parameter=True, warmup_init=False)
    return adamw(model.parameters(), Rounded if name == "adamw-bf16" else torch.optim.AdamW)


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
    model = LlamaForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    model.train()
    if dtype == torch.float64:
        compute_exactly(model)
    optimizer = optimizer_of(model, name)
    curve = {"batch": rows, "seq": seq, "steps": STEPS, "lr": LR, "loss": [], "grad_norm": []}
    for step in range(1, STEPS + 1):
        if name != "adafactor":
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


def preferences(folder, rows, seq, beta=0.1, steps=50):
    """DPO as its article has it: rows 2 i and 2 i + 1 are a pair, the better first; AdamW as above, at a tenth of its rate."""
    torch.manual_seed(0)
    model, reference = (LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
                        for _ in range(2))
    optimizer = optimizer_of(model, "adamw")
    curve = {"batch": rows, "seq": seq, "steps": steps, "lr": LR / 10, "beta": beta, "loss": [], "grad_norm": []}

    def logp(of, tokens, targets):
        cost = torch.nn.functional.cross_entropy(of(tokens).logits.transpose(1, 2), targets, reduction="none")
        return -cost.sum(1)

    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(step) / 10
        tokens, targets = batch(step, rows, seq)
        with torch.no_grad():
            before = logp(reference, tokens, targets)
        gain = logp(model, tokens, targets) - before
        loss = -torch.nn.functional.logsigmoid(beta * (gain[0::2] - gain[1::2])).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        curve["loss"].append(loss.item())
        curve["grad_norm"].append(norm.item())
    print(f"dpo: {curve['loss'][0]:.4f} -> {curve['loss'][-1]:.4f}", flush=True)
    return curve


def store(name, curve):
    (DATA / "train").mkdir(exist_ok=True)
    (DATA / "train" / f"{name}.json").write_text(json.dumps(curve) + "\n")


def store_tiny(name):
    if name == "dpo":
        store(name, preferences(DATA / "llama" / "gqa", 4, 32))
        return
    curve = run(DATA / "llama" / "gqa", name, 4, 32)
    if name == "muon":
        orthogonalise_in(torch.float32)
        curve["exact"] = run(DATA / "llama" / "gqa", name, 4, 32)["loss"]
    store(name, curve)


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
    if len(sys.argv) >= 4 and sys.argv[3].endswith(".json"):
        LR = float(sys.argv[4]) if len(sys.argv) > 4 else LR
        pathlib.Path(sys.argv[3]).write_text(json.dumps(run(sys.argv[1], sys.argv[2], 4, 64)) + "\n")
    else:
        names = sys.argv[1:] or ["adamw", "adafactor", "adamw-bf16", "dpo", "muon"]
        for name in names:
            store_tiny(name)
        LR = 2.5e-4
        if not sys.argv[1:]:
            store_15m()
